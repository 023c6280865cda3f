"""Swaps of index bits between GPUs whose memory is mapped: swap.cu says what is done.

Knows mapped memory and flat launches; no circuit.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from tnplan.executor.device.cuda.peer_memory import CudaMemory
from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel
from tnplan.executor.device.cuda.runtime.kernel_cache import load_kernel
from tnplan.executor.device.cuda.runtime.signals import record
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.device.protocols.device import Call
from tnplan.executor.statevector.scheduling.overlap import Piece
from tnplan.executor.statevector.scheduling.qubit_cover import ExchangePartners, index_of

SWAP_FILE = Path(__file__).parent / "kernels" / "swap.cu"
THREADS, AT_ONCE = 512, 4
"""Threads of a block that swaps alone, and amplitudes that each has on the way."""
BLOCKS_A_MULTIPROCESSOR = 4
"""Blocks of a swap alone for each multiprocessor."""
OVERLAP_THREADS = 256
"""Threads of a block that swaps while passes run."""
OVERLAP_BLOCKS, OVERLAP_AT_ONCE = (24, 36, 72), (8, 8, 4)
"""For each share of `overlap.SHARES`; 24 have 0.86 of NCCL's rate alone.

None takes more of a multiprocessor than a block of a pass, and passes have so many fewer.
"""
WIDE_THREADS = 512
"""Where passes have blocks that fill a multiprocessor, half as many blocks: they keep no more multiprocessors
from these than passes leave free, wherever they come to be."""


def swap_defines(
    item_bytes: int, bits: Sequence[int], threads: int = THREADS, at_once: int = AT_ONCE, n_peers: int = 1
) -> dict[str, str | int]:  # fmt: skip
    """The definitions of swap.cu for bits of an index of amplitudes of `item_bytes`."""
    shift = int(item_bytes == 8 and min(bits) > 0)
    unit = "float2" if item_bytes == 8 and not shift else "double2"
    return {
        "UNIT": unit, "BITS": ",".join(str(bit - shift) for bit in sorted(bits)),
        "THREADS": threads, "AT_ONCE": at_once, "PEERS": n_peers,
    }  # fmt: skip


class PiecewiseSwap:
    """An exchange of one piece after another on the stream of copies, while passes run on theirs.

    Before a piece all ranks wait for each other, and after the last; so all have done what they exchange.
    What waits is no kernel, and passes leave multiprocessors to the kernels that swap.
    """

    def __init__(self, pieces: Sequence[Call], barrier: Call, copies: Any) -> None:
        self._pieces, self._barrier = pieces, barrier
        self._stream, self._copies = cupy.cuda.get_current_stream(), copies
        self._ready, self._done = ([cupy.cuda.Event(disable_timing=True) for _ in pieces] for _ in range(2))

    def begin(self, piece: int) -> None:
        """Exchange a piece as soon as all ranks have done what was given to their stream of passes before."""
        record(self._ready[piece], self._stream)
        self._copies.wait_event(self._ready[piece])
        self._barrier()
        if piece:
            record(self._done[piece - 1], self._copies)
        self._pieces[piece]()
        if piece == len(self._pieces) - 1:
            self._barrier()
            record(self._done[piece], self._copies)

    def end(self, piece: int) -> None:
        """Passes given from now on find the piece exchanged, and those before it."""
        self._stream.wait_event(self._done[piece])


class StateSwap:
    """The amplitudes of all ranks, `local` those of this one; made by all ranks together."""

    def __init__(self, local: Any, ranks: Communicator) -> None:
        memory = ranks.open_memory(local.view(np.uint8))
        self._memory = memory if isinstance(memory, CudaMemory) else None
        self._local, self._rank = local, ranks.rank
        if self._memory is not None:
            weakref.finalize(self, self._memory.close)

    def bind(self, partners: ExchangePartners) -> Call | None:
        """The call that swaps with all peers in turn; None where one cannot be reached."""
        memory = self._reaching(partners)
        if memory is None:
            return None
        most = BLOCKS_A_MULTIPROCESSOR * int(cupy.cuda.Device().attributes["MultiProcessorCount"])
        call = self._launch(memory, partners, ((), 0), most)
        return memory.bind([call], (), partners.ranks, 0)

    def bind_parts(
        self, partners: ExchangePartners, pieces: Sequence[Piece], share: int, wide: Sequence[bool]
    ) -> PiecewiseSwap | None:
        """The same for each piece in turn, to overlap passes.

        `wide` says of each whether blocks of these passes fill a multiprocessor.
        """
        memory = self._reaching(partners)
        if memory is None:
            return None
        most = OVERLAP_BLOCKS[share] * OVERLAP_THREADS
        launches = []
        for piece, fills in zip(pieces, wide, strict=True):
            threads = WIDE_THREADS if fills else OVERLAP_THREADS
            blocks, at_once = most // threads, OVERLAP_AT_ONCE[share]
            launches.append(self._launch(memory, partners, piece, blocks, threads, at_once))
        return PiecewiseSwap(launches, memory.bind_meeting(partners.ranks), memory.copy_stream)

    def _reaching(self, partners: ExchangePartners) -> CudaMemory | None:
        """The memory of all ranks, where that of the peers is mapped."""
        memory = self._memory
        return memory if memory is not None and set(partners.ranks) <= memory.ranks else None

    def _launch(
        self, memory: CudaMemory, partners: ExchangePartners, piece: Piece, most: int,
        threads: int = THREADS, at_once: int = AT_ONCE,
    ) -> Call:  # fmt: skip
        """The kernel that swaps a piece with all peers, one after the other, by `most` blocks or fewer."""
        (inside, value, peers), (bits, piece_value) = partners, piece
        fixed, item_bytes = [*inside, *bits], self._local.itemsize
        defines = swap_defines(item_bytes, fixed, threads, at_once, len(peers))
        unit = 8 if defines["UNIT"] == "float2" else 16
        count = self._local.nbytes // unit >> len(fixed)
        theirs = [memory.view(peer, 0, len(self._local), self._local.dtype.name) for _, peer in peers]

        def start(amplitudes: Any, side_value: int) -> Any:
            return amplitudes.data.ptr + item_bytes * index_of(side_value | piece_value << len(inside), fixed)

        sides = swap_sides(
            [start(self._local, peer_value) for peer_value, _ in peers], [start(v, value) for v in theirs],
            [self._rank < peer for _, peer in peers], count,
        )  # fmt: skip
        blocks = max(1, min(most, -(-count // 2) // threads))
        kernel = load_kernel(SWAP_FILE, "swap_places", defines)
        argument = sides.view(f"V{sides.nbytes}")[0]
        return BoundKernel(kernel, blocks, threads, (argument,), 0, memory.copy_stream, theirs)


def swap_sides(own: Sequence[int], theirs: Sequence[int], halves: Sequence[bool], count: int) -> Any:
    """`Sides` of swap.cu, int64, for the addresses where swapped amplitudes begin, here and at each peer.

    Of `count` units this side swaps the first half (where `halves` says so) or the second.
    """
    first = [0 if half else count // 2 for half in halves]
    end = [count // 2 if half else count for half in halves]
    return np.array([*own, *theirs, *first, *end], np.int64)
