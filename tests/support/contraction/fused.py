"""Random networks of one large tensor and many small ones, and a machine on which their steps are fused."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.contraction.executor import check_result
from tests.support.networks import eager_profile, random_arrays
from tnplan.calls.execute import execute
from tnplan.executor.device.protocols.device import FusedShape
from tnplan.planner.hardware.profile import DEFAULT_PRECISION, Profile
from tnplan.planner.networks.contraction_path import DTYPES, ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.schedule.schedule import Fused, Schedule

TOLERANCE = {"float32": 1e-5, "complex64": 1e-5, "float64": 1e-13, "complex128": 1e-13}
"""Of a chain, relative to the contraction of absolute values."""


def fusing_profile(fused_bytes: int, exchange_bytes: int = 512, tile_bytes: int = 256) -> Profile:
    """The eager machine with a kernel for fused chains that is faster than its products."""
    return replace(
        eager_profile(exchange_bytes, tile_bytes),
        name="fusing",
        fused_bytes=fused_bytes,
        fused_tile_bytes_per_s=fused_rates(1e12),
        fused_flop_per_s=fused_rates(1e10),
    )


def fused_rates(rate: float, dtypes: Iterable[str] = DTYPES) -> dict[str, dict[str, float]]:
    """One rate for each dtype in its own precision."""
    return {dtype: {DEFAULT_PRECISION[dtype]: rate} for dtype in dtypes}


def planned(path: ContractionPath, ranks: int = 1, memory_bytes: float = inf) -> Schedule:
    """The schedule of one group on the fusing machine, in which any tensor may be spread."""
    return plan(
        path, fusing_profile(1 << 15), devices=ranks, ranks_per_group=ranks, memory_bytes=memory_bytes,
        threshold_bytes=1,
    )  # fmt: skip


def check(path: ContractionPath, schedule: Schedule, seed: int, **options: object) -> None:
    """Assert that a replay gives the value of the path."""
    arrays = random_arrays(path, seed)
    found = execute(schedule, arrays, **options).array  # type: ignore[arg-type]
    assert found is not None
    check_result(path, arrays, found)


def chains(schedule: Schedule) -> Iterator[Fused]:
    """The fused instructions of a schedule."""
    return (item for item in (*schedule.once, *schedule.body) if isinstance(item, Fused))


def stem_path(seed: int) -> ContractionPath:
    """A stem that meets small tensors in turn; the first letters of an index say its role.

    Some branches are products of two tensors; some indices have extent 4 or 3, stand on two branches and
    the stem (h: a hyper-index, batch of a step), or are sliced.
    """
    chance = random.Random(seed)
    sizes: dict[str, int] = {}

    def new(role: str) -> str:
        name = f"{role}{len(sizes)}"
        sizes[name] = chance.choice((2,) * 12 + (4, 3))
        return name

    held = [new("s") for _ in range(chance.randint(8, 10))]
    terms = [tuple(held)]
    steps: list[tuple[int, int]] = []
    pending: list[list[int]] = []
    shared: set[str] = set()
    for _ in range(chance.randint(2, 9)):
        summed = chance.sample(held, min(chance.choice((0, 1, 1, 2, 2, 3)), len(held) - 1))
        grown = prod(sizes[index] for index in held) > 1 << 11
        fresh = [new("n") for _ in range(chance.choice((0, 1) if grown else (0, 1, 2, 3)))]
        branch = summed + fresh
        chance.shuffle(branch)
        keeps = {index for index in summed if chance.random() < 0.1 and index not in shared}
        shared |= keeps
        if len(branch) > 1 and chance.random() < 0.3:
            middle = new("m")
            cut = chance.randint(1, len(branch) - 1)
            pending.append([len(terms), len(terms) + 1])
            terms += [(*branch[:cut], middle), (middle, *branch[cut:])]
        else:
            pending.append([len(terms)])
            terms.append(tuple(branch))
        held = [index for index in held if index not in summed or index in keeps] + fresh
    n_terms = len(terms)
    stem = 0
    for group in pending:
        branch_node = group[0]
        if len(group) == 2:
            steps.append((group[0], group[1]))
            branch_node = n_terms + len(steps) - 1
        steps.append((stem, branch_node) if chance.random() < 0.5 else (branch_node, stem))
        stem = n_terms + len(steps) - 1
    chance.shuffle(held)
    inside = [index for index in sizes if index not in held]
    sliced = tuple(index for index in inside if chance.random() < 0.1)
    network = Network(tuple(terms), tuple(held), sizes)
    return ContractionPath(network, tuple(steps), sliced, chance.choice(DTYPES), f"stem {seed}")


def random_chain(chance: random.Random, most: int) -> FusedShape:
    """A chain of up to 5 branches on an operand of binary modes, and at times one of extent 3."""
    extents = dict.fromkeys(range(60), 2)
    operand = list(range(chance.randint(6, most)))
    if chance.random() < 0.5:
        extents[chance.randrange(2)] = 3
    held, fresh, branches = list(operand), len(operand), []
    for _ in range(chance.randint(1, 5)):
        near = [mode for mode in held if extents[mode] == 2][-8:]
        summed = chance.sample(near, min(len(near), chance.randint(1, 4)))
        brought = list(range(fresh, fresh + chance.randint(0, 4)))
        fresh += len(brought)
        held = [mode for mode in held if mode not in summed] + brought
        branch = brought + summed
        branches.append(branch if chance.random() < 0.7 else chance.sample(branch, len(branch)))
    if chance.random() < 0.3:
        chance.shuffle(held)
    else:
        held.sort(key=lambda mode: mode if mode < len(operand) else chance.random() * len(operand))

    def sized(modes: Sequence[int]) -> tuple[tuple[int, int], ...]:
        return tuple((mode, extents[mode]) for mode in modes)

    return FusedShape(sized(operand), tuple(map(sized, branches)), sized(held))


def normal(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> NDArray[Any]:
    """Normal numbers of a type, complex ones with both parts."""
    parts = rng.standard_normal((2, *shape))
    return (parts[0] + 1j * parts[1] if dtype.startswith("complex") else parts[0]).astype(dtype)


def arrays_of(shape: FusedShape, make: Callable[[list[int]], NDArray[Any]]) -> list[NDArray[Any]]:
    """The operand and the branches, each made from its extents."""
    return [make([extent for _, extent in modes]) for modes in (shape.operand, *shape.branches)]
