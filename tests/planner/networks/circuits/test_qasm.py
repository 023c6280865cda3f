"""OpenQASM: the lines of instructions, what is refused by all that read circuits, global phases and noise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tnplan.cli.main import run
from tnplan.planner.common.errors import InputError
from tnplan.planner.networks.circuits.circuit import Gate, GlobalPhase
from tnplan.planner.networks.circuits.noise import depolarized
from tnplan.planner.networks.circuits.program import Channel, CircuitProgram, Conditional
from tnplan.planner.networks.circuits.qasm.read import parse_qasm, parse_qasm_program

pytest.importorskip("qiskit", reason="needs the extra qasm")
pytest.importorskip("qiskit_qasm3_import", reason="needs the extra qasm")

HEAD2 = 'OPENQASM 2.0;\ninclude "qelib1.inc";\nqreg q[3]; creg c[3];\nh q[0];\n'
HEAD3 = 'OPENQASM 3.0;\ninclude "stdgates.inc";\nqubit[3] q; bit[3] c;\nh q[0];\n'

LONG = "9" * 20

LINES2 = """OPENQASM 2.0;
include "qelib1.inc";
gate mine(a) x, y {
  rz(a) x; cx x, y; // h x;
}
opaque foo a;
qreg q[3]; qreg r[1];
creg c[3]; // h q;
h q;
mine(cos(0.2)/(1+2)) q[0], q[1]; x q[0];
barrier q;
cx q, r[0];
if (c == 1)
  x q[0];
if (c==2) h q;
measure q -> c;
if(c==1) measure q->c; U(0,0,0) r;
reset q;
"""
FOUND2 = (
    "h9 h9 h9 mine10 x10 barrier11 cx12 cx12 cx12 if_else13 x13 if_else15 h15 if_else15 h15 if_else15 h15 "
    "measure16 measure16 measure16 if_else17 measure17 if_else17 measure17 if_else17 measure17 u17 reset18 "
    "reset18 reset18"
)
LINES3 = """OPENQASM 3.0;
include "stdgates.inc";
gate mine(a) x, y { rz(a) x; cx x, y; /* h x;
*/ }
qubit[3] q; bit[3] c;
gphase(0.2);
h q; // x q;
mine(0.2) q[0],
   q[1]; x q[0];
