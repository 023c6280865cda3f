"""From a contraction path to a binary tree: mode order, slice dependence, loop nests over slices."""
