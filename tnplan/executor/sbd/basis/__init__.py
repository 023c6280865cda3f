"""Determinants, half-strings, integrals and their files."""
