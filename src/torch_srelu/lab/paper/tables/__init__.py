"""The paper's tables with the numbers of the reproduction beside them."""
