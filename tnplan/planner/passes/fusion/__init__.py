"""Chains of steps in one kernel, and redistributions in chunks beside them."""
