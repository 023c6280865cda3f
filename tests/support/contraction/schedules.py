"""Schedules that several tests read: of closing chains, of early sums, and of given times."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from math import inf

from tests.support.contraction.executor import lattice
from tests.support.networks import eager_profile
from tnplan.planner.hardware.profile import Profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.passes.tree.build import build
from tnplan.planner.schedule.schedule import Fused, Prediction, Schedule, StepAnnotation


def meeting_path(seed: int, dtype: str = "complex64", n_sliced: int = 0) -> ContractionPath:
    """Two stems that end with the same 11 modes and close the network; indices of the first are sliced."""
    chance = random.Random(seed)
    shared = [f"h{number}" for number in range(11)]
    terms: list[tuple[str, ...]] = []
    steps: list[tuple[int, int]] = []
    sides = []
    for side in "ab":
        own = iter(f"{side}{number}" for number in range(40))
        branches, late = [], chance.sample(shared, 5)
        held = [mode for mode in shared if mode not in late]
        while late:
            brought = [late.pop() for _ in range(min(len(late), chance.randint(1, 2)))]
            summed = [next(own) for _ in range(chance.randint(1, 2))]
            held += summed
            branches.append(tuple(chance.sample(summed + brought, len(summed + brought))))
        chance.shuffle(held)
        sides.append([tuple(held), *branches])
    for side in sides:
        terms += side
    ends, first, node = [], 0, len(terms)
    for side in sides:
        stem = first
        for branch in range(first + 1, first + len(side)):
            steps.append((stem, branch))
            stem, node = node, node + 1
        ends.append(stem)
        first += len(side)
    steps.append((ends[0], ends[1]))
    sizes = {index: 2 for term in terms for index in term}
    sliced = tuple(sorted(index for index in sizes if index[0] == "a"))[:n_sliced]
    return ContractionPath(Network(tuple(terms), (), sizes), tuple(steps), sliced, dtype, f"meeting {seed}")


def closing(schedule: Schedule) -> list[Fused]:
    return [item for item in schedule.instructions if isinstance(item, Fused) and item.closing is not None]


def sliced_lattice(seed: int, bond: int = 2, dtype: str = "complex64", n_sliced: int = 6) -> ContractionPath:
    """Random bonds of a lattice sliced that is contracted row by row."""
    path = lattice(5, 4, bond, 0, dtype, n_open=1)
    bonds = sorted(set(path.network.size_dict) - {*path.network.output})
    return replace(path, sliced_inds=tuple(random.Random(seed).sample(bonds, n_sliced)))


def planned(path: ContractionPath, ranks: int = 1, memory_bytes: float = inf) -> Schedule:
    return plan(
        path, eager_profile(4096), devices=ranks, ranks_per_group=ranks, memory_bytes=memory_bytes,
        threshold_bytes=1,
    )  # fmt: skip


EARLY_SUMS_PATH = sliced_lattice(5)
"""Two loops of slices around the sum, and one after it; three indices are summed."""


@cache
def early_sums_schedule() -> Schedule:
    """The plan of that path on one rank."""
    return planned(EARLY_SUMS_PATH)


def made_schedule(
    path: ContractionPath, profile: Profile, ranks: int, slice_s: float, once_s: float = 0.0
) -> Schedule:
    """A schedule with nothing but what a projection reads; the last step takes the seconds of a slice."""
    tree = build(path)
    products = [tree.extent(tuple({*tree.legs[a], *tree.legs[b]})) for a, b in tree.children]
    steps = [
        StepAnnotation("local", (), (), (), (), 1, count, 1, 1, 8, 0, (0,), 8.0, 0.0, 0.0, 0.0,
             once=bool(path.sliced_inds) and not tree.loop_nest.level_of[tree.n_leaves + number])
        for number, count in enumerate(products)
    ]  # fmt: skip
    steps[-1] = replace(
        steps[-1], contract_s=slice_s / 2, permute_s=slice_s / 8, exchange_s=slice_s / 4, codec_s=slice_s / 8
    )
    return Schedule(
        path_identity=path.name, name=path.name, policy="ours", dtype=path.dtype, precision="fp32",
        profile=profile.document(), ranks_per_group=ranks, grid=(), memory_bytes=None, threshold_bytes=8,
        size_dict=path.network.size_dict, leaves=path.network.inputs, output=path.network.output,
        sliced=path.sliced_inds, tensors=None, modes=(), indices={}, buffers=(), once=(), body=(),
        steps=tuple(steps), result=0, predicted=Prediction(once_s, slice_s, 0.0, 8.0, 0, 0, 100 // ranks, 50),
    )  # fmt: skip
