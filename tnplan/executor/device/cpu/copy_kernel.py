"""The kernels of the CPU: copies, sums, small products, chains.

Each kernel is one call over flat arrays, releases the interpreter lock, and has a NumPy twin for tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.kernels.kernel import kernel

jit = kernel(nogil=True)


@jit
def copy_elements(
    arrays: Any, tables: Any, target_start: int, source_start: int, first: int, last: int
) -> None:  # fmt: skip
    """target[...] = source[...] for outer entries first .. last-1 of tables whose runs are one element.

    `arrays` are target and source, `tables` the `CopyTables`.
    """
    # A table has four levels one after the other, outer | middle | columns | inner; an offset is the sum of
    # an entry of each. A call does a range of the outer ones.
    # Invariant: different outer entries write different elements, so that their ranges may run at once.
    (target, source), (source_table, target_table, outer, middle, columns, _) = arrays, tables
    column, inner = outer + middle, outer + middle + columns
    target_inner, source_inner = target_table[inner:], source_table[inner:]
    for o in range(first, last):
        for i in range(outer, column):
            t_row = target_table[o] + target_table[i] + np.uint64(target_start)
            s_row = source_table[o] + source_table[i] + np.uint64(source_start)
            for c in range(column, inner):
                t = t_row + target_table[c]
                s = s_row + source_table[c]
                for j in range(target_inner.size):
                    target[t + target_inner[j]] = source[s + source_inner[j]]


@jit
def copy_runs(
    arrays: Any, tables: Any, target_start: int, source_start: int, first: int, last: int, add: bool
) -> None:  # fmt: skip
    """Like `copy_elements`, with runs of `run` elements, which are added to the target if `add`."""
    (target, source), (source_table, target_table, outer, middle, columns, run) = arrays, tables
    # Unsigned like the tables: an index of mixed signs would become a float in numba.
    length = np.uint64(run)
    column, inner = outer + middle, outer + middle + columns
    target_inner, source_inner = target_table[inner:], source_table[inner:]
    for o in range(first, last):
        for i in range(outer, column):
            t_row = target_table[o] + target_table[i] + np.uint64(target_start)
            s_row = source_table[o] + source_table[i] + np.uint64(source_start)
            for c in range(column, inner):
                t = t_row + target_table[c]
                s = s_row + source_table[c]
                for j in range(target_inner.size):
                    a = t + target_inner[j]
                    b = s + source_inner[j]
                    if add:
                        for r in range(length):
                            target[a + r] += source[b + r]
                    else:
                        for r in range(length):
                            target[a + r] = source[b + r]


@jit
def small_products(a: Any, b: Any, c: Any) -> None:
    """c[t, i, j] = sum over q of a[t, i, q] b[t, j, q]; shapes (b, m, k), (b, n, k), (b, m, n)."""
    for t in range(a.shape[0]):
        for i in range(a.shape[1]):
            for j in range(b.shape[1]):
                # Begun with the first term: k is at least 1, and no zero of the right type is needed.
                total = a[t, i, 0] * b[t, j, 0]
                for q in range(1, a.shape[2]):
                    total += a[t, i, q] * b[t, j, q]
                c[t, i, j] = total


@jit
def fused_tiles(operand: Any, branches: Any, out: Any, scratch: Any, chain: Any, end: Any) -> None:
    """Every tile of the operand through all stages of a chain, by its `cpu.fused.TileTables`.

    `branches` holds all branches one after the other, each [n | k]; `scratch` two tiles. The end of a chain
    says whether it adds, whether it closes, and an array of one number: if it closes it adds to that the
    products with `out`, which it does not write.
    """
    (tile_source, tile_target, gather, scatter, tables, sizes), (adds, closes, closed) = chain, end
    zero = operand.dtype.type(0)
    for t in range(tile_source.size):
        # Two halves of the scratch memory take turns: nothing between two stages leaves it (fused contraction
        # of a chain).
        tile, next_tile = scratch[0], scratch[1]
        for i in range(gather.size):
            tile[i] = operand[tile_source[t] + gather[i]]
        branch = 0
        table = 0
        for stage in range(sizes.shape[0]):
            m, n, k = sizes[stage]
            for i in range(m):
                # next[m, n] = sum over k of held[place(m) + place(k)] branch[n, k]; places of the stage's
                # operand, whatever the order in which the stage before left it.
                start = tables[table + i]
                for j in range(n):
                    total = zero
                    for q in range(k):
                        total += tile[start + tables[table + m + q]] * branches[branch + j * k + q]
                    next_tile[i * n + j] = total
            branch += n * k
            table += m + k
            tile, next_tile = next_tile, tile
        for i in range(scatter.size):
            at = tile_target[t] + scatter[i]
            if closes:
                closed[0] += tile[i] * out[at]
            else:
                out[at] = out[at] + tile[i] if adds else tile[i]
