"""The laboratory: activations compared under one protocol. Needs the extra ``[lab]``."""
