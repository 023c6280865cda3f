"""`tnplan sbd-qubits` from files to files, on ranks, and every input that it refuses with one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tnplan
from tests.support.engines.sbd_qubits import as_text, random_terms, reference_among, texts_of, walk
from tests.support.mpirun import mpirun, needs_mpi
from tnplan.cli.main import run
from tnplan.common.errors import InputError

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
    refused = mpirun(2, "-m", "mpi4py", "-m", "tnplan", "sbd-qubits", "Z9", "s.txt")
    assert refused.returncode == 2
    assert refused.stderr.count("tnplan: error:") == 1
    assert "tnplan: error: hamiltonian: names qubit 9; use qubits 0 to 8 (see docs/" in refused.stderr


BAD = [
    (("Z0", ["00", "1"]), {}, "strings: string 1: '1' is no string of 2 zeros and ones; write one"),
    (("Z0", {"02": 1}), {}, "strings: key '02': '02' is no string of 2 zeros and ones; write one"),
    (("Z0", []), {}, "strings: holds no sample; give at least one"),
    (("Z0", {"00": 0}), {}, "strings: holds no sample; give at least one"),
    (("Z0", {"00": -1}), {}, "strings: key '00': has the weight -1; give a number of 0 or more"),
    (("Z0", [0, 1]), {}, "strings: are a list; give a file, a dictionary of counts, or booleans"),
    (("Z0", 7), {}, "strings: are a int; give a file"),
    (("Z0", np.zeros((2, 2))), {}, r"strings: are of shape \(2, 2\) and float64; give a file"),
    (("Z0", "none.txt"), {}, "none.txt: "),
    (("Z3", ["000"]), {}, "hamiltonian: names qubit 3; use qubits 0 to 2"),
    (("ZZ", ["000"]), {}, "hamiltonian: has a word of 2 letters; give one for each of 3 qubits"),
    (("Q0", ["0"]), {}, "hamiltonian: 'Q0' is no Pauli word; write a sum such as"),
    ((7, ["0"]), {}, "hamiltonian: is 7; give its text or a PauliSum"),
    (({"Z0": [0, 1]}, ["0"]), {}, "hamiltonian: is not Hermitian: it has the term 1j Z0; give real"),
    (({}, ["0"]), {}, "hamiltonian: is empty; give words with their coefficients"),
    (("Z0", ["0", "1"]), {"roots": 3}, "roots: are 3 in a space of 2 strings; ask for 1 to 2"),
    (("Z0", ["0"]), {"observables": ["Z1"]}, "observable: names qubit 1; use qubits 0 to 0"),
    (("Z0", ["0"]), {"first_qubit": "top"}, "first_qubit: 'top' is unknown; choose from right, left"),
    (("Z0", ["0"]), {"criteria": 1e-6}, "criteria: is 1e-06; give a Criteria"),
    (("Z0", ["0"]), {"start": [np.ones(1) * 1j]}, "start: holds values that are no real numbers"),
    (("Z0", ["0", "1"]), {"start": [np.ones(3)]}, r"start: has the shape \(3,\)"),
    (("Z0", ["0"]), {"output": "out.txt"}, "out.txt"),
    (("Z0", "s.txt"), {"output": "s.npz", "resume": True, "checkpoint": False}, "resume: has no check"),
]


@pytest.mark.parametrize(("given", "options", "message"), BAD)
def test_bad_calls_are_refused(
    given: tuple[object, object], options: dict, message: str, files: Path
) -> None:
    before = sorted(files.iterdir())
    with pytest.raises(InputError, match=f"^{message}"):
        tnplan.diagonalize_qubits(*given, **{"device": "cpu", **options})
    assert sorted(files.iterdir()) == before


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sbd-qubits", "none.txt", "s.txt"]) == 2
    assert "HAMILTONIAN: 'none.txt' is no file; check the name, or write" in capsys.readouterr().err
    assert run(["sbd-qubits", "0.5*Z0 +0.25 X1", "s.txt", "--device", "cpu"]) == 0


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("bad.txt", "Z0 X1\n0.5 Q3", "bad.txt: line 2: 'Q3' is no Pauli word; write a sum such as 0.5*X0 X1"),
        ("bad.txt", "# none\n", "bad.txt: has no observables; write one a line"),
        ("bad.json", '{"Z0": "a"}', 'bad.json: has the coefficient "a"; give a number or'),
        ("bad.json", "3", "bad.json: is no list; give a list of observables"),
        ("bad.json", '{"Z0": [0, 1]}', "bad.json: is not Hermitian: it has the term 1j Z0; give real coeff"),
    ],
)
def test_bad_files_of_words_are_refused(
    name: str, text: str, message: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / name).write_text(text)
    assert run(["sbd-qubits", name, "s.txt", "--device", "cpu"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"tnplan: error: {message}")


def test_a_string_that_cannot_be_used_is_named(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    (files / "s.txt").write_text("0011\n# comment\n001\n")
    assert run(["sbd-qubits", "Z0", "s.txt", "--device", "cpu"]) == 2
    assert "s.txt: line 3: '001' is no string of 4 zeros and ones" in capsys.readouterr().err
    assert run(["sbd-qubits", "Z0", "s.txt", "--residual", "2"]) == 2
    assert "--residual: is 2; give a norm" in capsys.readouterr().err
