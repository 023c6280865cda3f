"""Tensor networks of questions about a circuit: expectation values, density matrices, overlaps, traces."""
