"""Networks of one or two tensors, mostly without a step, on several groups of several ranks."""

from __future__ import annotations

from math import inf, prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.contraction.shards import load_shards
from tests.support.mpirun import mpirun, needs_mpi
from tests.support.networks import agrees, eager_profile, random_arrays
from tests.support.slow import slow_after
from tnplan.calls.execute import execute
from tnplan.cli.terminal import ProgressLines
from tnplan.jobs.progress import Progress
from tnplan.planner.networks.contraction_path import DTYPES, ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.tensors import save_tensors
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.schedule.file import save_schedule


@st.composite
def small_paths(draw: st.DrawFn) -> ContractionPath:
    """One tensor, with the step (0,) or without, or two; scalars, traces, open and sliced indices."""
    n_tensors = draw(st.sampled_from((1, 1, 1, 2)))
    names = [f"i{number}" for number in range(draw(st.integers(0, 4)))]
    terms = [draw(st.lists(st.sampled_from(names), max_size=4)) if names else [] for _ in range(n_tensors)]
    present = sorted({index for term in terms for index in term})
    sizes = {index: draw(st.integers(1, 6)) for index in present}
    roles = {index: draw(st.sampled_from(("summed", "open", "sliced"))) for index in present}
    network = Network(
        tuple(map(tuple, terms)), tuple(index for index in present if roles[index] == "open"), sizes
    )
    steps = ((0, 1),) if n_tensors == 2 else draw(st.sampled_from(((), ((0,),))))
    sliced = tuple(index for index in present if roles[index] == "sliced")
    return ContractionPath(network, steps, sliced, draw(st.sampled_from(DTYPES)))


@given(
    small_paths(), st.sampled_from(((1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (3, 1), (4, 1))),
    st.sampled_from(("array", "gathered", "sharded")), st.booleans(),
)  # fmt: skip
def test_any_world_gives_the_result_in_every_form(
    tmp_path_factory: pytest.TempPathFactory, path: ContractionPath, world: tuple[int, int], form: str,
    checkpoint: bool,
) -> None:  # fmt: skip
    ranks, groups = world
    arrays = random_arrays(path, 3)
    schedule = plan(
        path, eager_profile(), devices=ranks * groups, ranks_per_group=ranks, memory_bytes=inf,
        threshold_bytes=1,
    )  # fmt: skip
    output = None if form == "array" else tmp_path_factory.mktemp("few") / "r.npy"
    heard: list[tuple[int, int]] = []
    done = execute(
        schedule, arrays, ranks=ranks * groups, device="cpu", output=output, checkpoint=checkpoint,
        result="sharded" if form == "sharded" else "gathered",
        progress=lambda at: heard.append((at.done, at.total)),
    )  # fmt: skip
    if form == "sharded":
        assert output is not None
        found = load_shards(output.with_suffix(".shards.json"))
    else:
        assert done.array is not None
        found = done.array
    agrees(found, path, arrays)
    if form == "gathered":
        assert output is not None
        assert np.array_equal(np.load(output), found)
    most = -(-prod(path.network.size_dict[index] for index in schedule.sliced) // groups)
    assert heard == [(number, most) for number in range(most + 1)]


@pytest.mark.mpi
@needs_mpi
@pytest.mark.parametrize("n_sliced", slow_after(1, [1, 0]))
def test_one_tensor_on_three_groups_under_mpi(tmp_path: Path, n_sliced: int) -> None:
    network = Network((("a", "b", "c"),), ("b", "a"), {"a": 3, "b": 5, "c": 2})
    path = ContractionPath(network, (), ("c",)[:n_sliced])
    arrays = random_arrays(path, 4)
    save_tensors(arrays, tmp_path / "t.npz")
    save_schedule(plan(path, eager_profile()), tmp_path / "s.json")
    options = ("--tensors", tmp_path / "t.npz", "--device", "cpu", "-o", tmp_path / "r.npy")
    done = mpirun(3, "-m", "tnplan", "execute", tmp_path / "s.json", *options)
    assert done.returncode == 0, done.stderr
    agrees(np.load(tmp_path / "r.npy"), path, arrays)


def test_the_line_of_progress_of_a_group_without_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tnplan.cli.terminal.LOG_EVERY_S", 0.0)
    with ProgressLines() as progress:
        progress(Progress(0, 0, "slice 0 of 0"))
        progress(Progress(0, 0, "slice 0 of 0"))


@pytest.mark.parametrize("n_slices", [2, 2**80, 2**500])
def test_the_line_of_progress_says_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], n_slices: int
) -> None:
    monkeypatch.setattr("tnplan.cli.terminal.LOG_EVERY_S", 0.0)
    with ProgressLines() as progress:
        progress(Progress(0, n_slices, f"slice 0 of {n_slices}", share=0.0))
        progress(Progress(1, n_slices, f"slice 1 of {n_slices}", share=1 / n_slices))
    line = capsys.readouterr().err
    assert f"slice 1 of {n_slices}, about " in line
    assert len(line.partition("about")[2]) < 30
