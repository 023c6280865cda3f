"""A sum of Pauli words as flat tables, by x. Knows masks of bits; no state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tnplan.common.arrays import Array

BLOCK = 64
"""Neighbouring indices for which a diagonal is made at once."""


class WordTable(NamedTuple):
    """The words of group g have the mask x[g]; its runs are ends[g] .. ends[g + 1] - 1.

    The words of run r, run_ends[r] .. run_ends[r + 1] - 1, have the bits near[r] of z inside of a block.
    `signs`, float64 [mask, i], are those of bits by index in a block.
    """

    x: Array
    ends: Array
    near: Array
    run_ends: Array
    z: Array
    factor_re: Array
    factor_im: Array
    signs: Array


class WordScratch(NamedTuple):
    """float64 numbers of a block: the sum times the state, and the diagonal of a group."""

    re: Array
    im: Array
    diagonal_re: Array
    diagonal_im: Array


def word_table(words: Sequence[tuple[int, int, complex]], n_amplitudes: int) -> WordTable:
    """The tables of words, masks x and z and factors, of a state of so many amplitudes."""
    # Sorted by x, then by the bits of z within a block, then by z: groups and runs are neighbours
    # in the table.
    block = min(BLOCK, n_amplitudes)
    ordered = sorted(words, key=lambda word: (word[0], word[1] & (block - 1), word[1]))
    x, z = (np.array([word[mask] for word in ordered], np.int64) for mask in (0, 1))
    keys, run_starts = np.unique(x * block | z & (block - 1), return_index=True)
    groups, starts = np.unique(keys // block, return_index=True)
    factors = np.array([word[2] for word in ordered], np.complex128)
    indices = np.arange(block)
    odd = np.bitwise_count(indices[:, None] & indices) & 1
    return WordTable(
        groups, np.append(starts, len(keys)), keys % block, np.append(run_starts, len(ordered)), z,
        factors.real.copy(), factors.imag.copy(), 1.0 - 2.0 * odd,
    )  # fmt: skip


def word_scratch(n_amplitudes: int) -> WordScratch:
    """Scratch memory for blocks of a state of so many amplitudes."""
    return WordScratch(*np.empty((4, min(BLOCK, n_amplitudes))))
