"""Error-bounded codecs for arrays. Imports neither the planner nor the executor."""
