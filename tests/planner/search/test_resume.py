"""Searches that stop and go on, share workers, and rank paths by the planner's own schedules."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.robustness.checkpoint_files import changed, document_of
from tests.support.root import ROOT
from tests.support.search import cost_of, search_path
from tests.support.slow import slow_after
from tnplan.cli.main import cli
from tnplan.common.errors import InputError
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import load_path, save_network
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.search import driver
from tnplan.planner.search.annealer.anneal_state import Heat
from tnplan.planner.search.annealing import Effort, ScoredTree
from tnplan.planner.search.checkpoint import SearchCheckpoint
from tnplan.planner.search.path_cost import log10_mnk_planned, path_cost
from tnplan.planner.search.round_policy import HOT_SHARE, POOL, ElitePool, Pools, Round
from tnplan.planner.workloads.mixed import peps_network, regular_network

NETWORK = regular_network(24, 0, extents=(2, 3))
LATTICE = peps_network(5, 5, 0, extents=(2, 3))
SHORT = Effort(time_s=60, max_trials=2, max_rounds=6)
HEAT = Heat(40.0, 0.4, 0.02, 1.0)


def search(checkpoint: Path | None, effort: Effort = SHORT, **options: Any) -> ContractionPath:
    options = {"max_tensor_elements": 2**6, "seed": 1, **options}
    return search_path(
        NETWORK, "complex64", methods=("joint",), effort=effort, checkpoint=checkpoint, **options
    )


class Stopped(BaseException):
    """The search is interrupted."""


@pytest.mark.parametrize("target", [{}, {"minimize": "schedule", "devices": 4}])
@pytest.mark.parametrize("rounds", slow_after(2, [0, 3, 1, 5]))
def test_resumed_is_as_if_never_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int, target: dict[str, Any]
) -> None:
    monkeypatch.setattr(driver, "MOVES_PER_TENSOR", 20_000)
    options = {**target, "profile": load_profile("h200-nvlink")}
    whole = search(None, **options)
    write, done = SearchCheckpoint.write, [0]

    def stopping(self: SearchCheckpoint, pools: Pools, used_s: float) -> None:
        write(self, pools, used_s)
        done[0] += 1
        if done[0] > rounds:
            raise Stopped

    file = tmp_path / "p.ckpt"
    with monkeypatch.context() as patched:
        patched.setattr(SearchCheckpoint, "write", stopping)
        with pytest.raises(Stopped):
            search(file, **options)
    again = search(file, resume=True, **options)
    assert (again.ssa_path, again.sliced_inds) == (whole.ssa_path, whole.sliced_inds)


def test_a_checkpoint_belongs_to_one_search(tmp_path: Path) -> None:
    file = tmp_path / "p.ckpt"
    effort = Effort(time_s=8, max_trials=1, max_rounds=1)
    search(file, effort)
    with pytest.raises(InputError, match=r"p\.ckpt: is the checkpoint of an interrupted search"):
        search(file, effort)
    with pytest.raises(InputError, match=r"p\.ckpt: seed: is 1, this search has 2"):
        search(file, effort, resume=True, seed=2)
    with pytest.raises(InputError, match=r"p\.ckpt: limit: is 64, this search has 81"):
        search(file, effort, resume=True, max_tensor_elements=81)
    with pytest.raises(InputError, match=r"p\.ckpt: network: is"):
        search_path(
            LATTICE, "complex64", methods=("joint",), effort=effort, checkpoint=file, resume=True, seed=1,
            max_tensor_elements=2**6,
        )  # fmt: skip
    document = document_of(file)
    del document["pools"]["limited"]
    changed(file, document=document)
    with pytest.raises(InputError, match="is damaged"):
        search(file, effort, resume=True)
    file.write_text("{")
    with pytest.raises(InputError, match="is damaged, or of another version of tnplan; delete it"):
        search(file, effort, resume=True)
    with pytest.raises(InputError, match="checkpoint: is for the method joint"):
        search_path(NETWORK, "complex64", effort=effort, checkpoint=file)


def test_used_time_counts(tmp_path: Path) -> None:
    """A search whose time is used up gives its best at once; with more time it goes on from there."""
    file = tmp_path / "p.ckpt"
    first = search(file, Effort(time_s=1.0))
    before = time.monotonic()
    same = search(file, Effort(time_s=0.5), resume=True)
    assert time.monotonic() - before < 0.5
    assert path_cost(same) == path_cost(first)
    more = search(file, Effort(time_s=2.0), resume=True)
    assert time.monotonic() - before < 4.0
    assert cost_of(more, 3.5) <= cost_of(first, 3.5) * 1.1


@pytest.mark.parametrize("workers", slow_after(1, ["1", "2"]))
def test_a_killed_search_goes_on(tmp_path: Path, workers: str) -> None:
    save_network(NETWORK, tmp_path / "n.json", dtype="complex64")
    arguments = [
        "search", "n.json", "--max-tensor", "2^14", "--workers", workers, "-o", "p.json",
        "--minimize", "fused",
    ]  # fmt: skip
    command = [sys.executable, "-m", "tnplan", *arguments]
    running = subprocess.Popen([*command, "--time", "60"], cwd=tmp_path, start_new_session=True)
    file = tmp_path / "p.json.ckpt"
    deadline = time.monotonic() + 120
    while not (file.exists() and document_of(file)["pools"]["limited"]["number"] > 2):
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    running.send_signal(signal.SIGKILL)
    running.wait()
    while _alive(running.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _alive(running.pid)
    kept = document_of(file)
    refused = subprocess.run([*command, "--time", "1"], cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "continue it with --resume" in refused.stderr
    assert "Traceback" not in refused.stderr
    time_s = str(kept["used_s"] + 1)
    subprocess.run([*command, "--time", time_s, "--resume"], cwd=tmp_path, check=True)
    assert not file.exists()
    path = load_path(tmp_path / "p.json")
    assert path_cost(path).log2_largest <= 14
    assert math.log2(cost_of(path, 3.5)) <= kept["pools"]["limited"]["pool"][0]["score"] + 1e-6


def _alive(session: int) -> bool:
    """Whether a process of a session is left."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == session:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    return True
        except (OSError, IndexError):
            continue
    return False


