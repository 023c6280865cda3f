"""From the schedule of a contraction to that of its gradients: reverse mode."""
