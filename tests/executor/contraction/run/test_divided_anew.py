"""A run that goes on with another number of groups has the value of a whole one, whenever it is killed."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable
from itertools import groupby, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.bad_input import snapshot
from tests.support.contraction.executor import Case, check_values, make_case
from tests.support.contraction.resume import InterruptedRunError
from tests.support.contraction.schedules import EARLY_SUMS_PATH, early_sums_schedule
from tests.support.networks import random_arrays
from tests.support.robustness.checkpoint_files import changed, parted
from tests.support.slow import slow_after, slow_unless
from tnplan.calls.execute import execute
from tnplan.common.errors import InputError
from tnplan.executor.contraction.run import checkpoint as checkpoints
from tnplan.executor.contraction.run import rank_run
from tnplan.executor.contraction.run.checkpoint import Division
from tnplan.executor.contraction.run.slice_partition import SliceRanges, starts
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.jobs.progress import Progress
from tnplan.jobs.schedules import ExecutionResult

GROUP = 2
SLICES = 16
TIMEOUT_S = 60.0
LATE_S = 0.05


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(tmp_path_factory.mktemp("case"), GROUP, n_sliced=4, size=(3, 4))


@pytest.fixture(autouse=True)
def keep_every_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "INTERVAL", 0)


@pytest.fixture(params=slow_after(1, [None, "first", "last"]))
def late(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which group is behind all others, if any: how far each of them comes is left to chance else."""

    class LateCheckpoint(checkpoints.RunCheckpoint):
        def __init__(
            self, kept: checkpoints.CheckpointSettings, world: Communicator, group: Communicator
        ) -> None:
            super().__init__(kept, world, group)
            first_rank = {"first": 0, "last": world.size - GROUP}.get(request.param)
            self.is_late = first_rank is not None and world.rank - first_rank in range(GROUP)

        def write(self, count: int, partial: NDArray[Any]) -> None:
            time.sleep(LATE_S if self.is_late else 0)
            super().write(count, partial)

    monkeypatch.setattr(rank_run, "RunCheckpoint", LateCheckpoint)


@pytest.fixture
def output(tmp_path: Path, late: None) -> Path:
    return tmp_path / "result.npy"


def go_on(case: Case, output: Path, groups: int, **options: Any) -> ExecutionResult:
    options = {"resume": True, "threads": 1, "device": "cpu", **options}
    return execute(
        case.schedule, case.arrays, ranks=case.schedule.ranks_per_group * groups, output=output, **options
    )  # fmt: skip


def interrupt(
    case: Case, output: Path, groups: int, after: int, *, all_keep: bool = False, **options: Any
) -> list[str]:
    """End a run when the first group has done so many slices in it; the lines that it said.

    The other groups have then done some, or none; with `all_keep` each has kept one at least.
    """
    said, begun = [], []

    def progress(at: Progress) -> None:
        said.append(at.text)
        begun.extend([at.done] if at.total else [])
        if begun and at.done == begun[0] + after:
            stop = time.monotonic() + TIMEOUT_S
            while all_keep and kept_by(folder_of(output)) != set(range(groups)):
                assert time.monotonic() < stop
                time.sleep(0.001)
            raise InterruptedRunError

    with pytest.raises(InterruptedRunError):
        go_on(case, output, groups, progress=progress, **options)
    return said


def folder_of(output: Path) -> Path:
    return output.with_name(f"{output.name}.ckpt")


