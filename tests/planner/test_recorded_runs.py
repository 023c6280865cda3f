"""Predicted seconds of recorded runs, beside the calls that runs make and the kernels that they launch.

The figures of profiles for them too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any

import pytest

import tnplan
from tests.support.contraction.fused import fusing_profile
from tests.support.contraction.schedules import early_sums_schedule, planned
from tests.support.kernels.gpus import count_gpus
from tests.support.networks import random_path, window
from tests.support.null_device.device import Counts, NullCommunicator, NullDevice
from tnplan.common.errors import InputError
from tnplan.executor.contraction.run.compiled_program import CompiledProgram
from tnplan.executor.device.cpu.algebra import NAMED
from tnplan.planner.hardware.profile import (
    Profile,
    RecordedRates,
    SmallProductTimes,
    load_profile,
    profile_text,
)
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.passes.reverse import reverse
from tnplan.planner.schedule import recorded_run
from tnplan.planner.schedule.file import load_schedule, save_schedule
from tnplan.planner.schedule.recorded_run import calls_s, count_calls, recorded_s
from tnplan.planner.schedule.schedule import Contract, Fused, Schedule
from tnplan.planner.search.search_in_proportion import greedy_or_orders
from tnplan.planner.workloads.mixed import regular_network

TIMES = SmallProductTimes((8, 64), (2, 8, 32), ((2e-6, 3e-6, 4e-6), (5e-6, 6e-6, 9e-6)))
RATES = RecordedRates(3e-5, 2e-6, {"numbers": {"complex64": TIMES}, "residues": {"float64": TIMES}})


def with_rates(schedule: Schedule, **rates: Any) -> Schedule:
    """With other figures of recorded runs; 0 for what is not given."""
    recorded = {"launch_s": 0.0, "copy_s": 0.0, "products": {}, **rates}
    return replace(schedule, profile={**schedule.profile, "recorded": recorded})


def count_of_copies(schedule: Schedule) -> float:
    """How often the prediction counts `copy_s`, where products take much longer than it."""
    return recorded_s(with_rates(schedule, copy_s=1.0)) - recorded_s(with_rates(schedule))


def calls_of(schedule: Schedule) -> int:
    """The calls that the executor makes in a run of all slices; a chain in parts is one."""
    called = 0

    def counted(call: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            nonlocal called
            called += 1
            call()

        return run

    from tnplan.executor.contraction.run import compiled_program

    def bind_counted(*given: Any) -> Any:
        program = bind(*given)
        for part in program.parts:
            part[:] = [replace(one, call=counted(one.call)) for one in part]
        return program

    bind = compiled_program.bind
    counts = Counts()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_program, "bind", bind_counted)
        program = CompiledProgram(schedule, NullDevice(counts), NullCommunicator(0, schedule.grid, counts))
        program.run()
    return called


def regular_path(n: int, seed: int, extents: tuple[int, int]) -> ContractionPath:
    """A network on a random graph of degree 3, in an order that was made greedily."""
    network = regular_network(n, seed, extents=extents, n_open=0, n_hyper=0)
    return ContractionPath(network, greedy_or_orders(network, "complex64"), (), "complex64")


def schedules() -> list[Schedule]:
    made = [early_sums_schedule(), *(planned(random_path(seed)) for seed in range(8100, 8140))]
    made.append(plan(replace(window(10, 12), dtype="complex64"), fusing_profile(1 << 15), memory_bytes=inf))
    assert any(schedule.n_slices > 1 for schedule in made)
    assert any(isinstance(item, Fused) for schedule in made for item in schedule.instructions)
    return made


def test_every_call_of_a_run_counts() -> None:
    for schedule in schedules():
        called = calls_of(schedule)
        assert count_calls(schedule, schedule.n_slices) == called
        # A chain that closes begins with zeros, and one in parts is a call a part.
        chains = [item for item in schedule.once if isinstance(item, Fused)]
        more = sum(item.parts - 1 + (item.closing is not None) for item in chains)
        assert all(item in schedule.once for item in schedule.instructions if isinstance(item, Fused))
        assert count_of_copies(schedule) == pytest.approx(called + more)


def test_without_rates_runs_are_single_launches() -> None:
    for schedule in schedules()[:5]:
        assert "recorded" not in schedule.profile
        assert recorded_s(schedule) == schedule.projected_s(1)
        assert calls_s(schedule, 7) == pytest.approx(7 * schedule.projected_s(1))


def test_a_start_and_the_launch_of_the_inputs_come_on_top() -> None:
    schedule = planned(window(4, 12))
    schedule = replace(schedule, profile={**schedule.profile, "launch_s": 5e-5})
    rates = {"copy_s": 1e-6}
    begun_s = recorded_s(with_rates(schedule, launch_s=1e-3, **rates))
    assert begun_s - recorded_s(with_rates(schedule, **rates)) == pytest.approx(1e-3)
    made = with_rates(schedule, **rates)
    assert calls_s(made, 5) == pytest.approx(made.projected_s(1) + 4 * recorded_s(made))


def test_products_take_no_less_than_small_ones_that_were_measured() -> None:
    """A plan with launches of 9 us, by hand: copies, and of each product its work or the least, if more."""
    machine = replace(load_profile("h200-nvlink"), fused_bytes=0, launch_s=9e-6)
    for seed in (8200, 8201, 8202):
        schedule = plan(regular_path(30, seed, (2, 8)), replace(machine, recorded=RATES), memory_bytes=inf)
        assert schedule.n_slices == 1
        others = sum(not isinstance(item, Contract) for item in schedule.once if item.op != "free")
        wanted_s = 9e-6 + RATES.launch_s + others * RATES.copy_s
        for step in schedule.steps:
            curve = TIMES.time_s[step.batch * step.m * step.n > 8 * 64]
            if step.k <= 8:
                least_s = curve[0] + (max(step.k, 2) - 2) / 6 * (curve[1] - curve[0])
            else:
                least_s = curve[1] + (min(step.k, 32) - 8) / 24 * (curve[2] - curve[1])
            work_s = step.contract_s + step.permute_s - 9e-6
            wanted_s += max(RATES.copy_s + work_s, least_s)
        assert recorded_s(schedule) == pytest.approx(wanted_s)
        assert recorded_s(schedule) < schedule.projected_s(1)
        longest = max(schedule.steps, key=lambda step: step.k)
        assert longest.k >= 8


def test_where_nothing_is_recorded_launches_are_single(monkeypatch: pytest.MonkeyPatch) -> None:
    several = early_sums_schedule()
    rates = {"launch_s": 1.0, "copy_s": 1.0}
    assert recorded_s(with_rates(several, **rates)) > several.projected_s(1) + 1
    monkeypatch.setattr(recorded_run, "RECORDED_CALLS", calls_of(several) - 1)
    assert recorded_s(with_rates(several, **rates)) == several.projected_s(1)
    monkeypatch.undo()
    path = random_path(8300)
    apart = plan(path, load_profile("cpu"), devices=2, ranks_per_group=2, memory_bytes=inf, threshold_bytes=1)
    assert recorded_s(with_rates(apart, **rates)) == apart.projected_s(1)
    backwards = plan(window(4, 12), load_profile("cpu"), memory_bytes=inf, goes_back=True)
    gradients = with_rates(reverse(backwards, [0]), **rates)
    assert recorded_s(gradients) == gradients.projected_s(1)


@pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy, which brings the compiler")
@pytest.mark.skipif(count_gpus() > 0, reason="counts launches on a GPU that does nothing")
@pytest.mark.parametrize("seed", [8400, 8401])
def test_launches_over_an_algebra_are_those_counted(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from cupy.cuda import runtime

    from tests.support.kernels import idle_gpu
    from tnplan.executor.device.cuda.algebra.device import AlgebraCupyDevice
    from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel

    launches = 0

    def launch(*_: Any) -> None:
        nonlocal launches
        launches += 1

    idle_gpu.put_in_place(monkeypatch, idle_gpu.UncheckedKernel)
    for of, name in ((BoundKernel, "__call__"), (BoundKernel, "at"), (runtime, "memcpyAsync")):
        monkeypatch.setattr(of, name, launch)
    schedule = tnplan.plan(regular_path(40, seed, (2, 2)), algebra="max-plus", hardware="h200-nvlink")
    assert any(item.workspace is not None for item in schedule.once if isinstance(item, Contract))
    counts = Counts()
    ranks = NullCommunicator(0, schedule.grid, counts)
    program = CompiledProgram(schedule, AlgebraCupyDevice(NAMED["max-plus"], 0), ranks)
    launches = 0  # those that made the device
    for instruction in program.bound.once:
        instruction.call()
    assert launches == round(count_of_copies(schedule))


def test_rates_pass_through_files(tmp_path: Path) -> None:
    machine = replace(load_profile("h200-nvlink"), recorded=RATES)
    (tmp_path / "p.toml").write_text(profile_text(machine))
    assert load_profile(tmp_path / "p.toml") == machine
    schedule = plan(replace(window(4, 12), dtype="complex64"), machine, memory_bytes=inf)
    save_schedule(schedule, tmp_path / "schedule.json")
    assert recorded_s(load_schedule(tmp_path / "schedule.json")) == recorded_s(schedule)
    assert machine.over("residues", "float64", 0.1).recorded == RATES


@pytest.mark.parametrize("name", ["a100", "cpu", "dgx-h100", "gb200-nvl72", "h100-nvlink", "h200-nvlink"])
def test_rates_of_recorded_runs_change_no_plan(name: str) -> None:
    machine = load_profile(name)
    # The profile that was measured with them has them; the others have no such table.
    assert ("recorded" in profile_text(machine)) == (name == "h200-nvlink")
    path = random_path(8500)
    plain, known = (
        plan(path, replace(machine, recorded=rates), devices=2, memory_bytes=1 << 30, threshold_bytes=1)
        for rates in (None, RATES)
    )
    assert "recorded" not in plain.profile
    assert replace(known, profile=plain.profile, identity=plain.identity) == plain


def refused(change: Callable[[], Profile]) -> str:
    with pytest.raises(InputError) as error:
        change()
    return str(error.value)


def test_wrong_figures_are_refused(tmp_path: Path) -> None:
    machine = load_profile("cpu")

    def given(times: SmallProductTimes) -> str:
        return refused(lambda: replace(machine, recorded=replace(RATES, products={"numbers": {"x": times}})))

    negative = replace(RATES, copy_s=-1.0)
    assert "recorded.copy_s: is -1.0" in refused(lambda: replace(machine, recorded=negative))
    assert "recorded.products.numbers.x: has 1 points and 2 rates" in given(replace(TIMES, sides=(8,)))
    assert "has 2 points and 3 rates" in given(replace(TIMES, k=(2, 8)))
    assert "give rising points" in given(replace(TIMES, sides=(64, 8)))
    text = profile_text(replace(machine, recorded=RATES))
    (tmp_path / "p.toml").write_text(text.replace("copy_s", "copies_s"))
    assert "recorded: copies_s: is not a field" in refused(lambda: load_profile(tmp_path / "p.toml"))
