"""Files from strangers, and faults on several machines."""
