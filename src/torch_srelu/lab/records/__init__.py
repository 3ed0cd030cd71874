"""Records: what a run leaves behind."""
