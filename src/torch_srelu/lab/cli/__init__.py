"""The command `srelu`: trains, compares, reports."""

from .app import app

__all__ = ["app"]
