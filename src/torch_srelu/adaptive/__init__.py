"""Adaptive initialisation: freeze, measure, set ``t_r``, unfreeze; exact quantiles of streams."""
