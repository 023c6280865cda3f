"""Derivatives of circuits: of gates by their angles, and of angles by the parameters of a circuit."""
