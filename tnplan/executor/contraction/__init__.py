"""Schedule to device: binds instructions, replays them slice by slice, keeps checkpoints and results."""

TOPIC = "ranks"
"""What the errors of these modules are about, where one says no topic of its own."""
