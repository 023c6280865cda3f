"""Tensor networks, contraction paths, their files and importers, circuits and their networks."""

TOPIC = "files of networks and schedules"
"""What the errors of these modules are about, where one says no topic of its own."""
