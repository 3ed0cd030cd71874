"""Random streams, processes and CUDA graphs."""
