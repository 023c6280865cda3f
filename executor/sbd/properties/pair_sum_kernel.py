"""The numba kernels of the total spin and of density matrices: sums over the excitations of a pair.

Imported lazily (numba loads slowly). Rows are contiguous.
No two excitations of a pair touch one string, so none of these sums needs an atomic addition.
"""

from __future__ import annotations

from typing import Any

from tnplan.executor.device.cpu.bits_kernel import jit


@jit
def exchange_spins(first: int, last: int, singles: Any, matching: Any, x: Any, out: Any) -> None:
    """out[i, :] += the sum over p != q of E^a_pq E^b_qp x, for alpha strings first .. last-1."""
    start_a, other, create, destroy, sign, pairs, _, _ = singles
    _, active, start, upper, lower = matching
    for i in range(first, last):
        for e in range(start_a[i], start_a[i + 1]):
            a = active[pairs[e]]
            if a < 0:
                continue
            row = x[other[e]]
            for part in range(2):
                s = sign[e] if part == 0 else -sign[e]
                for f in range(start[2 * a + part], start[2 * a + part + 1]):
                    if create[e] < destroy[e]:
                        out[i, upper[f]] += s * row[lower[f]]
                    else:
                        out[i, lower[f]] += s * row[upper[f]]


@jit
def scatter_pairs(matching: Any, row: Any, raised: Any, lowered: Any) -> None:
    """raised[a, j] = +-row[i], lowered[a, i] = +-row[j] for every excitation of pair a from string j to i.

    Raising moves an electron to the higher orbital of the pair. The other elements are set to 0.
    """
    _, _, start, upper, lower = matching
    raised[:] = 0.0
    lowered[:] = 0.0
    for a in range(len(raised)):
        for e in range(start[2 * a], start[2 * a + 2]):
            i, j = upper[e], lower[e]
            sign = 1.0 if e < start[2 * a + 1] else -1.0
            raised[a, j] = sign * row[i]
            lowered[a, i] = sign * row[j]
