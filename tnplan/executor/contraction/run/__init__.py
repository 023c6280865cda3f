"""One rank's whole run: slices, replay, checkpoints, the result and its report."""
