"""Outputs of a job: whether they can be written, on every host, and by one job alone."""
