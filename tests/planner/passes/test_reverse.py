"""Schedules of gradients: what they keep under a limit, what they refuse, what the verifier finds."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from tests.support.contraction.fused import fusing_profile, stem_path
from tests.support.contraction.schedules import closing, early_sums_schedule, meeting_path
from tests.support.networks import random_path, window
from tnplan.common.errors import InputError
from tnplan.planner.hardware.fusion_tile import ADJOINT_STAGES
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.passes.adjoint_program import adjoint_flow
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.passes.reverse import by_saving, reverse
from tnplan.planner.passes.verify import verify
from tnplan.planner.schedule.schedule import (
    AddSlice,
    Contract,
    Free,
    Fused,
    FusedAdjoint,
    GradientSchedule,
    Zero,
)


def chain(length: int, extent: int = 8) -> ContractionPath:
    """A product of matrices from left to right."""
    inputs = tuple((f"i{k}", f"i{k + 1}") for k in range(length))
    sizes = {f"i{k}": extent for k in range(length + 1)}
    ssa = ((0, 1), *((length + k, k + 2) for k in range(length - 2)))
    return ContractionPath(Network(inputs, ("i0", f"i{length}"), sizes), ssa)


def sliced_ladder() -> ContractionPath:
    """A product with two sliced indices, of which steps in the middle touch one alone."""
    path = chain(8, 4)
    network = replace(path.network, output=("i0",))
    return replace(path, network=network, sliced_inds=("i6", "i3"))


def gradient(
    path: ContractionPath, wrt: list[int], memory_bytes: float = inf, ranks: int = 1
) -> GradientSchedule:
    """The schedule of gradients on a CPU."""
    forward = plan(
        path, load_profile("cpu"), devices=ranks, ranks_per_group=ranks, memory_bytes=inf, goes_back=True
    )
    return reverse(forward, wrt, memory_bytes)


def products(schedule: GradientSchedule) -> int:
    """How many products it has."""
    return sum(isinstance(item, Contract) for item in schedule.instructions)


def test_one_product_forward_and_two_back_for_each_step() -> None:
    path = chain(6)
    everything = gradient(path, list(range(6)))
    assert products(everything) == 3 * 5
    # Of one tensor at the end of the chain: one product on the way down, none for the tensors beside it.
    assert products(gradient(path, [5])) == 5 + 1
    assert products(gradient(path, [0])) == 5 + 5


def test_less_memory_makes_values_again_and_is_kept_to() -> None:
    path = window(24, 10)
    wrt = list(range(25))
    whole = gradient(path, wrt)
    flops = [whole.operations]
    for share in (0.8, 0.6, 0.45):
        limit = share * whole.predicted.peak_bytes
        tight = gradient(path, wrt, limit)
        assert tight.predicted.peak_bytes <= limit
        verify(tight)
        flops.append(tight.operations)
    assert flops == sorted(flops)
    assert flops[-1] > flops[0]
    with pytest.raises(InputError, match="gradients"):
        gradient(path, wrt, 0.05 * whole.predicted.peak_bytes)


def test_kept_tensors_of_a_stem_lie_apart() -> None:
    schedule = plan(window(32, 10), load_profile("cpu"), memory_bytes=inf)
    flow = adjoint_flow(schedule, range(33))
    stem = [item.c for item in schedule.once if isinstance(item, Contract)]
    largest = [stem.index(buffer) for buffer in by_saving(schedule, flow) if buffer in stem][:3]
    assert min(np.diff([0, *sorted(largest), len(stem)])) >= 4, largest


def with_chains(path: ContractionPath, wrt: list[int], memory_bytes: float = inf) -> GradientSchedule:
    """The schedule of gradients with chains that go back."""
    return reverse(plan(path, fusing_profile(1 << 15), memory_bytes=inf, goes_back=True), wrt, memory_bytes)


def test_chains_that_close_and_early_sums_are_refused() -> None:
    profile = fusing_profile(1 << 15)
    schedule = plan(meeting_path(0), profile, memory_bytes=inf)
    assert closing(schedule)
    with pytest.raises(InputError, match=r"fused.*no adjoint"):
        reverse(schedule, [0])
    assert not closing(plan(meeting_path(0), profile, memory_bytes=inf, goes_back=True))
    with pytest.raises(InputError, match=r"zero.*no adjoint"):
        reverse(early_sums_schedule(), [0])


def test_a_chain_goes_back_at_once() -> None:
    path = replace(window(24, 12), dtype="complex64")
    wrt = list(range(25))
    found, plain = with_chains(path, wrt), gradient(path, wrt)
    there = [item for item in found.once if isinstance(item, Fused)]
    back = [item for item in found.once if isinstance(item, FusedAdjoint)]
    assert [item.branches for item in back] == [item.branches for item in reversed(there)]
    assert back
    assert all(len(item.branches) <= ADJOINT_STAGES for item in back)
    assert all(None not in item.gradients for item in back)
    assert found.operations == plain.operations
    assert found.predicted.peak_bytes < plain.predicted.peak_bytes
    # Of a tensor beside the stem's start alone: the gradient of one branch, and no cotangent beyond it.
    first = with_chains(path, [0])
    assert sum(isinstance(item, FusedAdjoint) for item in first.once) == len(back)
    last = with_chains(path, [max(wrt)])
    assert sum(isinstance(item, FusedAdjoint) for item in last.once) <= 1


@pytest.mark.parametrize("seed", range(20))
def test_random_chains_are_verified(seed: int) -> None:
    path = stem_path(seed)
    wrt = list(range(len(path.network.inputs)))
    found = with_chains(path, wrt)
    verify(found)
    try:
        tight = with_chains(path, wrt, 0.8 * found.predicted.peak_bytes)
    except InputError:
        return
    verify(tight)
    assert tight.predicted.peak_bytes <= 0.8 * found.predicted.peak_bytes


def test_the_verifier_finds_what_is_wrong_with_a_way_back() -> None:
    schedule = with_chains(replace(window(24, 12), dtype="complex64"), list(range(25)))
    number = next(place for place, item in enumerate(schedule.once) if isinstance(item, FusedAdjoint))
    item = schedule.once[number]
    assert isinstance(item, FusedAdjoint)
    wrong = [
        replace(item, gradients=item.gradients[::-1]),
        replace(item, gradients=item.gradients[1:]),
        replace(item, steps=item.steps[1:]),
        replace(item, steps=(*item.steps[1:], len(schedule.steps))),
        replace(item, cotangent=item.operand),
        replace(item, operand=item.cotangent),
        replace(item, out=item.operand),
        replace(item, branches=()),
        replace(item, out=item.gradients[0], gradients=(item.out, *item.gradients[1:])),
    ]
    for one in wrong:
        once = (*schedule.once[:number], one, *schedule.once[number + 1 :])
        with pytest.raises(InputError):
            verify(replace(schedule, once=once))


@pytest.mark.parametrize("seed", range(40))
def test_random_schedules_are_verified(seed: int) -> None:
    path = random_path(seed, 4000)
    wrt = list(range(len(path.network.inputs)))
    found = gradient(path, wrt)
    verify(found)
    assert [one.tensor for one in found.gradients] == wrt
    assert found.leaves[found.cotangent] == path.network.output


def test_the_verifier_finds_what_is_wrong() -> None:
    schedule = gradient(sliced_ladder(), list(range(8)))
    verify(schedule)
    assert schedule.after
    adds = next(item for item in schedule.body if isinstance(item, AddSlice))
    zero = next(item for item in schedule.once if isinstance(item, Zero))
    last = schedule.after[-1]
    broken = [
        replace(schedule, once=tuple(item for item in schedule.once if item != zero)),
        replace(
            schedule,
            body=tuple(replace(item, out=zero.out) if item == adds else item for item in schedule.body),
        ),
        replace(schedule, gradients=(replace(schedule.gradients[0], tensor=1), *schedule.gradients[1:])),
        replace(schedule, gradients=(replace(schedule.gradients[0], tensor=99), *schedule.gradients[1:])),
        replace(schedule, leaves=(*schedule.leaves[:-1], ("i1",))),
        replace(schedule, after=(replace(last, depth=1),)),
        replace(schedule, body=tuple(item for item in schedule.body if not isinstance(item, Free))),
    ]  # fmt: skip
    missed = []
    for number, one in enumerate(broken):
        try:
            verify(one)
        except InputError:
            continue
        missed.append(number)
    assert missed == []
