"""Selected-basis diagonalization: the lowest states of a Hamiltonian among chosen determinants."""

TOPIC = "molecules"
"""What the errors of these modules are about, where one says no topic of its own."""
