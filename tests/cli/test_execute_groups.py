"""Groups of 1, 2 and 4 ranks: the same bits in one process, under mpirun, and after a kill; after one with
another number of groups the same value.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.contraction.executor import check_values, make_case
from tests.support.kernels.gpus import needs_gpus
from tests.support.mpirun import SCRIPTS, mpirun, needs_mpi
from tnplan.calls.execute import execute

RANKS = 4


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=needs_gpus(RANKS))])
def test_groups_give_the_same_bits(device: str, group: int, tmp_path: Path) -> None:
    case = make_case(tmp_path, group)
    files = case.schedule_file, case.tensors_file
    seen = {} if device == "gpu" else {"CUDA_VISIBLE_DEVICES": ""}
    threads, launched, killed = (tmp_path / f"{name}.npy" for name in ("threads", "launched", "killed"))
    words = ("-m", "tnplan", "execute", files[0], "--tensors", files[1], "--device", device)

    execute(*files, device=device, ranks=RANKS, output=threads)
    check_values(case, np.load(threads))
    done = mpirun(RANKS, *words, "-o", launched, **seen)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(launched), np.load(threads))

    struck = mpirun(RANKS, SCRIPTS / "kill_at_slice.py", 1, 1, *files, killed, **seen)
    assert struck.returncode != 0
    assert not killed.exists()
    assert list(Path(f"{killed}.ckpt").glob("rank*.npy"))
    resumed = mpirun(RANKS, *words, "-o", killed, "--resume", **seen)
    assert resumed.returncode == 0, resumed.stderr
    assert np.array_equal(np.load(killed), np.load(threads))
    report = json.loads(killed.with_suffix(".json").read_text())
    assert report["slices"]["resumed"] >= 1
    assert report["environment"]["communicator"] == ("nccl" if device == "gpu" else "mpi")


@pytest.mark.mpi
@needs_mpi
@pytest.mark.parametrize(
    ("group", "groups"),
    [(1, (2, 1)), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((1, (3, 1, 2)), (2, (1, 2, 1))))],
)
def test_killed_jobs_go_on_with_other_numbers_of_groups(
    group: int, groups: tuple[int, ...], tmp_path: Path
) -> None:
    case, output = make_case(tmp_path, group), tmp_path / "r.npy"
    files, seen = (case.schedule_file, case.tensors_file), {"CUDA_VISIBLE_DEVICES": ""}
    for number, n_groups in enumerate(groups[:-1]):
        how = ["resume"] if number else []
        struck = mpirun(n_groups * group, SCRIPTS / "kill_at_slice.py", 0, 1, *files, output, *how, **seen)
        assert struck.returncode != 0
        assert "tnplan: error" not in struck.stderr, struck.stderr
        assert not output.exists()
    words = ("-m", "tnplan", "execute", files[0], "--tensors", files[1], "-o", output, "--resume")
    done = mpirun(groups[-1] * group, *words, **seen)
    assert done.returncode == 0, done.stderr
    divisions = " to ".join(map(str, groups))
    said = f"from {divisions} groups: equal up to rounding, but not bit for bit"
    assert f"partial sums divided again, {said}" in done.stderr
    check_values(case, np.load(output))
    whole = execute(*files, device="cpu", ranks=group).array
    assert whole is not None
    assert np.abs(np.load(output) - whole).max() <= 1e-6 * np.abs(whole).max()
    report = json.loads(output.with_suffix(".json").read_text())
    assert report["slices"]["divisions"] == list(groups)
    assert report["slices"]["resumed"] >= len(groups) - 1
    assert not Path(f"{output}.ckpt").exists()
