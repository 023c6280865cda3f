"""Contractions of arrays in hand: one call, or a compiled contraction that is called again and again."""

TOPIC = "contractions in Python"
