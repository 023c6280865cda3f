"""Calls of sample-based quantum diagonalization: the loop, and the solver for qiskit-addon-sqd."""

TOPIC = "samples of a molecule"
"""What the errors of these modules are about, where one says no topic of its own."""
