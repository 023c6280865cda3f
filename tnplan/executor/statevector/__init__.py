"""Dense state-vector simulation: circuits compiled into passes over the amplitudes."""

TOPIC = "state vectors"
"""What the errors of these modules are about, where one says no topic of its own."""
