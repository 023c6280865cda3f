"""The CPU: NumPy and numba."""
