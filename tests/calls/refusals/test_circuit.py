"""What the questions to a `tnplan.Circuit` refuse, in Python and as commands."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import tnplan
from tests.support.circuits import random_circuit
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.program import CircuitProgram, Conditional, Measurement

CIRCUIT = random_circuit(3, 30, 1)
BRANCHES = CircuitProgram(
    2, 1, (gate("h", (0,)), Measurement(0, 0), Conditional((0,), 1, (gate("x", (1,)),)))
)
WIDE = GateSequence(80, (gate("h", (0,)),))
MIXED = ["Z0 Z1"]
FEW, FOUR = tnplan.Truncation(max_terms=24), tnplan.MonteCarlo(4)
IMAGINARY = tnplan.PauliSum(3, np.ones((1, 2), np.uint64), np.full(1, 1j))
STREAM = io.BytesIO()
np.save(STREAM, np.ones((2, 2)))
SAVED = STREAM.getvalue()

# fmt: off
AMPLITUDES: list[Row] = [
    (lambda c: c.amplitudes(["000", "01"]), "--bitstrings",
     '"01" is not a bit string', "give 0 or 1 for each of 3 qubits"),
    (lambda c: c.amplitudes("0a0"), "--bitstrings", '"0a0" is not a bit string', "give 0 or 1 for each"),
    (lambda c: c.amplitudes([]), "--bitstrings", "is an empty list", "give one bit string or more"),
    (lambda c: c.amplitudes(), "--bitstrings", "are missing", "give bit strings or open qubits"),
    (lambda c: c.amplitudes(5), "--bitstrings", "is 5", "give bit strings, an array or a file"),
    (lambda c: c.amplitudes(np.zeros((2, 4), int)), "--bitstrings",
     "has shape (2, 4)", "give [string, qubit] for 3 qubits"),
    (lambda c: c.amplitudes(np.full((2, 3), 2)), "--bitstrings",
     "has other values than 0 and 1", "give bits"),
    (lambda c: c.amplitudes(Path("absent")), "absent", "cannot be read", "check the name and the"),
    (lambda c: c.amplitudes(open_qubits=[0, 0]), "--open", "names qubit 0 twice", "name each qubit once"),
    (lambda c: c.amplitudes(open_qubits=[3]), "--open", "names qubit 3", "use qubits 0 to 2"),
    (lambda c: c.amplitudes("0..", open_qubits=[1]), "--bitstrings",
     "leaves qubit 2 open", "add it to the open qubits"),
    (lambda c: c.amplitudes(["0.0"], open_qubits=[1]), "--bitstrings",
     "['0.0'] does not fit open qubits", "give one string of 3"),
    (lambda c: c.amplitudes("000", depolarizing=0.1), "--method",
     "answers amplitudes only of gates", "ask for sample, expectation,"),
    (lambda _: tnplan.Circuit(GateSequence(30, ())).amplitudes("0" * 30, method="statevector", memory="1MiB"),
     "--memory", "allows a rank 1.00 MiB, and 16", "use --precision fp32"),
    (lambda c: c.amplitudes("000", state=MIXED), "--method",
     "'statevector' answers amplitudes only in pure states, but the", "ask for sample,"),
]
SAMPLE: list[Row] = [
    (lambda c: c.sample(0), "--shots", "is 0", "give an integer from 1 to"),
    (lambda c: c.sample(5, fidelity=0.5), "--fidelity",
     "is for samples by rejection", "leave it out, or sample by rejection"),
    (lambda c: c.sample(5, fidelity=1.5, sampling="rejection"), "--fidelity",
     "is 1.5", "give more than 0 and at most 1"),
    (lambda c: c.sample(0.5), "--shots", "is 0.5", "give an integer from 1"),
    (lambda c: c.sample(5, seed=-1), "--seed", "is -1", "give an integer from 0 up"),
    (lambda c: c.sample(5, method="exact"), "--method",
     "'exact' is unknown", "choose from auto, contraction, statevector, pauli"),
    (lambda c: c.sample(5, precision="fp16"), "--precision", "'fp16' is unknown", "choose from fp64, fp32"),
    (lambda c: c.sample(5, method="pauli"), "--method",
     "'pauli' does not answer sample", "use statevector or contraction"),
    (lambda c: c.sample(5, depolarizing=0.1, method="contraction", sampling="rejection"), "--sampling",
     "is 'rejection', which is only for circuits of gates", "leave it out"),
    (lambda c: c.sample(5, depolarizing=0.1, method="contraction", sampling="gates"), "--sampling",
     "is 'gates', which is only for circuits of gates", "use statevector"),
    (lambda c: c.sample(5, sampling="rejection", state=MIXED), "--sampling",
     "is 'rejection', but 'statevector' draws from the whole distribution", "leave it out"),
    (lambda c: c.sample(5, sampling="rejection", method="contraction", state=MIXED), "--sampling",
     "is 'rejection', which is only for pure states", "leave it out"),
    (lambda c: c.sample(5, truncation=FEW, monte_carlo=FOUR), "--repetitions",
     "are given, but", "leave them out"),
]
EXPECTATION: list[Row] = [
    (lambda c: c.expectation("Z0", state=["i*X0"]), "--stabilizers",
     "'i*X0' is not a Pauli word", "write words with a sign"),
    (lambda c: c.expectation("Z0", gradient=None), "--gradient",
     "None is not a list of names, each once", "name some parameters"),
    (lambda c: c.expectation("Z7"), "--observable", "names qubit 7", "use qubits 0 to 2"),
    (lambda c: c.expectation([]), "--observable", "is an empty list", "give one observable or more"),
    (lambda c: c.expectation(tnplan.PauliSum(4, np.zeros((1, 2), np.uint64), np.ones(1))), "--observable",
     "is a sum on 4 qubits", "give a sum on 3"),
    (lambda c: c.expectation("Z0", depolarizing=1.5), "--depolarizing", "probability is 1.5", "give a"),
    (lambda c: c.expectation("Z0", depolarizing=0.1, method="statevector"), "--trajectories",
     "before its end", "give a number of runs, or use pauli or contraction"),
    (lambda c: c.expectation("Z0", trajectories=1), "--trajectories", "is 1", "give an integer from 2"),
    (lambda c: c.expectation("Z0", trajectories=10), "--trajectories",
     "is given, but the circuit is not random", "leave it out"),
    (lambda c: c.expectation("Z0", truncation=tnplan.Truncation(max_terms=9), method="contraction"),
     "truncation", "is given, but 'contraction' does not truncate", "use pauli"),
    (lambda _: tnplan.Circuit(WIDE).expectation("Z0", method="statevector"), "--method",
     "takes at most 62 qubits, but the circuit has 80", "use contraction or pauli"),
    (lambda _: tnplan.Circuit(BRANCHES).expectation("Z0", method="pauli"), "--method",
     "'pauli' does not support", "give --trajectories"),
    (lambda _: tnplan.Circuit(BRANCHES).expectation("Z0"), "--trajectories",
     "is missing, and the circuit", "give --trajectories"),
    (lambda c: c.expectation("Z0", method="pauli", ranks=3), "ranks", "are 3", "start a power of two"),
    (lambda c: c.expectation("Z0", method="statevector", state=MIXED), "--trajectories",
     "is missing, and the input state is mixed", "give a number of runs, or use pauli or contraction"),
    (lambda c: c.expectation("Z0", state_fidelity=0), "--state-fidelity", "is 0", "give more than 0 and at"),
    (lambda c: c.expectation("Z0", state_fidelity=0.9, method="pauli"), "--state-fidelity",
     "is given, but 'pauli' does not compress", "use statevector"),
    (lambda c: c.expectation("Z0", monte_carlo=FOUR), "--repetitions",
     "need a limit of terms", "give --max-terms"),
    (lambda c: c.expectation("Z0", truncation=FEW, method="statevector", monte_carlo=FOUR), "--repetitions",
     "are given, but 'statevector' does not resample", "use pauli"),
    (lambda c: c.expectation("Z0", truncation=FEW, seed=1, monte_carlo=FOUR), "--seed",
     "is given together with monte_carlo, which has one", "leave one of them out"),
    (lambda c: c.expectation("Z0", truncation=tnplan.Truncation(max_terms=4, max_weight=2), monte_carlo=FOUR),
     "--repetitions", "resample terms instead of cutting them", "leave the cuts out"),
    (lambda c: c.expectation("Z0", after=[]), "--after", "is []", "give a list of numbers of operations, or"),
    (lambda c: c.expectation("Z0", after=5), "--after", "is 5", "give a list of numbers of operations, or"),
    (lambda c: c.expectation("Z0", after="layers"), "--after", "is 'layers'", "or barriers"),
    (lambda c: c.expectation("Z0", after=[0.5]), "--after", "is 0.5", "give an integer from 0 to 30"),
    (lambda c: c.expectation("Z0", after=[4, 31]), "--after", "is 31", "give an integer from 0 to 30"),
    (lambda c: c.expectation("Z0", after=[3, 8, 8]), "--after", "has 8 after 8", "give rising numbers, each"),
    (lambda c: c.expectation("Z0", after="barriers"), "--after",
     "names barriers, and the circuit has none", "give numbers of operations"),
    (lambda c: c.expectation("Z0", after=[1], truncation=FEW, monte_carlo=FOUR), "--repetitions",
     "are given, but --after has no repetitions", "leave them out"),
]
PROBABILITIES: list[Row] = [
    (lambda c: c.probabilities([]), "--qubits", "has 0 qubits", "name 1 to 26"),
    (lambda c: c.probabilities([-1]), "--qubits", "is -1", "give an integer from 0 up"),
    (lambda c: c.probabilities("01"), "--qubits", 'is "01"', "give a list of qubits"),
    (lambda c: c.probabilities([0], truncation=FEW, monte_carlo=FOUR), "--repetitions",
     "are of expectation values and of traces over all inputs, not of probabilities", "leave them out"),
    (lambda c: c.reduced_density_matrix([1, 1]), "--qubits", "names qubit 1 twice", "name each qubit once"),
    (lambda _: tnplan.Circuit(WIDE).reduced_density_matrix([0, 1, 2, 3], method="pauli"), "--qubits",
     "has 4 qubits, but 'pauli' takes at most 3", "use contraction"),
]
OVERLAP: list[Row] = [
    (lambda c: c.overlap("OPENQASM 2.0;\nqreg q[3];"), "circuit",
     "is the text of a", "write it to a file, and"),
    (lambda c: c.overlap(random_circuit(2, 30, 1)), "circuit",
     "has 2 qubits", "give a circuit of 3 qubits, as the first one"),
    (lambda c: c.overlap(CIRCUIT, method="pauli"), "--method",
     "'pauli' does not answer overlap", "use statevector or contraction"),
    (lambda c: c.overlap(c, state=MIXED), "--method",
     "answers overlap only in pure states, but the input", "ask for sample"),
]
TRACE: list[Row] = [
    (lambda c: c.trace("Z0", "Z0", state="01"), "--state",
     "'01' is not a state", "give one of 0 1 + - r l for each"),
    (lambda c: c.trace("Z0", "Z0", method="statevector", state=MIXED), "--method",
     "answers trace only in pure states, but the input", "use pauli"),
    (lambda c: c.trace("Z0", "Z0", state="000", truncation=FEW, monte_carlo=FOUR), "--repetitions",
     "not of traces in an input state", "leave them out"),
    (lambda c: c.trace(IMAGINARY, "Z0", truncation=FEW, monte_carlo=FOUR),
     "--repetitions", "take real coefficients", "give the two parts one"),
]
BIND: list[Row] = [
    (lambda c: c.bind([1, 2]), "parameters", "are list", "give a value for each name"),
    (lambda c: c.bind(theta=1), "parameter theta", "is not a parameter of circuit", "leave it out"),
]
STATES: list[Row] = [
    ("0a0", "--state", "'0a0' is not a state", "give one of 0 1 + - r l for each"),
    ("++", "--state", "'++' is not a state", "give one of 0 1 + - r l for each"),
    ("", "--state", "'' is not a state", "give one of 0 1 + - r l"),
    (5, "--state", "is 5", "give letters, Bloch vectors [qubit, 3], or a list of stabilizers"),
    (np.zeros((2, 3)), "product state", "has no Bloch vector for each qubit", "give [qubit, 3] with"),
    (np.ones((3, 3)), "product state", "has no Bloch vector for each qubit", "give [qubit, 3] with"),
    (np.full((3, 3), np.nan), "product state", "has no Bloch vector for each qubit", "give [qubit, 3] with"),
    (["X0", "Z0"], "--stabilizers", "'Z0' anticommutes with another", "remove one of the two"),
    (["X0", "-X0"], "--stabilizers", "have -I as a product", "change a sign"),
    (["X5"], "--stabilizers", "names qubit 5", "use qubits 0 to 2"),
    (["0.5*X0"], "--stabilizers", "'0.5*X0' is not a word with a", "write words with a sign"),
]
ESTIMATES: list[Row] = [
    ({}, "question", "is missing", "choose from amplitudes,"),
    ({"sample": 5, "expectation": "Z0"}, "question", "is given 2 times", "choose from amplitudes"),
    ({"guess": 5}, "question", "'guess' is unknown", "choose from amplitudes"),
    ({"trace": "Z0"}, "trace", "is of 'Z0'", "give a pair of operators"),
    ({"sample": 0}, "--shots", "is 0", "give an integer from 1"),
    ({"sample": 5, "devices": []}, "--devices", "is an empty list", "give one number or more"),
    ({"sample": 5, "devices": [0]}, "--devices", "is 0", "give an integer from 1"),
    ({"sample": 5, "hardware": "abacus"}, "--hardware", "abacus", "choose from a100, cpu"),
    ({"sample": 5, "search_time": -1}, "--search-time", "is -1", "give seconds"),
    ({"sample": 5, "method": "pauli"}, "--method", "'pauli' does not answer sample", "use statevector or"),
    ({"expectation": "Z0", "monte_carlo": FOUR}, "--repetitions", "need a limit of terms", "--max-terms"),
]
BIT_STRINGS: list[Row] = [
    (("bits.txt", b"000\n\n01\n"), "bits.txt: line 3", '"01" is not a bit string',
    "give 0 or 1 for each of 3 qubits"),
    (("bits.txt", b"\n"), "bits.txt", "has no bit strings", "write one per line"),
    (("bits.npy", SAVED), "bits.npy", "has shape (2, 2)", "give [string, qubit]"),
    (("bad.npy", b"no array"), "bad.npy", "cannot be read", "give an array that"),
]
OBSERVABLES: list[Row] = [
    (("o.txt", "Z0\nQ1\n"), "o.txt: line 2", "'Q1' is not a Pauli word", "write a sum such as"),
    (("o.txt", "# nothing\n"), "o.txt", "has no observables", "write one per line"),
    (("o.json", "{}"), "o.json", "is not a list", "give a list of observables"),
    (("o.json", '["Z0", 5]'), "o.json: entry 1", "is of type int", "give a text such as"),
    (("o.json", '[{"Z9": 1}]'), "o.json: entry 0", "names qubit 9", "use qubits 0 to 2"),
    (("o.json", '[{"Z0": "a"}]'), "o.json: entry 0", 'has the coefficient "a"', "give a number or [real"),
    (("o.json", "[{}]"), "o.json: entry 0", "is empty", "give words with their"),
]
COMMANDS: list[Row] = [
    ("amplitudes c.qsim", "--bitstrings", "are missing", "give bit strings or"),
    ("amplitudes c.qsim --bitstrings 00,1", "--bitstrings",
     '"1" is not a bit string', "give 0 or 1 for each of 2 qubits"),
    ("amplitudes c.qsim --bitstrings 00 --file bits.txt", "--file is given together with --bitstrings",
     "", "give one of them"),
    ("amplitudes c.qsim --file bits.txt -o out.json", "bits.txt: line 2",
     '"111" is not a bit string', "give 0 or 1 for each of 2 qubits"),
    ("amplitudes c.qsim --bitstrings 00 -o c.qsim", "c.qsim", "is an input", "give the output another"),
    ("amplitudes c.qsim --file good.txt -o good.txt", "good.txt", "is an input", "give the output another"),
    ("overlap c.qsim d.qsim -o d.qsim", "d.qsim", "is an input", "give the output another"),
    ("sample c.qsim --shots 9 -o r.npy", "r.npy", "ends in .npy, and is written as JSON", "let its name end"),
    ("statevector c.qsim --shots 9 -o r.npz", "r.npz",
     "ends in .npz, and is written as JSON", "let its name end in"),
    ("pauli c.qsim --observable Z0 -o r.npz", "r.npz",
     "ends in .npz, and is written as JSON", "let its name end in"),
    ("sample c.qsim --shots 0", "--shots", "is 0", "give an integer from 1"),
    ("sample c.qsim", "Missing option '--shots'", "", "see 'tnplan sample"),
    ("sample absent.qsim --shots 1", "absent.qsim", "cannot be read", "check the name and the"),
    ("expectation c.qsim", "give --observable, or a --file of observables", "", "see 'tnplan expectation"),
    ("expectation c.qsim --observable Z2", "--observable", "names qubit 2", "use qubits 0 to 1"),
    ("expectation c.qsim --observable Z0 --trajectories 0", "--trajectories",
     "is 0", "give an integer from 2"),
    ("expectation c.qsim --observable Z0 --max-terms 0", "max_terms", "is 0", "give an integer from 1"),
    ("expectation p.qasm --observable Z0", "p.qasm: line 1 (input)",
     "has no value for 't'", "give a value: --set t=VALUE"),
    ("expectation p.qasm --observable Z0 --set s=1", "parameter s", "is not a parameter of p.qasm",
    "choose from t"),
    ("expectation c.qsim --observable Z0 -o absent/out.json", "absent/out.json",
     "its folder does not exist", "choose a folder that"),
    ("expectation c.qsim --observable Z0 --after 1,x", "Invalid value for '--after'",
     "'1,x' holds no numbers", "write them with commas"),
    ("expectation c.qsim --observable Z0 --after 1 -o out.json --resume", "--resume",
     "is for expectation values without gradients, trajectories and --after", "leave it out"),
    ("expectation p.qasm --observable Z0 --set t=1 --gradient --after 0", "--after",
     "is given together with --gradient", "leave one of them out"),
    ("probabilities c.qsim --qubits 0,0", "--qubits", "names qubit 0 twice", "name each qubit once"),
    ("reduced-density-matrix c.qsim --qubits 5", "--qubits", "names qubit 5", "use qubits 0 to 1"),
    ("overlap c.qsim p.qasm", "p.qasm: line 1 (input)", "has no value for 't'", "give a value: --set t="),
    ("trace c.qsim --a Z0 --b Z5", "--b", "names qubit 5", "use qubits 0 to 1"),
    ("trace c.qsim --a Z0 --b Z0 --method contraction --max-terms 5", "truncation",
     "is given, but 'contraction' does not truncate", "use pauli"),
]
# fmt: on


@table([*AMPLITUDES, *SAMPLE, *EXPECTATION, *PROBABILITIES, *OVERLAP, *TRACE, *BIND])
def test_a_question_is_refused(refusal: Refusal) -> None:
    refusal.raised_by(lambda: refusal.given(tnplan.Circuit(CIRCUIT)))


@table(STATES)
def test_an_input_state_is_refused(refusal: Refusal) -> None:
    circuit = tnplan.Circuit(CIRCUIT)
    refusal.raised_by(lambda: circuit.expectation("Z0", state=refusal.given))
    refusal.raised_by(lambda: circuit.estimate(expectation="Z0", state=refusal.given))


@table(ESTIMATES)
def test_an_estimate_is_refused(refusal: Refusal) -> None:
    refusal.raised_by(lambda: tnplan.Circuit(CIRCUIT).estimate(**refusal.given))


@table(BIT_STRINGS)
def test_a_file_of_bit_strings_is_refused(
    refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, content = refusal.given
    Path(name).write_bytes(content)
    refusal.raised_by(lambda: tnplan.Circuit(CIRCUIT).amplitudes(Path(name)))


@table(OBSERVABLES)
def test_a_file_of_observables_is_refused(
    refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, text = refusal.given
    Path(name).write_text(text)
    refusal.raised_by(lambda: tnplan.Circuit(CIRCUIT).expectation(Path(name)))


@table(COMMANDS)
def test_a_command_is_refused(
    refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "p.qasm" in refusal.given:
        pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    monkeypatch.chdir(tmp_path)
    Path("c.qsim").write_text("2\n0 h 0\n1 cz 0 1\n")
    Path("p.qasm").write_text('include "stdgates.inc"; input float t; qubit q; rx(t) q;')
    Path("d.qsim").write_text("2\n0 h 0\n")
    Path("good.txt").write_text("00\n11\n")
    Path("bits.txt").write_text("00\n111\n")
    refusal.ends(refusal.given, capsys)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("sed", r"sample\(\) got an unexpected keyword argument 'sed'; did you mean 'seed'\?"),
        ("noise", r"sample\(\) got an unexpected keyword argument 'noise'; the options are method, state,"),
    ],
)
def test_an_option_that_is_none_is_refused(name: str, line: str) -> None:
    with pytest.raises(TypeError, match=line):
        tnplan.Circuit(CIRCUIT).sample(5, **{name: 1})
