"""The Python API: one file a call."""
