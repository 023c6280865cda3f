"""Qubit Hamiltonians, sums of Pauli words, in a list of bit strings."""
