"""Many amplitudes at once: products of tensors whose first axis counts the distinct rows of given bit strings."""
