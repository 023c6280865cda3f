"""Circuits by projected entangled pair states (PEPS) on any graph, with belief propagation."""
