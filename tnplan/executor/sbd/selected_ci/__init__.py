"""Selected configuration interaction: a list of determinants that grows by the Hamiltonian's elements."""

TOPIC = "selected determinants"
