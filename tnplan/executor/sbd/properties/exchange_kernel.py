"""The numba kernel of the total spin over products of half-strings: opposite excitations of both spins.

Imported lazily (numba loads slowly). No two excitations of a pair touch one string, so no sum needs an atomic
addition.
"""

from __future__ import annotations

from typing import Any

from tnplan.executor.device.cpu.bits_kernel import jit


@jit
def exchange_spins(
    first: int, last: int, above: int, factor: float, singles: Any, matching: Any, x: Any, out: Any
) -> None:
    """out[i, :] += factor times the sum over p != q of E^a_pq E^b_qp x, for alpha strings above + i."""
    # Both spins are excited by the same pair of orbitals in opposite directions. `matching` lists,
    # by pair, the beta strings that it joins: upper[e] fills the higher orbital.
    start_a, other, create, destroy, sign, pairs, _, _ = singles
    _, active, start, upper, lower = matching
    for i in range(first, last):
        for e in range(start_a[above + i], start_a[above + i + 1]):
            a = active[pairs[e]]
            if a < 0:
                continue
            row = x[other[e]]
            # Invariant: the positive excitations of a pair stand before start[2 a + 1], the
            # negative ones behind it; so the sign is one factor for each half.
            for half in range(2):
                s = factor * (sign[e] if half == 0 else -sign[e])
                for f in range(start[2 * a + half], start[2 * a + half + 1]):
                    # Alpha's electron has gone down, to the lower orbital; so beta's goes up.
                    if create[e] < destroy[e]:
                        out[i, upper[f]] += s * row[lower[f]]
                    else:
                        out[i, lower[f]] += s * row[upper[f]]
