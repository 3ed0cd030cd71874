"""The CUDA backend: Triton kernels."""
