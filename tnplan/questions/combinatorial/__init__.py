"""Counting and optimization: graphs and formulas as networks over algebras."""

TOPIC = "counting and optimization"
"""What the errors of these modules are about, where one says no topic of its own."""
