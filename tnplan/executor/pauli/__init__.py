"""Pauli propagation: expectation values by taking an observable backwards through a circuit."""

TOPIC = "Pauli propagation"
"""What the errors of these modules are about, where one says no topic of its own."""
