"""The paper: its figures, its numbers, and the runs and tables that reproduce them."""
