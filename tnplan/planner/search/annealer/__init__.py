"""The compiled annealing of a contraction tree and its sliced indices: the state, the moves, the waist."""
