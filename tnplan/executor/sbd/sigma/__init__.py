"""The sigma vector, H times a state, on one rank and on several."""
