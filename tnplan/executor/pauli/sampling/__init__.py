"""Monte Carlo propagation: terms are resampled without bias, in independent repetitions."""
