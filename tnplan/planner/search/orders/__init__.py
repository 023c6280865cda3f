"""First trees from elimination orders of indices, and the reductions that come before."""
