"""Chains of steps in one kernel, which holds a tile of the stem on chip."""
