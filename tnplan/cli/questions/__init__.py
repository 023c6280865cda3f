"""A command for each question about a circuit, and the estimate before it is asked."""
