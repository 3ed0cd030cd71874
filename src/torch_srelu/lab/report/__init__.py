"""The report: one self-contained HTML file that opens without a network."""

from .page import render

__all__ = ["render"]
