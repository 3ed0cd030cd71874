"""Photographs in class folders or tar shards, decoded, cropped and mirrored as they are needed.

Ten classes or a thousand are the same thing: what a folder holds decides.
"""
