"""The state on a CPU, with numba."""
