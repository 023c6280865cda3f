"""Contractions on a GPU, by cuBLAS, cuTENSOR and our own kernels."""
