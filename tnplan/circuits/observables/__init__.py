"""Sums of Pauli words, which several engines use."""

TOPIC = "Pauli propagation"
"""What the errors of these modules are about, where one says no topic of its own."""
