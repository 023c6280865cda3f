"""Davidson's method and all around it: set-up, initial guess, memory, checkpoints."""
