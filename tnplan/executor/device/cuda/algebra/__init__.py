"""Contractions over an algebra on a GPU: one device, whose kernels are compiled for each algebra."""
