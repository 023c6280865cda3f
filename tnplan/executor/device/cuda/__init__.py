"""The GPU: all CuPy code of the device layer."""
