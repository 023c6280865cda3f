"""Gates and channels as maps of Pauli words, the Clifford tableau, expectation values."""