def kept_by(folder: Path) -> set[int]:
    """The groups whose ranks all have a partial sum of as many slices."""
    matches = [checkpoints.NAME.fullmatch(path.name) for path in folder.glob("rank*")]
    kept = [checkpoints.Generation(*map(int, match.groups())) for match in matches if match]
    ranks = Counter((one.rank // GROUP, one.n_slices) for one in kept)
    return {group for (group, _), count in ranks.items() if count == GROUP}


def close(found: ExecutionResult, whole: ExecutionResult) -> bool:
    assert found.array is not None
    assert whole.array is not None
    return bool(np.abs(found.array - whole.array).max() <= 1e-6 * np.abs(whole.array).max())


@st.composite
def slice_ranges(draw: st.DrawFn) -> SliceRanges:
    """A few ranges, which may touch each other or be empty."""
    ends = sorted(draw(st.lists(st.integers(0, 60), max_size=8)))
    return SliceRanges.of(*(range(*pair) for pair in zip(ends[::2], ends[1::2], strict=False)))


@given(slice_ranges(), st.integers(0, 70), st.integers(0, 70), st.integers(1, 9))
def test_ranges_of_slices_are_what_a_list_of_them_is(
    slices: SliceRanges, first: int, stop: int, serves: int
) -> None:
    numbers = list(slices)
    assert numbers == sorted(set(numbers))
    assert slices.count == len(numbers)
    assert list(slices.part(first, stop)) == numbers[first:stop]
    assert all(a.stop < b.start for a, b in zip(slices.ranges, slices.ranges[1:], strict=False))
    assert starts(slices, serves) == len(list(groupby(number // serves for number in numbers)))


@given(slice_ranges(), st.lists(st.integers(1, 7), min_size=2, max_size=5), st.data())
def test_each_slice_is_done_once_by_all_divisions(
    slices: SliceRanges, groups: list[int], data: st.DataObject
) -> None:
    division, computed = Division((groups[0],), slices), []
    for n_groups in groups[1:]:
        shares = [division.slices_of(group) for group in range(division.groups[-1])]
        assert [number for share in shares for number in share] == list(division.left)
        counts = [share.count for share in shares]
        assert max(counts) - min(counts) <= 1
        done = {
            group: data.draw(st.integers(0, count))
            for group, count in enumerate(counts)
            if data.draw(st.booleans())
        }
        computed += [number for group, count in done.items() for number in shares[group].part(0, count)]
        division = division.next(done, n_groups)
    assert sorted([*computed, *division.left]) == list(slices)
    assert division.groups == tuple(groups)


@pytest.mark.parametrize(
    ("groups", "after"),
    slow_unless(lambda k, j: k % 2 == j, [*permutations((1, 2, 3))], [1, 2]),
)
def test_a_run_goes_on_twice_with_other_numbers_of_groups(
    case: Case, output: Path, groups: tuple[int, int, int], after: int
) -> None:
    interrupt(case, output, groups[0], after)
    said = interrupt(case, output, groups[1], after)
    anew = f"from {groups[0]} to {groups[1]} groups: equal up to rounding"
    assert f"partial sums divided again, {anew}" in said[0]
    found = go_on(case, output, groups[2])
    check_values(case, found.array)  # type: ignore[arg-type]
    assert close(found, execute(case.schedule, case.arrays, ranks=GROUP * groups[2]))
    slices, measured = found.report["slices"], found.report["measured"]
    assert slices["divisions"] == list(groups)
    assert slices["resumed"] >= 2 * after
    assert len(measured["slices_s"]) == SLICES - slices["resumed"]
    assert sorted(entry.name for entry in output.parent.iterdir()) == ["result.json", "result.npy"]


def test_a_run_with_as_many_groups_says_nothing(case: Case, output: Path) -> None:
    interrupt(case, output, 2, 2)
    said = interrupt(case, output, 2, 2)
    assert not any("divided anew" in line for line in said)
    assert go_on(case, output, 2).report["slices"]["divisions"] == [2]


def test_it_goes_on_with_the_same_groups_to_the_same_bits(case: Case, output: Path, tmp_path: Path) -> None:
    interrupt(case, output, 3, 1)
    shutil.copytree(folder_of(output), tmp_path / "copy.npy.ckpt")
    interrupt(case, output, 2, 1)
    said = interrupt(case, output, 2, 1)
    assert "from 3 to 2 groups" in said[0]
    found = go_on(case, output, 2)
    assert found.report["slices"]["divisions"] == [3, 2]
    assert np.array_equal(found.array, go_on(case, tmp_path / "copy.npy", 2).array)  # type: ignore[arg-type]


def finished(case: Case, output: Path, groups: int) -> None:
    """A run whose groups have kept all their slices, and whose result could not be written."""

    def refuse(*_: object) -> None:
        raise InterruptedRunError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tnplan.jobs.schedules.write_result", refuse)
        with pytest.raises(InterruptedRunError):
            go_on(case, output, groups)


def test_what_slices_share_is_computed_again_after_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays, schedule = random_arrays(EARLY_SUMS_PATH, 3), early_sums_schedule()
    assert len(schedule.outer) > 1
    case, output = Case(EARLY_SUMS_PATH, schedule, arrays, tmp_path, tmp_path), tmp_path / "result.npy"
    write = checkpoints.RunCheckpoint.write
    with monkeypatch.context() as patch:
        patch.setattr(
            checkpoints.RunCheckpoint,
            "write",
            lambda self, count, partial: write(self, count, partial) if count == 1 else None,
        )
        finished(case, output, 3)
    found = go_on(case, output, 1)
    assert close(found, execute(schedule, arrays))
    assert list(found.report["measured"]["slices_s"]) == ["1", "2", "4", "5", "7"]
    left = SliceRanges((range(1, 3), range(4, 6), range(7, 8)))
    for part in found.report["measured"]["parts"]:
        assert part["runs"] == starts(left, part["serves"]) * part["repeats"]


@pytest.mark.parametrize("groups", [1, 2])
def test_where_no_slice_is_left_the_sum_is_the_result(case: Case, output: Path, groups: int) -> None:
    finished(case, output, 3)
    heard: list[tuple[int, int]] = []
    found = go_on(case, output, groups, progress=lambda at: heard.append((at.done, at.total)))
    assert close(found, execute(case.schedule, case.arrays, ranks=GROUP))
    assert found.report["slices"]["resumed"] == SLICES
    assert found.report["measured"]["slices_s"] == {}
    assert set(heard) == {(0, 0)}


@pytest.mark.parametrize("forms", [("checkpoints", None), (None, "checkpoints"), ("checkpoints",) * 2])
def test_compressed_partial_sums_are_divided_anew(
    case: Case, output: Path, forms: tuple[str | None, str | None]
) -> None:
    interrupt(case, output, 3, 2, compress=forms[0])
    interrupt(case, output, 2, 2, compress=forms[1])
    suffix = ".tnz" if forms[1] else ".npy"
    assert {path.suffix for path in folder_of(output).glob("rank*")} == {suffix}
    assert close(go_on(case, output, 1), execute(case.schedule, case.arrays, ranks=GROUP))


@pytest.mark.parametrize("field", ["schedule", "dtype", "values", "slices"])
def test_the_checkpoint_of_another_run_is_refused_with_any_groups(
    case: Case, output: Path, tmp_path: Path, field: str
) -> None:
    interrupt(case, output, 2, 2)
    schedule, arrays, options = case.schedule, case.arrays, {}
    if field == "values":
        arrays = [array * 2 for array in arrays]
    elif field == "slices":
        options = {"slices": "0:8"}
    else:
        dtype = {"schedule": "complex64", "dtype": "complex128"}[field]
        other = make_case(tmp_path, GROUP, n_sliced=4, n_open=1, dtype=dtype)
        schedule, arrays = other.schedule, other.arrays
    before = snapshot(folder_of(output))
    wanted = "schedule" if field == "dtype" else field
    with pytest.raises(InputError, match=rf"manifest\.json: {wanted}: is "):
        execute(schedule, arrays, ranks=3 * GROUP, output=output, resume=True, **options)  # type: ignore[arg-type]
    assert snapshot(folder_of(output)) == before


@pytest.mark.parametrize("field", ["groups", "left"])
def test_a_changed_manifest_is_refused(case: Case, output: Path, field: str) -> None:
    interrupt(case, output, 3, 2)
    interrupt(case, output, 2, 2)
    manifest = folder_of(output) / "manifest.json"
    content = manifest.read_bytes()
    for old, new in ((b'"groups": [3, 2]', b'"groups": [2, 3]'), (b'"left": [[', b'"left": [[1')):
        manifest.write_bytes(content.replace(old, new))
        with pytest.raises(InputError, match=r"manifest\.json: is damaged"):
            go_on(case, output, 2)
    document = parted(content)[1]["document"]
    for value in (None, 7):
        manifest.write_bytes(content)
        changed(manifest, document={**document, field: value})
        with pytest.raises(InputError, match=r"manifest\.json: is damaged .*; delete the folder"):
            go_on(case, output, 2)


@pytest.mark.parametrize("groups", [2, 3])
def test_a_lost_sum_is_refused(case: Case, output: Path, groups: int) -> None:
    interrupt(case, output, 3, 2)
    interrupt(case, output, 2, 2)
    for path in folder_of(output).glob("rank1.*"):
        path.unlink()
    before = snapshot(folder_of(output))
    with pytest.raises(InputError, match=r"has lost the .*; delete the folder to start again"):
        go_on(case, output, groups)
    assert snapshot(folder_of(output)) == before


@pytest.mark.parametrize("rank", [0, 1, 2, 5])
def test_a_damaged_partial_sum_of_any_group_is_refused_and_nothing_deleted(
    case: Case, output: Path, rank: int
) -> None:
    interrupt(case, output, 3, 3, all_keep=True)
    for path in folder_of(output).glob(f"rank{rank}.*"):
        path.write_bytes(path.read_bytes()[:-9])
    before = snapshot(folder_of(output))
    with pytest.raises(InputError, match=rf"rank{rank}\.0\.\d+\.npy: is damaged"):
        go_on(case, output, 1)
    assert snapshot(folder_of(output)) == before


@pytest.mark.parametrize("wanted", ["rank1.1.0.npy", "manifest.json"])
def test_a_sum_that_cannot_be_written_leaves_the_checkpoint(
    case: Case, output: Path, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(case, output, 3, 2)
    before = snapshot(folder_of(output))
    with monkeypatch.context() as patch:
        fail_at(patch, lambda path: path.name == wanted, OSError("the disk is full"))
        with pytest.raises(InputError, match=f"{wanted}: cannot be written"):
            go_on(case, output, 2)
    assert snapshot(folder_of(output)) == before
    assert close(go_on(case, output, 1), execute(case.schedule, case.arrays, ranks=GROUP))


class KilledError(BaseException):
    """Stands for the end of the process."""


def fail_at(patch: pytest.MonkeyPatch, fails: Callable[[Path], bool], error: BaseException) -> None:
    """Have files of a checkpoint neither moved to the names of which `fails` is true, nor deleted there."""
    replace, unlink = Path.replace, Path.unlink

    def moved(self: Path, target: Path) -> Path:
        if target.parent.suffix == ".ckpt" and fails(target):
            raise error
        return replace(self, target)

    def deleted(self: Path, missing_ok: bool = False) -> None:
        if self.parent.suffix == ".ckpt" and fails(self) and isinstance(error, KilledError):
            raise error
        unlink(self, missing_ok)

    patch.setattr(Path, "replace", moved)
    patch.setattr(Path, "unlink", deleted)


def killed(case: Case, output: Path, groups: int, steps: int, **options: Any) -> bool:
    """Whether a run that is killed after so many of its steps in the checkpoint's folder came so far."""
    left = iter(range(steps))

    def fails(_: Path) -> bool:
        return next(left, None) is None

    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, fails, KilledError())
        try:
            go_on(case, output, groups, **options)
        except KilledError:
            return True
    return False


@pytest.mark.parametrize(
    ("other", "last", "first"),
    slow_unless(lambda *places: places == (0, 2, 0), (1, 3), (1, 2, 3), (0, 1, 2)),
)
def test_a_kill_at_any_step_leaves_a_checkpoint(
    case: Case, tmp_path: Path, other: int, last: int, first: int
) -> None:
    begun = tmp_path / "begun.npy"
    interrupt(case, begun, 2, 3)
    whole = execute(case.schedule, case.arrays, ranks=GROUP * last)
    for number in range(first, 14, 3):
        output = tmp_path / f"{number}.npy"
        shutil.copytree(folder_of(begun), folder_of(output))
        compress = (None, "checkpoints")[number % 2]
        assert killed(case, output, other, number, compress=compress)
        # Once more, where the files of a kill may lie.
        killed(case, output, other, number + 1)
        assert close(go_on(case, output, last), whole)
        assert not folder_of(output).exists()
