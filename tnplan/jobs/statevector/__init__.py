"""Jobs on a state vector: what a rank needs and opens, and the simulation itself."""

TOPIC = "state vectors"
"""What the errors of these modules are about, where one says no topic of its own."""
