"""What each number of devices gives: times, speedups, energy, and why more devices do not pay."""

TOPIC = "reports"
"""What the errors of these modules are about, where one says no topic of its own."""
