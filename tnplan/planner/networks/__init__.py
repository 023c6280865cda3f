"""Tensor networks, contraction paths, their files and importers, circuits and their networks."""

TOPIC = "files of networks and schedules"
