"""Excitations of alpha, sorted by the beta string of the determinant that they lead from.

A determinant (a, b) couples by excitations of both spins to determinants (a', b') of the list, a' being
linked to a and b' to b. The entries of alpha string a are all determinants (a', b') whose a' is linked to a;
those with the same b' stand together, in a cell. So the couplings of a row are the cells (a, b') of the
strings b' that are linked to b. A cell serves all rows of its alpha string. For s links of a string and N
determinants the tables take 16 s N bytes, where the couplings themselves grow as s^2 N.

Knows tables of groups and links; no integrals and no states.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.device.cpu.parallel_rows import over_rows
from tnplan.executor.sbd.lists.list_tables import ListTables


class ListCells(NamedTuple):
    """The cells of the rows of one rank.

    Entry i is entries[i, 0], a determinant, and entries[i, 1], the code of its excitation: 4 times the pair,
    2 more where it creates the higher orbital, 1 more where it has a minus. For the m-th link of its beta
    string, row i has the entries base[i] + cells[s, 0] .. base[i] + cells[s, 1]-1, where s is start[i] + m.
    """

    entries: Array
    base: Array
    start: Array
    cells: Array

    @property
    def size_bytes(self) -> int:
        """The memory of all tables."""
        return sum(table.nbytes for table in self)

    @property
    def couplings(self) -> int:
        """How many couplings there are by excitations of both spins."""
        return int((self.cells[:, 1] - self.cells[:, 0]).sum(dtype=np.int64))


def list_cells(tables: ListTables, rows: tuple[int, int], threads: int) -> ListCells:
    """The cells of rows[0] .. rows[1]-1."""
    from tnplan.executor.sbd.lists import list_cells_kernel

    # Entries of an alpha string are the determinants of all linked strings: their number is known
    # before, so each group has a place of its own and threads need no order.
    n_entries, n_cells = _counts(tables, rows)
    base = np.concatenate([[0], np.cumsum(n_entries)])
    start = np.concatenate([[0], np.cumsum(n_cells)])
    entries = np.empty((base[-1], 2), np.int32)
    cells = np.empty((start[-1], 2), np.int32)
    beta_of = tables.beta.number[tables.alpha.place]

    def groups(first: int, last: int) -> None:
        scratch = np.zeros((3, len(tables.beta.own)), np.int32)
        list_cells_kernel.fill_cells(
            first, last, *rows, tables.alpha, tables.alpha_links, tables.beta_links, beta_of, base, start,
            entries, cells, scratch,
        )  # fmt: skip

    over_rows(len(n_entries), threads, groups)
    return ListCells(entries, base[tables.alpha.number[slice(*rows)]], start, cells)


def _counts(tables: ListTables, rows: tuple[int, int]) -> tuple[Array, Array]:
    """Entries of every alpha group that has one of the rows, and cells of every row."""
    alpha, beta = tables.alpha, tables.beta
    local = slice(*rows)
    n_entries = tables.alpha_links.linked_members(alpha.begin)
    n_entries = n_entries * (np.bincount(alpha.number[local], minlength=len(n_entries)) > 0)
    return n_entries, np.diff(tables.beta_links.start)[beta.number[local]]
