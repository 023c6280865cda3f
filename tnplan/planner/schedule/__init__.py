"""Schedules: flat typed instructions, their file, and which rows of chains run beside an exchange."""

TOPIC = "files of networks and schedules"
