"""Sample-based quantum diagonalization: batches, recovery of configurations, and its checkpoint."""

TOPIC = "samples of a molecule"
"""What the errors of these modules are about, where one says no topic of its own."""
