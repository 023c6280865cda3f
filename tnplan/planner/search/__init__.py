"""Finding contraction paths under a memory limit."""

TOPIC = "searches"
