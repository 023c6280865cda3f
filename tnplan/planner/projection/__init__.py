"""What each number of devices gives: times, speedups, energy, and why more devices do not pay."""

TOPIC = "reports"
