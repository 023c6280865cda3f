"""Tensor networks, contraction paths, their files and importers, circuits and their networks."""
