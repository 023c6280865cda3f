"""Derivatives of the derivatives of a contraction: sums of its derivatives with other tensors.

Let S be the contraction's result R, contracted with a cotangent X_0. It is linear in X_0 and in each of the
tensors X_1, ..., X_n. Its derivatives D_k = dS/dX_k are the result, D_0 = R, and what `vjp` computes. In the
direction of V_m, D_k changes by

    sum_m D_k(X with V_m for X_m),    m != k.

The matrix d^2 S / dX_k dX_m is symmetric, so that the same sum goes back: from weights of the D_k to the X_m.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


def directional(
    derivatives: Callable[[Sequence[Any], tuple[int, ...]], Mapping[int, Any]],
    tensors: Sequence[Any],
    directions: Mapping[int, Any],
    which: Iterable[int],
) -> dict[int, Any]:
    """The changes of some derivatives in the direction of some tensors.

    Parameters
    ----------
    derivatives : callable
        Takes X_0, ..., X_n and the numbers of tensors of the network, from 1, and gives D_0 and their D_k.
    tensors : sequence of array
        X_0, ..., X_n.
    directions : mapping of int to array
        V_m by m.
    which : iterable of int
        The k of the D_k that are wanted.

    Returns
    -------
    dict of int to array
        By k; without those that do not change.
    """
    changes: dict[int, Any] = {}
    # The gradients of each choice of tensors are planned anew: the same choice serves all m, m included.
    wanted = tuple(which)
    gradients = tuple(k for k in wanted if k > 0)
    for m, direction in directions.items():
        others = [k for k in wanted if k != m]
        if not others:
            continue
        moved = [*tensors]
        moved[m] = direction
        found = derivatives(moved, () if others == [0] else gradients)
        for k in others:
            changes[k] = changes[k] + found[k] if k in changes else found[k]
    return changes
