"""Adjoint differentiation: the derivatives of an expectation value by all angles, in one sweep back."""
