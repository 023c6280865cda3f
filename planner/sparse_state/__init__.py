"""Many amplitudes at once: the final qubits of given bit strings are one sparse index (sparse-state contraction)."""
