"""The paper's figures, and figures of the reproduction."""
