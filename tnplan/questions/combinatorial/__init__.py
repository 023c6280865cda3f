"""Counting and optimization: graphs and formulas as networks over algebras."""

TOPIC = "counting and optimization"
