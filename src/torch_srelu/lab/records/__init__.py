"""Records of runs: format, reading, writing, checkpoints, archives."""
