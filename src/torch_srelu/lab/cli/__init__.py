"""The command `srelu`: train, compare, report."""

from .app import app

__all__ = ["app"]
