"""Utilities of all packages: atomic files, choices of names, colors."""
