"""Searches that are interrupted, go on, or end by rounds: nothing that was reached is lost."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.effort import repeats
from tests.support.slow import slow_after
from tnplan.calls.search import search
from tnplan.common.errors import InputError
from tnplan.jobs.progress import Progress
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.path_file import load_path, save_network, save_path
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.search import annealing
from tnplan.planner.search.path_cost import log10_mnk_planned, path_cost
from tnplan.planner.workloads.mixed import peps_network, regular_network

NETWORK = regular_network(60, 0, extents=(2, 3))
OPTIONS: dict[str, Any] = {"max_tensor": 2**12, "minimize": "flops"}


@pytest.fixture(autouse=True)
def few_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the trees that a search by rounds begins with: what is tested comes after them."""
    monkeypatch.setattr(annealing, "NOMINAL_S", 1.0)


def stopping_at(number: int, by: signal.Signals, told: list[ContractionPath]) -> Any:
    """A listener that has this process interrupted at a path that is told."""

    def listen(at: Progress) -> None:
        if isinstance(at.detail, ContractionPath):
            told.append(at.detail)
            if len(told) == number:
                signal.raise_signal(by)

    return listen


@pytest.mark.parametrize("by", slow_after(1, [signal.SIGINT, signal.SIGUSR1]))
def test_an_interrupted_search_raises_with_its_path_and_writes_it(tmp_path: Path, by: signal.Signals) -> None:
    told: list[ContractionPath] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    handlers = [signal.getsignal(number) for number in numbers]
    with pytest.raises(KeyboardInterrupt) as stopped:
        search(NETWORK, rounds=20, output=tmp_path / "p.json", progress=stopping_at(2, by, told), **OPTIONS)
    best: ContractionPath = stopped.value.path  # type: ignore[attr-defined]
    assert log10_mnk_planned(best) == pytest.approx(min(map(log10_mnk_planned, told)))
    written = load_path(tmp_path / "p.json")
    assert (written.ssa_path, written.sliced_inds) == (best.ssa_path, best.sliced_inds)
    assert path_cost(written).log2_largest <= 12 + 1e-9
    assert written.meta["log10_mnk_planned"] == pytest.approx(log10_mnk_planned(best), abs=1e-4)
    assert [signal.getsignal(number) for number in numbers] == handlers


