"""What gates, circuits and the readers of qsim and OpenQASM refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tnplan
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.load import load_circuit
from tnplan.circuits.program import Channel, CircuitProgram, Conditional, Measurement, Reset
from tnplan.circuits.qasm.read import parse_qasm_program
from tnplan.circuits.qsim import parse_qsim
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network

HEAD3 = 'OPENQASM 3.0;\ninclude "stdgates.inc";\n'
X = np.array([[0, 1], [1, 0]], dtype=np.complex128)

# fmt: off
OBJECTS: list[Row] = [
    (lambda: GateSequence(2, gate("x", (0,))), "circuit", "has Gate as gates", "give a tuple of gates"),
    (lambda: GateSequence(2, (3,)), "gate 0", "is of type int", "give a tnplan.Gate"),
    (lambda: GateSequence(1.5, ()), "circuit", "has [1.5] as a number of qubits", "give whole numbers"),
    (lambda: Gate("x", "0", X), "gate x", "has '0' as qubits", "give whole numbers"),
    (lambda: Gate("x", (0.0,), X), "gate x", "has (0.0,) as qubits", "give whole numbers"),
    (lambda: Gate("x", (0,), X * np.nan), "gate x",
     "has elements that are infinite or NaN", "give finite numbers"),
    (lambda: Measurement(None, 0), "measurement", "has [None] as a qubit", "give whole numbers"),
    (lambda: Reset("0"), "reset", "has ['0'] as a qubit", "give whole numbers"),
    (lambda: Channel(0, (X,)), "channel", "has 0 as qubits", "give whole numbers"),
    (lambda: CircuitProgram(2, 0, (3,)), "operation 0", "is of type int", "give a gate or another operation"),
    (lambda: CircuitProgram(2, 0.5, ()), "program", "has [0.5] as a number of bits", "give whole numbers"),
    (lambda: GateSequence(2, (gate("x", (2,)),)), "gate 0 (x)", "acts on qubit 2", "use qubits 0 to 1"),
    (lambda: gate("cz", (0, 0)), "gate cz", "acts on qubits (0, 0)", "name one qubit or more"),
    (lambda: Gate("u", (0, 1), np.eye(2, dtype=np.complex128)), "gate u",
     "matrix of shape (2, 2)", "give a matrix of"),
    (lambda: Gate("u", (0,), np.array([["a", "b"], ["c", "d"]])), "gate u", "<U1 matrix", "give a matrix of"),
    (lambda: Channel((0,), (0.5 * np.eye(2, dtype=np.complex128),)), "channel",
     "does not keep the trace", "give K with sum of"),
    (lambda: Channel((0,), ()), "channel", "has no operators", "give matrices of shape"),
    (lambda: CircuitProgram(1, 0, (Measurement(0, 0),)), "operation 0",
     "names classical bit 0", "use bits 0 to -1"),
    (lambda: CircuitProgram(1, 1, (Conditional((0,), 1, (Reset(3),)),)), "operation 0, inner operation 0",
     "names qubit 3", "use qubits 0 to 0"),
]
ENDS: list[Row] = [
    ({"amplitude": "01"}, "--amplitude", "has 2 characters", "give one character for each"),
    ({"amplitude": "01x"}, "--amplitude", "has the character 'x'", "write 0, 1, or . for an"),
    ({"open_qubits": [3]}, "--open", "names qubit 3", "use qubits 0 to 2"),
    ({"open_qubits": [1, 1]}, "--open", "names qubit 1 twice", "name each qubit once"),
    ({"open_qubits": [1], "amplitude": "000"}, "--amplitude", "is given together with --open",
    "give either"),
]
QSIM: list[Row] = [
    ("", "c.qsim: line 1", "'' is not a number of qubits", "start with the number"),
    ("0\n", "c.qsim: line 1", "'0' is not a number of qubits", "start with the number"),
    ("2 3\n", "c.qsim: line 1", "'2 3' is not a number of qubits", "start with the number"),
    ("2\nh 0\n", "c.qsim: line 2", "'h 0' is not a gate", "write: time gate qubits"),
    ("2\n0 hh 0\n", "c.qsim: line 2: gate hh", "is unknown", "choose from cnot, cp"),
    ("2\n0 c 0 x 1\n", "c.qsim: line 2: gate c", "is unknown", "choose from cnot, cp"),
    ("2\n0 h 2\n", "c.qsim: line 2: gate h", "'2' is not a qubit", "use qubits 0 to 1"),
    ("2\n0 h -1\n", "c.qsim: line 2: gate h", "'-1' is not a qubit", "use qubits 0 to 1"),
    ("2\n0 cz 0 0\n", "c.qsim: line 2: gate cz", "names qubit 0 twice", "name each qubit once"),
    ("2\n0 fs 0 1 0.5\n", "c.qsim: line 2: gate fs", "has 3 numbers", "give 2 qubits and 2 parameters"),
    ("2\n0 rz 0 x\n", "c.qsim: line 2: gate rz", "the parameter 'x' is not a number",
    "write angles in radians"),
    ("2\n0 rz 0 nan\n", "c.qsim: line 2: gate rz",
     "the parameter 'nan' is not a number", "write angles in radians"),
    ("2\n1 h 0\n1 h 1\n1 cz 0 1\n", "c.qsim: line 4: gate cz",
     "time 1 on qubit 0, which was used at time 1", "let times increase on"),
    ("2\n0 m 0\n1 h 0\n", "c.qsim: line 3: gate h",
     "acts on qubit 0 after its measurement", "measure only at the end"),
]
QASM: list[Row] = [
    ("OPENQASM 2.0;\nqreg q[1];\nU(1,0,0) q[0]; reset q[0];\n", "c.qasm: line 3 (reset)",
     "is not a gate", "use only gates and"),
    ('OPENQASM 2.0;\ninclude "qelib1.inc";\nqreg q[1];\ncreg c[1];\nmeasure q -> c;\nif (c == 1) x q[0];',
     "c.qasm: line 6 (if)", "is not a gate", "tnplan statevector"),
    ('include "stdgates.inc";\nqubit[2] q;\nbit c = measure q[0];\nif (c) x q[1];\n', "c.qasm: line 4 (if)",
     "is not a gate", "tnplan statevector"),
    ('OPENQASM 3.0;\ninclude "stdgates.inc";\ninput float a;\nqubit[1] q;\nrx(a) q[0];\n',
     "c.qasm: line 3 (input)", "has no value for 'a'", "give a value: --set a=VALUE"),
    ("OPENQASM 2.0;\nqreg q[1];\nnope q[0];\n", "c.qasm: line 3 (nope)",
     "uses gate 'nope', which is not", "define it before, or"),
    ('OPENQASM 2.0;\ninclude "qelib1.inc";\nqreg q[1];\ncreg c[1];\nmeasure q -> c;\nx q[0];\n',
     "c.qasm: line 6 (x)", "acts on qubit 0 after its measurement", "measure only at the end"),
    (HEAD3 + "qubit[2] q; bit[2] c;\nc[0] = measure q[0];\nwhile (c[0]) { h q[0]; c[0] = measure q[0]; }",
     "c.qasm: line 5 (while)", "is not a gate", "tnplan statevector"),
]
PROGRAMS: list[Row] = [
    ("int n; c[0] = measure q[0];\nwhile (c[0]) {n += 1; c[0] = measure q[0];}", "c.qasm: line 5 (while)",
     "changes a variable of type int in a loop whose number of rounds depends on measured bits",
     "change only bits and"),
    ("c[0] = measure q[0];\nwhile (c[0]) {x q[0]; if (c[1]) break; break;}", "c.qasm: line 5 (while)",
     "has 'break' under a condition on measured bits", "put the statements that it"),
    ("c[0] = measure q[0];\nif (c[0]) {end;}", "c.qasm: line 5 (if)",
     "has 'end' under a condition on measured bits", "put the statements that it"),
    ("def f(bit b) -> int {if (b) {return 1;} return 2;}\nc[0] = measure q[0];\nint k = f(c[0]);",
     "c.qasm: line 4 (if)", "has 'return' under a condition on measured bits", "put the statements that it"),
    ("qubit[13] r; bit[13] d = measure r;\nint n; for int k in [0:12] {n += d[k];}", "c.qasm: line 5",
     "depends on 13 measured bits", "let values depend on 12"),
    ("qubit[13] r; bit[13] d = measure r; int n;\nif (d == 5) {n = 1;}", "c.qasm: line 5 (if)",
     "changes variables under a condition on 13 measured bits", "put only gates under"),
    ("while (true) {int k = 1;}", "c.qasm: line 4 (while)",
     "runs more than 500 rounds", "let it end, or write"),
    ("for int i in [0:1000] {while (true) {if (i > 3) {break;} i += 1;}}", "c.qasm: line 4 (while)",
     "runs more than 500 rounds", "let it end, or write"),
    ("for int i in [0:1000000000000] {if (i < 0) {break;}}", "c.qasm: line 4 (for)",
     "runs more than 500 rounds", "let it end, or write"),
    ("for int i in [0:1000000000000] {x q[0];}", "c.qasm: line 4 (for)",
     "more than 3000 statements of loops", "use fewer rounds or"),
    ("for int i in [1:999] {for int j in [1:999] {int k;}}", "c.qasm: line 4 (for)",
     "more than 3000 statements of loops", "use fewer rounds or"),
    ("def f() {f();}\nf();", "c.qasm", "nests subroutines, definitions or blocks too deeply", "use fewer"),
    ("extern f(int) -> int;\nint k = f(2);", "c.qasm: line 5",
     "calls 'f', which is extern", "define it with def"),
    ("duration d = 10ns;\nint k = d;", "c.qasm: line 5",
     "uses 'd', which is a duration, for a value", "give a number or bits"),
    ("int k = 3;\nint k = 4;", "c.qasm: line 5",
     "declares 'k', which already exists", "choose another name"),
    ("const int k = 3;\nk = 4;", "c.qasm: line 5", "gives a value to a constant", "name a variable"),
    ("int k = 3;\ndef f() {k = 4;}\nf();", "c.qasm: line 5",
     "uses 'k' of the whole file in a subroutine", "give the variable as"),
    ("bit[3] d = \"01\";", "c.qasm: line 4", "converts bit[2] to bit[3]", "use one width"),
    ("qubit[3] r;\nc = measure r;", "c.qasm: line 5 (measure)",
     "measures 3 qubits into 2 bits", "use registers of one"),
    ("x c[0];", "c.qasm: line 4 (x)", "uses an index for 'c'", "name a register of qubits"),
    ("for int k in [0:0:2] {x q[0];}", "c.qasm: line 4 (for)", "has a range of step 0", "give another step"),
    ("#pragma braket noise bit_flip(0.1) q[0]\nx q[0];", "c.qasm: line 4", "is a pragma", "leave it out"),
    ("defcalgrammar \"openpulse\";", "c.qasm: line 4", "is about pulses", "leave it out"),
    ("gate g a {measure a;}", "c.qasm: line 4", "is not OpenQASM", "correct the file"),
    ("gate g a {g a;}\ng q[0];", "c.qasm: line 4 (g)",
     "uses gate 'g' inside its own definition", "define it before"),
    ("gate g a {x q[0];}\ng q[1];", "c.qasm: line 4 (x)",
     "uses 'q' in the definition of a gate", "use its own qubits and"),
    ("int k = 2; gate g a {for int i in [1:k] x a;}\ng q[1];", "c.qasm: line 4 (for)",
     "uses 'k' in the definition of a gate", "use its own qubits and angles"),
    ("gate g a, a {x a;}", "c.qasm: line 4",
     "defines gate 'g' with the same name for two parameters", "use other names"),
    ("uint k = -3;", "c.qasm: line 4", "converts -3 to uint", "give 0 or more"),
    ("int k = 2 ** 200000;", "c.qasm: line 4", "has an integer that is too large", "let integers have"),
    ("int k = sqrt(-1);", "c.qasm: line 4", "takes a function of -1", "give a number where it"),
    ("break;", "c.qasm: line 4", "is not OpenQASM", "correct the file"),
    ("nope q[0];", "c.qasm: line 4 (nope)", "uses gate 'nope', which is not defined", "define it before, or"),
    ("input float a; rx(a) q[0];", "c.qasm: line 4 (input)",
     "has no value for 'a'", "give a value: --set a=VALUE"),
]
RANGES: list[Row] = [
    ("x q[0:3];", "c.qasm: line 4 (x)", "has index 3 in a register of 3", "use 0 to 2"),
    ("x q[3:];", "c.qasm: line 4 (x)", "has index 3 in a register of 3", "use 0 to 2"),
    ("x q[:5];", "c.qasm: line 4 (x)", "has index 5 in a register of 3", "use 0 to 2"),
    ("x q[-4:2];", "c.qasm: line 4 (x)", "has index -4 in a register of 3", "use 0 to 2"),
    ("let a = q[1:7];", "c.qasm: line 4", "has index 7 in a register of 3", "use 0 to 2"),
    ("reset q[1:3];", "c.qasm: line 4 (reset)", "has index 3 in a register of 3", "use 0 to 2"),
    ("c = measure q[0:9];", "c.qasm: line 4 (measure)", "has index 9 in a register of 3", "use 0 to 2"),
    ("if (c[0:4] == 1) {x q;}", "c.qasm: line 4 (if)", "has index 4 in a register of 3", "use 0 to 2"),
    ("x q[5:-1:0];", "c.qasm: line 4 (x)", "has index 5 in a register of 3", "use 0 to 2"),
]
OTHERS: list[Row] = [
    *((lambda ask=ask: ask(5), "circuit", "is of type int", "give a file, a GateSequence, or")
      for ask in (tnplan.load_circuit, tnplan.Circuit, tnplan.simulate, tnplan.network)),
    (lambda: tnplan.load_circuit(GateSequence(1, ()), {"t": 1}), "parameter t",
     "is unknown: circuit has no parameters", "leave it out"),
    (lambda: load_circuit("none.qsim"), "none.qsim", "cannot be read", "check the name and the permissions"),
    (lambda: load_circuit("b.qsim"), "b.qsim", "is not UTF-8", "give a qsim or OpenQASM file"),
]
# fmt: on


@table(OBJECTS)
def test_a_gate_or_a_program_is_refused(refusal: Refusal) -> None:
    refusal.raised_by(refusal.given)


@table(ENDS)
def test_ends_of_a_network_are_refused(refusal: Refusal) -> None:
    refusal.raised_by(lambda: circuit_network(GateSequence(3, ()), **refusal.given))


@table(QSIM)
def test_a_qsim_is_refused(refusal: Refusal) -> None:
    refusal.raised_by(lambda: parse_qsim(refusal.given, "c.qsim"))


@table(QASM)
def test_a_file_of_openqasm_is_refused(
    refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    monkeypatch.chdir(tmp_path)
    Path("c.qasm").write_text(refusal.given)
    refusal.raised_by(lambda: load_circuit("c.qasm"))


@table(PROGRAMS)
def test_a_program_is_refused(refusal: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    monkeypatch.setattr("tnplan.circuits.qasm.gate_calls.LARGEST_EXPANSION", 3000)
    monkeypatch.setattr("tnplan.circuits.qasm.read.LARGEST_ROUNDS", 500)
    text = HEAD3 + "qubit[2] q; bit[2] c;\n" + refusal.given
    refusal.raised_by(lambda: parse_qasm_program(text, "c.qasm"))


@table(RANGES)
def test_a_range_is_refused(refusal: Refusal) -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    text = HEAD3 + "qubit[3] q; bit[3] c;\n" + refusal.given
    refusal.raised_by(lambda: parse_qasm_program(text, "c.qasm"))


@table(OTHERS)
def test_what_is_no_circuit_is_refused(
    refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("b.qsim").write_bytes(b"\xff\xfe\x00")
    refusal.raised_by(refusal.given)


def test_a_network_of_quimb_is_no_circuit() -> None:
    network = pytest.importorskip("quimb.tensor").TN2D_rand(2, 2, 2)
    refused = Refusal(network, "circuit", "is of type TensorNetwork2D", "give a file")
    refused.raised_by(lambda: tnplan.network(network))
