"""Random streams, process groups, devices and CUDA graphs."""