@pytest.mark.parametrize(("seed", "number"), [(6, 4), (8, 5), (4, 6)])
def test_the_best_path_as_planned_is_raised(seed: int, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In short rounds a tree that is better by its score is often not by the operations that are planned."""
    monkeypatch.setattr("tnplan.planner.search.driver.MOVES_PER_TENSOR", 20_000)
    told: list[ContractionPath] = []
    with pytest.raises(KeyboardInterrupt) as stopped:
        search(
            NETWORK, rounds=20, seed=seed, progress=stopping_at(number, signal.SIGINT, told), **OPTIONS
        )
    counts = list(map(log10_mnk_planned, told))
    assert min(counts) < counts[-1]
    assert log10_mnk_planned(stopped.value.path) == min(counts)  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", slow_after(1, [3, 5, 8]))
def test_a_search_ends_with_the_best_of_its_last_trees_as_planned(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tree that is best by its score is told last; another one has fewer operations as planned."""
    monkeypatch.setattr("tnplan.planner.search.driver.MOVES_PER_TENSOR", 20_000)
    told: list[ContractionPath] = []
    listen = stopping_at(0, signal.SIGINT, told)
    best = search(NETWORK, rounds=12, seed=seed, progress=listen, **OPTIONS)
    assert log10_mnk_planned(best) < log10_mnk_planned(told[-1]) - 0.01


@pytest.mark.slow
def test_what_is_there_is_gone_on_from_and_never_replaced_by_a_worse_path(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    good = min((search(NETWORK, rounds=8, seed=seed, **OPTIONS) for seed in (1, 3)), key=log10_mnk_planned)
    # A seed whose short search alone ends above it.
    seed = next(
        seed for seed in range(20)
        if log10_mnk_planned(search(NETWORK, rounds=1, seed=seed, **OPTIONS)) > log10_mnk_planned(good)
    )  # fmt: skip
    short: dict[str, Any] = {"rounds": 1, "seed": seed, "output": file, **OPTIONS}
    save_path(good, file)
    with pytest.raises(KeyboardInterrupt):
        search(NETWORK, progress=stopping_at(1, signal.SIGTERM, []), **short)
    assert load_path(file).ssa_path == good.ssa_path
    (tmp_path / "p.json.ckpt").unlink(missing_ok=True)
    resumed = search(NETWORK, resume=True, **short)
    assert log10_mnk_planned(resumed) <= log10_mnk_planned(good) + 1e-9
    assert load_path(file).ssa_path == resumed.ssa_path


@pytest.mark.parametrize(
    ("workers", "limit", "rounds"),
    [
        (1, {"max_tensor": 2**12, "minimize": "flops"}, 2),
        pytest.param(1, {"max_tensor": 2**12}, 6, marks=pytest.mark.slow),
        pytest.param(2, {"unlimited": True}, 6, marks=pytest.mark.slow),
    ],
)
def test_rounds_give_the_same_path_by_any_clock_and_any_number_of_workers(
    workers: int, limit: dict[str, Any], rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other processes have other orders of sets, too."""
    known = search(NETWORK, rounds=rounds, **limit)
    clock, ticks = time.monotonic, itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: 30.0 * clock() + 0.1 * next(ticks))
    again = search(NETWORK, rounds=rounds, workers=workers, **limit)
    assert (again.ssa_path, again.sliced_inds) == (known.ssa_path, known.sliced_inds)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 0}, "rounds: is 0"),
        ({"rounds": 2, "time": 1.0}, "rounds: is given together with"),
        ({"rounds": 2, "methods": "greedy", "minimize": "flops"}, "rounds: is for the method joint"),
    ],
)
def test_wrong_rounds_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        search(NETWORK, unlimited=True, **options)


@pytest.mark.parametrize("seed", slow_after(1, range(2)))
def test_a_given_path_is_never_made_slower_by_a_search_that_ranks_few_trees(seed: int) -> None:
    profile = load_profile("h200-nvlink")
    network = peps_network(5, 5, seed, extents=(2, 3), n_open=0)
    start = search(network, max_tensor=2**9, minimize="time", hardware="h200-nvlink", rounds=6, seed=seed)
    path = search(
        network, max_tensor=2**9, devices=1, hardware="h200-nvlink", start=[start], rounds=2, seed=seed,
    )  # fmt: skip
    assert path.meta["objective"] == "schedule"
    assert path.meta["predicted_s"] <= plan(start, profile, devices=1).projected_s(1)


@pytest.mark.slow
def test_interrupts_at_random_moments(tmp_path: Path) -> None:
    """Each goes on from the run before, by its checkpoint or by its path alone."""
    draw = Random(0)
    save_network(regular_network(150, 0, extents=(2, 3)), tmp_path / "n.json", dtype="complex64")
    file, checkpoint, before = tmp_path / "p.json", tmp_path / "p.json.ckpt", float("inf")
    n_written = 0
    for number in range(repeats(3, 50)):
        if draw.random() < 0.5:
            checkpoint.unlink(missing_ok=True)
        line = ["search", "n.json", "--max-tensor", "2^14", "--minimize", "flops", "--time", "12"]
        line += ["--resume", "-o", "p.json", "--workers", draw.choice("12"), "--seed", "1"]
        running = subprocess.Popen(
            [sys.executable, "-m", "tnplan", *line], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert running.stderr is not None
        assert "first trees" in running.stderr.readline()
        time.sleep(draw.uniform(0.0, 6.0))
        by = draw.choice((signal.SIGINT, signal.SIGTERM))
        running.send_signal(by)
        said = running.communicate(timeout=300)[1]
        assert running.returncode in (0, -by, 128 + by), said
        is_written = "is written" in said or running.returncode == 0
        n_written += is_written
        assert file.exists() or not is_written, said
        if file.exists():
            path = load_path(file)
            assert path_cost(path).log2_largest <= 14 + 1e-9
            assert log10_mnk_planned(path) <= before + 1e-9, number
            before = log10_mnk_planned(path)
        assert not [other for other in tmp_path.iterdir() if other.name.startswith(".")]
    # The first moments may come before a path.
    assert n_written > repeats(0, 40)
