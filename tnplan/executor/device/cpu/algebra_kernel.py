"""The kernels of contractions over other algebras than plus-times: residues, max-plus and min-plus, optima.

Residues are integers of float64 below a prime p, which kernels are given in an array of one: a bound call
reads it anew. A value below 2^52 is reduced by x - p floor(x / p): the
quotient in floating point errs by one at most, and the product with p is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.kernels.kernel import kernel

jit = kernel(nogil=True, error_model="numpy")
inline = kernel(nogil=True, error_model="numpy", inline="always")


@inline
def residue(x: float, p: float, inverse: float) -> float:
    """x modulo p, for 0 <= x <= 2^52 and the inverse of p, rounded."""
    rest = x - p * np.floor(x * inverse)
    if rest < 0:
        return rest + p
    return rest - p if rest >= p else rest


@jit
def reduce_residues(c: Any, prime: Any) -> None:
    """c = c modulo p; flat, below 2^52."""
    p, inverse = prime[0], 1.0 / prime[0]
    for i in range(c.size):
        c[i] = residue(c[i], p, inverse)


@jit
def add_residues(a: Any, b: Any, c: Any, prime: Any) -> None:
    """c = a + b modulo p; flat, the sum below 2^52."""
    p, inverse = prime[0], 1.0 / prime[0]
    for i in range(c.size):
        c[i] = residue(a[i] + b[i], p, inverse)


@jit
def multiply_residues(a: Any, b: Any, c: Any, prime: Any) -> None:
    """c = a b modulo p; flat."""
    p, inverse = prime[0], 1.0 / prime[0]
    for i in range(c.size):
        c[i] = residue(a[i] * b[i], p, inverse)


@jit
def residue_products(a: Any, b: Any, c: Any, prime: Any) -> None:
    """c[t, i, j] = the sum over q of a[t, i, q] b[t, j, q], modulo p, where k p^2 <= 2^52."""
    p, inverse = prime[0], 1.0 / prime[0]
    for t in range(a.shape[0]):
        for i in range(a.shape[1]):
            for j in range(b.shape[1]):
                total = a[t, i, 0] * b[t, j, 0]
                for q in range(1, a.shape[2]):
                    total += a[t, i, q] * b[t, j, q]
                c[t, i, j] = residue(total, p, inverse)


@jit
def few_tropical_products(a: Any, b: Any, c: Any, is_least: bool) -> None:
    """`tropical_products` without scratch memory, for few columns."""
    for t in range(a.shape[0]):
        for i in range(a.shape[1]):
            for j in range(b.shape[1]):
                best = a[t, i, 0] + b[t, j, 0]
                for q in range(1, a.shape[2]):
                    other = a[t, i, q] + b[t, j, q]
                    if (other < best) if is_least else (other > best):
                        best = other
                c[t, i, j] = best


@jit
def tropical_products(a: Any, b: Any, c: Any, scratch: Any, is_least: bool) -> None:
    """c[t, i, j] = the largest over q of a[t, i, q] + b[t, j, q], or the least.

    Shapes (b, m, k), (b, n, k), (b, m, n). `scratch` holds a block of b as [q | j], over whose rows the
    innermost loop goes.
    """
    # A block of b is transposed once and serves all rows of a, so that the innermost loop goes along j over
    # contiguous numbers. The first term of all sets a row of c, and no infinity is needed.
    depth, width = scratch.shape
    m, n, k = a.shape[1], b.shape[1], a.shape[2]
    for t in range(a.shape[0]):
        for first_j in range(0, n, width):
            columns = min(width, n - first_j)
            for first_q in range(0, k, depth):
                terms = min(depth, k - first_q)
                for j in range(columns):
                    for q in range(terms):
                        scratch[q, j] = b[t, first_j + j, first_q + q]
                for i in range(m):
                    row = c[t, i, first_j : first_j + columns]
                    begin = 0
                    if first_q == 0:
                        left, begin = a[t, i, 0], 1
                        for j in range(columns):
                            row[j] = left + scratch[0, j]
                    for q in range(begin, terms):
                        left = a[t, i, first_q + q]
                        if is_least:
                            for j in range(columns):
                                other = left + scratch[q, j]
                                row[j] = other if other < row[j] else row[j]
                        else:
                            for j in range(columns):
                                other = left + scratch[q, j]
                                row[j] = other if other > row[j] else row[j]


@jit
def add_optima(a: Any, b: Any, c: Any, prime: Any) -> None:
    """c = the larger of a and b, with the counts of those that attain it modulo p; flat pairs (value, count).

    Pairs are complex numbers: a value, and how often it is attained.
    """
    p = prime[0]
    for i in range(c.size):
        x, y = a[i], b[i]
        count = (x.imag if x.real >= y.real else 0.0) + (y.imag if y.real >= x.real else 0.0)
        c[i] = complex(x.real if x.real > y.real else y.real, count - p if count >= p else count)


@jit
def multiply_optima(a: Any, b: Any, c: Any, prime: Any) -> None:
    """c = the sum of the values of a and b, with the product of their counts modulo p; flat pairs."""
    p, inverse = prime[0], 1.0 / prime[0]
    for i in range(c.size):
        c[i] = complex(a[i].real + b[i].real, residue(a[i].imag * b[i].imag, p, inverse))


@jit
def few_optima_products(a: Any, b: Any, c: Any, prime: Any) -> None:
    """`optima_products` without scratch memory, for few columns; k p^2 <= 2^52."""
    p, inverse = prime[0], 1.0 / prime[0]
    for t in range(a.shape[0]):
        for i in range(a.shape[1]):
            for j in range(b.shape[1]):
                x, y = a[t, i, 0], b[t, j, 0]
                best, count = x.real + y.real, x.imag * y.imag
                for q in range(1, a.shape[2]):
                    x, y = a[t, i, q], b[t, j, q]
                    other, more = x.real + y.real, x.imag * y.imag
                    count = (count if other <= best else 0.0) + (more if other >= best else 0.0)
                    best = other if other > best else best
                c[t, i, j] = complex(best, residue(count, p, inverse))


@jit
def optima_products(a: Any, b: Any, c: Any, scratch: Any, prime: Any) -> None:
    """c[t, i, j] = the pair of the largest a[t, i, q] + b[t, j, q] over q and of the number of its terms.

    The values of pairs are their real parts, the counts, modulo p, the imaginary ones. Shapes as in
    `tropical_products`. `scratch` holds values and counts of a block of b as [2 | q | j], and in its last
    rows those of the row of c; its depth without that row, times p^2, is at most 2^52 - p.
    """
    p, inverse = prime[0], 1.0 / prime[0]
    depth, width = scratch.shape[1] - 1, scratch.shape[2]
    m, n, k = a.shape[1], b.shape[1], a.shape[2]
    # As `tropical_products`. A larger value takes over with its count, an equal one adds its own, without a
    # branch. Invariant: a count is below 2^52, as it is reduced after `depth` terms of at most p^2.
    best, count = scratch[0, depth], scratch[1, depth]
    for t in range(a.shape[0]):
        for first_j in range(0, n, width):
            columns = min(width, n - first_j)
            for first_q in range(0, k, depth):
                terms = min(depth, k - first_q)
                for j in range(columns):
                    for q in range(terms):
                        pair = b[t, first_j + j, first_q + q]
                        scratch[0, q, j], scratch[1, q, j] = pair.real, pair.imag
                for i in range(m):
                    begin = 0
                    if first_q == 0:
                        left, begin = a[t, i, 0], 1
                        for j in range(columns):
                            best[j], count[j] = left.real + scratch[0, 0, j], left.imag * scratch[1, 0, j]
                    else:
                        for j in range(columns):
                            best[j], count[j] = c[t, i, first_j + j].real, c[t, i, first_j + j].imag
                    for q in range(begin, terms):
                        value, times = a[t, i, first_q + q].real, a[t, i, first_q + q].imag
                        for j in range(columns):
                            other, more = value + scratch[0, q, j], times * scratch[1, q, j]
                            counted = count[j] if other <= best[j] else 0.0
                            count[j] = counted + (more if other >= best[j] else 0.0)
                            best[j] = other if other > best[j] else best[j]
                    for j in range(columns):
                        c[t, i, first_j + j] = complex(best[j], residue(count[j], p, inverse))
