"""Image data as tensors: what there is, where it is looked for, how it is read and prepared."""
