"""Photographs in class folders or tar shards: decoding, crops, batches.

The number of classes is what a folder holds.
"""
