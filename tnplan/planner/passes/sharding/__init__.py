"""Which modes of each tensor are distributed over the ranks, and to which digits of the process grid."""
