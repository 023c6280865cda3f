"""Dense state-vector simulation: circuits compiled into passes over the amplitudes."""

TOPIC = "state vectors"
