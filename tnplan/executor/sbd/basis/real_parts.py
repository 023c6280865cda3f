"""Work of real numbers on complex states: on their real and on their imaginary parts.

Knows arrays; not what the work is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tnplan.common.arrays import Array


def real_parts(x: Array) -> tuple[Array, Array]:
    """The real and imaginary part of a complex array, each contiguous."""
    return np.ascontiguousarray(x.real), np.ascontiguousarray(x.imag)


def add_by_parts(add: Callable[[Array, Array], None], x: Array, y: Array) -> None:
    """Call add(x, y), which adds to y what is linear in x, for real arrays: of complex ones part by part."""
    if not np.iscomplexobj(y):
        add(x, y)
        return
    for part, target in zip(real_parts(x), (y.real, y.imag), strict=True):
        made = np.zeros(y.shape)
        add(part, made)
        target += made
