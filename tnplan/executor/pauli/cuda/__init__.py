"""The terms of a rank on its GPU."""
