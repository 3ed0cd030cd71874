"""Runs: every decision that can change a number, and recipes that make them."""
