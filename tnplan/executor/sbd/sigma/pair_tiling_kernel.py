"""The numba kernel that deals the elements of tiles to threads; see `pair_tiles`.

Imported lazily (numba loads slowly).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.executor.device.cpu.bits_kernel import jit
from tnplan.executor.sbd.sigma import pair_tiling
from tnplan.executor.sbd.sigma.pair_tiling import SIGN

TAKEN = 4
"""Elements of a thread in a turn, and threads that take a target together."""
BANKS = 16
"""Of shared memory, 8 bytes wide: those that half a warp reads or adds to at once should differ."""
ALLOWED = (0, 1, 3)
"""What an element may add to the turns of half a warp, pass by pass: 2 for its sum, 1 for its product."""
NONE = np.uint32(pair_tiling.NONE)
TOP, LEFT = 0, BANKS * BANKS
OF_SUM = LEFT + BANKS * BANKS
OF_PRODUCT = OF_SUM + BANKS
SUMS = OF_PRODUCT + BANKS
PRODUCTS = SUMS + BANKS
COUNTS = PRODUCTS + BANKS
"""Where the tables of `_deal_single` begin in one array, and its length."""


# Shared memory of a GPU has 32 banks of 4 bytes: 16 numbers of fp64 at once. A half warp whose threads meet
# one bank twice waits for a second turn. Each element reads a product and adds to a sum, both in shared
# memory; this file deals elements to threads so that the banks of a half warp differ.
@jit
def cell(word: int) -> int:
    """The bank of a word's sum, and that of its product."""
    # A word is column + SIGN (minus) + 2 SIGN target; see `PairTiles`. Low bits give the bank of
    # the product, the target that of the sum.
    return word // (2 * SIGN) % BANKS * BANKS + word % SIGN % BANKS


@jit
def deal(
    bounds: Any, heads: Any, sizes: Any, words: Any, more: Any, dealt: Any, counts: Any, slots: Any
) -> None:
    """Fill slots [turn, thread, TAKEN] with words, of part p in turns p and more[p] .. more[p + 1] - 1.

    A part has targets bounds[p] .. bounds[p + 1] - 1, those of most words first and those of one by their
    cells. Target h has words heads[h] .. heads[h] + sizes[h] - 1. NONE stands where there is none. `dealt`
    [thread of all turns of a part, TAKEN] and `counts` [COUNTS] are for work.
    """
    # Plain loops over arrays of the caller: numba takes five times as long for slices and new arrays.
    # Invariant: a target's words lie in one thread, or last in four threads that add their sums
    # together: then no two threads add to one sum, and its order is fixed.
    n_threads = slots.shape[1]
    for p in range(len(bounds) - 1):
        further = more[p + 1] - more[p]
        n_dealt = (1 + further) * n_threads
        for at in range(n_dealt):
            for q in range(TAKEN):
                dealt[at, q] = NONE
        first = _deal_wide(bounds[p], bounds[p + 1], heads, sizes, words, dealt, n_dealt)
        _deal_single(first, bounds[p + 1], heads, words, dealt, n_dealt, counts)
        for at in range(n_dealt):
            turn = p if at < n_threads else more[p] + at // n_threads - 1
            for q in range(TAKEN):
                slots[turn, at % n_threads, q] = dealt[at, q]


@jit
def _deal_wide(h: int, end: int, heads: Any, sizes: Any, words: Any, dealt: Any, n_dealt: int) -> int:
    """Targets of more than TAKEN words to four threads, of several to one; the first of the rest."""
    # First the targets of more than TAKEN words: dealt round four threads, from the last slot of
    # each back, so that the kernel finds them at the end.
    spot = 0
    while h < end and sizes[h] > TAKEN:
        for k in range(sizes[h]):
            dealt[spot + k % TAKEN, TAKEN - 1 - k // TAKEN] = words[heads[h] + k]
        h, spot = h + 1, spot + TAKEN
    # Then those of 2 .. TAKEN words: to the next thread with enough free slots, going round (first
    # fit). Invariant: `_dealt` of `pair_tiling` has enough turns for all, so that the search ends.
    begin = spot
    while h < end and sizes[h] > 1:
        filled = TAKEN
        while filled + sizes[h] > TAKEN:
            spot = begin if spot == n_dealt else spot
            filled = 0
            while filled < TAKEN and dealt[spot, filled] != NONE:
                filled += 1
            spot += 1
        for k in range(sizes[h]):
            dealt[spot - 1, filled + k] = words[heads[h] + k]
        h += 1
    return h


@jit
def _deal_single(
    first: int, end: int, heads: Any, words: Any, dealt: Any, n_dealt: int, counts: Any
) -> None:
    """Targets first .. end-1 to what is left: where they take half a warp no more turns of a bank first."""
    # Targets of one word are free to go anywhere: they fill the gaps. They are sorted by cell (bank of the
    # sum, bank of the product); `counts` has, from TOP, the next target of each cell, from LEFT how many
    # targets the cell still has, then the same by the bank of the sum and by that of the product, and at
    # last how often half a warp meets a bank.
    for at in range(COUNTS):
        counts[at] = 0
    for at in range(end - 1, first - 1, -1):
        c = cell(words[heads[at]])
        counts[TOP + c] = at
        counts[LEFT + c] += 1
        counts[OF_SUM + c // BANKS] += 1
        counts[OF_PRODUCT + c % BANKS] += 1
    remaining = end - first
    # Greedy, in passes: first only slots where a word costs the half warp no more turns, then
    # those that cost one of its products, at last any.
    for allowed in ALLOWED:
        for q in range(TAKEN):
            for half in range(0, n_dealt, BANKS):
                if remaining == 0:
                    return
                for bank in range(2 * BANKS):
                    counts[SUMS + bank] = 0
                # How many turns the half warp takes by now: the most words that any bank has.
                deep, deep_products = 1, 1
                for at in range(half, half + BANKS):
                    if dealt[at, q] != NONE:
                        c = cell(dealt[at, q])
                        counts[SUMS + c // BANKS] += 1
                        counts[PRODUCTS + c % BANKS] += 1
                        deep = max(deep, counts[SUMS + c // BANKS])
                        deep_products = max(deep_products, counts[PRODUCTS + c % BANKS])
                for at in range(half, half + BANKS):
                    if dealt[at, q] != NONE:
                        continue
                    # The cheapest of those, of banks with most left.
                    best, most = -1, -1
                    for c in range(BANKS * BANKS):
                        if counts[LEFT + c] == 0:
                            continue
                        b, p = c // BANKS, c % BANKS
                        cost = 2 * (counts[SUMS + b] >= deep) + (counts[PRODUCTS + p] >= deep_products)
                        many = counts[OF_SUM + b] + counts[OF_PRODUCT + p] + (3 - cost) * (end - first)
                        if cost <= allowed and many > most:
                            best, most = c, many
                    if best < 0:
                        break
                    b, p = best // BANKS, best % BANKS
                    dealt[at, q] = words[heads[counts[TOP + best]]]
                    counts[TOP + best] += 1
                    counts[LEFT + best] -= 1
                    counts[OF_SUM + b] -= 1
                    counts[OF_PRODUCT + p] -= 1
                    remaining -= 1
                    counts[SUMS + b] += 1
                    counts[PRODUCTS + p] += 1
                    deep = max(deep, counts[SUMS + b])
                    deep_products = max(deep_products, counts[PRODUCTS + p])
