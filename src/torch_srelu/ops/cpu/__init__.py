"""The CPU backend: kernels in C, called through ctypes."""
