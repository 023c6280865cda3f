"""Random networks with every tensor that can be compressed compressed without loss: the same bits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from tests.support.contraction.compression import FREE, instructions, slow_profile
from tests.support.networks import eager_profile, random_arrays
from tests.support.null_device.dry_run import dry_run
from tests.support.slow import slow_after, slow_unless
from tnplan.calls.execute import execute
from tnplan.common.errors import InputError
from tnplan.executor.device.cpu.codec import NumpyCodec, NumpyOverlaps
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.protocols.codec import Packed
from tnplan.planner.hardware import cost
from tnplan.planner.hardware.compression_options import Compression, Lossy, parse_request
from tnplan.planner.networks.contraction_path import DTYPES, ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.passes.lowering import spill as store
from tnplan.planner.passes.lowering.compress_exchanges import compress_exchanges
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.passes.verify import verify
from tnplan.planner.schedule.schedule import Decode, Encode, Gather, Redistribute, Schedule

SEEDS = range(40)
LEAST_BYTES = 512


def random_path(seed: int) -> ContractionPath:
    """Batches of matrices, each the product of two vectors, neighbours multiplied in any order."""
    chance = random.Random(seed)
    n = chance.randint(4, 8)
    sizes = {f"x{number}": chance.choice((2, 3, 4, 6, 8)) for number in range(n + 1)}
    sizes["b"] = chance.choice((6, 16, 32))
    inputs: list[tuple[str, ...]] = []
    for number in range(n):
        inputs += [("b", f"x{number}"), ("b", f"x{number + 1}")]
    steps = [(2 * number, 2 * number + 1) for number in range(n)]
    chain = [2 * n + number for number in range(n)]
    while len(chain) > 1:
        place = chance.randrange(len(chain) - 1)
        steps.append((chain[place], chain[place + 1]))
        chain[place : place + 2] = [2 * n + len(steps) - 1]
    sliced = chance.sample([f"x{k}" for k in range(1, n)], chance.choice((0, 0, 1)))
    output = ("b", "x0", f"x{n}") if chance.random() < 0.5 else ("x0", f"x{n}")
    network = Network(tuple(inputs), output, sizes)
    return ContractionPath(network, tuple(steps), tuple(sliced), chance.choice(DTYPES), f"random {seed}")


class Kept:
    """A codec that keeps copies of its own, and overwrites the bytes that were planned for its streams."""

    def __init__(self) -> None:
        self.held: dict[int, np.ndarray] = {}

    def encode(self, values: np.ndarray, lossy: Lossy, setting: str, out: np.ndarray) -> Packed:
        self.held[out.ctypes.data] = values.copy()
        out.fill(255)
        return Packed(len(out), 0.0, 1.0)

    def decode(self, data: np.ndarray, values: np.ndarray, header: Any = None) -> None:
        assert (data == 255).all()
        values[...] = self.held[data.ctypes.data]

    def sample(self, values: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        return NumpyCodec().sample(values, out)

    def overlaps(self) -> NumpyOverlaps:
        return NumpyOverlaps()


def found(schedules: Sequence[Schedule], *kinds: type) -> int:
    """How many instructions of some kinds the schedules have."""
    return sum(len(instructions(schedule, kind)) for schedule in schedules for kind in kinds)


def squeezed(seed: int, ranks: int, hardware: Any) -> Schedule | None:
    """A random network planned with too little memory for what waits; None where that cannot be."""
    path = random_path(seed)
    options: dict[str, Any] = {"devices": ranks, "ranks_per_group": ranks, "threshold_bytes": 1}
    peak_bytes = plan(path, hardware, memory_bytes=inf, **options).predicted.peak_bytes
    for share in (0.8, 0.95):
        try:
            return plan(
                path, hardware, memory_bytes=int(share * peak_bytes),
                compression=Compression(store=Lossy(0.0, 4.0)), **options,
            )  # fmt: skip
        except InputError:
            continue
    return None


@pytest.mark.parametrize(
    ("ranks", "seeds"), slow_unless(lambda *at: at == (0, 0), [4, 1], [SEEDS[:20], SEEDS[20:]])
)
def test_stored_tensors_come_back(monkeypatch: pytest.MonkeyPatch, ranks: int, seeds: range) -> None:
    monkeypatch.setattr(store, "LEAST_MESSAGE_BYTES", LEAST_BYTES)
    monkeypatch.setattr(NumpyDevice, "codec", lambda device: Kept())
    hardware = replace(eager_profile(4096, 256), codecs=FREE)
    made: list[Schedule] = []
    for seed in seeds:
        schedule = squeezed(seed, ranks, hardware)
        if schedule is None or not instructions(schedule, Encode):
            continue
        verify(schedule)
        assert schedule.memory_bytes is not None
        made.append(schedule)
        path = random_path(seed)
        arrays = random_arrays(path, seed)
        stored = execute(schedule, arrays, ranks=ranks, device="cpu").array
        plain = plan(
            path, hardware, devices=ranks, ranks_per_group=ranks, memory_bytes=inf, threshold_bytes=1
        )
        wanted = execute(plain, arrays, ranks=ranks, device="cpu").array
        assert stored is not None
        assert wanted is not None
        scale = np.abs(wanted).max(initial=0.0) + sum(np.abs(array).max(initial=0.0) for array in arrays)
        assert np.allclose(stored, wanted, rtol=1e-4, atol=1e-5 * float(scale))
    assert found(made, Encode) == found(made, Decode) > 4


@pytest.mark.parametrize("ranks", slow_after(1, [4, 6]))
def test_compressed_exchanges_give_the_same_bits(monkeypatch: pytest.MonkeyPatch, ranks: int) -> None:
    monkeypatch.setattr(cost, "LEAST_MESSAGE_BYTES", LEAST_BYTES)
    hardware = slow_profile(1 << 14)
    marked: list[Any] = []
    for seed in SEEDS:
        path = random_path(seed)
        schedule = plan(
            path, hardware, devices=ranks, ranks_per_group=ranks, memory_bytes=inf, threshold_bytes=1
        )
        changed = compress_exchanges(schedule, parse_request("exchange=0:100"))
        items = [
            item
            for kind in (Redistribute, Gather)
            for item in instructions(changed, kind)
            if item.compressed  # type: ignore[attr-defined]
        ]
        if not items:
            continue
        verify(changed)
        marked += items
        arrays = random_arrays(path, seed)
        wanted, exact = (
            execute(one, arrays, ranks=ranks, threads=1, device="cpu") for one in (schedule, changed)
        )
        assert np.array_equal(wanted.array, exact.array)  # type: ignore[arg-type]
        assert exact.report["compression"]["bound"] == 0
        for rank in range(ranks):
            counts, peak_bytes = dry_run(changed, rank)
            assert peak_bytes <= changed.predicted.peak_bytes
            assert counts.flops == dry_run(schedule, rank)[0].flops
    assert marked
