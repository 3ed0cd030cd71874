"""The error that missing or damaged data raise."""


class DataError(ValueError):
    """Data are missing or damaged: which file, what was expected and found, how to get it."""
