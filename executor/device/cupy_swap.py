"""Swaps of index bits between GPUs whose memory is mapped: kernels/state_swap.cu says what is done.

Knows mapped memory and flat launches; no circuit.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from executor.device.communicator import Communicator
from executor.device.cuda_memory import CudaMemory
from executor.device.device import Call
from executor.device.kernel_cache import load_kernel
from executor.device.launch import Launch
from executor.device.stream_event import record

SWAP_FILE = "state_swap.cu"
THREADS, AT_ONCE = 512, 4
BLOCKS_A_MULTIPROCESSOR = 4
BESIDE_THREADS, BESIDE_AT_ONCE = 256, 8
BESIDE_BLOCKS = 24
"""They have 0.86 of NCCL's rate. Each has the registers of a block of a pass, which leaves room for them."""


def swap_defines(item_bytes: int, bits: Sequence[int], beside: bool = False) -> dict[str, str | int]:
    """The definitions of state_swap.cu for bits of an index of amplitudes of `item_bytes`."""
    shift = int(item_bytes == 8 and min(bits) > 0)
    unit = "float2" if item_bytes == 8 and not shift else "double2"
    return {
        "UNIT": unit, "BITS": ",".join(str(bit - shift) for bit in sorted(bits)),
        "THREADS": BESIDE_THREADS if beside else THREADS, "AT_ONCE": BESIDE_AT_ONCE if beside else AT_ONCE,
    }  # fmt: skip


class PartSwap:
    """An exchange of one piece after another on the stream of copies, beside passes on the stream of these.

    Before a piece all ranks wait for each other, and after the last; so all have done what they exchange.
    What waits is no kernel, and passes leave room for those that swap.
    """

    def __init__(self, pieces: Sequence[Sequence[Call]], meet: Call, beside: Any) -> None:
        self._pieces, self._meet = pieces, meet
        self._stream, self._beside = cupy.cuda.get_current_stream(), beside
        self._ready, self._done = (
            [cupy.cuda.Event(disable_timing=True) for _ in pieces] for _ in range(2)
        )  # fmt: skip

    def begin(self, piece: int) -> None:
        """Exchange a piece as soon as all ranks have done what was given to their stream of passes before."""
        record(self._ready[piece], self._stream)
        self._beside.wait_event(self._ready[piece])
        self._meet()
        if piece:
            record(self._done[piece - 1], self._beside)
        for call in self._pieces[piece]:
            call()
        if piece == len(self._pieces) - 1:
            self._meet()
            record(self._done[piece], self._beside)

    def end(self, piece: int) -> None:
        """Passes given from now on find the piece exchanged, and those before it."""
        self._stream.wait_event(self._done[piece])


class StateSwap:
    """The amplitudes of all ranks, `own` those of this one; made by all ranks together."""

    def __init__(self, own: Any, ranks: Communicator) -> None:
        memory = ranks.open_memory(own.view(np.uint8))
        self._memory = memory if isinstance(memory, CudaMemory) else None
        self._own, self._rank = own, ranks.rank
        if self._memory is not None:
            weakref.finalize(self, self._memory.close)

    def bind(self, inside: Sequence[int], peers: Sequence[tuple[int, int]], value: int) -> Call | None:
        """The call that swaps what has value v in the bits `inside` with what has `value` there on a peer.

        `peers` are pairs of v and a rank; bit k of v is inside[k]. None where a peer cannot be reached.
        """
        memory = self._reaching(peers)
        if memory is None:
            return None
        calls = self._launches(memory, inside, peers, value, (), 0)
        return memory.bind(calls, (), [peer for _, peer in peers], 0)

    def bind_parts(
        self, inside: Sequence[int], peers: Sequence[tuple[int, int]], value: int,
        pieces: Sequence[tuple[Sequence[int], int]],
    ) -> PartSwap | None:  # fmt: skip
        """The same for each piece in turn, some bits and their value, to be done beside passes."""
        memory = self._reaching(peers)
        if memory is None:
            return None
        launches = [self._launches(memory, inside, peers, value, bits, part) for bits, part in pieces]
        return PartSwap(launches, memory.bind_meeting([peer for _, peer in peers]), memory.copy_stream)

    def _reaching(self, peers: Sequence[tuple[int, int]]) -> CudaMemory | None:
        """The memory of all ranks, where that of the peers is mapped."""
        memory = self._memory
        return memory if memory is not None and {peer for _, peer in peers} <= memory.ranks else None

    def _launches(
        self, memory: CudaMemory, inside: Sequence[int], peers: Sequence[tuple[int, int]], value: int,
        bits: Sequence[int], part: int,
    ) -> list[Call]:  # fmt: skip
        """A kernel for each peer; where there are `bits`, for what has the value `part` in them."""
        item_bytes = self._own.itemsize
        fixed = [*inside, *bits]
        defines = swap_defines(item_bytes, fixed, bool(bits))
        kernel = load_kernel(SWAP_FILE, "swap_places", defines)
        threads = int(defines["THREADS"])
        unit = 8 if defines["UNIT"] == "float2" else 16
        count = self._own.nbytes // unit >> len(fixed)
        multiprocessors = int(cupy.cuda.Device().attributes["MultiProcessorCount"])
        most = BESIDE_BLOCKS if bits else BLOCKS_A_MULTIPROCESSOR * multiprocessors
        calls: list[Call] = []
        for own_value, peer in peers:
            theirs = memory.view(peer, 0, len(self._own), self._own.dtype.name)
            first, end = (0, count // 2) if self._rank < peer else (count // 2, count)
            starts = [
                array.data.ptr + item_bytes * _place(fixed, number | part << len(inside))
                for array, number in ((self._own, own_value), (theirs, value))
            ]
            arguments = (np.uint64(starts[0]), np.uint64(starts[1]), np.int64(first), np.int64(end))
            blocks = max(1, min(most, (end - first) // threads))
            calls.append(Launch(kernel, blocks, threads, arguments, 0, memory.copy_stream, theirs))
        return calls


def _place(bits: Sequence[int], value: int) -> int:
    """The index in which bits[k] is bit k of a value."""
    return sum((value >> k & 1) << bit for k, bit in enumerate(bits))
