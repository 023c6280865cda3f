"""The job that carries out a schedule, and whether its ranks lie on hosts as planned."""

TOPIC = "ranks"
"""What the errors of these modules are about, where one says no topic of its own."""
