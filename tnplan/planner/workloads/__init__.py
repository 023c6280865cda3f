"""The benchmark networks, generated from their geometry and a seed."""

TOPIC = "workloads"
"""What the errors of these modules are about, where one says no topic of its own."""
