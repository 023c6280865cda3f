"""Sample-based quantum diagonalization: the solver for qiskit-addon-sqd, and the loop itself."""