def test_workers_share_their_trees() -> None:
    told: list[ContractionPath] = []
    path = search_path(
        LATTICE, "complex64", max_tensor_elements=2**8, methods=("joint",), minimize="flops", n_workers=2,
        effort=Effort(60, 2, 6), report=lambda _, better: told.append(better),
    )  # fmt: skip
    assert path_cost(path).log2_largest <= 8
    costs = [cost_of(better, 0.0) for better in told]
    assert costs == sorted(costs, reverse=True)
    assert log10_mnk_planned(path) <= log10_mnk_planned(told[-1])
    assert path.meta["workers"] == 2


@pytest.mark.parametrize(("devices", "precision"), [(1, None), (4, None), (1, "fp16x3")])
def test_schedule_is_what_the_planner_predicts(
    devices: int, precision: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And never slower than that of the path it starts from."""
    monkeypatch.setattr(driver, "MOVES_PER_TENSOR", 20_000)
    profile = load_profile("h200-nvlink")
    if precision is not None:  # operations take all the time
        profile = replace(
            profile, memory_bytes_per_s=1e18, permute_bytes_per_s=1e18, launch_s=0.0, fused_bytes=0,
            flop_per_s={"complex64": {"fp32": 50e12, precision: 100e12}}, gemm_curves={}, scattered_curves={},
        )  # fmt: skip
    start = search_path(LATTICE, "complex64", max_tensor_elements=2**9, effort=Effort(60, 4, 1))
    told: list[float] = []
    path = search_path(
        LATTICE, "complex64", max_tensor_elements=2**9, methods=("joint",), minimize="schedule",
        profile=profile, devices=devices, precision=precision, from_paths=[start], effort=Effort(60, 2, 12),
        report=lambda _, one: told.append(one.meta.get("predicted_s", 1e9)),
    )  # fmt: skip

    def planned_s(one: ContractionPath) -> float:
        schedule = plan(one, profile, devices=devices, precision=precision)
        return schedule.projected_s(devices // schedule.ranks_per_group)

    assert planned_s(path) <= path.meta["predicted_s"] <= planned_s(start)
    assert told == sorted(told, reverse=True)
    assert told[-1] == path.meta["predicted_s"]
    assert path.meta.get("precision") == precision
    if precision is not None:
        assert path.meta["predicted_s"] < plan(path, profile).projected_s(1)


@pytest.mark.parametrize("seconds", [0.0, 60.0])
@pytest.mark.parametrize("limit", [{"max_tensor_elements": 2**9}, {"memory_bytes": 3 * 8 * 2**7}])
@pytest.mark.parametrize("seed", slow_after(2, range(4)))
def test_a_path_as_it_was_given_is_ranked_too(seed: int, limit: dict[str, Any], seconds: float) -> None:
    """Though the search itself begins at another root, where some steps are others, or with more slices: the
    plan fits the memory of the device where tensors are over the limit of the search."""
    profile = load_profile("h200-nvlink")
    network = regular_network(30, seed, extents=(2, 3), n_open=0)
    start = search_path(network, "complex64", max_tensor_elements=2**9, effort=Effort(60, 2, 0), seed=seed)
    path = search_path(
        network, "complex64", **limit, methods=("joint",), minimize="schedule",
        profile=profile, devices=1, from_paths=[start], effort=Effort(seconds, 1, 2),
    )  # fmt: skip
    assert path.meta["predicted_s"] <= plan(start, profile).projected_s(1)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_of_several_paths_none_is_faster_than_what_is_found(order: tuple[int, ...]) -> None:
    """Whichever is given first, and whatever limit it was found for."""
    profile = load_profile("h200-nvlink")
    network = regular_network(30, 1, extents=(2, 3), n_open=0)
    starts = [
        search_path(network, "complex64", max_tensor_elements=2**limit, effort=Effort(60, 1, 0), seed=limit)
        for limit in (8, 9, 10)
    ]
    path = search_path(
        network, "complex64", max_tensor_elements=2**9, methods=("joint",), minimize="schedule",
        profile=profile, devices=1, from_paths=[starts[number] for number in order], effort=Effort(0),
    )  # fmt: skip
    assert path_cost(path).log2_largest <= 9
    within = [start for start in starts if path_cost(start).log2_largest <= 9]
    assert len(within) == 2
    assert path.meta["predicted_s"] <= min(plan(start, profile).projected_s(1) for start in within)
    assert "3 given paths" in path.meta["search"]


def test_schedule_needs_devices_and_room() -> None:
    profile = load_profile("h200-nvlink")
    options: dict[str, Any] = {"methods": ("joint",), "minimize": "schedule", "effort": SHORT}
    with pytest.raises(InputError, match="minimize: is schedule, but no number of devices is given"):
        search_path(LATTICE, "complex64", profile=profile, **options)
    with pytest.raises(InputError, match="devices: is 0"):
        search_path(LATTICE, "complex64", profile=profile, devices=0, **options)
    ring = tuple((f"i{place}", f"i{(place + 1) % 140}") for place in range(140))
    network = Network(ring, (), {index: 2**8 for index, _ in ring})
    with pytest.raises(InputError, match=r"has about 2\^1120 slices, more than a float can count"):
        search_path(
            network, "complex64", profile=profile, devices=2, max_tensor_elements=1,
            **{**options, "effort": Effort(0)},
        )  # fmt: skip


@pytest.mark.parametrize("method", ["joint", "greedy"])
def test_no_time_gives_the_first_tree(method: str) -> None:
    """The given path, sliced on to the limit."""
    start = search_path(LATTICE, "complex64", effort=Effort(60, 1, 0))
    before = time.monotonic()
    path = search_path(
        LATTICE, "complex64", from_paths=[start], methods=(method,), effort=Effort(0), minimize="flops",
        max_tensor_elements=2**7,
    )  # fmt: skip
    assert time.monotonic() - before < 2.0
    assert path_cost(path).log2_largest <= 7
    assert path.sliced_inds


def test_ladder_decides_by_number_and_trees_alone() -> None:
    first = ScoredTree(90.0, ((0, 1),), ())
    ladder, twin = (ElitePool(3, first, [first]) for _ in range(2))
    kinds = []
    for number in range(60):
        given = ladder.next(20.0, False)
        assert given == twin.next(20.0, False)
        kinds.append((given.kind, given.length))
        found = ScoredTree(80.0 - number % 7, ((1, 0),), (str(number),))
        assert ladder.take(given, found) == twin.take(given, found)
        assert ladder.best.score == min(tree.score for tree in ladder.pool)
        assert len(ladder.pool) <= POOL
    assert kinds[0][0] == "first"
    assert {"first", "greedy", "order", "warm"} == {kind for kind, _ in kinds}
    early = sum(length for _, length in kinds)
    hot = sum(length for kind, length in kinds if kind != "warm")
    assert 0.0 < hot < HOT_SHARE * 20.0 + 1.0 < early
    large = ElitePool(3, first, [first], limited=True)
    kinds_there = [large.next(20.0, False, greedy=False).kind for _ in range(60)]
    assert {"first", "order", "descent", "warm"} == set(kinds_there)
    assert kinds_there[1] == "descent"


def test_kinds_that_lead_to_better_trees_come_up_more_often() -> None:
    first = ScoredTree(90.0, ((0, 1),), ())
    ladder = ElitePool(3, first, [first])
    seen = []
    for number in range(200):
        given = ladder.next(1e9, False)
        seen.append(given.kind)
        ladder.take(given, ScoredTree(30.0 if given.kind == "order" else 60.0, ((1, 0),), (str(number),)))
    assert seen.count("order") > 3 * seen.count("greedy") > 0


def test_a_round_without_a_tree_changes_nothing() -> None:
    first = ScoredTree(90.0, ((0, 1),), ())
    ladder = ElitePool(0, first, [first])
    assert not ladder.take(Round(0, "order", first, HEAT), None)
    assert not ladder.take(Round(0, "rank", first, HEAT), first)
    assert ladder.best is first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--unlimited", "--method", "greedy", "--resume"], "--resume: is only for --method joint"),
        (
            ["--unlimited", "--minimize", "schedule"],
            "--minimize: is schedule, but no number of devices is given",
        ),
        (
            ["--unlimited", "--precision", "fp16x3"],
            "--precision: fp16x3 does not matter for --minimize fused",
        ),
        (
            ["--unlimited", "--devices", "1", "--hardware", "cpu", "--precision", "fp16x3"],
            "flop_per_s.complex64: has no precision 'fp16x3'",
        ),
        (["--unlimited", "--checkpoint", "n.json"], "is an input and would be replaced"),
        (["--max-tensor", "2^4", "--time", "-1"], "-1"),
    ],
)
def test_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    save_network(LATTICE, "n.json", dtype="complex64")
    done = CliRunner().invoke(cli, ["search", "n.json", *arguments])
    assert done.exit_code != 0
    assert message in done.output + getattr(done.exception, "line", "")


@pytest.mark.parametrize("side", slow_after(1, [4, 40]))
def test_a_script_without_a_main_guard_is_told(side: int, tmp_path: Path) -> None:
    """Also where the network is larger than a pipe holds: nobody reads it."""
    script = tmp_path / "script.py"
    script.write_text(
        "import tnplan\n"
        f"network = tnplan.workload.peps({side}, {side}, bond=2, n_open=0, n_hyper=0).network\n"
        "tnplan.search(network, unlimited=True, workers=2, rounds=2)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert 'workers: ended while they searched; call it under if __name__ == "__main__":' in done.stderr
