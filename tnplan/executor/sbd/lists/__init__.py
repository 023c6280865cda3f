"""Hamiltonians among a list of determinants, or of bit strings: tables, products, density matrices."""
