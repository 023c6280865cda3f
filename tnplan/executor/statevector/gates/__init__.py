"""The forms of gates: multiplexed gates and phase polynomials."""
