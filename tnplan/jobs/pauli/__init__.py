"""What a propagation is asked, how it is answered, and what is reported."""

TOPIC = "Pauli propagation"
"""What the errors of these modules are about, where one says no topic of its own."""
