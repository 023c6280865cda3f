"""`tnplan sbd --grow` from an FCIDUMP to files, and under mpirun."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tnplan
from tests.support.engines.sbd import fcidump_text, interleaved, lines_of
from tests.support.engines.sbd_growth import chain, labelled_text
from tests.support.mpirun import mpirun, needs_mpi
from tnplan.cli.main import run

N = 6
CHAIN = chain(N)
FAST = ["--device", "cpu", "--threads", "1"]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an FCIDUMP, one with labels, and a list to start from, which is the working folder."""
    monkeypatch.chdir(tmp_path)
    Path("h.fcidump").write_text(fcidump_text(CHAIN))
    Path("labelled.fcidump").write_text(labelled_text(CHAIN, 1))
    Path("start.txt").write_text(interleaved([(0b111, 0b111), (0b10011, 0b111)], N))
    Path("a.txt").write_text(lines_of([0b111, 0b1011], N))
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], line: str) -> str:
    assert run(["sbd", *line.split(), *FAST]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tnplan: error:")]
    assert len(lines) == 1
    return lines[0]


def test_a_list_grows_from_files_to_files(capsys: pytest.CaptureFixture[str]) -> None:
    line = "sbd h.fcidump --grow --epsilon 0.1,0.05,0.02,0.01 --rdm -o out.npz"
    assert run([*line.split(), *FAST]) == 0
    shown = capsys.readouterr()
    report = json.loads(Path("out.json").read_text())
    growth = report["growth"]
    # A threshold that adds nothing gives no point.
    reached = [point["epsilon"] for point in growth["points"]]
    assert reached == sorted({one["epsilon"] for one in growth["iterations"]} | {0.1, 0.01}, reverse=True)
    assert growth["epsilons"] == [0.1, 0.05, 0.02, 0.01]
    for one in growth["iterations"]:
        text = f"epsilon {one['epsilon']:.3g}: {one['determinants']} determinants, energy"
        assert text in shown.err
    assert shown.err.count("stable, second-order correction") == len(reached)
    assert "the list ended: stable at the last epsilon" in shown.out
    fit = growth["extrapolation"][0]
    assert f"root 0 extrapolated: {fit['energy_hartree']:.6f} Ha" in shown.out
    assert "written: out.determinants.txt" in shown.out
    # What was written is what another solve takes.
    with np.load("out.npz") as out:
        assert out["states"].shape == (1, growth["points"][-1]["determinants"])
        assert list(out["order"]) == list(range(out["states"].shape[1]))
        assert "rdm_two" in out.files
    again = "sbd h.fcidump --determinants out.determinants.txt --start out.npz --json"
    assert run([*again.split(), *FAST]) == 0
    repeated = json.loads(capsys.readouterr().out)
    assert repeated["energies_hartree"] == pytest.approx(report["energies_hartree"], abs=1e-9)
    assert repeated["measured"]["steps"] <= 2


def test_a_size_ends_the_growth_and_starts_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    line = "sbd h.fcidump --grow-to 30 --determinants start.txt --no-pt2 -o out.npz"
    assert run([*line.split(), *FAST]) == 0
    assert "the list ended: limit of determinants" in capsys.readouterr().out
    report = json.loads(Path("out.json").read_text())
    assert report["space"]["shape"] == [30]
    assert len(Path("out.determinants.txt").read_text().splitlines()) == 30
    assert report["growth"]["points"] == []
    assert report["growth"]["epsilon_pt2"] is None


def test_the_labels_of_states_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sbd", "labelled.fcidump", "--grow", "--symmetry", "1", *FAST]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-1] == "1"


@needs_mpi
def test_ranks_of_mpirun_grow_the_same_list() -> None:
    growth = "--grow --epsilon 0.1"
    assert run(["sbd", "h.fcidump", *growth.split(), "-o", "one.npz", *FAST]) == 0
    done = mpirun(2, "-m", "tnplan", "sbd", "h.fcidump", *growth.split(), "-o", "two.npz", *FAST)
    assert done.returncode == 0, done.stderr
    assert Path("two.determinants.txt").read_text() == Path("one.determinants.txt").read_text()
    one, two = (json.loads(Path(f"{name}.json").read_text()) for name in ("one", "two"))
    assert two["ranks"] == 2
    for mine, theirs in zip(two["growth"]["points"], one["growth"]["points"], strict=True):
        for name in ("energies_hartree", "corrections_hartree", "outside_determinants"):
            assert mine[name] == pytest.approx(theirs[name], abs=1e-9)


def test_a_start_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    text = interleaved([(0b111, 0b111)], N)
    Path("out.determinants.txt").write_text(text)
    message = refused(capsys, "h.fcidump --grow --determinants out.determinants.txt -o out.npz")
    assert "out.determinants.txt" in message
    assert Path("out.determinants.txt").read_text() == text


def test_a_call_from_python_gives_the_list() -> None:
    result = tnplan.diagonalize("h.fcidump", grow=tnplan.Growth((0.05,)), device="cpu", threads=1)
    assert result.determinants is not None
    assert len(result.determinants) == len(result.states[0]) == result.report["space"]["shape"][0]


def test_orbitals_are_optimized_and_written(capsys: pytest.CaptureFixture[str]) -> None:
    growing = ["--grow-to", "60", "--optimize-orbitals", "60"]
    assert run(["sbd", "h.fcidump", *growing, "-o", "r.npz", *FAST]) == 0
    heard = capsys.readouterr()
    assert "orbitals: 59 determinants, energy" in heard.err
    assert "r.orbitals.fcidump" in heard.out
    energy = np.load("r.npz")["energies"][0]
    onward = ["--determinants", "r.determinants.txt", "--start", "r.npz", *FAST]
    for source in (["r.orbitals.fcidump"], ["h.fcidump", "--rotation", "r.npz"]):
        assert run(["sbd", *source, *onward, "-o", "again.npz"]) == 0
        np.testing.assert_allclose(np.load("again.npz")["energies"][0], energy, rtol=0, atol=1e-9)
    assert "is given without --grow" in refused(capsys, "h.fcidump --optimize-orbitals 60")
