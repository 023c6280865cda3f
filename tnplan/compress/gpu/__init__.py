"""The codec where the array is: kernels and their launches."""
