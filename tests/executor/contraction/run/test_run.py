"""`execute` on in-process ranks: every opcode by hand-made schedules, groups, shards, reports, refusals."""

from __future__ import annotations

import json
import threading
import tracemalloc
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.contraction.executor import Case, check_values, make_case
from tests.support.contraction.shards import load_shards
from tests.support.null_device.dry_run import dry_run
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.calls.execute import execute
from tnplan.common.errors import InputError, WriteError
from tnplan.common.files import Staged
from tnplan.executor.contraction.bind.binder import bind
from tnplan.executor.contraction.bind.program import arena_bytes
from tnplan.executor.contraction.run import rank_run as run
from tnplan.executor.contraction.run import slice_partition as slices
from tnplan.executor.contraction.run.rank_run import new_timings, run_once, run_slices
from tnplan.executor.contraction.run.slice_partition import parse_slices, share_of
from tnplan.executor.device import select
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.protocols.communicator import BlockingExchange
from tnplan.executor.device.select import Chosen
from tnplan.jobs import job
from tnplan.jobs.progress import Progress
from tnplan.planner.hardware.process_grid import Digit, Layout, grid_size, largest_shard
from tnplan.planner.schedule.schedule import (
    Accumulate,
    Buffer,
    Contract,
    FixSlice,
    Free,
    Gather,
    Instruction,
    Load,
    Mode,
    Prediction,
    Redistribute,
    ReduceScatter,
    Schedule,
    SumModes,
)


