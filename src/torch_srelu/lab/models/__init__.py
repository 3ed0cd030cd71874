"""Networks and activations by name."""
