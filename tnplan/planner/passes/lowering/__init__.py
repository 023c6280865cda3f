"""From the tree to instructions over buffers: liveness, buffer assignment, spilling, annotation."""
