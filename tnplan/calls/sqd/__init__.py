"""Calls of sample-based quantum diagonalization: the loop, and the solver for qiskit-addon-sqd."""
