"""What happens before devices: networks, paths, schedules and projections, one file a call."""
