"""The CUDA device: one GPU, by CuPy. A replay launches kernels on one stream and allocates nothing.

Knows flat views, boxes and strides; never schedules or ranks. `contract`, `copy` and `fused` compute;
what a contraction alone needs is imported where it is bound, since other engines open the device too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
from cupy.cuda import nvtx, runtime
from numpy.typing import NDArray

from tnplan.executor.device.cuda.copy.exponents import CupyExponents
from tnplan.executor.device.cuda.copy.permute import bind_accumulate, bind_add_block
from tnplan.executor.device.cuda.gpus import check_free, driver_version, gpu_name
from tnplan.executor.device.cuda.peer_memory import whole_blocks
from tnplan.executor.device.cuda.runtime.kernel_cache import load_kernel, made_together
from tnplan.executor.device.cuda.runtime.signals import captured, record
from tnplan.executor.device.protocols.copy import Copy
from tnplan.executor.device.protocols.device import (
    AdjointShape,
    Call,
    ContractShape,
    FusedShape,
    RowShape,
    nothing,
)
from tnplan.executor.device.protocols.precision import check_precision

if TYPE_CHECKING:
    from tnplan.executor.device.cuda.codec import CupyStreamCodec


# Inputs whose values change between runs, on a GPU: one block, filled from pinned memory by one copy.
#
# Values that are on the GPU already are copied there, many of them by one kernel.


ALIGNMENT_BYTES = 256
"""CUDA aligns what it allocates to this."""
GATHER_FILE = Path(__file__).parent / "gather.cu"
GATHERED_TOGETHER = 6
"""From so many inputs on GPU memory on, one kernel copies them all: a copy of its own costs a launch."""
GATHER_THREADS = 256
GATHER_BLOCK_BYTES = 1 << 14
"""What a block copies at least, where an input has it."""
MOST_BLOCKS_AN_INPUT = 64


class CupyInputBlock:
    """Flat views of one block of a GPU's memory; see `InputBlock`."""

    def __init__(self, counts: Sequence[int], dtype: str, device_id: int, stream: Any) -> None:
        kind = np.dtype(dtype)
        sizes = [-(-count * kind.itemsize // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for count in counts]
        self.size_bytes = sum(sizes)
        check_free(device_id, self.size_bytes)
        self._ends = list(accumulate(sizes))
        self._starts = [end - size for end, size in zip(self._ends, sizes, strict=True)]
        self._stream = stream
        self._block = cupy.cuda.MemoryPointer(cupy.cuda.Memory(self.size_bytes), 0)
        self._pinned = cupy.cuda.alloc_pinned_memory(max(self.size_bytes, 1))
        inputs = list(zip(self._starts, counts, strict=True))
        self._host = [np.frombuffer(self._pinned, kind, count, start) for start, count in inputs]
        self.views: list[Any] = [cupy.ndarray(count, kind, self._block + start) for start, count in inputs]
        self._unsent: list[int] = []
        self._addresses: dict[int, int] = {}
        self._sent = cupy.cuda.Event(disable_timing=True)
        self._table = _AddressTable(self._block, self._starts, [view.nbytes for view in self.views], stream)

    def set(self, number: int, values: Any) -> None:
        """Copy the values to pinned memory once what it held is sent; or on the GPU.

        An address is that of values on the GPU as the block has them; they are read with `send`.
        """
        if isinstance(values, int):
            self._addresses[number] = values
            return
        view = self.views[number]
        if isinstance(values, cupy.ndarray):
            with self._stream:
                view.reshape(values.shape)[...] = values
            return
        if not self._unsent:
            self._sent.synchronize()
        np.copyto(self._host[number].reshape(values.shape), values)
        self._unsent.append(number)

    def send(self) -> None:
        """Copy what was set since the last time: from pinned memory neighbours in one piece."""
        if self._addresses:
            self._copy_there()
        if not self._unsent:
            return
        for first, last in neighbours(self._unsent):
            start, end = self._starts[first], self._ends[last]
            runtime.memcpyAsync(
                (self._block + start).ptr, self._pinned.ptr + start, end - start,
                runtime.memcpyHostToDevice, self._stream.ptr,
            )  # fmt: skip
        self._sent.record(self._stream)
        self._unsent.clear()

    def _copy_there(self) -> None:
        """Copy values that are on the GPU."""
        if len(self._addresses) < GATHERED_TOGETHER:
            for number, address in self._addresses.items():
                view = self.views[number]
                runtime.memcpyAsync(
                    view.data.ptr, address, view.nbytes, runtime.memcpyDeviceToDevice, self._stream.ptr
                )
        else:
            self._table.copy(self._addresses)
        self._addresses.clear()


class _AddressTable:
    """Copies many inputs to their places by one kernel, which reads a table of their addresses.

    The table is sent from pinned memory where an address is another than before; it is written again once it
    is sent.
    """

    def __init__(self, block: Any, starts: Sequence[int], sizes: Sequence[int], stream: Any) -> None:
        self._block, self._stream = block, stream
        self._starts, self._sizes = np.asarray(starts, np.int64), np.asarray(sizes, np.int64)
        self._is_made = False
        self._last: NDArray[np.int64] | None = None

    def copy(self, addresses: Mapping[int, int]) -> None:
        """Copy the values at these addresses to the inputs of these numbers."""
        if not self._is_made:
            self._make()
        n = len(addresses)
        numbers = np.fromiter(addresses, np.int64, n)
        sizes = self._sizes[numbers]
        table = np.stack((np.fromiter(addresses.values(), np.int64, n), self._starts[numbers], sizes))
        if self._last is None or not np.array_equal(table, self._last):
            self._sent.synchronize()
            self._host[:, :n] = self._last = table
            runtime.memcpyAsync(
                self._device.data.ptr, self._host.ctypes.data, self._host.nbytes, runtime.memcpyHostToDevice,
                self._stream.ptr,
            )  # fmt: skip
            self._sent.record(self._stream)
        blocks = min(MOST_BLOCKS_AN_INPUT, -(-int(sizes.max()) // GATHER_BLOCK_BYTES))
        arguments = self._device, np.int64(self._host.shape[1]), np.uint64(self._block.ptr)
        self._kernel((max(blocks, 1), n), (GATHER_THREADS,), arguments, stream=self._stream)

    def _make(self) -> None:
        n = len(self._starts)
        self._kernel = load_kernel(GATHER_FILE, "gather", {})
        pinned = cupy.cuda.alloc_pinned_memory(3 * n * 8)
        self._host = np.frombuffer(pinned, np.int64, 3 * n).reshape(3, n)
        self._device = cupy.ndarray((3, n), np.int64)
        self._sent = cupy.cuda.Event(disable_timing=True)
        self._is_made = True


def neighbours(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """The first and the last of every run of numbers that follow one another."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


Array = Any
"""A flat cupy.ndarray over the arena."""

STAGING_BYTES, LEAST_STAGING_BYTES = 64 << 20, 64 << 10
"""Pinned memory of the host, through which values pass: of as many as are copied at once, and at least."""


class CupyDevice:
    """GPU `device_id` of this host, for the thread that makes it, until that thread closes or leaves it; for
    any thread inside `current()`.

    It `has_neighbours` where other threads of this process have GPUs that exchange with it.
    """

    name = "gpu"
    runs_calls_together = True

    def __init__(self, device_id: int, has_neighbours: bool = False) -> None:
        self.device_id = device_id
        self.has_neighbours = has_neighbours
        self._outer: int | None = runtime.getDevice()
        runtime.setDevice(device_id)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._properties = runtime.getDeviceProperties(device_id)
        self._arena: Any = None
        self._scratch: Array = cupy.ndarray(0, np.uint8)
        self._scratch_calls: set[int] = set()
        self.staging: NDArray[np.uint8] | None = None
        self.peak_bytes = 0
        self._names_shown = bool(nvtx.available)

    def close(self) -> None:
        """Wait for all work, give the arena back, and leave the thread on the GPU that it was on."""
        try:
            with self.current():
                self.synchronize()
        finally:
            self._arena = self.staging = None
            self._scratch = cupy.ndarray(0, np.uint8)
            self.leave()

    def current(self) -> AbstractContextManager[Any]:
        """This GPU is the current one of the thread inside."""
        return cupy.cuda.Device(self.device_id)

    def leave(self) -> None:
        """Leave the thread that made this on the GPU that it was on; later work comes in `current()`."""
        if self._outer is not None:
            runtime.setDevice(self._outer)
            self._outer = None

    def allocate(self, size_bytes: int) -> None:
        """Allocate the arena; raises InputError where the GPU has too little free memory."""
        check_free(self.device_id, size_bytes)
        self._arena = cupy.cuda.MemoryPointer(cupy.cuda.Memory(whole_blocks(size_bytes)), 0)
        self.peak_bytes += size_bytes
        if self.has_neighbours:
            # CUDA may wait for devices meanwhile, and in a replay these wait for each other.
            self._pinned(STAGING_BYTES)

    def view(self, offset_bytes: int, count: int, dtype: str) -> Array:
        """A flat view of `count` elements of the arena."""
        return cupy.ndarray(count, np.dtype(dtype), self._arena + offset_bytes)

    def input_block(self, counts: Sequence[int], dtype: str) -> CupyInputBlock:
        """A block of memory, and pinned memory of its size on the host."""
        block = CupyInputBlock(counts, dtype, self.device_id, self.stream)
        self.peak_bytes += block.size_bytes
        return block

    def recorded(self, calls: Sequence[Call], waits: Sequence[Sequence[int]] | None = None) -> Call:
        """The work of the calls as a CUDA graph, which one launch starts. Each has been made once before."""
        if waits is None:
            return captured(self.stream, calls, None)
        # Calls that share scratch memory follow one after the other.
        sharing = [number for number, call in enumerate(calls) if id(call) in self._scratch_calls]
        ahead = dict(zip(sharing[1:], sharing, strict=False))
        waits = [(*wait, ahead[n]) if n in ahead else wait for n, wait in enumerate(waits)]
        return captured(self.stream, calls, waits)

    def bind_copy(
        self, target: Array, source: Array, copy: Copy, target_start: int = 0, source_start: int = 0,
        rows: tuple[int, int] | None = None, add: bool = False,
    ) -> Call:  # fmt: skip
        """Copy a box (or a range of its leading rows); see `copy.permute`."""
        from tnplan.executor.device.cuda.copy.permute import bind_copy

        return bind_copy(target, source, copy, target_start, source_start, rows, self.stream, add=add)

    def bind_load(self, target: Array, array: NDArray[Any] | None, copy: Copy, source_start: int) -> Call:
        """Copy a box of a flat host array."""
        from tnplan.executor.device.cuda.copy.permute import bind_load

        if array is None:
            raise ValueError("there are no values to load")
        if isinstance(array, cupy.ndarray):
            return self.bind_copy(target, array, copy, 0, source_start)
        return bind_load(target, array, copy, source_start, self.stream)

    def bind_block(self, target: Array, source: Array, start: Callable[[], int]) -> Call:
        """Copy the block of the target's length that begins at element `start()` of the source."""
        into, base, size_bytes = target.data.ptr, source.data.ptr, target.nbytes
        itemsize, stream = target.itemsize, self.stream.ptr

        def run() -> None:
            runtime.memcpyAsync(
                into, base + start() * itemsize, size_bytes, runtime.memcpyDeviceToDevice, stream
            )

        return run if size_bytes else nothing

    def bind_add_block(self, target: Array, source: Array, start: Callable[[], int]) -> Call:
        """Add the source to the block of its length that begins at element `start()` of the target."""
        return bind_add_block(target, source, start, self.stream, self._properties["multiProcessorCount"])

    def bind_sum(
        self, target: Array, source: Array, extents: tuple[int, ...], in_target: tuple[bool, ...]
    ) -> Call:
        """Sum over axes; see `copy.permute`."""
        from tnplan.executor.device.cuda.copy.permute import bind_sum

        return bind_sum(target, source, extents, in_target, self.stream)

    def bind_contract(
        self, shape: ContractShape, a: Array, b: Array, c: Array, workspace: Array | None,
        precision: str = "fp32", engine: str = "gemm",
    ) -> Call:  # fmt: skip
        """A batched product by matrix products (`contract.dispatch`) or by cuTENSOR."""
        from tnplan.executor.device.cuda.contract import Product
        from tnplan.executor.device.cuda.contract.dispatch import bind_contract

        dtype, product = c.dtype.name, Product(shape, a, b, c, self.stream)
        precision = check_precision(precision, dtype)
        size_bytes = _scratch_bytes(shape, dtype, precision, engine)
        scratch = self.scratch(size_bytes)
        if engine == "cutensor":
            from tnplan.executor.device.cuda.contract import cutensor

            call = cutensor.bind_contract(product, scratch, precision)
        else:
            call = bind_contract(product, workspace, precision, scratch)
        if size_bytes:
            self._scratch_calls.add(id(call))
        return self.loaded(call)

    def bind_rows(
        self, shape: RowShape, pairs: NDArray[Any], a: Array, b: Array, c: Array, workspace: Array | None,
        precision: str = "fp32",
    ) -> Call:  # fmt: skip
        """Products of pairs of rows; see `contract.rows`."""
        from tnplan.executor.device.cuda.contract import cublas, rows

        scratch = self.scratch(cublas.WORKSPACE_BYTES) if rows.by_cublas(shape) else None
        call = rows.bind_rows(shape, pairs, (a, b, c), workspace, precision, self.stream, scratch)
        if scratch is not None:
            self._scratch_calls.add(id(call))
        return self.loaded(call)

    def prepare_contract(self, products: Iterable[tuple[ContractShape, str, str]], dtype: str) -> None:
        """Take the scratch memory of the product that needs most."""
        sizes = [
            _scratch_bytes(shape, dtype, check_precision(precision, dtype), engine)
            for shape, precision, engine in products
        ]
        self.scratch(max(sizes, default=0))

    def bind_together(self, binds: Sequence[Callable[[], Call]]) -> list[Call]:
        """The calls, whose kernels are compiled at once; see `kernel_cache.made_together`."""
        return made_together(binds)

    def loaded(self, call: Call) -> Call:
        """The call, made once now, with whatever the arena holds, where there are neighbours.

        Libraries load a kernel when it is first used, and wait for devices while CUDA is locked. In a replay
        one of them would wait for a neighbour whose thread waits for CUDA.
        """
        if self.has_neighbours:
            call()
        return call

    def scratch(self, size_bytes: int) -> Array:
        """Scratch memory that calls share, since they run one after the other; larger where it was too small.

        A call keeps what it was bound with.
        """
        if size_bytes > self._scratch.nbytes:
            check_free(self.device_id, size_bytes)
            self._scratch = cupy.ndarray(
                size_bytes, np.uint8, cupy.cuda.MemoryPointer(cupy.cuda.Memory(size_bytes), 0)
            )
            self.peak_bytes += size_bytes
        return self._scratch

    def bind_fused(
        self, shape: FusedShape, operand: Array, branches: Sequence[Array], out: Array,
        capacity_bytes: int, precision: str = "fp32", closing: Array | None = None,
    ) -> Call:  # fmt: skip
        """A chain of contractions in one pass; see `fused.chain`."""
        from tnplan.executor.device.cuda.fused.chain import bind_fused

        return bind_fused(shape, operand, branches, out, self.stream, capacity_bytes, precision, closing)

    def prepare_fused(
        self, chains: Iterable[tuple[FusedShape, str]], dtype: str, capacity_bytes: int
    ) -> None:
        """Compile the kernels of chains; see `fused.chain`."""
        from tnplan.executor.device.cuda.fused.chain import prepare_fused

        prepare_fused(chains, dtype, capacity_bytes)

    def bind_adjoint(
        self, shape: AdjointShape, operand: Array, branches: Sequence[Array], cotangent: Array,
        outputs: Sequence[Array | None], capacity_bytes: int,
    ) -> Call:  # fmt: skip
        """The backward pass through a chain; see `fused.adjoint`."""
        from tnplan.executor.device.cuda.fused.adjoint import bind_adjoint

        return bind_adjoint(
            shape, operand, branches, cotangent, outputs, self.stream, capacity_bytes, self.scratch
        )

    def prepare_adjoints(self, shapes: Iterable[AdjointShape], dtype: str, capacity_bytes: int) -> None:
        """Compile the kernels of backward passes, and take their scratch memory; see `fused.adjoint`."""
        from tnplan.executor.device.cuda.fused.adjoint import prepare_adjoints

        self.scratch(prepare_adjoints(shapes, dtype, capacity_bytes))

    def bind_accumulate(self, target: Array, source: Array) -> Call:
        """Add the source to the target; see `copy.accumulate`."""
        return bind_accumulate(target, source, self.stream, self._properties["multiProcessorCount"])

    def exponents(self, count: int, dtype: str) -> CupyExponents:
        """Slots in the GPU's memory; see `copy.exponents`."""
        slots = CupyExponents(count, dtype, self.stream, self._properties["multiProcessorCount"])
        self.peak_bytes += slots.size_bytes
        return slots

    def codec(self) -> CupyStreamCodec:
        """The codec of arrays of the GPU, on this device's stream."""
        from tnplan.executor.device.cuda.codec import CupyStreamCodec

        return CupyStreamCodec(self.stream)

    def zero(self, target: Array) -> None:
        """Fill with zeros."""
        runtime.memsetAsync(target.data.ptr, 0, target.nbytes, self.stream.ptr)

    def to_host(self, source: Array) -> NDArray[Any]:
        """The contents as a new host array, by way of pinned memory."""
        array = np.empty(source.size, source.dtype)
        raw = array.view(np.uint8)
        staging = self._pinned(raw.size)
        # Through pinned memory piece by piece: the piece must have arrived before the next one takes its
        # place.
        for first in range(0, raw.size, STAGING_BYTES):
            piece = raw[first : first + STAGING_BYTES]
            runtime.memcpyAsync(
                staging.ctypes.data, source.data.ptr + first, piece.size,
                runtime.memcpyDeviceToHost, self.stream.ptr,
            )  # fmt: skip
            self.stream.synchronize()
            np.copyto(piece, staging[: piece.size])
        return array

    def to_hosts(self, sources: Sequence[Array]) -> list[NDArray[Any]]:
        """The contents of each as a new host array; small ones pass through pinned memory together."""
        arrays: list[NDArray[Any]] = []
        for group in _in_groups(sources):
            if len(group) == 1:
                arrays.append(self.to_host(group[0]))
                continue
            staging, begin, waiting = self._pinned(sum(source.nbytes for source in group)), 0, []
            for source in group:
                waiting.append(staging[begin : begin + source.nbytes])
                runtime.memcpyAsync(
                    waiting[-1].ctypes.data, source.data.ptr, source.nbytes,
                    runtime.memcpyDeviceToHost, self.stream.ptr,
                )  # fmt: skip
                begin += source.nbytes
            self.stream.synchronize()
            arrays += [piece.copy().view(source.dtype) for piece, source in zip(waiting, group, strict=True)]
        return arrays

    def from_host(self, target: Array, array: NDArray[Any]) -> None:
        """Set the contents from a flat host array, by way of pinned memory."""
        raw = np.ascontiguousarray(array, target.dtype).view(np.uint8)
        staging = self._pinned(raw.size)
        for first in range(0, raw.size, STAGING_BYTES):
            piece = raw[first : first + STAGING_BYTES]
            np.copyto(staging[: piece.size], piece)
            runtime.memcpyAsync(
                target.data.ptr + first, staging.ctypes.data, piece.size,
                runtime.memcpyHostToDevice, self.stream.ptr,
            )  # fmt: skip
            self.stream.synchronize()

    def _pinned(self, size_bytes: int) -> NDArray[np.uint8]:
        """Pinned memory of so many bytes, or as many as are copied at once."""
        size_bytes = min(size_bytes, STAGING_BYTES)
        if self.staging is None or len(self.staging) < size_bytes:
            size_bytes = max(LEAST_STAGING_BYTES, 1 << (size_bytes - 1).bit_length())
            memory = cupy.cuda.alloc_pinned_memory(size_bytes)
            self.staging = np.frombuffer(memory, np.uint8, size_bytes)
        return self.staging

    def synchronize(self) -> None:
        """Wait for all work given to the stream; raises where any work of the GPU has failed.

        CUDA's wait for a whole device waits for GPUs of this process that reach its memory, too, and one of
        these may be waiting for what this rank does next.
        """
        self.stream.synchronize()

    def marks(self, count: int) -> Sequence[Any]:
        """CUDA events."""
        return [cupy.cuda.Event() for _ in range(count)]

    def mark(self, point: Any) -> None:
        """Record an event on the stream."""
        record(point, self.stream)

    def elapsed_s(self, first: Any, second: Any) -> float:
        """The seconds between two events."""
        return float(cupy.cuda.get_elapsed_time(first, second)) * 1e-3

    def named(self, name: str, call: Call) -> Call:
        """The call in an NVTX range."""
        if not self._names_shown:
            return call

        def run() -> None:
            nvtx.RangePush(name)
            call()
            nvtx.RangePop()

        return run

    def memory(self) -> tuple[int, int]:
        """The GPU's memory: all of it, and what is free."""
        free_bytes, total_bytes = runtime.memGetInfo()
        return int(total_bytes), int(free_bytes)

    def facts(self) -> dict[str, Any]:
        """The GPU and the versions of its driver and libraries."""
        return {
            "device": "gpu",
            "gpu": gpu_name(self._properties),
            "gpu_memory_bytes": int(self._properties["totalGlobalMem"]),
            "driver": driver_version(),
            "cuda_driver": runtime.driverGetVersion(),
            "cuda_runtime": runtime.runtimeGetVersion(),
            "cupy": cupy.__version__,
            "numpy": np.__version__,
        }


def _scratch_bytes(shape: ContractShape, dtype: str, precision: str, engine: str) -> int:
    if engine == "cutensor":
        from tnplan.executor.device.cuda.contract import cutensor

        return cutensor.workspace_bytes(shape, dtype, precision)
    from tnplan.executor.device.cuda.contract.dispatch import scratch_bytes

    return scratch_bytes(shape, dtype, precision)


def _in_groups(sources: Sequence[Array]) -> list[list[Array]]:
    """Arrays in a row whose bytes fit into pinned memory together, or that are alone."""
    groups: list[list[Array]] = []
    free_bytes = 0
    for source in sources:
        if not groups or source.nbytes > free_bytes:
            groups.append([])
            free_bytes = STAGING_BYTES
        groups[-1].append(source)
        free_bytes -= source.nbytes
    return groups
