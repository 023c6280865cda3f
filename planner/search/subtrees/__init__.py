"""Parts of a contraction tree put in a better order, the rest as it is; memory of all legs, not of all pairs."""
