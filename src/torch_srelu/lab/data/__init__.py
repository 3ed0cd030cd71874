"""Data sets of images: registry, reading, preprocessing, batches."""
