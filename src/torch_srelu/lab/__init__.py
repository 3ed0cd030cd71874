"""The laboratory: trains rival activations under one protocol and keeps a record of every run."""
