"""What the planner knows of machines: profiles, the process grid and its layouts, the cost model."""

TOPIC = "hardware profiles"
"""What the errors of these modules are about, where one says no topic of its own."""
