"""Networks for tests of compression in the executor: tensors that wait, and tensors that are exchanged."""

from __future__ import annotations

import threading
from dataclasses import replace
from math import inf
from queue import SimpleQueue
from typing import Any

import numpy as np

from tests.support.networks import eager_profile, random_arrays
from tnplan.executor.device.comm.threads import ThreadCommunicator
from tnplan.executor.device.protocols.communicator import Message
from tnplan.executor.device.protocols.device import Call
from tnplan.planner.hardware.compression_options import Compression, Lossy
from tnplan.planner.hardware.profile import CodecRates, Profile, Tier, load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.schedule.schedule import Encode, Instruction, Schedule

FREE = {name: CodecRates(1e12, 1e12) for name in ("fast", "small")}
"""Codecs that cost nothing, so that compressing pays on any slow tier."""


def slow_profile(exchange_bytes: int = 1 << 20, node: int = 2) -> Profile:
    """Nodes of `node` ranks with a slow network between them, and codecs that cost nothing."""
    profile = eager_profile(exchange_bytes, 1 << 16, node)
    tiers = (Tier("fast", node, 1e12, 0.0, 0), Tier("slow", 0, 1e8, 0.0, 0))
    return replace(profile, tiers=tiers, codecs=FREE)


def waiting(
    depth: int, batch: int, extent: int, dtype: str = "complex64", sliced: int = 0
) -> ContractionPath:
    """Products of 2^depth batches of matrices, pair by pair: on every level one waits till the other is made.

    Each matrix is the product of two vectors. With `sliced` an index of that size is summed over slices; it
    is on the vectors of the last two matrices.
    """
    n = 2**depth
    sizes = {"b": batch, **{f"x{number}": extent for number in range(n + 1)}}
    if sliced:
        sizes["s"] = sliced
    inputs, level = [], list(range(2 * n, 3 * n))
    for number in range(n):
        tail = ("s",) if sliced and number >= n - 2 else ()
        # The column of one matrix is the row of the next.
        inputs += [("b", f"x{number}", *tail), ("b", f"x{number + 1}")]
    steps = [(2 * number, 2 * number + 1) for number in range(n)]
    while len(level) > 1:
        made = [2 * n + len(steps) + number for number in range(len(level) // 2)]
        steps += list(zip(level[::2], level[1::2], strict=True))
        level = made
    network = Network(tuple(inputs), ("x0", f"x{n}"), sizes)
    return ContractionPath(network, tuple(steps), ("s",) if sliced else (), dtype, "waiting")


def exchanging(modes: int, window: int, dtype: str = "complex64") -> ContractionPath:
    """A large tensor of binary modes whose first modes are turned into new ones, three at a time."""
    names = [f"m{number}" for number in range(modes)]
    inputs: list[tuple[str, ...]] = [tuple(names[: modes // 2]), tuple(names[modes // 2 :])]
    sizes = dict.fromkeys(names, 2)
    held = list(names)
    for number in range(window):
        old, new = held[:3], [f"n{number}.{place}" for place in range(3)]
        sizes |= dict.fromkeys(new, 2)
        inputs.append((*old, *new))
        held = [*held[3:], *new]
    n = len(inputs)
    steps = [(0, 1)] + [(n + number, 2 + number) for number in range(window)]
    return ContractionPath(Network(tuple(inputs), tuple(held), sizes), tuple(steps), (), dtype, "exchanging")


def plan_exchanges(
    ranks: int, compression: Compression | None, modes: int = 18, profile: Profile | None = None
) -> Schedule:
    """The exchanging network over `ranks` ranks on the slow network, every rank a node of its own."""
    return plan(
        exchanging(modes, modes // 3 + 2), profile or slow_profile(node=1), devices=ranks,
        ranks_per_group=ranks, memory_bytes=inf, threshold_bytes=1, compression=compression,
    )  # fmt: skip


def instructions(schedule: Schedule, kind: type) -> list[Instruction]:
    """All instructions of a kind."""
    return [item for item in (*schedule.once, *schedule.body) if isinstance(item, kind)]


def distance(found: np.ndarray, wanted: np.ndarray) -> float:
    """The 2-norm of the difference over that of what is wanted."""
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


EXCHANGE = Compression(exchange=Lossy(1e-3))


def arrays_of(path: ContractionPath, seed: int = 1) -> list[np.ndarray]:
    """Random tensors that are small enough for long products."""
    return [(array * 0.5).astype(array.dtype) for array in random_arrays(path, seed)]


class MovingBeside:
    """Thread ranks whose bound messages move in a thread of their own, one exchange after the other.

    What is there before a message arrives is spoilt when its exchange starts.
    """

    overlaps = True

    def __init__(self, ranks: ThreadCommunicator) -> None:
        self.rank, self.size, self.exchange = ranks.rank, ranks.size, ranks.exchange
        self._own = ranks.split(0, ranks.rank)
        self._begun: SimpleQueue[tuple[Any, Any, threading.Event]] = SimpleQueue()
        self.under_way = self.most = 0
        threading.Thread(target=self._move, daemon=True).start()

    def _move(self) -> None:
        while True:
            sends, receives, done = self._begun.get()
            for _, view in receives:
                view.view(np.uint8)[:] = 0xAB
            self._own.exchange(sends, receives)
            done.set()

    def bind_exchange(self, sends: list[Message], receives: list[Message]) -> tuple[Call, Call]:
        """See `Communicator`."""
        done = threading.Event()

        def begin() -> None:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            self._begun.put((sends, receives, done))

        def end() -> None:
            done.wait()
            self.under_way -= 1

        return begin, end


def short_of_memory(ratio: float = 3.0, share: float = 0.85, sliced: int = 4) -> Schedule:
    """A small plan with slices that stores tensors."""
    path = waiting(4, 1 << 7, 16, sliced=sliced)
    profile = replace(load_profile("cpu"), codecs=FREE)
    peak_bytes = plan(path, profile, memory_bytes=inf).predicted.peak_bytes
    compression = Compression(store=Lossy(1e-3, ratio))
    schedule = plan(path, profile, memory_bytes=int(share * peak_bytes), compression=compression)
    assert instructions(schedule, Encode)
    return schedule


SMALL_PATH = waiting(4, 1 << 7, 16, sliced=4)
SMALL_ARRAYS = arrays_of(SMALL_PATH)
