"""How many alpha excitations a vector instruction takes, and how their values lie in memory."""

LANES = 16
"""Alpha excitations that are summed at once."""
LINE_BYTES = 64
"""Weights and values begin on a cache line: loads across two take twice as long."""
