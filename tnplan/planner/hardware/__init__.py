"""What the planner knows of machines: profiles, the process grid and its layouts, the cost model."""

TOPIC = "hardware profiles"
