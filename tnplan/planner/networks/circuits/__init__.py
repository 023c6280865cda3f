"""Quantum circuits: their gates, their file formats, and the tensor networks of their amplitudes."""
