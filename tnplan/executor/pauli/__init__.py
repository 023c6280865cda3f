"""Pauli propagation: expectation values by taking an observable backwards through a circuit."""

TOPIC = "Pauli propagation"
