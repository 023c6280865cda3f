"""Tensor networks of circuits: amplitudes, expectation values, density matrices and overlaps."""

TOPIC = "circuits"
"""What the errors of these modules are about, where one says no topic of its own."""
