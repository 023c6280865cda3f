"""Adding, multiplying and filling on a GPU as an algebra does: bound once to flat arrays, on a stream.

A bound call allocates nothing and waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.executor.device.cuda.algebra.products import (
    THREADS,
    ProductSides,
    algebra_defines,
    bind_launch,
    chosen,
    part_bytes,
)
from tnplan.executor.device.cuda.contract import Product
from tnplan.executor.device.cuda.contract.cublas import Multiply
from tnplan.executor.device.cuda.contract.dispatch import bind_in_tiles
from tnplan.executor.device.cuda.copy.permute import sum_levels
from tnplan.executor.device.cuda.copy.tiling import parts as boxes_of
from tnplan.executor.device.cuda.copy.tiling import two_levels
from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel, on_device
from tnplan.executor.device.cuda.runtime.kernel_cache import load_kernel
from tnplan.executor.device.protocols.copy import Copy, offsets
from tnplan.executor.device.protocols.device import Call, ContractShape, call_in_turn, nothing

Array = Any
"""A flat cupy.ndarray: a view of memory that stays where it is."""

SUMS_FILE = Path(__file__).parent / "sums.cu"
MOST_BLOCKS = 132 * 32
LONG_SUM, MANY_OUTPUTS = 1024, 1 << 14
"""Sums of at least so many terms, if they are fewer, have a block each."""


def sums_defines(name: str, dtype: str, lanes: int) -> dict[str, str | int]:
    """The definitions of sums.cu; `lanes` threads share a sum."""
    return {**algebra_defines(name, dtype), "LANES": lanes}


class AlgebraKernels:
    """What an algebra of a name does on a stream, with the modulus at an address of the GPU.

    `scratch` gives flat memory of so many bytes, which calls share.
    """

    def __init__(self, name: str, modulus: int, stream: Any, scratch: Callable[[int], Array]) -> None:
        self._name, self._modulus, self._stream, self._scratch = name, np.uint64(modulus), stream, scratch
        self._fills: dict[tuple[int, int], Call] = {}

    def fill(self, target: Array) -> None:
        """Fill with what adds nothing."""
        if not target.size:
            return
        key = int(target.data.ptr), int(target.size)
        if key not in self._fills:
            arguments = [np.uint64(key[0]), np.int64(key[1])]
            self._fills[key] = self._bound("fill", target, target.size, arguments)
        self._fills[key]()

    def _bound(
        self, entry: str, target: Array, threads: int, arguments: list[Any], table: Any = None, lanes: int = 1
    ) -> BoundKernel:  # fmt: skip
        """A kernel of sums.cu for the dtype of the target, with so many threads at most."""
        kernel = load_kernel(SUMS_FILE, entry, sums_defines(self._name, target.dtype.name, lanes))
        blocks = min(MOST_BLOCKS, -(-threads // THREADS))
        return BoundKernel(kernel, blocks, THREADS, arguments, 0, self._stream, table)

    def bind_add(self, target: Array, source: Array, copy: Copy, rows: tuple[int, int] | None = None) -> Call:
        """Add a box of the source, or a range of its leading rows, to that of the target."""
        boxes = boxes_of(copy, rows)
        return call_in_turn([
            self._add_box(target[box.target_start :], source[box.source_start :], box.copy) for box in boxes
        ])  # fmt: skip

    def _add_box(self, target: Array, source: Array, copy: Copy) -> Call:
        levels = two_levels([*copy.lead, *copy.axes])
        pairs = [np.stack([offsets(axes, 1), offsets(axes, 2)], axis=1) for axes in levels]
        (table,) = on_device(np.concatenate(pairs))
        arguments = [
            *(np.uint64(array.data.ptr) for array in (target, source, table)), self._modulus,
            *(np.int64(len(level)) for level in pairs), np.int64(copy.run),
        ]  # fmt: skip
        return self._bound("add_box", target, copy.elements, arguments, table)

    def bind_sum(
        self, target: Array, source: Array, extents: tuple[int, ...], in_target: tuple[bool, ...]
    ) -> Call:
        """Sum a row-major source over the axes that are not kept."""
        if not target.size:
            return nothing
        if not source.size:
            return partial(self.fill, target)
        return self._sum(target, source, extents, in_target)

    def _sum(
        self, target: Array, source: Array, extents: tuple[int, ...], in_target: tuple[bool, ...]
    ) -> BoundKernel:
        table, lengths = sum_levels(extents, in_target)
        is_long = target.size < MANY_OUTPUTS and lengths[2] * lengths[3] >= LONG_SUM
        lanes = THREADS if is_long else 1
        arguments = [
            *(np.uint64(array.data.ptr) for array in (target, source, table)), self._modulus,
            *map(np.int64, lengths),
        ]  # fmt: skip
        return self._bound("sum_axes", target, target.size * lanes, arguments, table, lanes)

    def bind_contract(self, product: Product, workspace: Array | None) -> Call:
        """A batched product, written directly, or tile by tile through the workspace."""
        shape, a, b, c, _ = product
        n_batch, m, n, k = shape.sizes
        if n_batch * m * n == 0:
            return nothing
        if k == 0:
            return partial(self.fill, c)
        a_stored, b_stored = ("a" in shape.k_first, m), ("b" in shape.k_first, n)
        direct = shape.direct
        if direct is None:

            def multiply_tile(extents: tuple[int, int, int], n_last: bool) -> Multiply:
                stored = (a_stored, b_stored) if n_last else (b_stored, a_stored)
                return self._multiply(ProductSides(*extents, k, *stored), c.dtype)

            return bind_in_tiles(product, workspace, multiply_tile)
        if direct == "nm":
            a, b, m, n, a_stored, b_stored = b, a, n, m, b_stored, a_stored
        multiply = self._multiply(ProductSides(n_batch, m, n, k, a_stored, b_stored), c.dtype)
        return partial(multiply, a.data.ptr, b.data.ptr, c.data.ptr)

    def _multiply(self, sides: ProductSides, kind: np.dtype[Any]) -> Multiply:
        """A product of operands at addresses that are given later; parts of sums are added afterwards."""
        multiply = bind_launch(sides, self._name, kind.name, int(self._modulus), self._stream)
        launch, count = chosen(sides, kind.itemsize), sides.batch * sides.m * sides.n
        if launch.parts == 1:
            return multiply
        size_bytes = part_bytes(sides, kind.itemsize)
        partial_sums = self._scratch(size_bytes)[:size_bytes].view(kind)
        by_part = (count, launch.parts) if launch.tile is None else (launch.parts, count)
        is_kept = (True, False) if launch.tile is None else (False, True)
        # Where the sum goes is known when the product is called.
        total = self._sum(partial_sums[:count], partial_sums, by_part, is_kept)

        def run(a: int, b: int, c: int) -> None:
            multiply(a, b, partial_sums.data.ptr)
            total.at(0, c)

        return run


def scratch_bytes(products: Iterable[tuple[ContractShape, str, str]], dtype: str) -> int:
    """The scratch memory of the product that needs most, of those that are written directly."""
    itemsize, sizes = np.dtype(dtype).itemsize, [0]
    for shape, _, _ in products:
        if min(shape.sizes) and shape.direct is not None:
            _, m, n, _ = shape.sizes
            sides = ProductSides(*shape.sizes, ("a" in shape.k_first, m), ("b" in shape.k_first, n))
            sizes += [part_bytes(each, itemsize) for each in (sides, sides.swapped)]
    return max(sizes)
