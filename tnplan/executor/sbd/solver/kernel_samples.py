"""The kernels of a solve among products of real strings, each with arguments of the types of its calls."""

from __future__ import annotations

import numpy as np

from tnplan.common.kernels.ahead import Sample, Samples
from tnplan.executor.sbd.basis import string_kernel
from tnplan.executor.sbd.basis.excitations import Matching, Singles
from tnplan.executor.sbd.lists import list_kernel
from tnplan.executor.sbd.lists.list_tables import (
    CellScratch,
    GroupLinks,
    ListCells,
    ListedSpin,
    ListTables,
    RowElements,
    RowTables,
    SpinTerms,
    StringGroups,
)
from tnplan.executor.sbd.sigma import opposite_spin_kernel
from tnplan.executor.sbd.sigma.opposite_spin import OppositeSpinTables

PRODUCT_KERNELS = tuple(
    Samples(__name__, name) for name in ("of_strings", "of_rows", "of_cells", "of_products")
)  # fmt: skip
"""The first two have functions in common, which a process of both compiles once."""
TILE_KERNELS = (Samples(__name__, "of_tiles"),)
"""What tables for a GPU need besides."""

REALS, NUMBERS = np.zeros(1), np.zeros(1, np.int64)
MATRIX = np.zeros((1, 1))
SMALL, SHORT, SIGNS = np.zeros(1, np.int32), np.zeros(1, np.int16), np.zeros(1, np.int8)
PAIRS, WORDS = np.zeros((1, 2), np.int32), np.zeros((1, 1), np.uint64)
"""Arrays of each type that the tables have."""
GROUPS = StringGroups(NUMBERS, SMALL, WORDS, SMALL, WORDS)
LINKS = GroupLinks(NUMBERS, SMALL, SHORT, SHORT, SMALL, SIGNS)
SINGLES = Singles(NUMBERS, SMALL, SHORT, SHORT, SIGNS, SMALL, NUMBERS, NUMBERS)
CELLS = ListCells(PAIRS, NUMBERS, NUMBERS, PAIRS)
SPIN = ListedSpin(GROUPS, LINKS, SpinTerms(MATRIX, MATRIX, MATRIX, REALS))


def of_strings() -> list[Sample]:
    """Tables of the strings of a spin, and the diagonal."""
    return [
        (string_kernel.count_links, (WORDS, 0, 0, NUMBERS)),
        (string_kernel.fill_dense, (WORDS, 0, 0, 0, (MATRIX, MATRIX), MATRIX)),
        (string_kernel.fill_energies, (WORDS, MATRIX, MATRIX, REALS)),
        (
            opposite_spin_kernel.fill_diagonal,
            (0, 0, (MATRIX, MATRIX, REALS), (MATRIX, MATRIX, REALS), MATRIX, REALS),
        ),
    ]  # fmt: skip


def of_rows() -> list[Sample]:
    """Rows among the determinants of least energy."""
    tables, rows = RowTables(SPIN, SPIN, CELLS), RowElements()
    return [
        (list_kernel.fill_singles, (0, 0, SPIN)),
        (list_kernel.count_rows, (0, 0, 0, tables, NUMBERS, rows)),
        (list_kernel.fill_rows, (0, 0, 0, tables, NUMBERS, rows)),
    ]


def of_cells() -> list[Sample]:
    """Excitations of both spins in these rows."""
    tables, scratch = ListTables(GROUPS, GROUPS, LINKS, LINKS), CellScratch(SMALL, SMALL, SMALL, SMALL)
    return [(list_kernel.fill_cells, (0, 0, (0, 0), tables, CELLS, scratch))]


def of_products() -> list[Sample]:
    """The Hamiltonian, and spins in exchange, times a state."""
    opposite = OppositeSpinTables(MATRIX, MATRIX, MATRIX, MATRIX, NUMBERS, PAIRS)
    matching = Matching(NUMBERS, SMALL, NUMBERS, SMALL, SMALL)
    scratch = NUMBERS, MATRIX, MATRIX
    return [
        (
            opposite_spin_kernel.add_opposite_spin,
            (0, 0, 0, 0, True, SINGLES, opposite, MATRIX, scratch, MATRIX),
        ),
        (opposite_spin_kernel.add_transpose, (0, 0, 0, 0, MATRIX)),
        (opposite_spin_kernel.exchange_spins, (0, 0, 0, 0.0, SINGLES, (matching, matching), MATRIX, MATRIX)),
    ]  # fmt: skip


def of_tiles() -> list[Sample]:
    """Elements dealt to the threads of a GPU."""
    slots = np.zeros((1, 1, 1), np.uint32)
    return [
        (
            opposite_spin_kernel.deal,
            (NUMBERS, NUMBERS, NUMBERS, slots[0, 0], SMALL, slots[0], NUMBERS, slots),
        )
    ]  # fmt: skip
