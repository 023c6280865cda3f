"""What `tnplan.diagonalize_qubits` and `tnplan sbd-qubits` refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tnplan
from tests.support.robustness.refusals import Refusal, Row, table

GROWTH = tnplan.Growth()
# fmt: off
CALLS: list[Row] = [
    ((("Z0", ["00", "1"]), {}), "strings: string 1", "'1' is not a string of 2 zeros and ones", "write one"),
    ((("Z0", {"02": 1}), {}), "strings: key '02'", "'02' is not a string of 2 zeros and ones", "write one"),
    ((("Z0", []), {}), "strings", "holds no sample", "give at least one"),
    ((("Z0", {"00": 0}), {}), "strings", "holds no sample", "give at least one"),
    ((("Z0", {"00": -1}), {}), "strings: key '00'", "has the weight -1", "give a number of 0 or more"),
    ((("Z0", [0, 1]), {}), "strings", "are of type list", "give a file, counts as a dict, or a"),
    ((("Z0", 7), {}), "strings", "are of type int", "give a file"),
    ((("Z0", np.zeros((2, 2))), {}), "strings", "are an array of shape (2, 2)", "give a file"),
    ((("Z0", "none.txt"), {}), "none.txt", "cannot be read (No such file", "check the name and the"),
    ((("Z3", ["000"]), {}), "hamiltonian", "names qubit 3", "use qubits 0 to 2"),
    ((("ZZ", ["000"]), {}), "hamiltonian", "has a word of 2 letters", "give one letter for each of 3 qubits"),
    ((("Q0", ["0"]), {}), "hamiltonian", "'Q0' is not a Pauli word", "write a sum such as"),
    (((7, ["0"]), {}), "hamiltonian", "is of type int", "give a text such as"),
    ((({"Z0": [0, 1]}, ["0"]), {}), "hamiltonian", "is not Hermitian: it has the term 1j Z0", "give real"),
    ((({}, ["0"]), {}), "hamiltonian", "is empty", "give words with their coefficients"),
    ((("Z0", ["0", "1"]), {"roots": 3}), "roots", "are 3, but the space has only 2 strings",
    "ask for 1 to 2"),
    ((("Z0", ["0"]), {"observables": ["Z1"]}), "--observable", "names qubit 1", "use qubits 0 to 0"),
    ((("Z0", ["0"]), {"first_qubit": "top"}), "--first-qubit", "'top' is unknown", "choose from right, left"),
    ((("Z0", ["0"]), {"criteria": 1e-6}), "criteria", "is 1e-06", "give a Criteria"),
    ((("Z0", ["0"]), {"start": [np.ones(1) * 1j]}), "start",
     "holds values that are not real numbers", "give states of real"),
    ((("Z0", ["0", "1"]), {"start": [np.ones(3)]}), "start", "has a state of shape (3,)", "give states of"),
    ((("Z0", ["0"]), {"output": "out.txt"}), "out.txt", "does not end in .npz", "no other format is"),
    ((("Z0", ["0"]), {"grow": 100}), "grow", "is 100", "give a Growth"),
    ((("Z0", ["0"]), {"grow": GROWTH, "start": [np.ones(1)]}), "--start",
     "cannot be combined with --grow", "give the .npz of"),
    ((("Z0", ["0"]), {"grow": GROWTH, "output": "o.npz", "resume": True}), "--resume",
     "cannot be combined with --grow", "give the .npz of"),
    ((("Z0", ["0"]), {"grow": tnplan.Growth(optimize_orbitals=9)}), "--optimize-orbitals",
     "is not for qubit Hamiltonians", "leave it out"),
    ((("Z0", ["0"]), {"grow": GROWTH, "roots": 2}), "roots", "are 2, but the space has only 1 strings",
     "ask for 1 to 1"),
    ((("Z0", "s.txt"), {"output": "s.npz", "resume": True, "checkpoint": False}), "--resume",
     "has no check", "give the --output of"),
]
FILES: list[Row] = [
    (("bad.txt", "Z0 X1\n0.5 Q3"), "bad.txt: line 2",
     "'Q3' is not a Pauli word", "write a sum such as 0.5*X0 X1"),
    (("bad.txt", "# none\n"), "bad.txt", "has no observables", "write one per line"),
    (("bad.json", '{"Z0": "a"}'), "bad.json", '"Z0" has the coefficient "a"', "give a number or"),
    (("bad.json", "3"), "bad.json", "is not a list", "give a list of observables"),
    (("bad.json", '{"Z0": [0, 1]}'), "bad.json",
     "is not Hermitian: it has the term 1j Z0", "give real coeff"),
]
COMMANDS: list[Row] = [
    ("Z0 bad.txt", "bad.txt: line 3", "'001' is not a string of 4 zeros and ones", "write one bitstring per"),
    ("Z0 s.txt --residual nan", "criteria: residual", "is nan", "give a positive"),
    ("Z0 s.txt --epsilon 0.1", "--epsilon", "is given without --grow", "add --grow"),
    ("none.txt s.txt", "HAMILTONIAN", "'none.txt' is not a file", "check the name, or write"),
]
# fmt: on


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with strings that can be used and strings that cannot."""
    monkeypatch.chdir(tmp_path)
    Path("s.txt").write_text("0011\n0101\n")
    Path("bad.txt").write_text("0011\n# comment\n001\n")
    return tmp_path


@table(CALLS)
def test_a_call_is_refused(refusal: Refusal, folder: Path) -> None:
    before = sorted(folder.iterdir())
    given, options = refusal.given
    refusal.raised_by(lambda: tnplan.diagonalize_qubits(*given, **{"device": "cpu", **options}))
    assert sorted(folder.iterdir()) == before


@table(FILES)
def test_a_file_of_words_is_refused(refusal: Refusal, capsys: pytest.CaptureFixture[str]) -> None:
    name, text = refusal.given
    Path(name).write_text(text)
    refusal.ends(f"sbd-qubits {name} s.txt --device cpu", capsys)


@table(COMMANDS)
def test_a_command_is_refused(refusal: Refusal, capsys: pytest.CaptureFixture[str]) -> None:
    refusal.ends(f"sbd-qubits {refusal.given} --device cpu", capsys)
