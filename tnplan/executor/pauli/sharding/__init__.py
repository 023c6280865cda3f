"""Which shard holds a Pauli word."""
