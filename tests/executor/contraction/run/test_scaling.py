"""Which tensors are scaled: few, small ones, and enough of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf

import numpy as np
import pytest

from tests.support.contraction.executor import lattice
from tests.support.contraction.fused import planned
from tnplan import plan
from tnplan.executor.contraction.run.scaling import SAFE, SafeRange, ScalingPlan
from tnplan.planner.networks.contraction_path import DTYPES, ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.schedule.schedule import Contract, Fused, Schedule


def chain(extents: Sequence[int], dtype: str) -> Schedule:
    """A product of matrices, from the first to the last: their extents in order."""
    names = [f"i{k}" for k in range(len(extents))]
    terms = tuple(pairwise(names))
    n = len(terms)
    steps = ((0, 1), *((k, n + k - 2) for k in range(2, n)))
    network = Network(terms, (names[0], names[-1]), dict(zip(names, extents, strict=True)))
    return plan(ContractionPath(network, steps, (), dtype), memory=inf)


def scaled(schedule: Schedule) -> list[int]:
    """The elements of the products that are scaled."""
    found = ScalingPlan(schedule)
    sizes = []
    for item in schedule.instructions:
        if isinstance(item, Contract) and found.scaling(item) is not None:
            step = schedule.steps[item.step]
            sizes.append(step.batch * step.m * step.n)
    return sizes


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_short_product_is_not_scaled_on_the_way(dtype: str) -> None:
    schedule = chain([4] * 6, dtype)
    assert scaled(schedule) == []
    found = ScalingPlan(schedule)
    assert sorted(found.result_slots()) == list(range(found.n_slots))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_long_product_is_scaled_before_it_may_leave_the_range(dtype: str) -> None:
    """Every so many steps, by what a step may shrink it."""
    n_steps, safe = 240, SAFE[dtype]
    at_once = safe.below // safe.shrinkage
    count = len(scaled(chain([2] * (n_steps + 2), dtype)))
    assert n_steps // at_once - 1 <= count <= n_steps // (at_once - 2)


@pytest.mark.parametrize("where", range(1, 5))
def test_the_smallest_of_several_tensors_is_scaled(where: int) -> None:
    """All products but one have 2^20 elements; that one is among the first that could be scaled."""
    extents = [1024] * 8
    extents[1 + where] = 16
    assert scaled(chain(extents, "float32")) == [1 << 14]


def test_sums_do_not_grow_beyond_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of two terms adds a bit."""
    monkeypatch.setitem(SAFE, "float32", SafeRange(12, inf, 20, 0))
    assert len(scaled(chain([2] * 122, "float32"))) == 120 // 12 - 1


def test_what_chains_add_does_not_grow_beyond_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terms of a sum are within fewer bits than other tensors: those by which it may grow."""
    path = lattice(4, 10, 2, 0, "float32", n_open=1)
    bonds = sorted(set(path.network.size_dict) - {*path.network.output})
    chosen = np.random.default_rng(3).choice(bonds, 6, replace=False)
    schedule = planned(replace(path, sliced_inds=tuple(map(str, chosen))))
    slots = []
    for above in (60, 20):
        monkeypatch.setitem(SAFE, "float32", SafeRange(above, inf, 20, 0))
        found = ScalingPlan(schedule)
        added = [item for item in schedule.instructions if isinstance(item, Fused) and item.adds]
        slots.append([len(found.terms(item)) for item in added])
    assert slots[0] < slots[1]
