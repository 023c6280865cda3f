"""Both states of a sweep back in the memory of this host, and the sums between them."""
