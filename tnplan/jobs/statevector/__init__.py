"""Jobs on a state vector: what a rank needs and opens, and the simulation itself."""
