"""Checkpoints: an interrupted run resumes to the same bits; one of another run or left over is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.bad_input import snapshot
from tests.support.contraction.executor import Case, make_case
from tests.support.contraction.resume import InterruptedRunError
from tests.support.robustness.checkpoint_files import changed, parted
from tests.support.slow import slow_unless
from tnplan.calls.execute import execute
from tnplan.common.errors import InputError
from tnplan.executor.contraction.run import checkpoint as checkpoints
from tnplan.jobs.progress import Progress

DAMAGE = {
    "old": "is damaged, or of another version of tnplan", "flip": "is damaged", "count": "was written as",
    "size": "is damaged", "empty": "is damaged",
}  # fmt: skip
"""Ways to spoil a partial sum, and what is said of it."""


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


@pytest.mark.parametrize(
    ("ranks", "after"),
    slow_unless(lambda ranks, after: (ranks + after) % 2 == 0, [2, 4, 6], [1, 2]),
)
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
    shutil.rmtree(folder)
    # Rank 1 was killed before it wrote the generation that rank 0 has.
    (leave(case, output, 4, 6) / "rank1.0.6.npy").unlink()
    resumed = execute(case.schedule, case.arrays, ranks=2, output=output, resume=True)
    assert resumed.report["slices"]["resumed"] == 4


def test_a_left_checkpoint_is_refused_without_resume(case: Case, tmp_path: Path) -> None:
    output = tmp_path / "result.npy"
    interrupt(case, output, 2, 2)
    before = sorted(entry.name for entry in (tmp_path / "result.npy.ckpt").iterdir())
    with pytest.raises(InputError, match="resume, or delete"):
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
    changed(manifest, version=99)
    with pytest.raises(
        InputError, match=r"is tnplan\.checkpoint 99, not tnplan\.checkpoint 5; delete the folder"
    ):
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
    for resume, problem in ((False, "resume, or delete"), (True, "has lost its manifest; delete")):
        with pytest.raises(InputError, match=problem):
            execute(case.schedule, case.arrays, ranks=2, output=tmp_path / "result.npy", resume=resume)


def damaged(path: Path, how: str) -> None:
    """Spoil a partial sum."""
    content = path.read_bytes()
    if how == "old":
        np.save(path, np.load(path))
    elif how == "flip":
        path.write_bytes(content[:200] + bytes([content[200] ^ 4]) + content[201:])
    elif how == "count":
        header = parted(content)[1]
        changed(path, place={**header["place"], "slices": header["place"]["slices"] - 1})
    elif how == "size":
        path.write_bytes(content.replace(b"'shape': (", b"'shape': (999999999999999,"))
    else:
        path.write_bytes(b"")


def leave(case: Case, output: Path, *counts: int) -> Path:
    """Interrupt runs after so many slices, and leave the partial sums of all of them, no others."""
    folder, kept = output.with_name("result.npy.ckpt"), {}
    for count in counts:
        interrupt(case, output, count, 2)
        kept |= {path.name: path.read_bytes() for path in folder.glob(f"rank*.0.{count}.npy")}
        manifest = (folder / "manifest.json").read_bytes()
        shutil.rmtree(folder)
    folder.mkdir()
    (folder / "manifest.json").write_bytes(manifest)
    for name, content in kept.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("how", DAMAGE)
def test_an_older_generation_serves_where_a_rank_cannot_use_the_newest_and_this_is_said(
    case: Case, tmp_path: Path, how: str
) -> None:
    output, said = tmp_path / "result.npy", []
    folder = leave(case, output, 3, 4)
    damaged(folder / "rank1.0.4.npy", how)
    resumed = execute(
        case.schedule, case.arrays, ranks=2, output=output, resume=True, threads=1,
        progress=lambda at: said.append(at.text),
    )  # fmt: skip
    assert resumed.report["slices"]["resumed"] == 3
    notes = [text for text in said if "rank1.0.4.npy" in text]
    assert len(notes) == 1
    assert notes[0].endswith(": group 0 goes on from slice 3")
    assert np.array_equal(resumed.array, execute(case.schedule, case.arrays, ranks=2, threads=1).array)  # type: ignore[arg-type]


@pytest.mark.parametrize("counts", [(3, 4), (5,)])
@pytest.mark.parametrize("how", DAMAGE)
def test_a_refusal_of_a_damaged_checkpoint_deletes_nothing(
    case: Case, tmp_path: Path, how: str, counts: tuple[int, ...]
) -> None:
    output = tmp_path / "result.npy"
    folder = leave(case, output, *counts)
    for count in counts:
        damaged(folder / f"rank1.0.{count}.npy", how)
    before = snapshot(folder)
    with pytest.raises(
        InputError, match=rf"rank1\.0\.{max(counts)}\.npy: {DAMAGE[how]}.*; delete the folder"
    ):
        execute(case.schedule, case.arrays, ranks=2, output=output, resume=True)
    assert snapshot(folder) == before


@pytest.mark.parametrize("count", [4, 17])
def test_a_partial_sum_by_the_name_of_another_is_refused(case: Case, tmp_path: Path, count: int) -> None:
    output = tmp_path / "result.npy"
    folder = leave(case, output, 3)
    for path in folder.glob("rank*.*"):
        path.rename(folder / path.name.replace(".3.", f".{count}."))
    before = snapshot(folder)
    wanted = "was written as rank 0, slices 3, and stands for rank 0, slices 4; delete the folder"
    wanted = wanted if count == 4 else "is of 17 slices, the group has 16; delete the folder"
    with pytest.raises(InputError, match=rf"rank0\.0\.{count}\.npy: {wanted}"):
        execute(case.schedule, case.arrays, ranks=2, output=output, resume=True)
    assert snapshot(folder) == before
    for path in folder.glob("rank*.*"):
        path.rename(folder / path.name.replace(f".{count}.", ".3."))
    resumed = execute(case.schedule, case.arrays, ranks=2, output=output, resume=True)
    assert resumed.report["slices"]["resumed"] == 3


def test_partial_sums_of_another_number_of_groups_are_refused(case: Case, tmp_path: Path) -> None:
    """They have as many elements, and are of other slices."""
    interrupt(case, tmp_path / "other.npy", 3, 4)
    folder = leave(case, tmp_path / "result.npy", 3)
    for rank in (0, 1):
        name = f"rank{rank}.0.3.npy"
        (folder / name).write_bytes((tmp_path / "other.npy.ckpt" / name).read_bytes())
    with pytest.raises(
        InputError, match=r"rank0\.0\.3\.npy: belongs to another run; resume with the tensors"
    ):
        execute(case.schedule, case.arrays, ranks=2, output=tmp_path / "result.npy", resume=True)


def test_a_lost_partial_sum_costs_its_slices_and_this_is_said(case: Case, tmp_path: Path) -> None:
    output, said = tmp_path / "result.npy", []
    (leave(case, output, 3) / "rank1.0.3.npy").unlink()
    resumed = execute(
        case.schedule, case.arrays, ranks=2, output=output, resume=True, threads=1,
        progress=lambda at: said.append(at.text),
    )  # fmt: skip
    assert resumed.report["slices"]["resumed"] == 0
    assert (
        "no partial sum of group 0 is there for all its ranks: it starts again from its first slice" in said
    )
    assert np.array_equal(resumed.array, execute(case.schedule, case.arrays, ranks=2, threads=1).array)  # type: ignore[arg-type]


def test_partial_sums_of_other_divisions_alone_are_refused(case: Case, tmp_path: Path) -> None:
    folder = leave(case, tmp_path / "result.npy", 3)
    for path in folder.glob("rank*.*"):
        path.rename(folder / path.name.replace(".0.3.", ".1.3."))
    before = snapshot(folder)
    with pytest.raises(InputError, match="has lost the files of its partial sums; delete"):
        execute(case.schedule, case.arrays, ranks=2, output=tmp_path / "result.npy", resume=True)
    assert snapshot(folder) == before
