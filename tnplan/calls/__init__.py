"""The public calls, one file each: what it takes and returns. The work is in `jobs` and `questions`."""
