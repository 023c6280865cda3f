"""Many amplitudes at once: the final qubits are one sparse index over given bit strings."""
