"""Contraction with a bond limit, for NumPy and CuPy alike: its steps, derivatives, and what it will take."""
