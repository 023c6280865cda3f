"""Questions that cannot be answered: one line with the place, the value and the remedy, and no file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.bad_input import refused
from tests.support.circuits import random_circuit
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.program import (
    CircuitProgram,
    Conditional,
    Measurement,
)
from tnplan.cli.main import run

CIRCUIT = random_circuit(3, 30, 1)
BRANCHES = CircuitProgram(
    2, 1, (gate("h", (0,)), Measurement(0, 0), Conditional((0,), 1, (gate("x", (1,)),)))
)
WIDE = GateSequence(80, (gate("h", (0,)),))
Ask = Callable[[tnplan.Circuit], object]

BAD: list[tuple[str, Any, Ask, str]] = [
    (
        "stabilizer",
        CIRCUIT,
        lambda c: c.expectation("Z0", state=["i*X0"]),
        "state: 'i*X0' is no Pauli word",
    ),
    ("values", CIRCUIT, lambda c: c.bind([1, 2]), "parameters: are list; give a value for each name"),
    ("program text", CIRCUIT, lambda c: c.overlap("OPENQASM 2.0;\nqreg q[3];"), "circuit: is the text of a"),
    ("by", CIRCUIT, lambda c: c.expectation("Z0", gradient=None), "None is no list of names, each once"),  # type: ignore[arg-type]
    (
        "length",
        CIRCUIT,
        lambda c: c.amplitudes(["000", "01"]),
        'bitstrings: "01" is no bit string; give 0 or 1 for 3 qubits',
    ),
    ("character", CIRCUIT, lambda c: c.amplitudes("0a0"), 'bitstrings: "0a0" is no bit string'),
    (
        "no strings",
        CIRCUIT,
        lambda c: c.amplitudes([]),
        "bitstrings: is an empty list; give one bit string or more",
    ),
    (
        "nothing",
        CIRCUIT,
        lambda c: c.amplitudes(),
        "bitstrings: are missing; give bit strings or open qubits",
    ),
    (
        "number",
        CIRCUIT,
        lambda c: c.amplitudes(5),
        "bitstrings: is 5; give bit strings, an array or a file",
    ),
    (
        "shape",
        CIRCUIT,
        lambda c: c.amplitudes(np.zeros((2, 4), int)),
        r"bitstrings: has shape (2, 4); give [string, qubit] for 3 qubits",
    ),
    (
        "values",
        CIRCUIT,
        lambda c: c.amplitudes(np.full((2, 3), 2)),
        "bitstrings: has other values than 0 and 1",
    ),
    ("no file", CIRCUIT, lambda c: c.amplitudes(Path("absent")), "absent: cannot be read"),
    (
        "open twice",
        CIRCUIT,
        lambda c: c.amplitudes(open_qubits=[0, 0]),
        "open_qubits: names qubit 0 twice; name each qubit once",
    ),
    (
        "open outside",
        CIRCUIT,
        lambda c: c.amplitudes(open_qubits=[3]),
        "open_qubits: names qubit 3; use qubits 0 to 2",
    ),
    (
        "open pattern",
        CIRCUIT,
        lambda c: c.amplitudes("0..", open_qubits=[1]),
        "bitstrings: leaves qubit 2 open; name it in the open qubits too",
    ),
    (
        "open strings",
        CIRCUIT,
        lambda c: c.amplitudes(["0.0"], open_qubits=[1]),
        "bitstrings: ['0.0'] does not fit open qubits",
    ),
    ("no shots", CIRCUIT, lambda c: c.sample(0), "shots: is 0; give an integer from 1 to"),
    (
        "fidelity",
        CIRCUIT,
        lambda c: c.sample(5, fidelity=0.5),
        "fidelity: is for samples by rejection; leave it out, or sample so",
    ),
    (
        "all fidelity",
        CIRCUIT,
        lambda c: c.sample(5, fidelity=1.5, sampling="rejection"),
        "fidelity: is 1.5; give more than 0 and at most 1",
    ),
    ("half a shot", CIRCUIT, lambda c: c.sample(0.5), "shots: is 0.5"),
    ("seed", CIRCUIT, lambda c: c.sample(5, seed=-1), "seed: is -1; give an integer from 0 up"),
    ("observable", CIRCUIT, lambda c: c.expectation("Z7"), "observable: names qubit 7; use qubits 0 to 2"),
    (
        "observables",
        CIRCUIT,
        lambda c: c.expectation([]),
        "observable: is an empty list; give one observable or more",
    ),
    (
        "other sum",
        CIRCUIT,
        lambda c: c.expectation(tnplan.PauliSum(4, np.zeros((1, 2), np.uint64), np.ones(1))),
        "observable: is a sum on 4 qubits; give one on 3",
    ),
    ("no qubits", CIRCUIT, lambda c: c.probabilities([]), "qubits: has 0 qubits; name 1 to 26"),
    (
        "qubits twice",
        CIRCUIT,
        lambda c: c.reduced_density_matrix([1, 1]),
        "qubits: names qubit 1 twice; name each qubit once",
    ),
    (
        "qubits outside",
        CIRCUIT,
        lambda c: c.probabilities([-1]),
        "qubits: is -1; give an integer from 0 up",
    ),
    ("qubits as text", CIRCUIT, lambda c: c.probabilities("01"), 'qubits: is "01"; give a list of qubits'),
    (
        "other circuit",
        CIRCUIT,
        lambda c: c.overlap(random_circuit(2, 30, 1)),
        "circuit: has 2 qubits; give one of 3, as the first has",
    ),
    (
        "state",
        CIRCUIT,
        lambda c: c.trace("Z0", "Z0", state="01"),
        "state: '01' is no state; give one of 0 1 + - r l for 3 qubits",
    ),
    (
        "method",
        CIRCUIT,
        lambda c: c.sample(5, method="exact"),
        "method: 'exact' is unknown; choose from auto, contraction, statevector, pauli",
    ),
    ("precision", CIRCUIT, lambda c: c.sample(5, precision="fp16"), "precision: 'fp16' is unknown"),
    (
        "noise",
        CIRCUIT,
        lambda c: c.expectation("Z0", depolarizing=1.5),
        "depolarizing: probability is 1.5; give 0 to 1",
    ),
    (
        "pauli samples",
        CIRCUIT,
        lambda c: c.sample(5, method="pauli"),
        "method: 'pauli' does not answer sample; use statevector or contraction",
    ),
    (
        "pauli overlap",
        CIRCUIT,
        lambda c: c.overlap(CIRCUIT, method="pauli"),
        "method: 'pauli' does not answer overlap; use statevector or contraction",
    ),
    (
        "pauli qubits",
        WIDE,
        lambda c: c.reduced_density_matrix([0, 1, 2, 3], method="pauli"),
        "qubits: has 4 qubits, and 'pauli' takes 3; use contraction",
    ),
    (
        "noisy amplitudes",
        CIRCUIT,
        lambda c: c.amplitudes("000", depolarizing=0.1),
        "answers amplitudes of gates alone, and the circuit has more; ask for sample, expectation,",
    ),
    (
        "noisy samples",
        CIRCUIT,
        lambda c: c.sample(5, depolarizing=0.1, method="contraction", sampling="rejection"),
        "sampling: is 'rejection', which is for gates alone; leave it out",
    ),
    (
        "noisy samples gate by gate",
        CIRCUIT,
        lambda c: c.sample(5, depolarizing=0.1, method="contraction", sampling="gates"),
        "sampling: is 'gates', which is for gates alone; use statevector",
    ),
    (
        "no trajectories",
        CIRCUIT,
        lambda c: c.expectation("Z0", depolarizing=0.1, method="statevector"),
        "on its way; give a number of runs, or use pauli or contraction",
    ),
    (
        "one trajectory",
        CIRCUIT,
        lambda c: c.expectation("Z0", trajectories=1),
        "trajectories: is 1; give an integer from 2",
    ),
    (
        "trajectories",
        CIRCUIT,
        lambda c: c.expectation("Z0", trajectories=10),
        "trajectories: is given, and the circuit ends in one state; leave it out",
    ),
    (
        "truncation",
        CIRCUIT,
        lambda c: c.expectation("Z0", truncation=tnplan.Truncation(max_terms=9), method="contraction"),
        "truncation: is given, and 'contraction' truncates nothing; use pauli",
    ),
    (
        "too many qubits",
        WIDE,
        lambda c: c.expectation("Z0", method="statevector"),
        "takes 62 qubits at most, and the circuit has 80; use contraction or pauli",
    ),
    (
        "conditions",
        BRANCHES,
        lambda c: c.expectation("Z0", method="pauli"),
        "'pauli' follows no conditions, and the circuit has some; give trajectories, and use",
    ),
    (
        "conditions at all",
        BRANCHES,
        lambda c: c.expectation("Z0"),
        "on its way; give trajectories, and use statevector",
    ),
    (
        "memory",
        GateSequence(30, ()),
        lambda c: c.amplitudes("0" * 30, method="statevector", memory="1MiB"),
        "memory: allows a rank 1.00 MiB, and 16",
    ),
    (
        "ranks",
        CIRCUIT,
        lambda c: c.expectation("Z0", method="pauli", ranks=3),
        "ranks: are 3; start a power of two",
    ),
    (
        "unknown parameter",
        CIRCUIT,
        lambda c: c.bind(theta=1),
        "parameter theta: is none of circuit; leave it out",
    ),
]


@pytest.mark.parametrize(("circuit", "ask", "line"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_what_cannot_be_answered_is_refused(circuit: Any, ask: Ask, line: str) -> None:
    with pytest.raises(tnplan.InputError) as caught:
        ask(tnplan.Circuit(circuit))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("sed", r"sample\(\) got an unexpected keyword argument 'sed'; did you mean 'seed'\?"),
        ("noise", r"sample\(\) got an unexpected keyword argument 'noise'; the options are method, state,"),
    ],
)
def test_an_option_that_is_none_is_refused(name: str, line: str) -> None:
    with pytest.raises(TypeError, match=line):
        tnplan.Circuit(CIRCUIT).sample(5, **{name: 1})  # type: ignore[arg-type]


def test_a_file_of_bit_strings_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "bits.txt"
    for text, line in (
        ("000\n\n01\n", 'bits.txt: line 3: "01" is no bit string'),
        ("\n", "has no bit strings"),
    ):
        file.write_text(text)
        with pytest.raises(tnplan.InputError, match=line):
            tnplan.Circuit(CIRCUIT).amplitudes(file)
    np.save(tmp_path / "bits.npy", np.ones((2, 2)))
    with pytest.raises(tnplan.InputError, match=r"bits\.npy: has shape \(2, 2\)"):
        tnplan.Circuit(CIRCUIT).amplitudes(tmp_path / "bits.npy")
    (tmp_path / "bad.npy").write_text("no array")
    with pytest.raises(tnplan.InputError, match=r"bad\.npy: cannot be read"):
        tnplan.Circuit(CIRCUIT).amplitudes(tmp_path / "bad.npy")


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("o.txt", "Z0\nQ1\n", r"o\.txt: line 2: 'Q1' is no Pauli word"),
        ("o.txt", "# nothing\n", r"o\.txt: has no observables; write one a line"),
        ("o.json", "{}", r"o\.json: is no list; give a list of observables"),
        ("o.json", '["Z0", 5]', r"o\.json: entry 1: is 5; give its text"),
        ("o.json", '[{"Z9": 1}]', r"o\.json: entry 0: names qubit 9"),
        ("o.json", '[{"Z0": "a"}]', r"o\.json: entry 0: has the coefficient \"a\""),
        ("o.json", "[{}]", r"o\.json: entry 0: is empty"),
    ],
)
def test_a_file_of_observables_names_its_line(tmp_path: Path, name: str, text: str, line: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(tnplan.InputError, match=line):
        tnplan.Circuit(CIRCUIT).expectation(tmp_path / name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.qsim").write_text("2\n0 h 0\n1 cz 0 1\n")
    Path("p.qasm").write_text('include "stdgates.inc"; input float t; qubit q; rx(t) q;')
    Path("d.qsim").write_text("2\n0 h 0\n")
    Path("good.txt").write_text("00\n11\n")
    Path("bits.txt").write_text("00\n111\n")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("amplitudes c.qsim", "--bitstrings: are missing"),
        ("amplitudes c.qsim --bitstrings 00,1", '"1" is no bit string'),
        ("amplitudes c.qsim --bitstrings 00 --file bits.txt", "--file stands beside --bitstrings"),
        ("amplitudes c.qsim --file bits.txt -o out.json", "bits.txt: line 2"),
        ("amplitudes c.qsim --bitstrings 00 -o c.qsim", "c.qsim: is an input"),
        ("amplitudes c.qsim --file good.txt -o good.txt", "good.txt: is an input"),
        ("overlap c.qsim d.qsim -o d.qsim", "d.qsim: is an input"),
        ("sample c.qsim --shots 9 -o r.npy", "r.npy: ends in .npy, and is written as JSON; let its name end"),
        ("statevector c.qsim --shots 9 -o r.npz", "r.npz: ends in .npz, and is written as JSON"),
        ("pauli c.qsim --observable Z0 -o r.npz", "r.npz: ends in .npz, and is written as JSON"),
        ("sample c.qsim --shots 0", "--shots: is 0"),
        ("sample c.qsim", "Missing option '--shots'"),
        ("sample absent.qsim --shots 1", "absent.qsim: cannot be read"),
        ("expectation c.qsim", "give --observable, or a --file of observables"),
        ("expectation c.qsim --observable Z2", "names qubit 2"),
        ("expectation c.qsim --observable Z0 --trajectories 0", "--trajectories: is 0"),
        ("expectation c.qsim --observable Z0 --max-terms 0", "max_terms"),
        ("expectation p.qasm --observable Z0", "has no value for 't'; give one: --set t=VALUE"),
        ("expectation p.qasm --observable Z0 --set s=1", "parameter s: is none of p.qasm; use one of t"),
        ("expectation c.qsim --observable Z0 -o absent/out.json", "its folder does not exist"),
        ("probabilities c.qsim --qubits 0,0", "names qubit 0 twice"),
        ("reduced-density-matrix c.qsim --qubits 5", "names qubit 5"),
        ("overlap c.qsim p.qasm", "has no value for 't'"),
        ("trace c.qsim --a Z0 --b Z5", "--b: names qubit 5"),
        ("trace c.qsim --a Z0 --b Z0 --method contraction --max-terms 5", "truncates nothing; use pauli"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_commands_refuse_in_one_line(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    if "p.qasm" in line:
        pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    refused(capsys, line, says)


@pytest.mark.usefixtures("folder")
def test_commands_write_what_they_print(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["expectation", "c.qsim", "--observable", "X0", "--file", "none"]) == 2
    line = "expectation c.qsim --observable Z0 --json --device cpu -o out.json"
    assert run(line.split()) == 0
    captured = capsys.readouterr()
    printed = json.loads(captured.out)
    assert printed == json.loads(Path("out.json").read_text())
    assert (printed["format"], printed["version"]) == ("tnplan.answer", 2)
    assert printed["value"] == [pytest.approx(0)]
