"""One training loop: steps, epochs, checkpoints, callbacks."""
