"""Products over an algebra on a GPU: tiles of the result, or a thread an element.

A bound call launches on one stream, allocates nothing and does not wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tnplan.executor.device.cuda.contract.cublas import Multiply
from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel
from tnplan.executor.device.cuda.runtime.kernel_cache import load_kernel

PRODUCT_FILE = Path(__file__).parent / "product.cu"
THREADS = 256
NAMES = {"max-plus": "MAX_PLUS", "min-plus": "MIN_PLUS", "boolean": "BOOLEAN", "residues": "RESIDUES",
         "optima": "OPTIMA"}  # fmt: skip
"""What values.cuh calls the algebras of these names."""
EACH_SIDE = 8
"""Rows or columns below which every element has a thread."""
SMALL_PRODUCT = 4096
"""The most multiplications of one product of a batch in which every element has a thread."""
SMALL_RESULT = 256
"""The most elements of a result that no tile is used for: most of its values would be beyond the result."""
THREADS_WANTED, LEAST_TERMS, MOST_PARTS = 1 << 17, 64, 1 << 12
"""Sums are cut into parts while there are fewer threads, each of so many terms at least."""
TILES_WANTED = 132
"""Of the multiprocessors of a GPU; fewer tiles are made smaller, or their sums cut."""
COSTS = (1.0, 1.5, 2.0)
"""How much an element of each tile takes."""
LEAST_LENGTH = 256
"""Terms of a part of a tile's sum."""
MOST_BLOCKS = 1 << 30


