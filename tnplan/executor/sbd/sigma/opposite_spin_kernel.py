"""The numba kernels of both spins on a CPU: the opposite-spin part, and the exchange of spins in S^2.

Imported lazily (numba loads slowly). Of every beta string, `bounds[2 b] .. bounds[2 b + 2] - 1` are its
excitations, the positive ones before `bounds[2 b + 1]`; `entries[e]` are their active pair and their source.
Each element of the result is summed by one thread, in one order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.kernels.vector_operations import PRODUCT_LANES as SIMD_LANES
from tnplan.common.kernels.vector_operations import sum_signed_products
from tnplan.executor.device.cpu.bits_kernel import jit
from tnplan.executor.sbd.sigma import opposite_spin
from tnplan.executor.sbd.sigma.opposite_spin import SIGN

ROWS_TRANSPOSED = 4
"""Rows whose values are brought to SIMD lanes at once."""


# Knowles and Handy (Chem. Phys. Lett. 111, 315 (1984)) form D[pq, I] = sum_J <I|E_pq|J> x[J] and
# multiply it by the integrals (pq|rs). With selected strings, the excitations are few and
# irregular, so that no product of whole matrices pays. Here, for each alpha excitation e of a row
# (pq, +-, source J):
#       weights[a, lane e] = +-(pq|a)        for the active pairs a of beta
#       values[j', lane e] = x[J, j']        for the beta strings j'
# and then y[i, j] += sum over beta's excitations (a, +-, j') of j, and over lanes, of +-weights[a]
# values[j'].
# So SIMD_LANES alpha excitations share one walk through beta's excitations.
@jit
def _add_span(first: int, last: int, factor: Any, scratch: Any, tables: Any, out: Any) -> None:
    """out[b] += factor times the products of the excitations of beta strings first .. last-1."""
    (_, weights, values), bounds, entries = scratch, tables.bounds, tables.entries
    for b in range(first, last):
        start, middle, end = bounds[2 * b], bounds[2 * b + 1], bounds[2 * b + 2]
        total = sum_signed_products(weights, values, entries, start, middle, end)
        out[b] += factor * total


@jit
def _load_lanes(at: int, row: Any, singles: Any, active: Any, x: Any, scratch: Any) -> None:
    """Fill the lanes with excitations from `at` on, and with the string itself before they begin.

    A row are the begin and the end of its excitations, its number in x, and its `number_weights`. From the
    end on weights are 0 and values are any finite ones.
    """
    begin, end, source_row, number_weights = row
    # The string itself, an excitation of zeroth order, carries alpha's number operators: its weights are
    # sum_p n_p (pp|a), which `number_weights` holds. It stands in the lane before the first excitation.
    other, pairs, sign, (rows, weights, values) = singles.other, singles.pairs, singles.sign, scratch
    for k in range(SIMD_LANES):
        e = at + k
        if e < begin:
            rows[k] = source_row
            for a in range(len(weights)):
                weights[a, k] = number_weights[a]
        elif e < end:
            rows[k] = other[e]
            factor, coefficients = sign[e], active[pairs[e]]
            for a in range(len(weights)):
                weights[a, k] = factor * coefficients[a]
        else:
            # Empty lanes: weight 0. Their values are those of lane 0's row, since 0 times a stale
            # NaN or infinity would be NaN.
            for a in range(len(weights)):
                weights[a, k] = 0
            rows[k] = rows[0]
    # values is x transposed: four rows at a time, so that each line of memory of `values` is
    # written by four neighbouring stores. Lanes beyond the last group of four keep old finite
    # values. Invariant: SIMD_LANES is a multiple of ROWS_TRANSPOSED, so that rows[k + 3] exists.
    for k in range(0, min(SIMD_LANES, end - at), ROWS_TRANSPOSED):
        first, second, third, fourth = x[rows[k]], x[rows[k + 1]], x[rows[k + 2]], x[rows[k + 3]]
        for b in range(len(values)):
            values[b, k] = first[b]
            values[b, k + 1] = second[b]
            values[b, k + 2] = third[b]
            values[b, k + 3] = fourth[b]


@jit
def add_opposite_spin(
    first: int, last: int, above: int, below: int, half: bool, singles: Any, tables: Any, x: Any,
    scratch: Any, y: Any,
) -> None:  # fmt: skip
    """Add the opposite-spin part to rows first .. last-1 of y, of which row 0 is alpha string `above`.

    Row 0 of x is alpha string `below`; the `Singles` are excitations from the rows of x. `tables` are an
    `OppositeSpinTables`: coefficients are numbers[pair, b] with the number operators of beta string b,
    active[pair, a] with active pair a, and number_weights[row, a] of the number operators of a row,
    filled[row, p]. `scratch` is for the lanes: their rows, weights and values. With `half`, elements are made
    of which y plus or minus its transpose is the whole; those with excitations of both spins for one half of
    the beta strings, from that of the row on and round, so that all rows have nearly the same work.
    """
    # y[i, j] += sum over alpha's pq and beta's rs of (pq|rs) <i|E_pq|i'> <j|E_rs|j'> x[i', j'], in
    # four cases: number operators (n) or excitations (e) of each spin. n-n is `_add_numbers` of
    # each filled orbital of alpha, e-n that of each excitation; n-e is the lane of the
    # string itself; e-e are the other lanes.
    start, other, pairs, sign = singles.start, singles.other, singles.pairs, singles.sign
    numbers, active, number_weights, filled, _, _ = tables
    n_beta = y.shape[1]
    for row in range(first, last):
        i, out = row + above, y[row]
        source_row, begin, end = i - below, start[i], start[i + 1]
        # A rank sees the rows of one block of x at a time; number operators of alpha need the row itself.
        has_row = 0 <= source_row < len(x)
        for e in range(begin, end):
            _add_numbers(sign[e], numbers[pairs[e]], x[other[e]], out)
        if has_row:
            for p in range(filled.shape[1]):
                if filled[row, p] != 0:
                    # With `half`, y + parity y^T is the result: what is symmetric by itself counts half.
                    _add_numbers(0.5 if half else 1.0, numbers[p], x[source_row], out)
        # One lane before `begin` is the string itself. With `half`, n-e is the transpose of e-n and
        # is left out.
        for at in range(begin - (has_row and not half), end, SIMD_LANES):
            own = begin, end, source_row, number_weights[row]
            _load_lanes(at, own, singles, active, x, scratch)
            if half:
                # Of the pairs (i, j), i != j, exactly one of (i, j) and (j, i) is formed: j = i+1
                # .. i + n/2 going round. For an even n the opposite string, at distance n/2,
                # belongs to the lower half of the rows alone. So all rows have nearly the same
                # work, where a triangle would leave threads idle.
                stop = i + (n_beta + 1) // 2 + (n_beta % 2 == 0 and i < n_beta // 2)
                _add_span(i, i + 1, 0.5, scratch, tables, out)
                _add_span(i + 1, min(stop, n_beta), 1.0, scratch, tables, out)
                _add_span(0, stop - n_beta, 1.0, scratch, tables, out)
            else:
                _add_span(0, n_beta, 1.0, scratch, tables, out)


@jit
def _add_numbers(factor: Any, numbers: Any, source: Any, out: Any) -> None:
    """out += factor times numbers times source, element by element; nothing where there are no numbers."""
    for b in range(numbers.size):
        out[b] += factor * numbers[b] * source[b]


@jit
def add_transpose(first: int, last: int, step: int, parity: int, y: Any) -> None:
    """y[i, j] += parity y[j, i] and y[j, i] += parity y[i, j] for first <= i < last and j <= i, by tiles."""
    # Tiles, so that the column of the transpose stays in the cache while the rows are written.
    # Invariant: threads have whole tiles of rows i, and a pair (i, j) with j <= i belongs to the
    # tile of i; so no element has two writers. On the diagonal both lines write the same value.
    for i_tile in range(first, last, step):
        for j_tile in range(0, i_tile + 1, step):
            for i in range(i_tile, min(last, i_tile + step)):
                for j in range(j_tile, min(j_tile + step, i + 1)):
                    below, above = y[i, j], y[j, i]
                    y[i, j] = below + parity * above
                    y[j, i] = above + parity * below


@jit
def exchange_spins(
    first: int, last: int, above: int, factor: float, singles: Any, matchings: Any, x: Any, out: Any
) -> None:
    """out[i, :] += factor times the sum over p != q of E^a_pq E^b_qp x, for alpha strings above + i."""
    # Both spins are excited by the same pair of orbitals in opposite directions. The first of `matchings`
    # lists, by pair, the beta strings that alpha's excitations down go with: to upper[f], which fills the
    # higher orbital, from lower[f]. The second has those of alpha's excitations up: to lower[f].
    start_a, other, create, destroy, sign, pairs, _, _ = singles
    _, active, start, upper, lower = matchings[0]
    _, _, start_down, upper_down, lower_down = matchings[1]
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
                # Alpha's electron has gone down, to the lower orbital; so beta's goes up.
                if create[e] < destroy[e]:
                    for f in range(start[2 * a + half], start[2 * a + half + 1]):
                        out[i, upper[f]] += s * row[lower[f]]
                else:
                    for f in range(start_down[2 * a + half], start_down[2 * a + half + 1]):
                        out[i, lower_down[f]] += s * row[upper_down[f]]


@jit
def fill_diagonal(first: int, last: int, alpha: Any, beta: Any, out: Any, sums: Any) -> None:
    """Rows first .. last-1 of the diagonal of H: both strings' energies and the mean of both orders' sums.

    Each side has what its strings fill, the weights of that for the other side, and its strings' energies.
    Arrays of alpha are [string, orbital], those of beta [orbital, string]; sums [beta strings] is for work.
    """
    (filled, weights, energies), (others, other_weights, other_energies) = alpha, beta
    for i in range(first, last):
        for j in range(len(sums)):
            sums[j] = 0.0
        for p in range(filled.shape[1]):
            for j in range(len(sums)):
                # Products with 0 and 1 are exact, so that exchange of i and j changes no bit.
                sums[j] += weights[i, p] * others[p, j] + filled[i, p] * other_weights[p, j]
        for j in range(len(sums)):
            out[i, j] = sums[j] / 2 + (energies[i] + other_energies[j])


TAKEN = 4
"""Elements of a thread in a turn, and threads that take a target together."""
BANKS = 16
"""Of shared memory, 8 bytes wide: those that half a warp reads or adds to at once should differ."""
ALLOWED = (0, 1, 3)
"""What an element may add to the turns of half a warp, pass by pass: 2 for its sum, 1 for its product."""
NONE = np.uint32(opposite_spin.NONE)
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
def _deal_single(first: int, end: int, heads: Any, words: Any, dealt: Any, n_dealt: int, counts: Any) -> None:
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
                    best = _cheapest(counts, deep, deep_products, allowed, end - first)
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


@jit
def _cheapest(counts: Any, deep: int, deep_products: int, allowed: int, most_words: int) -> int:
    """The cell of the words that cost half a warp least, of banks with most left; -1: all cost too much."""
    # The cost is the turns that a word adds to those by now, `deep` and `deep_products`; see ALLOWED.
    best, most = -1, -1
    for c in range(BANKS * BANKS):
        if counts[LEFT + c] == 0:
            continue
        b, p = c // BANKS, c % BANKS
        cost = 2 * (counts[SUMS + b] >= deep) + (counts[PRODUCTS + p] >= deep_products)
        many = counts[OF_SUM + b] + counts[OF_PRODUCT + p] + (3 - cost) * most_words
        if cost <= allowed and many > most:
            best, most = c, many
    return best
