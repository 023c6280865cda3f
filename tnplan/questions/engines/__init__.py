"""How each engine answers the questions."""
