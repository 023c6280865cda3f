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
def deal(bounds: Any, heads: Any, sizes: Any, words: Any, more: Any, slots: Any) -> None:
    """Fill slots [turn, thread, TAKEN] with words, of part p in turns p and more[p] .. more[p + 1] - 1.

    A part has targets bounds[p] .. bounds[p + 1] - 1, those of most words first and those of one by their
    cells. Target h has words heads[h] .. heads[h] + sizes[h] - 1. NONE stands where there is none.
    """
    # Invariant: a target's words lie in one thread, or last in four threads that add their sums
    # together: then no two threads add to one sum, and its order is fixed.
    n_threads = slots.shape[1]
    slots[:] = NONE
    for p in range(len(bounds) - 1):
        further = more[p + 1] - more[p]
        dealt = np.full(((1 + further) * n_threads, TAKEN), NONE)
        first = _deal_wide(bounds[p], bounds[p + 1], heads, sizes, words, dealt)
        _deal_single(words[heads[first : bounds[p + 1]]], dealt)
        slots[p] = dealt[:n_threads]
        for turn in range(further):
            slots[more[p] + turn] = dealt[(turn + 1) * n_threads : (turn + 2) * n_threads]


@jit
def _deal_wide(h: int, end: int, heads: Any, sizes: Any, words: Any, dealt: Any) -> int:
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
            spot = begin if spot == len(dealt) else spot
            filled = 0
            while filled < TAKEN and dealt[spot, filled] != NONE:
                filled += 1
            spot += 1
        for k in range(sizes[h]):
            dealt[spot - 1, filled + k] = words[heads[h] + k]
        h += 1
    return h


@jit
def _deal_single(words: Any, dealt: Any) -> None:
    """Words by cell to what is left: where they take half a warp no more turns of a bank first."""
    # Targets of one word are free to go anywhere: they fill the gaps. Words are sorted by cell
    # (bank of the sum, bank of the product); top[c] is the next word of a cell, cell_counts[c] how
    # many words it still has.
    top, cell_counts = np.zeros(BANKS * BANKS, np.int64), np.zeros(BANKS * BANKS, np.int64)
    of_sum, of_product = np.zeros(BANKS, np.int64), np.zeros(BANKS, np.int64)
    for at in range(len(words) - 1, -1, -1):
        c = cell(words[at])
        top[c] = at
        cell_counts[c] += 1
        of_sum[c // BANKS] += 1
        of_product[c % BANKS] += 1
    remaining = len(words)
    sums, products = np.zeros(BANKS, np.int64), np.zeros(BANKS, np.int64)
    # Greedy, in passes: first only slots where a word costs the half warp no more turns, then
    # those that cost one of its products, at last any.
    for allowed in ALLOWED:
        for q in range(TAKEN):
            for half in range(0, len(dealt), BANKS):
                if remaining == 0:
                    return
                sums[:], products[:] = 0, 0
                for at in range(half, half + BANKS):
                    if dealt[at, q] != NONE:
                        c = cell(dealt[at, q])
                        sums[c // BANKS] += 1
                        products[c % BANKS] += 1
                # How many turns the half warp takes by now: the most words that any bank has.
                deep, deep_products = max(1, sums.max()), max(1, products.max())
                for at in range(half, half + BANKS):
                    if dealt[at, q] != NONE:
                        continue
                    # The cheapest of those, of banks with most left.
                    best, most = -1, -1
                    for c in range(BANKS * BANKS):
                        if cell_counts[c] == 0:
                            continue
                        b, p = c // BANKS, c % BANKS
                        cost = 2 * (sums[b] >= deep) + (products[p] >= deep_products)
                        many = of_sum[b] + of_product[p] + (3 - cost) * len(words)
                        if cost <= allowed and many > most:
                            best, most = c, many
                    if best < 0:
                        break
                    b, p = best // BANKS, best % BANKS
                    dealt[at, q] = words[top[best]]
                    top[best] += 1
                    cell_counts[best] -= 1
                    of_sum[b] -= 1
                    of_product[p] -= 1
                    remaining -= 1
                    sums[b] += 1
                    products[p] += 1
                    deep, deep_products = max(deep, sums[b]), max(deep_products, products[p])
