"""The Hamiltonian among a list of determinants: its tables, its products, its density matrices."""
