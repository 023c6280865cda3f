"""`tnplan sbd-qubits` from files to files, and on ranks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tnplan
from tests.support.engines.sbd_qubits import as_text, random_terms, reference_among, texts_of, walk
from tests.support.mpirun import mpirun, needs_mpi
from tnplan.cli.main import run

N = 9
TERMS = random_terms(N, 40, "complex", 3)
STRINGS = walk(TERMS, 3, 120)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with h.txt and s.txt, which is the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h.txt").write_text(as_text(TERMS).replace(" +", "\n+"))
    (tmp_path / "s.txt").write_text("\n".join(texts_of(STRINGS, N)))
    return tmp_path


def test_a_result_is_written_and_read_again(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = np.linalg.eigvalsh(reference_among(TERMS, STRINGS))[:2]
    arguments = ["sbd-qubits", "h.txt", "s.txt", "--roots", "2", "--device", "cpu", "--observable", "Z0"]
    assert run([*arguments, "-o", "out.npz"]) == 0
    printed = capsys.readouterr().out
    assert float(printed.splitlines()[1].split()[1]) == pytest.approx(expected[0], abs=1e-9)
    assert "written: out.npz" in printed
    report = json.loads((files / "out.json").read_text())
    assert (report["format"], report["version"]) == ("tnplan.sbd-qubits", 1)
    np.testing.assert_allclose(report["energies"], expected, atol=1e-9)
    with np.load("out.npz") as file:
        values = [np.sum(np.abs(x) ** 2 * (1 - 2.0 * file["bitstrings"][:, -1])) for x in file["states"]]
        np.testing.assert_allclose(file["expectations"], [values], atol=1e-9)
    assert run(["sbd-qubits", "h.txt", "out.npz", "--start", "out.npz", "--device", "cpu", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["measured"]["steps"] <= 2
    np.testing.assert_allclose(again["energies"], expected[:1], atol=1e-9)


def test_a_solve_that_does_not_converge_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["sbd-qubits", "h.txt", "s.txt", "--residual", "1e-12", "--steps", "1", "--roots", "3"]
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.DETERMINANTS", 8)
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.WHOLE", 0)
    status = run([*arguments, "--device", "cpu"])
    lines = capsys.readouterr().err.splitlines()
    assert status == 1
    assert lines[-1] == "tnplan: error: residuals are above 1e-12 after 1 steps; allow more --steps"


@needs_mpi
@pytest.mark.mpi
def test_processes_give_the_result_of_one(files: Path) -> None:
    done = mpirun(
        2, "-m", "mpi4py", "-m", "tnplan", "sbd-qubits", "h.txt", "s.txt", "--roots", "2", "--device", "cpu",
        "--threads", "1", "--observable", "Y0 Z1", "--json", "-o", "out.npz",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    alone = tnplan.diagonalize_qubits(files / "h.txt", "s.txt", roots=2, observables="Y0 Z1", device="cpu")
    assert report["ranks"] == 2
    np.testing.assert_allclose(report["energies"], alone.energies, atol=1e-10)
    np.testing.assert_allclose(report["expectations"], alone.expectations, atol=1e-7)
    with np.load("out.npz") as file:
        assert np.array_equal(file["bitstrings"], alone.bitstrings)


@needs_mpi
@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.usefixtures("files")
def test_processes_refuse_together() -> None:
    refused = mpirun(2, "-m", "mpi4py", "-m", "tnplan", "sbd-qubits", "Z9", "s.txt")
    assert refused.returncode == 2
    assert refused.stderr.count("tnplan: error:") == 1
    assert "tnplan: error: hamiltonian: names qubit 9; use qubits 0 to 8 (see docs/" in refused.stderr


def test_a_sum_may_be_written_instead_of_a_file() -> None:
    assert run(["sbd-qubits", "0.5*Z0 +0.25 X1", "s.txt", "--device", "cpu"]) == 0
