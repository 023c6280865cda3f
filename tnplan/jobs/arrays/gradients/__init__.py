"""Gradients of compiled contractions, as calls and as functions of torch and JAX."""
