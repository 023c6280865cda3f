"""Finding contraction paths under a memory limit."""

TOPIC = "searches"
"""What the errors of these modules are about, where one says no topic of its own."""
