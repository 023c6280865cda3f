"""The steps of a product among a list of determinants on a GPU; list_rows.cu says what each does.

Knows CuPy and launches; nothing of strings and integrals. Everything runs on one stream.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from tnplan.executor.device.cuda.runtime.kernel_cache import load_kernel
from tnplan.executor.sbd.lists.batched_list import CellPiece, GroupRows, LinkedEntries, LinkedRows
from tnplan.executor.sbd.lists.list_hamiltonian import ROWS
from tnplan.executor.sbd.lists.list_tables import SortedCells

Array = Any
"""A cupy.ndarray."""

FILE = Path(__file__).parent / "list_rows.cu"
THREADS = 256
"""Threads of a block."""
LANES = 8
"""Lanes of a warp that take the entries of one cell."""
MOST_CANDIDATES = 1024
"""In the shared memory of a block."""
CHUNK_BYTES = 40_000
"""Of shared memory that candidates take, at most."""


def list_defines(n_orbitals: int, counting: bool = False) -> dict[str, str | int]:
    """The definitions of list_rows.cu for strings of so many orbitals."""
    bits = 32 if n_orbitals <= 32 else 64
    words = -(-n_orbitals // bits)
    chunk = min(MOST_CANDIDATES, CHUNK_BYTES // (bits // 8 * words + 12) // 32 * 32)
    return {
        "WORDS": words, "BITS": bits, "THREADS": THREADS, "CHUNK": chunk, "ROWS": ROWS, "LANES": LANES,
        "COUNTING": int(counting),
    }  # fmt: skip


def list_words(words: np.ndarray, n_orbitals: int) -> np.ndarray:
    """64-bit words of strings as the kernels take them: 32-bit ones where that is enough."""
    return words[:, :1].astype(np.uint32) if n_orbitals <= 32 else words


def blocks_of(count: int) -> int:
    """Blocks that have so many threads together."""
    return -(-count // THREADS)


class CupyList:
    """See `batched_list.ListSteps`. Works on the GPU and the stream that are current at first."""

    def __init__(self, n_orbitals: int) -> None:
        """Gives back memory that CuPy keeps for arrays that are gone."""
        cupy.get_default_memory_pool().free_all_blocks()
        self._n = n_orbitals
        self._kernel = cache(
            lambda entry, counting: load_kernel(FILE, entry, list_defines(n_orbitals, counting))
        )

    @property
    def arrays(self) -> Any:
        """The library of the arrays."""
        return cupy

    def put(self, array: np.ndarray) -> Array:
        """A copy on the GPU; words of strings as the kernels take them."""
        converted = list_words(array, self._n) if array.dtype == np.uint64 else array
        return cupy.asarray(np.ascontiguousarray(converted))

    def get(self, array: Array) -> np.ndarray:
        """A copy on the host."""
        return cupy.asnumpy(array)

    def empty(self, *shape: int) -> Array:
        """An array there, not set."""
        return cupy.empty(shape)

    def add_diagonal(self, above: int, diagonal: Array, x: Array, y: Array) -> None:
        """y[i] += diagonal[i] x[above + i]."""
        sizes = map(np.int64, (len(y), above))
        self.launch("diagonal_rows", False, blocks_of(len(y)), *sizes, diagonal, x, y)

    def add_same_spin(self, above: int, rows: GroupRows, x: Array, y: Array, counting: bool) -> None:
        """Add to y the excitations of one spin, or their numbers."""
        begin, determinants, words, _, own = rows.groups
        self.launch(
            "same_spin", counting, len(rows.tasks.table), np.int32(self._n), np.int32(len(rows.terms.two)),
            np.int64(above), *rows.tasks, begin, determinants, words, own, *rows.terms[:3], x, y,
        )  # fmt: skip

    def sorted_cells(self, linked: LinkedEntries, groups: tuple[int, int]) -> SortedCells:
        """The cells of groups groups[0] .. groups[1]-1, counted from the first of them."""
        (first, last), lib, links = groups, self.arrays, linked.links
        base = linked.base[first : last + 1] - linked.base[first]
        starts = self.get(links.start[first : last + 1])
        begin, end = int(starts[0]), int(starts[-1])
        numbers = np.repeat(np.arange(last - first, dtype=np.uint32), np.diff(starts))
        before = self.put(linked.before[begin : end + 1] - linked.before[begin])
        keys, unsorted = lib.empty(base[-1], np.uint32), lib.empty(base[-1], np.int64)
        self.launch(
            "link_entries", False, blocks_of(32 * (end - begin)), np.int64(begin), np.int64(end),
            np.uint32(linked.n_betas), self.put(numbers), before, *linked.groups[:2], linked.betas,
            *links[1:], keys, unsorted,
        )  # fmt: skip
        # Invariant: a stable sort keeps the order of links and members in a cell, and so that of every sum.
        order = lib.argsort(keys, kind="stable")
        entries, keys = unsorted[order], keys[order]
        del unsorted, order
        is_first = lib.ones(len(keys), bool)
        is_first[1:] = keys[1:] != keys[:-1]
        at = lib.flatnonzero(is_first)
        of_cells = keys[at].astype(np.int64)
        groups_of_cells = of_cells // linked.n_betas
        strings = (of_cells - linked.n_betas * groups_of_cells).astype(np.int32)
        counts = self.get(lib.bincount(groups_of_cells, minlength=last - first))
        cells = self.put(np.concatenate([[0], np.cumsum(counts)]))
        from_group = self.put(base)
        return SortedCells(
            entries, from_group, cells, strings, (at - from_group[groups_of_cells]).astype(np.int32)
        )  # fmt: skip

    def add_opposite_spin(
        self, above: int, linked: LinkedEntries, piece: CellPiece, x: Array, y: Array, counting: bool
    ) -> None:
        """Add to y the excitations of both spins of a piece with cells, or their numbers."""
        assert piece.cells is not None
        start, other, _, _, pairs, sign = linked.beta_links
        sizes = *map(np.int64, (len(piece.members), above)), np.int32(linked.two.shape[1])
        self.launch(
            "opposite_spin", counting, blocks_of(32 * len(piece.members)), *sizes, np.int32(piece.groups[0]),
            piece.members, piece.row_groups, linked.groups.determinants, linked.betas, start, other, pairs,
            sign, *piece.cells, linked.two, x, y,
        )  # fmt: skip

    def add_exchange(self, above: int, rows: LinkedRows, factor: float, x: Array, y: Array) -> None:
        """Add to y factor times the sum over p != q of E^a_pq E^b_qp x."""
        begin, determinants, words, _, _ = rows.groups
        start, other, create, destroy, _, sign = rows.links
        sizes = *map(np.int64, (len(y), above)), np.float64(factor)
        self.launch(
            "exchange", False, blocks_of(len(y)), *sizes, rows.members, rows.row_groups, begin, determinants,
            words, start, other, create, destroy, sign, x, y,
        )  # fmt: skip

    def launch(self, entry: str, counting: bool, blocks: int, *arguments: Any) -> None:
        """Run a kernel in so many blocks; nothing where there is none."""
        if blocks:
            self._kernel(entry, counting)((blocks,), (THREADS,), arguments)
