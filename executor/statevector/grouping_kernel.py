"""The numba kernels behind `grouping`. Imported lazily (numba loads slowly).

Block k has `targets[k]`, the mask of its targets, and `masks[k]`, that of all its bits; `left` are the numbers
of the blocks that are left, in order.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

jit = numba.njit(nogil=True, cache=True)


@jit
def grow(targets: Any, masks: Any, left: Any, always: int, size: int) -> int:
    """The mask of `size` bits or fewer that the first blocks want, the bits of `always` among them."""
    held = always
    blocked = fixed = 0
    for k in left:
        wanted = rest = held | targets[k]
        n_bits = 0
        while rest:
            rest &= rest - 1
            n_bits += 1
        if masks[k] & blocked or targets[k] & fixed or n_bits > size:
            blocked |= targets[k]
            fixed |= masks[k]
        else:
            held = wanted
    return held


@jit
def remaining(targets: Any, masks: Any, left: Any, held: int) -> Any:
    """The blocks that are left when those that can be done with the bits of `held` are."""
    out = np.empty_like(left)
    blocked = fixed = count = 0
    for k in left:
        if targets[k] & ~held or masks[k] & blocked or targets[k] & fixed:
            blocked |= targets[k]
            fixed |= masks[k]
            out[count] = k
            count += 1
    return out[:count]


@jit
def n_done(targets: Any, masks: Any, left: Any, held: int) -> int:
    """How many blocks can be done with the bits of `held`."""
    blocked = fixed = count = 0
    for k in left:
        if targets[k] & ~held or masks[k] & blocked or targets[k] & fixed:
            blocked |= targets[k]
            fixed |= masks[k]
            if not held & ~(blocked | fixed):
                break
        else:
            count += 1
    return count


@jit
def climb(targets: Any, masks: Any, left: Any, held: int, always: int, tries: int) -> int:
    """Exchange a held bit for another target while that lets more blocks be done, the best one first."""
    every = 0
    for k in left:
        every |= targets[k]
    taken = n_done(targets, masks, left, held)
    for _ in range(tries):
        best = held
        for out in range(64):
            if not (held & ~always) >> out & 1:
                continue
            for new in range(64):
                if not (every & ~held) >> new & 1:
                    continue
                other = held & ~(1 << out) | 1 << new
                count = n_done(targets, masks, left, other)
                if count > taken:
                    best, taken = other, count
        if best == held:
            break
        held = best
    return held
