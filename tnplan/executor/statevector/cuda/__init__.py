"""The state on a GPU."""
