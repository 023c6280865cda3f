"""The codec on a CPU, with numba."""
