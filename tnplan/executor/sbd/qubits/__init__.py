"""Qubit Hamiltonians, sums of Pauli words, in a list of bit strings."""

TOPIC = "qubit Hamiltonians"
"""What the errors of these modules are about, where one says no topic of its own."""