def hand_made(
    grid: tuple[Digit, ...],
    modes: tuple[Mode, ...],
    leaves: tuple[tuple[str, ...], ...],
    output: tuple[str, ...],
    buffers: list[tuple[tuple[int, ...], Layout, tuple[int, ...]]],
    once: tuple[Instruction, ...] = (),
    body: tuple[Instruction, ...] = (),
    result: int = 0,
    sliced: tuple[str, ...] = (),
) -> Schedule:
    """A schedule of float64 buffers (modes, layout, partial), none shared, then a workspace of 1 KiB."""
    extents = {number: mode.extent for number, mode in enumerate(modes)}
    placed, offset = [], 0
    for held, layout, partial in buffers:
        size = 8 * largest_shard(held, layout, extents, grid)
        placed.append(Buffer(held, layout, offset, size, partial))
        offset += -(-size // 64) * 64
    placed.append(Buffer((), (None,) * len(grid), offset, 1024, workspace=True))
    indices: dict[str, tuple[int, ...]] = {}
    for number, mode in enumerate(modes):
        indices[mode.index] = (*indices.get(mode.index, ()), number)
    sizes = {index: int(np.prod([extents[mode] for mode in own])) for index, own in indices.items()}
    nothing = Prediction(**dict.fromkeys((item.name for item in fields(Prediction)), 0))
    return Schedule(
        "", "", "ours", "float64", "fp64", {}, grid_size(grid), grid, None, 0, sizes, leaves, output, sliced,
        None,
        modes, indices, tuple(placed), once, body, (), result, nothing,
    )  # fmt: skip


def run_schedule(schedule: Schedule, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The result shard of every rank of one group."""

    def work(communicator: object) -> np.ndarray:
        device = NumpyDevice()
        program = bind(schedule, device, communicator, arrays)  # type: ignore[arg-type]
        timings = new_timings(program)
        run_once(program, device, timings)
        run_slices(program, device, timings, range(schedule.n_slices), lambda: None)
        return np.array(program.result)

    return run_ranks(grid_size(schedule.grid), work)


ONE: tuple[Digit, ...] = ()
PAIR = (Digit(2, 0),)
RNG = np.random.default_rng(0)


def test_load_takes_diagonals_and_splits_indices() -> None:
    modes = (Mode("a", 2), Mode("a", 3), Mode("b", 5))
    schedule = hand_made(
        PAIR, modes, (("a", "b", "a"),), ("b", "a"), [((2, 0, 1), (2,), ())], once=(Load(0, 0),)
    )
    array = RNG.standard_normal((6, 5, 6))
    shards = run_schedule(schedule, [array])
    wanted = np.einsum("aba->ba", array)
    assert np.array_equal(shards[0], wanted[:2].ravel())
    assert np.array_equal(shards[1], wanted[2:].ravel())


def test_fix_slice_and_accumulate() -> None:
    modes = (Mode("s", 3), Mode("t", 2), Mode("a", 4))
    schedule = hand_made(
        ONE, modes, (("a", "s", "t"),), ("a",), [((2,), (), ()), ((0, 1, 2), (), ()), ((2,), (), ())],
        once=(Load(0, 1),), body=(FixSlice(1, 2), Accumulate(2, 0), Free(2)), sliced=("s", "t"),
    )  # fmt: skip
    array = RNG.standard_normal((4, 3, 2))
    (shard,) = run_schedule(schedule, [array])
    total = np.zeros(4)
    for s in range(3):
        for t in range(2):
            total += array[:, s, t]
    assert np.array_equal(shard, total)


def test_sum_modes() -> None:
    modes = tuple(Mode(name, extent) for name, extent in zip("abcd", (2, 3, 4, 5), strict=True))
    schedule = hand_made(
        ONE, modes, (tuple("abcd"),), ("a", "c"), [((0, 2), (), ()), ((0, 1, 2, 3), (), ())],
        once=(Load(0, 1), SumModes(1, 0)),
    )  # fmt: skip
    array = RNG.standard_normal((2, 3, 4, 5))
    np.testing.assert_allclose(run_schedule(schedule, [array])[0], array.sum(axis=(1, 3)).ravel(), atol=1e-13)


@pytest.mark.parametrize("sizes", [(4, 6, 5), (3, 5, 7), (1, 2, 2)])
def test_contract_over_a_split_mode_then_reduce_and_gather(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    modes = (Mode("m", m), Mode("n", n), Mode("k", k))
    schedule = hand_made(
        PAIR, modes, (("m", "k"), ("n", "k")), ("n", "m"),
        [((1, 0), (None,), ()), ((0, 2), (2,), ()), ((1, 2), (2,), ()), ((1, 0), (None,), (0,)),
         ((1, 0), (1,), ()), ((1, 0), (0,), ())],
        once=(Load(0, 1), Load(1, 2), Contract(1, 2, 3, None, 0), Free(1), ReduceScatter(3, 4, 6, 0),
              Redistribute(4, 5, 6, 0), Gather(5, 0, 6, 0)),
    )  # fmt: skip
    a, b = RNG.standard_normal((m, k)), RNG.standard_normal((n, k))
    halves = [slice(0, k // 2), slice(k // 2, k)]
    first, second = (b[:, half] @ a[:, half].T for half in halves)
    for shard in run_schedule(schedule, [a, b]):
        np.testing.assert_allclose(shard, (first + second).ravel(), atol=1e-12)


def test_contract_with_batch_modes_through_a_tile() -> None:
    modes = tuple(Mode(name, extent) for name, extent in zip("bmnk", (3, 4, 5, 6), strict=True))
    schedule = hand_made(
        ONE, modes, (("b", "m", "k"), ("b", "n", "k")), ("m", "n", "b"),
        [((1, 2, 0), (), ()), ((0, 1, 3), (), ()), ((0, 2, 3), (), ())],
        once=(Load(0, 1), Load(1, 2), Contract(1, 2, 0, 3, 0)),
    )  # fmt: skip
    a, b = RNG.standard_normal((3, 4, 6)), RNG.standard_normal((3, 5, 6))
    np.testing.assert_allclose(
        run_schedule(schedule, [a, b])[0], np.einsum("bmk,bnk->mnb", a, b).ravel(), atol=1e-12
    )


def test_operands_that_do_not_fit_are_refused() -> None:
    modes = (Mode("m", 2), Mode("n", 3), Mode("k", 4), Mode("p", 2))
    schedule = hand_made(
        ONE, modes, (("m", "k", "p"), ("n", "k")), ("m", "p", "n"),
        [((0, 3, 1), (), ()), ((0, 2, 3), (), ()), ((1, 2), (), ())],
        once=(Load(0, 1), Load(1, 2), Contract(1, 2, 0, None, 7)),
    )  # fmt: skip
    with pytest.raises(ValueError, match="step 7"):
        run_schedule(schedule, [np.zeros((2, 4, 2)), np.zeros((3, 4))])


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(tmp_path_factory.mktemp("case"), 2)


@pytest.mark.parametrize("ranks", [2, 4, 6, 20])
def test_groups_share_the_slices_and_add_up(case: Case, ranks: int) -> None:
    result = execute(case.schedule, case.arrays, ranks=ranks)
    assert result.array is not None
    check_values(case, result.array)
    assert result.report["groups"] == ranks // 2
    assert sorted(map(int, result.report["measured"]["slices_s"])) == list(range(8))


@pytest.mark.parametrize("ranks", [2, 6])
def test_sums_of_groups_are_bound_and_connected_before_any_replay(
    case: Case, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, str]] = []

    def telling(name: str, call: Any) -> Any:
        def tell(*arguments: Any) -> Any:
            told.append((name, threading.current_thread().name))
            return call(*arguments)

        return tell

    monkeypatch.setattr(slices, "STAGING_ELEMENTS", 2)
    monkeypatch.setattr(NumpyDevice, "bind_accumulate", telling("bind", NumpyDevice.bind_accumulate))
    monkeypatch.setattr(BlockingExchange, "connect", telling("connect", BlockingExchange.connect))
    monkeypatch.setattr(run, "run_once", telling("run", run.run_once))
    check_values(case, execute(case.schedule, case.arrays, ranks=ranks, device="cpu").array)
    names = [name for name, _ in told]
    assert "bind" in names
    assert "bind" not in names[names.index("run") :]
    for thread in {thread for _, thread in told}:
        assert [name for name, own in told if own == thread and name != "bind"] == ["connect"] * 2 + ["run"]


def test_an_arena_beyond_the_hosts_memory_is_refused() -> None:
    with pytest.raises(InputError, match=r"device cpu: 1\.00 EiB are needed .* free; plan with"):
        NumpyDevice().allocate(1 << 60)


def test_ranges_of_slices_add_up(case: Case) -> None:
    parts = [execute(case.schedule, case.arrays, ranks=4, slices=text).array for text in (":3", "3:4", "4:")]
    check_values(case, sum(parts))  # type: ignore[arg-type]


def test_the_same_bits_again(case: Case) -> None:
    first, second = (execute(case.schedule, case.arrays, ranks=4).array for _ in range(2))
    assert np.array_equal(first, second)  # type: ignore[arg-type]


@pytest.mark.parametrize("n_open", [0, 3])
def test_files_and_their_report(tmp_path: Path, n_open: int) -> None:
    case = make_case(tmp_path, 4, n_open=n_open)
    output = tmp_path / "result.npy"
    result = execute(case.schedule_file, case.tensors_file, output=output)
    check_values(case, np.load(output))
    assert np.array_equal(np.load(output), result.array)  # type: ignore[arg-type]
    report = json.loads(output.with_suffix(".json").read_text())
    assert report["format"] == "tnplan.result"
    assert report["schedule"] == case.schedule.identity
    assert report["predicted"]["peak_bytes"] >= report["measured"]["peak_bytes"] > 0
    assert len(report["measured"]["steps_s"]) == len(case.schedule.steps)
    assert report["measured"]["kinds_s"]["contract_s"] > 0
    assert report["not_finite"] == 0


def test_sharded_results(tmp_path: Path) -> None:
    case = make_case(tmp_path, 4, n_open=3)
    result = execute(case.schedule, case.arrays, output=tmp_path / "r.npy", result="sharded")
    assert result.array is None
    assert not (tmp_path / "r.npy").exists()
    check_values(case, load_shards(tmp_path / "r.shards.json"))


def test_values_that_are_not_finite_are_reported(case: Case) -> None:
    arrays = [array.copy() for array in case.arrays]
    arrays[3].flat[0] = np.nan
    with pytest.warns(RuntimeWarning, match="NaN"):
        result = execute(case.schedule, arrays)
    assert result.report["not_finite"] > 0


def test_the_replay_allocates_nothing_beyond_the_arena(tmp_path: Path) -> None:
    case = make_case(tmp_path, 1, n_sliced=1, bond=6, size=(4, 6), tile_bytes=1 << 16)
    schedule = case.schedule
    assert arena_bytes(schedule) > 4e6

    class Alone(BlockingExchange):
        name, rank, size = "alone", 0, 1

    device = NumpyDevice()
    program = bind(schedule, device, Alone(), case.arrays)  # type: ignore[arg-type]
    timings = new_timings(program)
    run_once(program, device, timings)
    run_slices(program, device, timings, [0], lambda: None)
    tracemalloc.start()
    run_once(program, device, timings)
    run_slices(program, device, timings, range(1, 2), lambda: None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert device.peak_bytes == arena_bytes(schedule)
    assert peak <= 0.05 * device.peak_bytes


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_null_replay_counts_what_the_plan_predicts(tmp_path: Path, ranks: int) -> None:
    schedule = make_case(tmp_path, ranks).schedule
    counts = [dry_run(schedule, rank) for rank in range(ranks)]
    flops = max(count.flops for count, _ in counts)
    assert flops == pytest.approx(schedule.predicted.once_flops + schedule.predicted.slice_flops)
    assert max(peak for _, peak in counts) <= schedule.predicted.peak_bytes
    assert sum(sum(count.sent_bytes) for count, _ in counts) == sum(
        sum(count.received_bytes) for count, _ in counts
    )
    measured = execute(schedule, make_case(tmp_path, ranks).arrays, slices="0:1").report["measured"]
    assert measured["sent_bytes"] == max(sum(count.sent_bytes) for count, _ in counts)


def test_a_group_computes_slices_in_a_row(case: Case) -> None:
    shares = [share_of(case.schedule, 6, rank, 1, 8) for rank in range(6)]
    assert [list(share.slices) for share in shares[::2]] == [[1, 2, 3], [4, 5], [6, 7]]
    assert [share.rank_in_group for share in shares] == [0, 1, 0, 1, 0, 1]


# fmt: off
WRONG_RANGES: list[Row] = [
    ("3", "--slices", "'3' is not a range", "give FIRST:STOP, such"),
    ("a:b", "--slices", "'a:b' is not a range", "give FIRST:STOP, such"),
    ("4:4", "--slices", "4:4 selects none of the 8 slices", "give FIRST:STOP with"),
    ("5:2", "--slices", "5:2 selects none of the 8 slices", "give FIRST:STOP with"),
    ("0:9", "--slices", "0:9 selects none of the 8 slices", "give FIRST:STOP with"),
    ("-1:3", "--slices", "'-1:3' is not a range", "give FIRST:STOP, such"),
    ("1:2:3", "--slices", "'1:2:3' is not a range", "give FIRST:STOP, such"),
]
# fmt: on


@table(WRONG_RANGES)
def test_wrong_ranges_are_refused(refusal: Refusal) -> None:
    refusal.raised_by(lambda: parse_slices(refusal.given, 8))


def test_ranges_may_leave_out_an_end() -> None:
    assert parse_slices("2:", 8) == (2, 8)
    assert parse_slices(":2", 8) == (0, 2)
    assert parse_slices(None, 8) == (0, 8)


# fmt: off
REFUSED: list[Row] = [
    ({"ranks": 3}, "ranks", "3 ranks are not a multiple", "start a multiple of 2"),
    ({"device": "tpu"}, "--device", "unknown", "choose from auto, cpu"),
    ({"result": "scattered"}, "--result", "unknown", "choose from gathered"),
    ({"result": "sharded"}, "--result", "needs an output", "name it with --output"),
    ({"output": "result.txt"}, "--output", "does not end in .npy", "give a name that ends in"),
    ({"output": "nowhere/result.npy"}, "nowhere/result.npy", "folder", "choose a folder that"),
    ({"threads": 0}, "--threads", "is 0", "give an integer from 1"),
    ({"slices": (3, 3)}, "--slices", "3:3 selects none of the 8 slices", "give FIRST:STOP with"),
]
# fmt: on


@table(REFUSED)
def test_refusals_come_first(
    refusal: Refusal, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refusal.raised_by(lambda: execute(case.schedule, case.arrays, **refusal.given))


def test_a_report_never_replaces_another_file(tmp_path: Path) -> None:
    case = make_case(tmp_path, 1)
    before = case.schedule_file.read_bytes()
    with pytest.raises(InputError, match=r"schedule\.json.*would be replaced"):
        execute(case.schedule_file, case.tensors_file, output=case.schedule_file.with_suffix(".npy"))
    assert case.schedule_file.read_bytes() == before
    for _ in range(2):
        execute(case.schedule_file, case.tensors_file, output=tmp_path / "result.npy")


def test_wrong_tensors_are_refused(case: Case) -> None:
    with pytest.raises(InputError, match="t2"):
        execute(case.schedule, [*case.arrays[:2], np.zeros((7, 7)), *case.arrays[3:]])
    with pytest.raises(InputError, match="tensors"):
        execute(case.schedule)


def test_a_broken_schedule_is_refused(case: Case) -> None:
    with pytest.raises(InputError):
        execute(replace(case.schedule, result=999), case.arrays)


def test_peers_memory_is_closed_where_all_ranks_hear_that_a_file_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    closed: list[int] = []

    def refuse(*_: object) -> None:
        raise InputError("r.npy", "cannot be written", "make room")

    case = make_case(tmp_path, 2)
    monkeypatch.setattr(BlockingExchange, "close", lambda self: closed.append(self.rank))
    monkeypatch.setattr(Staged, "add", refuse)
    options: dict[str, Any] = {"output": tmp_path / "r.npy", "device": "cpu", "checkpoint": False}
    with pytest.raises(WriteError, match="cannot be written"):
        execute(case.schedule, case.arrays, ranks=2, **options)
    assert sorted(closed) == [0, 1]


def test_a_rank_that_fails_does_not_wait_for_its_device_before_others_hear(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    closed: list[int] = []

    def open_device(*arguments: object) -> Chosen:
        return replace(select.open_device(*arguments), close=lambda: closed.append(1))

    def strike(at: Progress) -> None:
        raise RuntimeError("struck by a test")

    case = make_case(tmp_path, 2)
    monkeypatch.setattr(job, "open_device", open_device)
    with pytest.raises(RuntimeError, match="struck"):
        execute(case.schedule, case.arrays, ranks=2, progress=strike)
    assert not closed
    execute(case.schedule, case.arrays, ranks=2)
    assert len(closed) == 2
