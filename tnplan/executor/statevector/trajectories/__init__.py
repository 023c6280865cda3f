"""Many runs of one program at a time, as rows of an array."""
