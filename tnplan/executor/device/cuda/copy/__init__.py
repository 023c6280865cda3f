"""Permuting copies, sums over axes and additions on a GPU."""
