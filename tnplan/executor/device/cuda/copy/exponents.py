"""Exponents of two on a GPU: slots in its memory, and kernels that find them and scale by them.

Small tensors take one block and one launch. Of larger ones the largest part is found first, by all blocks; a
second kernel reads it. Knows flat arrays and slots; not what a tensor stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from tnplan.executor.device.cuda.copy.permute import BLOCKS_A_MULTIPROCESSOR, REALS, THREADS, add_width
from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel, on_device
from tnplan.executor.device.cuda.runtime.kernel_cache import load_kernel
from tnplan.executor.device.protocols.device import ZERO, ZERO_BYTE, Call, call_in_turn

Array = Any
"""A flat cupy.ndarray."""

FILE = Path(__file__).parent / "exponents.cu"
ONE_BLOCK = 1 << 14
"""Numbers up to which one block scales a tensor: about as soon as two launches of all blocks do."""
MOST_THREADS = 1024
SLOT_BYTES = 4
WORD_BYTES = 8
SHARED = 4
"""Integers that all kernels share: how many blocks have arrived, the power of a term, two to divide by."""


class CupyExponents:
    """Slots on the current GPU; see `Exponents`. All work is given to one stream, and shares a few words."""

    def __init__(self, count: int, dtype: str, stream: Any, multiprocessors: int) -> None:
        self.size_bytes = WORD_BYTES + (SHARED + count) * SLOT_BYTES
        memory = cupy.cuda.MemoryPointer(cupy.cuda.Memory(self.size_bytes), 0)
        # One allocation: a word for the running maximum, integers that all kernels share, then the slots.
        self._word = memory.ptr
        shared = memory.ptr + WORD_BYTES
        self._arrived, self._own, self._powers = shared, shared + SLOT_BYTES, shared + 2 * SLOT_BYTES
        self._at = shared + SHARED * SLOT_BYTES
        self._memory, self._count = memory, count
        self._real = np.dtype(dtype).type(0).real.dtype
        self._stream, self._most_blocks = stream, multiprocessors * BLOCKS_A_MULTIPROCESSOR
        runtime.memsetAsync(self._word, 0, self._at - self._word, stream.ptr)
        runtime.memsetAsync(self._at, ZERO_BYTE, count * SLOT_BYTES, stream.ptr)

    def bind_normalize(self, views: Sequence[Array], slots: Sequence[int], tolerated_bits: int = 0) -> Call:
        """Small tensors together by one launch, a block each; larger ones in turn."""
        small, calls = [], []
        for view, slot in zip(views, slots, strict=True):
            n = self._reals(view)
            if n <= ONE_BLOCK and not tolerated_bits:
                small.append((view.data.ptr, n, slot))
            else:
                power = self._at + slot * SLOT_BYTES
                calls += [self._bind_measuring(view, power, tolerated_bits), self._bind_division(view, power)]
        if small:
            (table,) = on_device(np.array(small, np.uint64))
            threads = _threads(max(n for _, n, _ in small))
            pointers = _pointers(table.data.ptr, self._at)
            calls.append(
                BoundKernel(self._kernel("normalize"), len(small), threads, pointers, 0, self._stream, table)
            )
        return call_in_turn(calls)

    def bind_clear(self, slot: int) -> Call:
        """Fill the slot's bytes."""
        address, stream = self._at + slot * SLOT_BYTES, self._stream.ptr
        return lambda: runtime.memsetAsync(address, ZERO_BYTE, SLOT_BYTES, stream)

    def bind_accumulate(self, target: Array, source: Array, slot: int, terms: Sequence[int]) -> Call:
        """One block, or a kernel that measures the source, one that aligns, and one that adds."""
        (numbers,) = on_device(np.array(terms, np.int32))
        n = self._reals(target)
        if n <= ONE_BLOCK:
            arguments: list[np.generic] = [
                *_pointers(target.data.ptr, source.data.ptr), np.int64(n), *_pointers(self._at),
                np.int32(slot), *_pointers(numbers.data.ptr), np.uint32(len(terms)),
            ]  # fmt: skip
            kernel = self._kernel("accumulate")
            return BoundKernel(kernel, 1, _threads(n), arguments, 0, self._stream, numbers)
        width, n_units = self._units(target, target.data.ptr, source.data.ptr)
        arguments = [
            *_pointers(target.data.ptr, source.data.ptr), np.int64(n_units), *_pointers(self._powers)
        ]  # fmt: skip
        measure = self._bind_measuring(source, self._own)
        align = self._bind_align(slot, numbers, self._own)
        return call_in_turn([measure, align, self._over_all("add_aligned", width, n_units, arguments)])

    def bind_aligned(self, target: Array, factor: Array, slot: int, terms: Sequence[int], call: Call) -> Call:
        """A kernel that aligns, one that scales the target and one that scales the factor and saves it."""
        (numbers,) = on_device(np.array(terms, np.int32))
        saved = cupy.ndarray(
            factor.size, factor.dtype, cupy.cuda.MemoryPointer(cupy.cuda.Memory(factor.nbytes), 0)
        )
        into, origin, size_bytes, stream = factor.data.ptr, saved.data.ptr, factor.nbytes, self._stream.ptr

        def restore() -> None:
            runtime.memcpyAsync(into, origin, size_bytes, runtime.memcpyDeviceToDevice, stream)

        # The call knows addresses alone: this keeps the memory.
        restore.__dict__["memory"] = saved
        align = self._bind_align(slot, numbers, 0)
        divide = self._bind_division(target, self._powers)
        divide_factor = self._bind_division(factor, self._powers + SLOT_BYTES, saved)
        return call_in_turn([align, divide, divide_factor, call, restore])

    def bind_total(self, slots: Sequence[int]) -> tuple[Call, Callable[[], int]]:
        """Send all slots, to pinned memory."""
        size_bytes = self._count * SLOT_BYTES
        on_host = np.frombuffer(cupy.cuda.alloc_pinned_memory(size_bytes), np.int32, self._count)
        into, origin, stream, numbers = on_host.ctypes.data, self._at, self._stream, np.array(slots, np.int64)

        def send() -> None:
            runtime.memcpyAsync(into, origin, size_bytes, runtime.memcpyDeviceToHost, stream.ptr)

        def total() -> int:
            stream.synchronize()
            exponent = int(on_host[numbers].sum(dtype=np.int64))
            return 0 if exponent <= ZERO // 2 else exponent

        return send, total

    def _bind_measuring(self, view: Array, power: int, tolerated_bits: int = 0) -> Call:
        """What leaves the power of the largest part at an address."""
        width, n_units = self._units(view)
        arguments: list[np.generic] = [
            *_pointers(view.data.ptr), np.int64(n_units), np.int32(tolerated_bits),
            *_pointers(power, self._word, self._arrived),
        ]  # fmt: skip
        return self._over_all("measure", width, n_units, arguments)

    def _bind_division(self, view: Array, power: int, saved: Array = None) -> Call:
        """What divides by a power at an address, and keeps what was there."""
        addresses = [view.data.ptr] if saved is None else [view.data.ptr, saved.data.ptr]
        width, n_units = self._units(view, *addresses)
        arguments: list[np.generic] = [
            *_pointers(view.data.ptr), np.int64(n_units),
            *_pointers(power, 0 if saved is None else saved.data.ptr),
        ]  # fmt: skip
        return self._over_all("divide", width, n_units, arguments)

    def _bind_align(self, slot: int, terms: Array, own: int) -> Call:
        arguments: list[np.generic] = [
            *_pointers(self._at), np.int32(slot), *_pointers(terms.data.ptr), np.uint32(terms.size),
            *_pointers(own, self._powers),
        ]  # fmt: skip
        kernel, threads = self._kernel("align"), _threads(terms.size)
        return BoundKernel(kernel, 1, threads, arguments, 0, self._stream, terms)

    def _over_all(self, entry: str, width: int, n_units: int, arguments: Sequence[np.generic]) -> Call:
        """A launch of as many blocks as the GPU runs at once."""
        blocks = max(1, min(-(-n_units // THREADS), self._most_blocks))
        return BoundKernel(self._kernel(entry, width), blocks, THREADS, arguments, 0, self._stream)

    def _kernel(self, entry: str, width: int = 1) -> Any:
        return load_kernel(FILE, entry, exponent_defines(self._real.itemsize, width))

    def _units(self, view: Array, *addresses: int) -> tuple[int, int]:
        """How many numbers a thread takes at once, and how many times that is in a view."""
        n = self._reals(view)
        width = add_width(self._real.itemsize, n, *(addresses or (view.data.ptr,)))
        return width, n // width

    def _reals(self, view: Array) -> int:
        return int(view.nbytes // self._real.itemsize)


def exponent_defines(real_bytes: int, width: int) -> dict[str, str | int]:
    """The definitions of exponents.cu."""
    return {"REAL": REALS[real_bytes], "REAL_BYTES": real_bytes, "WIDTH": width, "ZERO": f"({ZERO})"}


def _pointers(*addresses: int) -> list[np.generic]:
    return [np.uint64(address) for address in addresses]


def _threads(n: int) -> int:
    """The threads of a block for so many numbers: whole warps."""
    return min(MOST_THREADS, max(32, -(-n // 32) * 32))
