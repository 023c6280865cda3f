"""The NumPy device: one CPU rank. BLAS products, numba copies; a replay allocates nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from math import gcd, prod
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.arrays import CACHE_LINE_BYTES
from tnplan.executor.device.cpu.contract import bind_product, bind_row_products, bind_tiles
from tnplan.executor.device.cpu.copy import SMALL_COPY, CopyKernel, bind_small
from tnplan.executor.device.cpu.exponents import NumpyExponents
from tnplan.executor.device.cpu.fused import bind_adjoint, bind_chain
from tnplan.executor.device.cpu.host_memory import check_host_memory, host_memory
from tnplan.executor.device.cpu.parallel_rows import blas_threads, is_blas_single
from tnplan.executor.device.protocols.copy import Copy
from tnplan.executor.device.protocols.device import (
    AdjointShape,
    Call,
    ContractShape,
    FusedShape,
    RowShape,
    call_in_turn,
    nothing,
)
from tnplan.executor.device.protocols.output_tiling import OutputTiling, cut_output

if TYPE_CHECKING:
    from tnplan.executor.device.cpu.codec import NumpyCodec


@dataclass
class HostMark:
    """A point in time, in seconds of the host's clock."""

    time_s: float = 0.0


class HostDevice:
    """The part of `Device` that follows where the host waits while the device works."""

    runs_calls_together = False

    def prepare_contract(self, products: Iterable[tuple[ContractShape, str, str]], dtype: str) -> None:
        """No product needs memory besides its arguments."""

    def bind_together(self, binds: Sequence[Callable[[], Call]]) -> list[Call]:
        """One after the other: nothing is compiled."""
        return [bind() for bind in binds]

    def prepare_fused(
        self, chains: Iterable[tuple[FusedShape, str]], dtype: str, capacity_bytes: int
    ) -> None:
        """Nothing to compile: one kernel does all chains."""

    def prepare_adjoints(self, shapes: Iterable[AdjointShape], dtype: str, capacity_bytes: int) -> None:
        """Nothing to compile here either."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def current(self) -> AbstractContextManager[Any]:
        """All threads may use the host."""
        return nullcontext()

    def leave(self) -> None:
        """Nothing was changed for the thread."""

    def marks(self, count: int) -> Sequence[HostMark]:
        """New marks."""
        return [HostMark() for _ in range(count)]

    def mark(self, point: HostMark) -> None:
        """Set a mark to now."""
        point.time_s = perf_counter()

    def elapsed_s(self, first: HostMark, second: HostMark) -> float:
        """The seconds from one mark to the other."""
        return second.time_s - first.time_s

    def recorded(self, calls: Sequence[Call], waits: Sequence[Sequence[int]] | None = None) -> Call:
        """The calls one after the other."""
        return call_in_turn(calls)

    def named(self, name: str, call: Call) -> Call:
        """The call itself."""
        return call


# Inputs whose values change between runs, on the CPU: arrays of their own.


class NumpyInputBlock:
    """Flat arrays; see `InputBlock`."""

    def __init__(self, counts: Sequence[int], dtype: str) -> None:
        self.views: list[Any] = [np.zeros(count, dtype) for count in counts]

    def set(self, number: int, values: NDArray[Any]) -> None:
        """Copy the values."""
        np.copyto(self.views[number].reshape(values.shape), values)

    def send(self) -> None:
        """They are there."""


Array = NDArray[Any]

PARALLEL_ELEMENTS = 1 << 18
"""Elements of a copy from which on threads share it."""
PARALLEL_PRODUCTS = 1 << 24
"""Multiply-adds of a contraction by tiles from which on threads share its tiles."""


class NumpyDevice(HostDevice):
    """A CPU with `threads` threads for copies and tiles (the threads of BLAS are set around the replay).

    Beside the arena, each further thread has a buffer for a tile.
    """

    name = "cpu"
    _add: Callable[..., Any] = np.add
    """What sums two arrays."""
    _multiply: Callable[[Array, Array, Array], None] | None = None
    """What forms the products of tiles, where it is not BLAS."""

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._spare: list[Array] = []
        self._arena: Array = np.empty(0, np.uint8)
        self.peak_bytes = 0

    def allocate(self, size_bytes: int) -> None:
        """Allocate the arena, aligned to a cache line; raises InputError where the host has too little."""
        check_host_memory(size_bytes, host_memory()[1])
        # NumPy need not align to a cache line: with one line more the arena can begin on a boundary.
        block = np.empty(size_bytes + CACHE_LINE_BYTES, np.uint8)
        start = -block.ctypes.data % CACHE_LINE_BYTES
        self._arena = block[start : start + size_bytes]
        self.peak_bytes += size_bytes

    def view(self, offset_bytes: int, count: int, dtype: str) -> Array:
        """A flat view of `count` elements of the arena."""
        kind = np.dtype(dtype)
        return self._arena[offset_bytes : offset_bytes + count * kind.itemsize].view(kind)

    def input_block(self, counts: Sequence[int], dtype: str) -> NumpyInputBlock:
        """An array for each input."""
        return NumpyInputBlock(counts, dtype)

    def bind_copy(
        self, target: Array, source: Array, copy: Copy, target_start: int = 0, source_start: int = 0,
        rows: tuple[int, int] | None = None, add: bool = False,
    ) -> Call:  # fmt: skip
        """Copy a box (or a range of its leading rows) with one kernel call; see `Device.bind_copy`."""
        if copy.elements == 0 or (rows is not None and rows[0] == rows[1]):
            return nothing
        if copy.contiguous and not add:
            into = target[target_start : target_start + copy.run]
            return partial(np.copyto, into, source[source_start : source_start + copy.run])
        if rows is None and copy.elements <= SMALL_COPY:
            return bind_small(target, source, copy, target_start, source_start, add)
        mover = CopyKernel(copy, target.dtype, gcd(target_start, source_start), add)
        target, source = mover.units(target), mover.units(source)
        first, last = rows if rows is not None and copy.lead else (0, mover.tables.outer)
        target_start, source_start = target_start // mover.unit, source_start // mover.unit
        spans = [(first, last)]
        if self._pool is not None and copy.elements >= PARALLEL_ELEMENTS and last - first > 1:
            n = min(self._threads, last - first)
            # Ranges of outer entries write different elements, so that threads need no lock.
            spans = [
                (first + (last - first) * i // n, first + (last - first) * (i + 1) // n) for i in range(n)
            ]
        calls = [mover.bind(target, source, target_start, source_start, start, stop) for start, stop in spans]
        return calls[0] if len(calls) == 1 else self._bind_parallel(calls)

    def _bind_parallel(self, calls: list[Call]) -> Call:
        pool = self._pool
        assert pool is not None

        def run() -> None:
            for future in [pool.submit(call) for call in calls]:
                future.result()

        return run

    def bind_load(self, target: Array, array: Array | None, copy: Copy, source_start: int) -> Call:
        """Copy a box of a flat host array."""
        if array is None:
            raise ValueError("there are no values to load")
        return self.bind_copy(target, array, copy, 0, source_start)

    def bind_block(self, target: Array, source: Array, start: Callable[[], int]) -> Call:
        """Copy the block of the target's length that begins at element `start()` of the source."""
        count = len(target)

        def run() -> None:
            first = start()
            np.copyto(target, source[first : first + count])

        return run

    def bind_add_block(self, target: Array, source: Array, start: Callable[[], int]) -> Call:
        """Add the source to the block of its length that begins at element `start()` of the target."""
        count = len(source)

        def run() -> None:
            first = start()
            block = target[first : first + count]
            self._add(block, source, out=block)

        return run

    def bind_sum(
        self, target: Array, source: Array, extents: tuple[int, ...], in_target: tuple[bool, ...]
    ) -> Call:
        """Sum over axes, neighbours of the same kind fused first."""
        shape: list[int] = []
        kinds: list[bool] = []
        for extent, is_kept in zip(extents, in_target, strict=True):
            if kinds and kinds[-1] == is_kept:
                shape[-1] *= extent
            else:
                shape.append(extent)
                kinds.append(is_kept)
        view = source.reshape(shape)
        out = target.reshape([extent for extent, is_kept in zip(shape, kinds, strict=True) if is_kept])
        axes = tuple(axis for axis, is_kept in enumerate(kinds) if not is_kept)
        return partial(np.add.reduce, view, axis=axes, out=out)

    def bind_contract(
        self, shape: ContractShape, a: Array, b: Array, c: Array, workspace: Array | None,
        precision: str = "fp32", engine: str = "gemm",
    ) -> Call:  # fmt: skip
        """A batched product by BLAS, written to c, directly or tile by tile through the workspace.

        BLAS multiplies in the type of the values, which is at least as precise as any `precision`; it is
        the only engine of a CPU.
        """
        n_batch, m, n, k = shape.sizes
        if n_batch * m * n == 0:
            return nothing
        if k == 0:
            return partial(self.zero, c)
        a = _operand(a, (n_batch, m, k), "a" in shape.k_first)
        b = _operand(b, (n_batch, n, k), "b" in shape.k_first)
        direct = shape.direct
        if direct == "mn":
            return self._bind_product(a, b, c.reshape(n_batch, m, n))
        if direct == "nm":
            return self._bind_product(b, a, c.reshape(n_batch, n, m))
        if workspace is None or not len(workspace):
            raise ValueError("a contraction whose result is stored in another order needs a workspace")
        tiling = cut_output(shape, len(workspace))
        if self._pool is not None and n_batch * m * n * k >= PARALLEL_PRODUCTS:
            tilings = tiling.divided(self._threads)
            if len(tilings) == self._threads:  # of fewer tiles, BLAS has threads left for each
                return self._bind_tiles(tilings, a, b, c, workspace)
        return bind_tiles(tiling, a, b, c, workspace, self._multiply)

    def bind_rows(
        self, shape: RowShape, pairs: Array, a: Array, b: Array, c: Array, workspace: Array | None,
        precision: str = "fp32",
    ) -> Call:  # fmt: skip
        """Products of pairs of rows, those that share a row of one operand together; see `RowDevice`."""
        return bind_row_products(shape, pairs, (a, b, c), self._threads)

    def _bind_product(self, a: Array, b: Array, c: Array) -> Call:
        return bind_product(a, b, c)

    def _bind_tiles(
        self, tilings: list[OutputTiling], a: Array, b: Array, c: Array, workspace: Array
    ) -> Call:
        """Tiles over threads, each with one thread of BLAS, which gains nothing from more for one tile."""
        size_bytes = workspace.itemsize * max(prod(extents) for extents in tilings[0].copies)
        buffers = [workspace, *self._workspaces(len(tilings) - 1, size_bytes, workspace.dtype)]
        calls = [
            bind_tiles(tiling, a, b, c, buffer, self._multiply)
            for tiling, buffer in zip(tilings, buffers, strict=True)
        ]
        run_parallel = self._bind_parallel(calls)

        def run() -> None:
            with blas_threads(1):
                # The limit of BLAS is one for the process: another rank's thread may have changed it
                # meanwhile.
                if is_blas_single():
                    run_parallel()
                    return
            for call in calls:  # ranks of one process, whose BLAS takes the threads of each
                call()

        return run

    def _workspaces(self, count: int, size_bytes: int, dtype: np.dtype[Any]) -> list[Array]:
        """Workspaces of threads beside the first one's. All contractions take the same: they run in turn."""
        if count > len(self._spare) or any(len(buffer) < size_bytes for buffer in self._spare[:count]):
            self._spare = [np.empty(size_bytes, np.uint8) for _ in range(count)]
        return [buffer[:size_bytes].view(dtype) for buffer in self._spare[:count]]

    def bind_fused(
        self, shape: FusedShape, operand: Array, branches: Sequence[Array], out: Array,
        capacity_bytes: int, precision: str = "fp32", closing: Array | None = None,
    ) -> Call:  # fmt: skip
        """A chain of contractions, tile by tile of the operand; see `cpu.fused`."""
        return bind_chain(shape, operand, branches, out, capacity_bytes, closing)

    def bind_adjoint(
        self, shape: AdjointShape, operand: Array, branches: Sequence[Array], cotangent: Array,
        outputs: Sequence[Array | None], capacity_bytes: int,
    ) -> Call:  # fmt: skip
        """The backward pass through a chain, tile by tile; see `cpu.fused`."""
        return bind_adjoint(shape, operand, branches, cotangent, outputs, capacity_bytes)

    def bind_accumulate(self, target: Array, source: Array) -> Call:
        """Add the source to the target."""
        return partial(self._add, target, source, out=target)

    def exponents(self, count: int, dtype: str) -> NumpyExponents:
        """Slots in an array."""
        return NumpyExponents(count)

    def codec(self) -> NumpyCodec:
        """The codec of arrays of the host."""
        from tnplan.executor.device.cpu.codec import NumpyCodec

        return NumpyCodec()

    def zero(self, target: Array) -> None:
        """Fill with zeros."""
        target.fill(0)

    def to_host(self, source: Array) -> Array:
        """The view itself."""
        return source

    def to_hosts(self, sources: Sequence[Array]) -> list[Array]:
        """The views themselves."""
        return [*sources]

    def from_host(self, target: Array, array: Array) -> None:
        """Set the contents."""
        np.copyto(target, array)

    def memory(self) -> tuple[int, int]:
        """The host's memory: all of it, and what is free."""
        total, free = host_memory()
        return int(total), int(free)

    def facts(self) -> dict[str, Any]:
        """The versions of NumPy, BLAS and numba."""
        from importlib.metadata import version

        from threadpoolctl import threadpool_info

        blas = [
            f"{entry['internal_api']} {entry.get('version')}"
            for entry in threadpool_info()
            if entry.get("user_api") == "blas"
        ]
        return {
            "device": "cpu", "numpy": np.__version__, "numba": version("numba"), "blas": sorted(set(blas)),
        }  # fmt: skip


def _operand(flat: Array, shape: tuple[int, int, int], k_first: bool) -> Array:
    """An operand as [batch | rows | k]: a view with exchanged axes where it is stored with k first."""
    n_batch, rows, k = shape
    if not k_first:
        return flat.reshape(shape)
    return flat.reshape(n_batch, k, rows).swapaxes(1, 2)
