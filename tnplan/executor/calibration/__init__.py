"""Measuring a machine: the figures of a hardware profile."""
