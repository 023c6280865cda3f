"""The CUDA device over an algebra: what the other adds or multiplies, this one does as the algebra.

Copies, loads, exchanges and the arena are those of numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from tnplan.executor.device.cpu.algebra import Algebra, Modular
from tnplan.executor.device.cuda.algebra.products import (
    THREADS,
    Sides,
    algebra_defines,
    bind_launch,
    chosen,
    part_bytes,
)
from tnplan.executor.device.cuda.contract import Product
from tnplan.executor.device.cuda.contract.cublas import Multiply
from tnplan.executor.device.cuda.contract.dispatch import bind_in_tiles
from tnplan.executor.device.cuda.copy.tiling import parts as boxes_of
from tnplan.executor.device.cuda.copy.tiling import two_levels
from tnplan.executor.device.cuda.device import CupyDevice, CupyInputBlock
from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel, on_device
from tnplan.executor.device.cuda.runtime.kernel_cache import load_kernel
from tnplan.executor.device.protocols.copy import Axis, Copy, offsets, row_major
from tnplan.executor.device.protocols.device import Call, ContractShape, call_in_turn, nothing

Array = Any
"""A flat cupy.ndarray over the arena."""

SUMS_FILE = Path(__file__).parent / "sums.cu"
MOST_BLOCKS = 132 * 32
LONG_SUM, MANY_OUTPUTS = 1024, 1 << 14
"""Sums of at least so many terms, if they are fewer, have a block each."""


def sums_defines(name: str, dtype: str, lanes: int) -> dict[str, str | int]:
    """The definitions of sums.cu; `lanes` threads share a sum."""
    return {**algebra_defines(name, dtype), "LANES": lanes}


class AlgebraInputBlock(CupyInputBlock):
    """Inputs, with which the modulus of the algebra is sent: it may change between runs."""

    device: AlgebraCupyDevice

    def send(self) -> None:
        """Copy what was set, and the modulus."""
        self.device.send_modulus()
        super().send()


class AlgebraCupyDevice(CupyDevice):
    """A GPU on which schedules without chains are carried out over an algebra."""

    def __init__(self, algebra: Algebra, device_id: int, has_neighbours: bool = False) -> None:
        super().__init__(device_id, has_neighbours)
        self._algebra = algebra
        self._modulus = cupy.ndarray(1, np.float64)
        self._sent: float | None = None
        self._fills: dict[tuple[int, int], Call] = {}
        """By the address and the length of what is filled."""
        self.send_modulus()

    def send_modulus(self) -> None:
        """Have the modulus of the algebra on the GPU for the work that follows."""
        value = float(self._algebra.modulus[0]) if isinstance(self._algebra, Modular) else 1.0
        if value == self._sent:
            return
        host = np.array([value])
        runtime.memcpyAsync(
            self._modulus.data.ptr, host.ctypes.data, host.nbytes, runtime.memcpyHostToDevice, self.stream.ptr
        )
        # The array lives until it is read.
        self.stream.synchronize()
        self._sent = value

    def input_block(self, counts: Sequence[int], dtype: str) -> CupyInputBlock:
        """A block of memory, and pinned memory of its size on the host."""
        block = AlgebraInputBlock(counts, dtype, self.device_id, self.stream)
        block.device = self
        self.peak_bytes += block.size_bytes
        return block

    def zero(self, target: Array) -> None:
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
        kernel = load_kernel(SUMS_FILE, entry, sums_defines(self._algebra.name, target.dtype.name, lanes))
        blocks = min(MOST_BLOCKS, -(-threads // THREADS))
        return BoundKernel(kernel, blocks, THREADS, arguments, 0, self.stream, table)

    def bind_copy(
        self, target: Array, source: Array, copy: Copy, target_start: int = 0, source_start: int = 0,
        rows: tuple[int, int] | None = None, add: bool = False,
    ) -> Call:  # fmt: skip
        """Copy a box, or add it as the algebra does."""
        if not add:
            return super().bind_copy(target, source, copy, target_start, source_start, rows)
        calls: list[Call] = []
        for box in boxes_of(copy, rows):
            into = target[target_start + box.target_start :]
            calls.append(self._bind_add(into, source[source_start + box.source_start :], box.copy))
        return call_in_turn(calls)

    def _bind_add(self, target: Array, source: Array, copy: Copy) -> Call:
        levels = two_levels([*copy.lead, *copy.axes])
        pairs = [np.stack([offsets(axes, 1), offsets(axes, 2)], axis=1) for axes in levels]
        (table,) = on_device(np.concatenate(pairs))
        arguments = [
            *(np.uint64(array.data.ptr) for array in (target, source, table, self._modulus)),
            *(np.int64(len(level)) for level in pairs), np.int64(copy.run),
        ]  # fmt: skip
        return self._bound("add_box", target, copy.elements, arguments, table)

    def bind_accumulate(self, target: Array, source: Array) -> Call:
        """Add the source to the target."""
        return self._bind_add(target, source, Copy((), (), target.size)) if target.size else nothing

    def bind_add_block(self, target: Array, source: Array, start: Any) -> Call:
        """Add the source to the block of its length that begins at element `start()` of the target."""
        bound: dict[int, Call] = {}

        def run() -> None:
            first = start()
            if first not in bound:
                bound[first] = self.bind_accumulate(target[first : first + source.size], source)
            bound[first]()

        return run if source.size else nothing

    def bind_sum(
        self, target: Array, source: Array, extents: tuple[int, ...], in_target: tuple[bool, ...]
    ) -> Call:
        """Sum over axes."""
        if not target.size:
            return nothing
        if not source.size:
            return partial(self.zero, target)
        sides: dict[bool, list[Axis]] = {True: [], False: []}
        for extent, stride, is_kept in zip(extents, row_major(extents), in_target, strict=True):
            if extent > 1:
                sides[is_kept].append((extent, stride, 0))
        levels = [axes for is_kept in (True, False) for axes in two_levels(sides[is_kept])]
        (table,) = on_device(np.concatenate([offsets(axes, 1) for axes in levels]))
        lengths = [prod(axis[0] for axis in axes) for axes in levels]
        is_long = target.size < MANY_OUTPUTS and lengths[2] * lengths[3] >= LONG_SUM
        lanes = THREADS if is_long else 1
        arguments = [
            *(np.uint64(array.data.ptr) for array in (target, source, table, self._modulus)),
            *map(np.int64, lengths),
        ]
        return self._bound("sum_axes", target, target.size * lanes, arguments, table, lanes)

    def bind_contract(
        self, shape: ContractShape, a: Array, b: Array, c: Array, workspace: Array | None,
        precision: str = "fp32", engine: str = "gemm",
    ) -> Call:  # fmt: skip
        """A batched product, written to c, directly or tile by tile through the workspace.

        There is one precision, and one engine.
        """
        n_batch, m, n, k = shape.sizes
        if n_batch * m * n == 0:
            return nothing
        if k == 0:
            return partial(self.zero, c)
        a_stored, b_stored = ("a" in shape.k_first, m), ("b" in shape.k_first, n)
        direct = shape.direct
        if direct is None:

            def multiply_tile(extents: tuple[int, int, int], n_last: bool) -> Multiply:
                stored = (a_stored, b_stored) if n_last else (b_stored, a_stored)
                return self._bind_multiply(Sides(*extents, k, *stored), c.dtype)

            return bind_in_tiles(Product(shape, a, b, c, self.stream), workspace, multiply_tile)
        if direct == "nm":
            a, b, m, n, a_stored, b_stored = b, a, n, m, b_stored, a_stored
        multiply = self._bind_multiply(Sides(n_batch, m, n, k, a_stored, b_stored), c.dtype)
        return partial(multiply, a.data.ptr, b.data.ptr, c.data.ptr)

    def _bind_multiply(self, sides: Sides, kind: np.dtype[Any]) -> Multiply:
        """A product of operands at addresses that are given later; parts of sums are added afterwards."""
        multiply = bind_launch(sides, self._algebra.name, kind.name, self._modulus.data.ptr, self.stream)
        launch, count = chosen(sides, kind.itemsize), sides.batch * sides.m * sides.n
        if launch.parts == 1:
            return multiply
        held = self.scratch(part_bytes(sides, kind.itemsize))[: launch.parts * count * kind.itemsize]
        held = held.view(kind)
        by_part = (count, launch.parts) if launch.tile is None else (launch.parts, count)
        is_kept = (True, False) if launch.tile is None else (False, True)
        # Where the sum goes is known when the product is called.
        total: Any = self.bind_sum(held[:count], held, by_part, is_kept)

        def run(a: int, b: int, c: int) -> None:
            multiply(a, b, held.data.ptr)
            total.at(0, c)

        return run

    def prepare_contract(self, products: Iterable[tuple[ContractShape, str, str]], dtype: str) -> None:
        """Take the scratch memory of the product that needs most, as far as it is known."""
        itemsize, sizes = np.dtype(dtype).itemsize, [0]
        for shape, _, _ in products:
            if min(shape.sizes) and shape.direct is not None:
                _, m, n, _ = shape.sizes
                sides = Sides(*shape.sizes, ("a" in shape.k_first, m), ("b" in shape.k_first, n))
                both = (sides, sides.swapped)
                sizes += [part_bytes(each, itemsize) for each in both]
        self.scratch(max(sizes))
