"""Which way each part of a multiplication takes on a CPU, and what it needs of memory, from counts alone.

Knows numbers of strings and excitations; no array.

The rates are those of one core; only their ratios matter for a choice.
"""

from __future__ import annotations

GEMM_FLOP_PER_S = 35e9
SPARSE_FLOP_PER_S = 6e9
SCATTER_S = 1.2e-9
GATHER_S = 1.2e-9
"""Of one excitation, from the lower string to the upper one and back."""
HELD_BYTES = 1 << 19
"""Rows of the half-transformed state that are made at once are kept within this, so that caches hold them."""


def dense_is_faster(n_strings: int, n_linked: int) -> bool:
    """Whether the same-spin product is faster with a dense matrix than by its nonzero elements."""
    return n_strings * n_strings / GEMM_FLOP_PER_S <= n_linked / SPARSE_FLOP_PER_S


def dense_bytes(n_strings: int) -> int:
    """The memory of a dense same-spin matrix."""
    return 8 * n_strings * n_strings


def sparse_bytes(n_linked: int) -> int:
    """The memory of a sparse same-spin matrix."""
    return 12 * n_linked


def gather_is_faster(n_beta: int, singles_alpha: float, excitations: int) -> bool:
    """Whether sums over one pair of beta orbitals are faster by visiting its excitations than by products.

    `singles_alpha` is the mean number of singles of an alpha string, `excitations` are those of the pair.
    """
    by_products = 2 * singles_alpha * n_beta / GEMM_FLOP_PER_S + excitations * SCATTER_S
    return singles_alpha * excitations * GATHER_S < by_products


def held_rows(n_beta: int, active_pairs: int) -> int:
    """How many pairs of orbitals a half-product makes at once."""
    return max(1, min(active_pairs, HELD_BYTES // (8 * n_beta)))


def scratch_bytes(n_beta: int, most_singles: int, active_pairs: int, n_orbitals: int) -> int:
    """What one thread needs to form the mixed-spin part of a row."""
    rows = held_rows(n_beta, active_pairs) if active_pairs else 0
    rows_of_beta = most_singles + 1 + max(rows, n_orbitals)
    return 8 * (n_beta * (rows_of_beta + 1) + (most_singles + 1) * (active_pairs + n_orbitals))
