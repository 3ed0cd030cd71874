"""What can be wrong with data."""


class DataError(ValueError):
    """Data are missing or damaged: which file, what was expected and found, how to get it."""
