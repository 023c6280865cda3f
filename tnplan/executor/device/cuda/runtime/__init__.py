"""Kernels compiled and kept, launches, events and signals between streams."""
