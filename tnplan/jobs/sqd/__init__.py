"""Sample-based quantum diagonalization: batches, recovery of configurations, and its checkpoint."""
