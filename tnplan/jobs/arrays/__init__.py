"""Contractions of arrays in hand: one call, or a compiled contraction that is called again and again."""

TOPIC = "contractions in Python"
"""What the errors of these modules are about, where one says no topic of its own."""
