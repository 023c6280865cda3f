"""Questions about circuits, answered by the contraction of tensor networks."""
