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
    """Operations a second of dense and of sparse products within a spin, and whether batches make rows."""

    gemm_flop_per_s: float
    sparse_flop_per_s: float
    batched: bool


CPU = Rates(50e9, 17e9, False)
GPU = Rates(50e12, 7.5e11, True)
"""A sparse product on a GPU reads 8 bytes for two operations, at about 3e12 bytes a second."""
VALUE_S, PRODUCT_S = 1e-9, 8e-11
"""On a core: an element of a row is brought to its lane; one of its products with an excitation of beta."""
GPU_BYTES_PER_S = 4e12
GPU_COLLECT_S = 32 / GPU_BYTES_PER_S
"""Of one element that is collected: a sector is read for it."""
GPU_GATHER_S = 8e-12
"""Of one product of a gathered element: a sector of 32 bytes from the level-2 cache, and its weight."""


def dense_is_faster(n_strings: int, n_linked: int, rates: Rates) -> bool:
    """Whether the same-spin product is faster with a dense matrix than by its nonzero elements."""
    return n_strings * n_strings / rates.gemm_flop_per_s <= n_linked / rates.sparse_flop_per_s


def spin_seconds(linked: Any, n_strings: int, rates: Rates) -> Any:
    """The part within a spin of alpha rows, for one beta string, from their elements of the alpha matrix."""
    return np.minimum(2 * linked / rates.sparse_flop_per_s, 2 * n_strings / rates.gemm_flop_per_s)


def gathered_seconds(singles: Any, excitations: float) -> Any:
    """The mixed-spin part of rows with so many singles on a core, for a beta string with `excitations`."""
    return singles * (VALUE_S + excitations * PRODUCT_S)


def batched_seconds(singles: Any, products: Any, columns: int, entries: float) -> Any:
    """The mixed-spin part of rows on a GPU, for a beta string that collects `entries` of `columns`.

    `products` are those that matrix products make.
    """
    moved = 8 * (columns + 2 * (singles + 1)) / GPU_BYTES_PER_S
    return 2 * products / GPU.gemm_flop_per_s + moved + entries * GPU_COLLECT_S


def dense_bytes(n_rows: int, n_strings: int) -> int:
    """The memory of rows of a dense same-spin matrix."""
    return 8 * n_rows * n_strings


def batch_gathers(places: int, width: int, n_beta: int, entries: int) -> bool:
    """Whether a range of columns is faster on a GPU by visiting its excitations than by products.

    `width` columns are sums over `places`; all beta strings collect `entries` of their elements.
    """
    kept = width * n_beta * (8 / GPU_BYTES_PER_S + 2 * places / GPU.gemm_flop_per_s)
    return entries * places * GPU_GATHER_S < kept + entries * GPU_COLLECT_S
