"""The text of a CUDA kernel for one pass."""
