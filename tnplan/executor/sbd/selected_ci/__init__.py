"""Selected configuration interaction: a list of determinants that grows by the Hamiltonian's elements."""

TOPIC = "selected determinants"
"""What the errors of these modules are about, where one says no topic of its own."""
