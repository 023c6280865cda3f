"""Runs schedules on devices: a device layer and the replay of instructions. Never plans."""
