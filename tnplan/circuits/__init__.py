"""Quantum circuits: gates, programs, their file formats, derivatives, and sums of Pauli words."""

TOPIC = "circuits"
