"""Many amplitudes at once: products of tensors whose first axis counts distinct rows of given bit strings."""