class ProductTile(NamedTuple):
    """The values of a thread, the threads along columns, and the terms that are loaded at once."""

    row_values: int
    column_values: int
    column_threads: int
    depth: int

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns."""
        return THREADS // self.column_threads * self.row_values, self.column_threads * self.column_values


TILES = {
    4: (ProductTile(8, 8, 16, 16), ProductTile(4, 4, 16, 16), ProductTile(4, 4, 4, 16)),
    8: (ProductTile(8, 4, 16, 8), ProductTile(4, 4, 16, 8), ProductTile(4, 4, 4, 8)),
    16: (ProductTile(4, 4, 16, 8), ProductTile(2, 2, 16, 8), ProductTile(2, 4, 4, 8)),
}
"""By the bytes of a value: large tiles, those of few of them, and those of few columns."""

SIZES = np.dtype([(name, np.int64) for name in ("batch", "m", "n", "k", "parts", "length")])
STRIDES = np.dtype([
    (name, np.int64) for name in (
        "a_batch", "a_row", "a_term", "b_batch", "b_row", "b_term", "c_part", "c_batch", "c_row", "c_column",
    )
])  # fmt: skip


@dataclass(frozen=True)
class ProductSides:
    """Extents of a product, whether its operands have k first, and of how many rows they are parts."""

    batch: int
    m: int
    n: int
    k: int
    a_stored: tuple[bool, int]
    b_stored: tuple[bool, int]

    @property
    def swapped(self) -> ProductSides:
        """With a and b exchanged."""
        return ProductSides(self.batch, self.n, self.m, self.k, self.b_stored, self.a_stored)


class ProductLaunch(NamedTuple):
    """How a product is launched: with operands exchanged, by tiles (None: a thread an element), in how many
    parts of what length, and how many blocks."""

    swaps: bool
    tile: ProductTile | None
    parts: int
    length: int
    blocks: int


def algebra_defines(name: str, dtype: str) -> dict[str, str | int]:
    """The definitions of values.cuh."""
    return {"ALGEBRA": NAMES[name], "DOUBLE": int(np.dtype(dtype).itemsize > 4)}


def product_defines(name: str, dtype: str, tile: ProductTile) -> dict[str, str | int]:
    """The definitions of product.cu."""
    return {
        **algebra_defines(name, dtype), "ROW_VALUES": tile.row_values, "COLUMN_VALUES": tile.column_values,
        "COLUMN_THREADS": tile.column_threads, "DEPTH": tile.depth,
    }  # fmt: skip


def chosen(sides: ProductSides, itemsize: int) -> ProductLaunch:
    """How a product of these extents is launched."""
    batch, m, n, k = sides.batch, sides.m, sides.n, sides.k
    elements = batch * m * n
    tiles = TILES[itemsize]
    large, small, narrow = tiles
    if min(m, n) < EACH_SIDE or m * n * k <= SMALL_PRODUCT or m * n <= SMALL_RESULT:
        parts = 1
        while parts < MOST_PARTS and elements * parts < THREADS_WANTED and k > 2 * parts * LEAST_TERMS:
            parts *= 2
        blocks = -(-elements * parts // THREADS)
        return ProductLaunch(False, None, parts, k, min(blocks, MOST_BLOCKS))
    # The fewest columns: rows of a tile are at least as many as its columns.
    swaps = n > m and m <= narrow.sides[1]
    m, n = (n, m) if swaps else (m, n)
    # The elements of all tiles, those beyond the result too; smaller tiles read more for each.
    areas = [prod(each.sides) * _tiles(each, m, n) for each in tiles]
    costs = [area * factor for area, factor in zip(areas, COSTS, strict=True)]
    tile = tiles[costs.index(min(costs))]
    if tile is large and batch * _tiles(large, m, n) < TILES_WANTED:
        tile = small
    count, parts = batch * _tiles(tile, m, n), 1
    while count * parts < TILES_WANTED and k > 2 * parts * LEAST_LENGTH:
        parts *= 2
    length = -(-k // parts)
    parts = -(-k // length)
    return ProductLaunch(swaps, tile, parts, length, min(count * parts, MOST_BLOCKS))


def _tiles(tile: ProductTile, m: int, n: int) -> int:
    rows, columns = tile.sides
    return -(-m // rows) * -(-n // columns)


def part_bytes(sides: ProductSides, itemsize: int) -> int:
    """The bytes of the results of parts of sums; 0 where sums are not cut."""
    parts = chosen(sides, itemsize).parts
    return parts * sides.batch * sides.m * sides.n * itemsize if parts > 1 else 0


def arguments(sides: ProductSides, launch: ProductLaunch) -> tuple[Any, Any]:
    """The sizes and strides of a launch, whose result is [batch | m | n], or with parts
    [batch | m | n | part] for a thread an element, else [part | batch | m | n]."""
    used = sides.swapped if launch.swaps else sides
    strides = [*_operand(used.a_stored, used.m, used.k), *_operand(used.b_stored, used.n, used.k)]
    unit = launch.parts if launch.tile is None else 1
    c_part = 1 if launch.tile is None else sides.batch * sides.m * sides.n
    of_row, of_column = (1, sides.n) if launch.swaps else (sides.n, 1)
    strides += [c_part, sides.m * sides.n * unit, of_row * unit, of_column * unit]
    sizes = (used.batch, used.m, used.n, used.k, launch.parts, launch.length)
    return np.array(sizes, SIZES)[()], np.array(tuple(strides), STRIDES)[()]


def _operand(stored: tuple[bool, int], rows: int, k: int) -> tuple[int, int, int]:
    """The strides of batch, rows and terms of an operand."""
    k_first, all_rows = stored
    return (all_rows * k, 1, all_rows) if k_first else (all_rows * k, k, 1)


def bind_launch(sides: ProductSides, name: str, dtype: str, modulus: int, stream: Any) -> Multiply:
    """The launch of a product with the addresses of a, b and of its result, or of those of its parts."""
    launch = chosen(sides, np.dtype(dtype).itemsize)
    tile = launch.tile or TILES[np.dtype(dtype).itemsize][0]
    entry = "product_each" if launch.tile is None else "product_tiles"
    kernel = load_kernel(PRODUCT_FILE, entry, product_defines(name, dtype, tile))
    addresses = [np.uint64(0)] * 3
    bound = BoundKernel(
        kernel, launch.blocks, THREADS, [*addresses, np.uint64(modulus), *arguments(sides, launch)], 0, stream
    )

    def multiply(a: int, b: int, c: int) -> None:
        bound.put(0, b if launch.swaps else a)
        bound.put(1, a if launch.swaps else b)
        bound.at(2, c)

    return multiply
