"""Rows of independent sets of grids: the kernels on a CPU, and on a GPU, beside sums over all words."""

from __future__ import annotations

from importlib.util import find_spec
from math import prod
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.kernels.emulator import EmulatedKernels, needs_compiler, source
from tests.support.kernels.gpus import needs_gpus
from tnplan.executor.device import select
from tnplan.questions.combinatorial.counting import count_grid

pytestmark = pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy, which brings the compiler")
SETS = [2, 7, 63, 1234, 55447, 5598861, 1280128950, 660647962955, 770548397261707, 2030049051145980050]
"""OEIS A006506 from n = 1 on."""
PRIME = 536870909


def emulated_text() -> str:
    """The kernels with shared memory as the emulator has it."""
    from tnplan.executor.device.cuda.algebra.grid_rows import ROWS_FILE

    given = "extern __shared__ unsigned tile[]"
    text = source(ROWS_FILE)
    assert given in text
    return text.replace(given, "static unsigned tile[TILE]")


def words_of(width: int) -> np.ndarray:
    """The sites of every index of a vector; -1 where two neighbours are chosen."""
    from tnplan.executor.device.cuda.algebra.grid_rows import sizes

    of_block = [word for word in range(16) if not word & word << 1]
    blocks, _, size = sizes(width)
    words = []
    for index in range(size):
        word = sum(of_block[index >> 3 * block & 7] << 4 * block for block in range(blocks))
        words.append(-1 if word & word << 1 else word)
    return np.array(words)


@needs_compiler
@pytest.mark.parametrize(
    ("width", "cut"),
    [
        (1, None), (3, None), (4, None), (7, None), (10, None), (13, ((0, 2, 0), (2, 1, 1), (3, 1, 3))),
        (14, ((0, 2, 0), (2, 1, 3), (3, 1, 5))), (13, ((0, 3, 0), (3, 1, 5))),
    ],
)  # fmt: skip
def test_a_row_is_the_matrix_of_all_words(width: int, cut: Any) -> None:
    """In one pass and in several, whose tiles have bits of blocks below."""
    from tnplan.executor.device.cuda.algebra import grid_rows

    blocks, _, size = grid_rows.sizes(width)
    made = grid_rows.passes(blocks) if cut is None else [grid_rows.RowPass(*each) for each in cut]
    text = emulated_text()
    words = words_of(width)
    vector = np.zeros(size, np.uint32)
    vector[0] = 1
    start = np.random.default_rng(width).integers(0, PRIME, size).astype(np.uint32)
    start[words < 0] = 0
    for given in (vector, start):
        found = given
        for _ in range(2):
            wanted = by_sites(found, words, width, PRIME)
            found = found.copy()
            for one in made:
                kernels = EmulatedKernels(text, grid_rows.rows_defines(one))
                row = grid_rows.row_argument(width, one, PRIME)
                kernels("replace_group", (min(int(row["tiles"]), 5), 1), one.threads, found, row)
            np.testing.assert_array_equal(found, wanted.astype(np.uint32))


def by_sites(vector: np.ndarray, words: np.ndarray, width: int, prime: int) -> np.ndarray:
    """A row by one sum over subsets: new[y] is the sum of old over the subsets of the sites that y leaves."""
    table = np.zeros(1 << width, np.int64)
    table[words[words >= 0]] = vector[words >= 0]
    for site in range(width):
        halves = table.reshape(-1, 2, 1 << site)
        halves[:, 1] = (halves[:, 0] + halves[:, 1]) % prime
    rest = (1 << width) - 1
    return np.where(words >= 0, table[rest ^ np.maximum(words, 0)], 0)


@needs_compiler
def test_terms_by_the_kernels() -> None:
    """All of a number but its launches: powers from both sides, the inner product, and the remainders."""
    from tnplan.executor.device.cuda.algebra import grid_rows

    class Emulated(grid_rows.GridRows):
        def __init__(self, width: int) -> None:
            self.width, self.passes = width, grid_rows.passes(grid_rows.sizes(width)[0])

        def residue(self, height: int, prime: int) -> int:
            half, is_odd = divmod(height + 1, 2)
            x = np.zeros(grid_rows.sizes(self.width)[2], np.uint32)
            x[0] = 1
            for _ in range(half):
                x = self._after(x, prime)
            y = self._after(x, prime) if is_odd else x
            (one,) = self.passes
            sums = np.zeros(3 * one.threads, np.uint64)
            kernels = EmulatedKernels(text, grid_rows.rows_defines(one))
            kernels("dot", (3, 1), one.threads, x, y, sums, np.int64(x.size), np.uint32(prime))
            return sum(sums.tolist()) % prime

        def _after(self, vector: np.ndarray, prime: int) -> np.ndarray:
            vector = vector.copy()
            for one in self.passes:
                row = grid_rows.row_argument(self.width, one, prime)
                kernels = EmulatedKernels(text, grid_rows.rows_defines(one))
                kernels("replace_group", (min(int(row["tiles"]), 5), 1), one.threads, vector, row)
            return vector

    text = emulated_text()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid_rows, "GridRows", Emulated)
        patch.setattr(select, "free_gpu_bytes", lambda number: 1)
        for n in (1, 2, 5, 8, 9, 10):
            assert count_grid((n, n))[0] == SETS[n - 1]
            assert grid_rows.most_sets(n, n) >= SETS[n - 1]
        assert count_grid((6, 17))[0] == tnplan.count("independent-sets", "grid 6x17").value


def test_tiles_that_are_left_out() -> None:
    """Their share is that of the indices of the fixed blocks that collide."""
    from tnplan.executor.device.cuda.algebra import grid_rows

    for width in (20, 29, 32):
        blocks, _, _ = grid_rows.sizes(width)
        for one in grid_rows.passes(blocks):
            row = grid_rows.row_argument(width, one, PRIME)
            number, left = np.arange(int(row["tiles"])), 0
            between, shift = 3 * one.first - one.low, 3 * one.first
            base = (number & ((1 << between) - 1)) << one.low | number >> between << (shift + 3 * one.group)
            collides = np.zeros(len(base), bool)
            for border in range(blocks - 1):
                if int(row["borders"]) >> 3 * border & 1:
                    ends, begins = (base >> 3 * border) & 7, (base >> 3 * border + 3) & 7
                    collides |= (ends >= 5) & np.isin(begins, (1, 4, 6))
            left = 1 - collides.mean()
            assert left == pytest.approx(grid_rows.pass_share(width, one), rel=1e-12)


@needs_gpus(1)
@pytest.mark.parametrize("width", [1, 4, 9, 15, 17, 20, 21, 23, 24])
def test_grids_on_a_gpu(width: int) -> None:
    for height in (1, 2, width, width + 1):
        wanted = tnplan.count("independent-sets", f"grid {width}x{height}", device="cpu").value
        assert count_grid((width, height))[0] == wanted


def test_residues_of_all_32_bits() -> None:
    """The quotient by the rounded inverse is one too small at most."""
    x = np.random.default_rng(1).integers(0, 2**32, 10**5, np.uint64)
    for p in (PRIME, 536870879, 400000009):
        rest = x - (x * np.uint64(2**32 // p) >> np.uint64(32)) * np.uint64(p)
        assert rest.max() < 2 * p
        assert prod((8, p - 1)) < 2**32
