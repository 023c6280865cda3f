"""Schedule to device: binds instructions, replays them slice by slice, keeps checkpoints and results."""

TOPIC = "ranks"
