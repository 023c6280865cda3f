"""Checkpoints: an interrupted run resumes to the same bits; one of another run or left over is refused."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.support.bad_input import snapshot
from tests.support.contraction.executor import Case, make_case
from tests.support.contraction.resume import InterruptedRunError
from tnplan.api.jobs.execute import execute
from tnplan.api.progress import Progress
from tnplan.executor.contraction.run import checkpoint as checkpoints
from tnplan.planner.common.errors import InputError


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(tmp_path_factory.mktemp("case"), 2, n_sliced=4)


@pytest.fixture(autouse=True)
def keep_every_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "INTERVAL", 0)


def interrupt(case: Case, output: Path, after: int, ranks: int, **options: object) -> None:
    def progress(at: Progress) -> None:
        if at.done == after:
            raise InterruptedRunError

    with pytest.raises(InterruptedRunError):
        execute(case.schedule, case.arrays, ranks=ranks, output=output, progress=progress, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("ranks", [2, 4, 6])
@pytest.mark.parametrize("after", [1, 2])
def test_resume_gives_the_same_bits(case: Case, tmp_path: Path, ranks: int, after: int) -> None:
    output = tmp_path / "result.npy"
    whole = execute(case.schedule, case.arrays, ranks=ranks, threads=1)
    interrupt(case, output, after, ranks, threads=1)
    assert not output.exists()
    resumed = execute(case.schedule, case.arrays, ranks=ranks, output=output, resume=True, threads=1)
    assert resumed.array is not None
    assert np.array_equal(resumed.array, whole.array)
    assert np.array_equal(np.load(output), whole.array)
    assert resumed.report["slices"]["resumed"] >= after
    assert len(resumed.report["measured"]["slices_s"]) == 16 - resumed.report["slices"]["resumed"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["result.json", "result.npy"]


def test_an_interrupted_resume_resumes(case: Case, tmp_path: Path) -> None:
    output = tmp_path / "result.npy"
    interrupt(case, output, 3, 2)
    interrupt(case, output, 9, 2, resume=True)
    resumed = execute(case.schedule, case.arrays, ranks=2, output=output, resume=True)
    assert resumed.report["slices"]["resumed"] == 9
    assert np.array_equal(resumed.array, execute(case.schedule, case.arrays, ranks=2).array)  # type: ignore[arg-type]


def test_one_generation_is_left_and_the_newest_common_one_is_used(case: Case, tmp_path: Path) -> None:
    output = tmp_path / "result.npy"
    interrupt(case, output, 5, 2)
    folder = tmp_path / "result.npy.ckpt"
    counts = {
        rank: {int(entry.name.split(".")[2]) for entry in folder.glob(f"rank{rank}.*.npy")} for rank in (0, 1)
    }
    assert all(len(found) <= 2 for found in counts.values())
    assert max(counts[0] & counts[1]) == 5
    # Rank 1 was killed before it wrote the generation that rank 0 has.
    (folder / "rank0.0.5.npy").rename(folder / "rank0.0.6.npy")
    (folder / "rank0.0.4.npy").write_bytes((folder / "rank0.0.6.npy").read_bytes())
    (folder / "rank1.0.4.npy").write_bytes((folder / "rank1.0.5.npy").read_bytes())
    resumed = execute(case.schedule, case.arrays, ranks=2, output=output, resume=True)
    assert resumed.report["slices"]["resumed"] == 4


def test_a_left_checkpoint_is_refused_without_resume(case: Case, tmp_path: Path) -> None:
    output = tmp_path / "result.npy"
    interrupt(case, output, 2, 2)
    before = sorted(entry.name for entry in (tmp_path / "result.npy.ckpt").iterdir())
    with pytest.raises(InputError, match="--resume, or delete"):
        execute(case.schedule, case.arrays, ranks=2, output=output)
    assert sorted(entry.name for entry in (tmp_path / "result.npy.ckpt").iterdir()) == before


@pytest.mark.parametrize(
    ("options", "field"),
    [({"ranks": 2, "slices": "0:8"}, "slices")],
)
def test_the_checkpoint_of_another_run_is_refused(
    case: Case, tmp_path: Path, options: dict[str, object], field: str
) -> None:
    output = tmp_path / "result.npy"
    interrupt(case, output, 2, 2)
    with pytest.raises(InputError, match=field):
        execute(case.schedule, case.arrays, output=output, resume=True, **options)  # type: ignore[arg-type]


def test_the_checkpoint_of_another_schedule_is_refused(case: Case, tmp_path: Path) -> None:
    output = tmp_path / "result.npy"
    interrupt(case, output, 2, 2)
    other = make_case(tmp_path, 2, n_sliced=4, n_open=1)
    with pytest.raises(InputError, match="schedule"):
        execute(other.schedule, other.arrays, ranks=2, output=output, resume=True)


def test_the_checkpoint_of_other_values_is_refused(case: Case, tmp_path: Path) -> None:
    output = tmp_path / "result.npy"
    interrupt(case, output, 2, 2)
    changed = [array * 2 for array in case.arrays]
    with pytest.raises(InputError, match="values"):
        execute(case.schedule, changed, ranks=2, output=output, resume=True)


@pytest.mark.parametrize("content", [b"", b"not an array", None])
def test_a_damaged_checkpoint_is_refused(case: Case, tmp_path: Path, content: bytes | None) -> None:
    output = tmp_path / "result.npy"
    interrupt(case, output, 2, 2)
    for path in (tmp_path / "result.npy.ckpt").glob("rank1.0.2.npy"):
        if content is None:
            np.save(path, np.zeros(3))
        else:
            path.write_bytes(content)
    with pytest.raises(InputError, match="rank1"):
        execute(case.schedule, case.arrays, ranks=2, output=output, resume=True)


def test_a_manifest_of_another_version_is_refused(case: Case, tmp_path: Path) -> None:
    output = tmp_path / "result.npy"
    interrupt(case, output, 2, 2)
    manifest = tmp_path / "result.npy.ckpt" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "version": 99}))
    with pytest.raises(InputError, match="version"):
        execute(case.schedule, case.arrays, ranks=2, output=output, resume=True)


def test_resume_without_a_checkpoint_starts_at_the_beginning(case: Case, tmp_path: Path) -> None:
    output = tmp_path / "result.npy"
    assert (
        execute(case.schedule, case.arrays, ranks=2, output=output, resume=True).report["slices"]["resumed"]
        == 0
    )


def test_checkpoints_can_be_left_out(case: Case, tmp_path: Path) -> None:
    output = tmp_path / "result.npy"
    interrupt(case, output, 2, 2, checkpoint=False)
    assert list(tmp_path.iterdir()) == []


def test_resume_needs_an_output(case: Case) -> None:
    with pytest.raises(InputError, match="output"):
        execute(case.schedule, case.arrays, ranks=2, resume=True)


def test_checkpoints_are_rare_when_they_are_dear(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "INTERVAL", 1 << 40)
    output = tmp_path / "result.npy"
    interrupt(case, output, 7, 2)
    assert sorted(entry.name for entry in (tmp_path / "result.npy.ckpt").iterdir()) == [
        "manifest.json", "rank0.0.1.npy", "rank1.0.1.npy",
    ]  # fmt: skip


def test_a_run_that_ends_before_its_first_slice_leaves_nothing(case: Case, tmp_path: Path) -> None:
    interrupt(case, tmp_path / "result.npy", 0, 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_without_partial_sums_is_no_checkpoint(case: Case, tmp_path: Path, resume: bool) -> None:
    folder = tmp_path / "result.npy.ckpt"
    folder.mkdir()
    (folder / "manifest.json").write_text('{"format": "tnplan.checkpoint", "version": 1, "schedule": "x"}')
    interrupt(case, tmp_path / "result.npy", 3, 2, resume=resume)
    done = execute(case.schedule, case.arrays, ranks=2, output=tmp_path / "result.npy", resume=True)
    assert done.report["slices"]["resumed"] == 3


def test_partial_sums_without_a_manifest_are_refused(case: Case, tmp_path: Path) -> None:
    interrupt(case, tmp_path / "result.npy", 2, 2)
    (tmp_path / "result.npy.ckpt" / "manifest.json").unlink()
    for resume, problem in ((False, "--resume, or delete"), (True, r"manifest\.json: cannot be read")):
        with pytest.raises(InputError, match=problem):
            execute(case.schedule, case.arrays, ranks=2, output=tmp_path / "result.npy", resume=resume)


def damaged(path: Path, how: str) -> None:
    """Spoil a partial sum."""
    array, content = np.load(path), path.read_bytes()
    if how == "zip":
        path.write_bytes(b"PK\x03\x04" + b"0" * 50)
    elif how == "npz":
        with path.open("wb") as stream:
            np.savez(stream, a=array)
    elif how == "header":
        path.write_bytes(content.replace(b"'descr':", b"'descr\n:"))
    elif how == "size":
        path.write_bytes(content.replace(b"'shape': (", b"'shape': (999999999999999,"))
    else:
        path.write_bytes(b"")


def leave(case: Case, output: Path, ranks: int, *counts: int) -> Path:
    """Interrupt a run after 3 slices, and give every rank its partial sum under these counts, no others."""
    interrupt(case, output, 3, ranks)
    folder = output.with_name("result.npy.ckpt")
    contents = [(folder / f"rank{rank}.0.3.npy").read_bytes() for rank in (0, 1)]
    for path in folder.glob("rank*.*"):
        path.unlink()
    for rank, count in product(range(ranks), counts):
        (folder / f"rank{rank}.0.{count}.npy").write_bytes(contents[rank % 2])
    return folder


@pytest.mark.parametrize("how", ["zip", "npz", "header", "size", "empty"])
def test_an_older_generation_serves_where_a_rank_cannot_read_the_newest(
    case: Case, tmp_path: Path, how: str
) -> None:
    output = tmp_path / "result.npy"
    folder = leave(case, output, 2, 3, 4)
    damaged(folder / "rank1.0.4.npy", how)
    resumed = execute(case.schedule, case.arrays, ranks=2, output=output, resume=True, threads=1)
    assert resumed.report["slices"]["resumed"] == 3
    assert np.array_equal(resumed.array, execute(case.schedule, case.arrays, ranks=2, threads=1).array)  # type: ignore[arg-type]


@pytest.mark.parametrize(("ranks", "counts"), [(2, (3, 4)), (4, (3, 4)), (4, (5,))])
@pytest.mark.parametrize("how", ["zip", "npz", "header", "size", "empty"])
def test_a_refusal_of_a_damaged_checkpoint_deletes_nothing(
    case: Case, tmp_path: Path, how: str, ranks: int, counts: tuple[int, ...]
) -> None:
    output = tmp_path / "result.npy"
    folder = leave(case, output, ranks, *counts)
    for count in counts:
        damaged(folder / f"rank{ranks - 1}.0.{count}.npy", how)
    before = snapshot(folder)
    with pytest.raises(InputError, match=rf"rank{ranks - 1}\.0\.{max(counts)}\.npy: cannot be read"):
        execute(case.schedule, case.arrays, ranks=ranks, output=output, resume=True)
    assert snapshot(folder) == before


def test_a_generation_of_more_slices_than_the_group_has_is_not_used(case: Case, tmp_path: Path) -> None:
    output = tmp_path / "result.npy"
    folder = leave(case, output, 2, 17)
    before = snapshot(folder)
    with pytest.raises(InputError, match=r"rank0\.0\.17\.npy: is of 17 slices, the group has 16; delete"):
        execute(case.schedule, case.arrays, ranks=2, output=output, resume=True)
    assert snapshot(folder) == before
    for path in folder.glob("rank*.*"):
        (folder / path.name.replace(".17.", ".3.")).write_bytes(path.read_bytes())
    resumed = execute(case.schedule, case.arrays, ranks=2, output=output, resume=True)
    assert resumed.report["slices"]["resumed"] == 3
