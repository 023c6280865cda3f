"""What works on devices: every engine as one call, on the ranks of one job."""
