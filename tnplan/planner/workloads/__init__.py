"""The benchmark networks, generated from their geometry and a seed."""

TOPIC = "workloads"
