"""Pauli words of states in the memory of this host: inner products of two states, and sums of words."""
