"""Reduced density matrices and S^2 of a state."""
