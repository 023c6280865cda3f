"""Offline planning of tensor-network contractions: a contraction path in, an annotated schedule out.

Knows nothing of devices at run time, MPI or CUDA: every rank and world size is an argument.
"""
