"""Which way each part of a multiplication takes, and what it needs of memory, from counts alone.

Knows numbers of strings and excitations; no array.

The rates are those of one core, or of one GPU; only their ratios matter for a choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Rates:
    """Operations a second of dense and of sparse products; bytes of products written and read again, and the
    seconds of one of them that is collected."""

    gemm_flop_per_s: float
    sparse_flop_per_s: float
    bytes_per_s: float
    collect_s: float


SECTOR_BYTES = 32
"""What a GPU reads for one element."""
CPU = Rates(35e9, 6e9, 2e10, 1.2e-9)
GPU = Rates(50e12, 7.5e11, 4e12, SECTOR_BYTES / 4e12)
"""A sparse product on a GPU reads 8 bytes for two operations, at about 3e12 bytes a second."""
GPU_GATHER_S = 8e-12
"""Of one product of a gathered element: a sector of 32 bytes from the level-2 cache, and its weight."""
SCATTER_S = 1.2e-9
GATHER_S = 1.2e-9
"""Of one excitation, from the lower string to the upper one and back."""
HELD_BYTES = 1 << 19
"""Rows of the half-transformed state that are made at once are kept within this, so that caches hold them."""


def dense_is_faster(n_strings: int, n_linked: int, rates: Rates) -> bool:
    """Whether the same-spin product is faster with a dense matrix than by its nonzero elements."""
    return n_strings * n_strings / rates.gemm_flop_per_s <= n_linked / rates.sparse_flop_per_s


def row_seconds(
    linked: Any, singles: Any, products: Any, n_strings: int, columns: int, entries: float, rates: Rates
) -> Any:
    """The work of alpha rows for one beta string, from counts of each row.

    `linked` are the elements of its row of the alpha matrix among `n_strings`, `singles` its excitations,
    `products` those of the mixed-spin part, which fill `columns`; a beta string collects `entries`.
    """
    spin = np.minimum(2 * linked / rates.sparse_flop_per_s, 2 * n_strings / rates.gemm_flop_per_s)
    moved = 8 * (columns + 2 * (singles + 1)) / rates.bytes_per_s
    return spin + 2 * products / rates.gemm_flop_per_s + moved + entries * rates.collect_s


def dense_bytes(n_rows: int, n_strings: int) -> int:
    """The memory of rows of a dense same-spin matrix."""
    return 8 * n_rows * n_strings


def gather_is_faster(n_beta: int, singles_alpha: float, excitations: int) -> bool:
    """Whether sums over one pair of beta orbitals are faster by visiting its excitations than by products.

    `singles_alpha` is the mean number of singles of an alpha string, `excitations` are those of the pair.
    """
    by_products = 2 * singles_alpha * n_beta / CPU.gemm_flop_per_s + excitations * SCATTER_S
    return singles_alpha * excitations * GATHER_S < by_products


def batch_gathers(places: int, width: int, n_beta: int, entries: int) -> bool:
    """Whether a range of columns is faster on a GPU by visiting its excitations than by products.

    `width` columns are sums over `places`; all beta strings collect `entries` of their elements.
    """
    kept = width * n_beta * (8 / GPU.bytes_per_s + 2 * places / GPU.gemm_flop_per_s)
    return entries * places * GPU_GATHER_S < kept + entries * GPU.collect_s


def held_rows(n_beta: int, active_pairs: int) -> int:
    """How many pairs of orbitals a half-product makes at once."""
    return max(1, min(active_pairs, HELD_BYTES // (8 * n_beta)))


def scratch_bytes(n_beta: int, most_singles: int, active_pairs: int, n_orbitals: int) -> int:
    """What one thread needs to form the mixed-spin part of a row."""
    rows = held_rows(n_beta, active_pairs) if active_pairs else 0
    rows_of_beta = most_singles + 1 + max(rows, n_orbitals)
    return 8 * (n_beta * (rows_of_beta + 1) + (most_singles + 1) * (active_pairs + n_orbitals))
