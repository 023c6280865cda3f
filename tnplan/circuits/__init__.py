"""Quantum circuits: gates, programs, their file formats, derivatives, and sums of Pauli words."""

TOPIC = "circuits"
"""What the errors of these modules are about, where one says no topic of its own."""
