"""Kernels of the CPU that numba compiles once: object code kept on disk, loaded and called without numba.

`numba` and `numba.typed` objects appear in `compile_kernel` alone, which runs where an object is missing.
Numba's inner names appear in `object_code_kernel` and `numba_cache` alone.
"""
