"""SReLU as an operator: its definition (`reference`), its backends and their dispatch."""
