"""SReLU as an operator: one definition (`reference`), three executions, one registration."""