if (c == 1) {
  x q[0];
  if (c[0]) { y q[1];
     h q; } else { z q[0]; }
  gphase(0.1);
} else {
  s q[0];
}
c = measure q;
delay[10ns] q[0];
reset q[0];
ctrl(2) @ x q[0], q[1], q[2];
"""
FOUND3 = (
    "h7 h7 h7 mine8 x9 if_else10 x11 if_else12 y12 h13 h13 h13 z13 s16 measure18 measure18 measure18 delay19 "
    "reset20 ccx21"
)


def with_lines(circuit: Any, lines: Iterator[int | None]) -> Iterator[str]:
    for instruction in circuit.data:
        yield f"{instruction.operation.name}{next(lines)}"
        for block in getattr(instruction.operation, "blocks", ()):
            yield from with_lines(block, lines)


@pytest.mark.parametrize(("text", "found"), [(LINES2, FOUND2), (LINES3, FOUND3)])
def test_every_instruction_has_its_line(text: str, found: str) -> None:
    circuit, lines = read_qiskit(text, "c.qasm")
    assert list(with_lines(circuit, lines)) == found.split()
    assert next(lines, None) is None


def test_instructions_of_an_included_file_have_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("more.inc").write_text("qreg q[1];\nh q[0];\n")
    with pytest.raises(InputError, match=r"^c\.qasm: instruction 1 \(reset\): is no gate"):
        parse_qasm('OPENQASM 2.0;\ninclude "qelib1.inc";\ninclude "more.inc";\nreset q[0];\n', "c.qasm")
    assert instruction_place("if_else", 3, None) == "instruction 3 (if)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD2 + "rx(1e400) q[0];", "line 5 (rx): has the angle inf; give finite radians"),
        (HEAD3 + "rx(1e400) q[0];", "line 5 (rx): has the angle inf"),
        (HEAD3 + "rx(1e400 - 1e400) q[0];", "line 5 (rx): has the angle nan"),
        (HEAD3 + f"rx({'9' * 400}) q[0];", "line 5 (rx): has the angle inf"),
        (HEAD3 + "gphase(1e400);", "line 5: is no OpenQASM that qiskit reads (gphase: the angle is not fin"),
        (HEAD2 + "gate g a { rx(1e400) a; }\ng q[1];", "line 6 (g): has no matrix (math domain error)"),
        (HEAD3 + "gate g a { U(1e400 - 1e400, 0, 0) a; }\ng q[1];", "line 6 (g): has a matrix that is not"),
        (HEAD2 + "opaque foo a;\nfoo q[1];", "line 6 (foo): has no matrix (Cannot apply Operation: foo)"),
        (HEAD3 + "x q[1]\nh q[0];", "line 6: is no OpenQASM that qiskit reads (unexpected 'h')"),
        (HEAD3 + "h q[0;", "line 5: is no OpenQASM that qiskit reads (unexpected ';')"),
        (HEAD3 + "if (", "line 6: is no OpenQASM that qiskit reads (the file ends too soon)"),
        (HEAD3 + "§ q;", "line 5: is no OpenQASM that qiskit reads (token recognition error at: '§')"),
        (HEAD2 + "h q[0]\nx q[0];", "line 6: is no OpenQASM that qiskit reads (needed ';'"),
        (HEAD2 + "cx q[0], q[0];", "line 5: is no OpenQASM that qiskit reads (duplicate qubits"),
        (HEAD3 + "cx q[0], q[0];", "line 5: is no OpenQASM that qiskit reads (duplicate"),
        (HEAD2 + "x q[9];", "line 5: is no OpenQASM that qiskit reads (index 9 is out-of-range"),
        (HEAD3 + "x q[9];", "line 5: is no OpenQASM that qiskit reads (index out of range)"),
        (HEAD3 + "rx(1 / 0) q[0];", "line 5: is no OpenQASM that qiskit reads (integer division"),
        (HEAD3 + "while (c[0]) { h q[0]; }", "line 5 (while): is not supported; write its rounds out, each"),
        (HEAD3 + "for int i in [0:1] { h q[0]; }", "line 5 (for): is not supported; write its rounds out"),
        (HEAD3 + "box { h q[0]; }", "line 5 (box): is not supported; leave the box out"),
        (HEAD3 + "ctrl(2) @ x q[0],q[1],q[2];\nqubit[7] r;\nctrl(6) @ x r[0],r[1],r[2],r[3],r[4],r[5],r[6];",
         "line 7 (mcx): acts on 7 qubits; split it into gates on 6 or fewer"),
        (HEAD2 + "rx q[0];", "line 5 (rx): has no angles; give them in brackets behind its name"),
        (HEAD2 + f"x q[\n{LONG}];", "line 5: has an integer of more than 18 digits; write a smaller one"),
        (HEAD3 + "pow(1e30) @ x q[0];", "line 5: is no OpenQASM that qiskit reads (Input matrix is not"),
        (HEAD3 + "x q[0:5];", "line 5: is no OpenQASM that qiskit reads (index out of range)"),
    ],
)  # fmt: skip
def test_all_commands_refuse_with_the_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    circuit = tmp_path / "c.qasm"
    circuit.write_text(text + "\n")
    for command in (
        ["statevector", str(circuit)], ["pauli", str(circuit), "--observable", "Z0"],
        ["network", str(circuit), "-o", str(tmp_path / "n.json")],
    ):  # fmt: skip
        assert run(command) == 2
        error = capfd.readouterr().err
        assert error.startswith(f"tnplan: error: {circuit}: {message}")
        assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == [circuit]


def test_a_condition_that_is_not_supported_has_its_line() -> None:
    with pytest.raises(InputError, match=r"^c\.qasm: line 6: .*unhandled binary operator"):
        parse_qasm_program(HEAD3 + "c = measure q;\nif (c[0] || c[1]) { x q[0]; }\n", "c.qasm")


@pytest.mark.parametrize("name", ["if_else", "box", "while_loop"])
def test_gates_may_have_names_of_qiskit(name: str) -> None:
    text = HEAD2 + f"gate {name} a {{ x a; }}\n{name} q[1];\n"
    for gates in (parse_qasm(text, "c.qasm").gates, parse_qasm_program(text, "c.qasm").operations):
        assert [type(item) for item in gates] == [Gate, Gate]
        assert gates[1].qubits == (1,)


PHASES = HEAD3.replace("h q[0];", "gphase(0.3); x q[1];") + "if (c[0]) { gphase(0.2); x q[2]; }\n"


def test_no_noise_comes_after_a_global_phase() -> None:
    program = depolarized(parse_qasm_program(PHASES, "c.qasm"), 0.3)
    phase, _, channel, branch = program.operations
    assert isinstance(phase, GlobalPhase)
    assert isinstance(channel, Channel)
    assert isinstance(branch, Conditional)
    assert channel.qubits == (1,)
    np.testing.assert_allclose(phase.matrix, np.exp(0.3j) * np.eye(2), rtol=0, atol=1e-15)
    assert [type(item) for item in branch.body] == [GlobalPhase, Gate, Channel]


@pytest.mark.parametrize("command", [["statevector", "--shots", "40", "--seed", "1"], ["pauli"]])
def test_a_qubit_with_no_gate_stays_without_noise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    circuit = tmp_path / "c.qasm"
    circuit.write_text(HEAD3.replace("h q[0];", "gphase(0.3); x q[1];"))
    line = [command[0], str(circuit), "--observable", "Z0", "--depolarizing", "0.3", "--json", *command[1:]]
    assert run(line) == 0
    assert json.loads(capsys.readouterr().out)["expectation"] == pytest.approx(1, abs=1e-6)


def test_a_gate_too_large_for_noise_is_named() -> None:
    circuit = parse_qasm(HEAD2 + "ccx q[0], q[1], q[2];\n", "c.qasm")
    inside = CircuitProgram(3, 1, (circuit.gates[0], Conditional((0,), 1, circuit.gates)))
    for program, place in (
        (CircuitProgram(3, 0, circuit.gates), "gate 1"), (inside, "operation 1, inner gate 1"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=rf"^{place} \(ccx\): acts on 3 qubits, and .* noise on 2"):
            depolarized(program, 0.1)
