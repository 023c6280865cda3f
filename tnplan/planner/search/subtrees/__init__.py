"""Parts of a contraction tree put in a better order, with the legs as lists and the rest as it is."""
