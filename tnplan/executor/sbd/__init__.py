"""Selected-basis diagonalization: the lowest states of a Hamiltonian among chosen determinants."""

TOPIC = "molecules"
