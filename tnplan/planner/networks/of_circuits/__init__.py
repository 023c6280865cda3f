"""Tensor networks of circuits: amplitudes, expectation values, density matrices and overlaps."""

TOPIC = "circuits"
