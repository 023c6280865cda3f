"""The numba kernel of density matrices of opposite spins: the excitations of a pair, side by side.

Imported lazily (numba loads slowly). Rows are contiguous.
No two excitations of a pair touch one string, so none of these sums needs an atomic addition.
"""

from __future__ import annotations

from typing import Any

from tnplan.executor.device.cpu.bits_kernel import jit


@jit
def scatter_pairs(matching: Any, row: Any, raised: Any, lowered: Any) -> None:
    """raised[a, j] = +-row[i], lowered[a, i] = +-row[j] for every excitation of pair a from string j to i.

    Raising moves an electron to the higher orbital of the pair. The other elements are set to 0.
    """
    # With these, the sum over strings of raised[a, j] y[j] is <x|E_pq|y>, p being the higher
    # orbital, for all pairs at once: a
    # product of matrices.
    _, _, start, upper, lower = matching
    raised[:] = 0.0
    lowered[:] = 0.0
    for a in range(len(raised)):
        for e in range(start[2 * a], start[2 * a + 2]):
            i, j = upper[e], lower[e]
            sign = 1.0 if e < start[2 * a + 1] else -1.0
            raised[a, j] = sign * row[i]
            lowered[a, i] = sign * row[j]
