"""The job that carries out a schedule, and whether its ranks lie on hosts as planned."""
