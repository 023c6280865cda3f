"""Frames under a predictor, and which predictor an array gets."""
