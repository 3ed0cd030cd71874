"""Converts a network with ReLUs into the same function with SReLU units."""
