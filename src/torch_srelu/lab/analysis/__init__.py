"""Comparisons of runs: statistics, tables and timings."""
