"""Sums of Pauli words, which several engines use."""
