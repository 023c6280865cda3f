"""OpenQASM 2 and 3, read through qiskit."""
