"""The numba kernels of both spins on a CPU: the opposite-spin part, and the exchange of spins in S^2.

Imported lazily (numba loads slowly). Of every beta string, `bounds[2 b] .. bounds[2 b + 2] - 1` are its
excitations, the positive ones before `bounds[2 b + 1]`; `entries[e]` are their active pair and their source.
Each element of the result is summed by one thread, in one order.
"""

from __future__ import annotations

from typing import Any

from tnplan.common.kernels.vector_operations import PRODUCT_LANES as SIMD_LANES
from tnplan.common.kernels.vector_operations import sum_signed_products
from tnplan.executor.device.cpu.bits_kernel import jit

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
