"""Values without loss, as bit planes."""
