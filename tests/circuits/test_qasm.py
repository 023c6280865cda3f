"""OpenQASM: the lines of instructions, what is refused by all that read circuits, global phases and noise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.qasm_programs import parse_qasm
from tnplan.circuits.circuit import Gate, GateSequence, GlobalPhase
from tnplan.circuits.program import Channel, CircuitProgram, Conditional, depolarized
from tnplan.circuits.qasm.read import parse_qasm_program
from tnplan.cli.main import run
from tnplan.common.errors import InputError

pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")

HEAD2 = 'OPENQASM 2.0;\ninclude "qelib1.inc";\nqreg q[3]; creg c[3];\nh q[0];\n'
HEAD3 = 'OPENQASM 3.0;\ninclude "stdgates.inc";\nqubit[3] q; bit[3] c;\nh q[0];\n'

LONG = "9" * 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD2 + "rx(1e400) q[0];", "line 5 (rx): has the number inf; let all numbers be finite"),
        (HEAD3 + "rx(1e400) q[0];", "line 5 (rx): has the number inf"),
        (HEAD3 + "rx(1e400 - 1e400) q[0];", "line 5 (rx): has the number nan"),
        (HEAD3 + f"rx({'9' * 400}) q[0];", "line 5 (rx): has the number inf"),
        (HEAD3 + "gphase(1e400);", "line 5 (gphase): has the number inf"),
        (HEAD2 + "gate g a {\n rx(1e400) a; }\ng q[1];", "line 6 (rx): has the number inf"),
        (HEAD3 + "gate g a { U(1e400 - 1e400, 0, 0) a; }\ng q[1];", "line 5 (U): has the number nan"),
        (HEAD2 + "opaque foo a;\nfoo q[1];", "line 6 (foo): uses gate 'foo', which is not defined"),
        (HEAD3 + "x q[1]\nh q[0];", "line 6: is not OpenQASM (unexpected 'h'); correct the file"),
        (HEAD3 + "h q[0;", "line 5: is not OpenQASM (unexpected ';')"),
        (HEAD3 + "if (", "line 6: is not OpenQASM (the file ends too soon)"),
        (HEAD3 + "§ q;", "line 5: is not OpenQASM (token recognition error at: '§')"),
        (HEAD2 + "h q[0]\nx q[0];", "line 6: is not OpenQASM (unexpected 'x')"),
        (HEAD2 + "cx q[0], q[0];", "line 5 (cx): acts on one qubit twice; name each qubit once"),
        (HEAD3 + "cx q, q[0];", "line 5 (cx): acts on one qubit twice"),
        (HEAD2 + "x q[9];", "line 5 (x): has index 9 in a register of 3; use 0 to 2"),
        (HEAD3 + "for int i in [0:4] {\n x q[i]; }", "line 6 (x): has index 3 in a register of 3; use"),
        (HEAD3 + "rx(1 / 0) q[0];", "line 5 (rx): divides by 0; give another divisor"),
        (HEAD3 + "nope q;", "line 5 (nope): uses gate 'nope', which is not defined; define it before, or"),
        (HEAD3 + "x p;", "line 5 (x): uses 'p', which is not declared; declare it before"),
        (HEAD3 + "int n = k + 1;", "line 5: uses 'k', which is not declared"),
        (HEAD2 + "rx q[0];", "line 5 (rx): has 0 angles; give 1"),
        (HEAD2 + "x(1) q[0];", "line 5 (x): has 1 angles; give 0"),
        (HEAD2 + "cx q[0];", "line 5 (cx): acts on 1 qubits; give 2"),
        (HEAD2 + "qreg r[2]; cx q, r;", "line 5 (cx): acts on registers of [2, 3] qubits"),
        (HEAD2 + f"x q[\n{LONG}];", f"line 5 (x): has index {LONG} in a register of 3"),
        (HEAD3 + "x q[0:5];", "line 5 (x): has index 5 in a register of 3; use 0 to 2"),
        (HEAD2 + "x q[0]; gate box(a) b { rx(a) b; }\nbox q[0];", "line 6 (box): has 0 angles; give 1"),
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


@pytest.mark.parametrize("name", ["box", "bit", "let", "ctrl"])
def test_version_2_has_words_of_version_3_as_names(name: str) -> None:
    text = HEAD2 + f"gate {name} a {{ x a; }}\nqreg r[2]; qreg in[1]; {name} q[1]; x in[0];\n"
    for gates in (parse_qasm(text, "c.qasm").gates, parse_qasm_program(text, "c.qasm").operations):
        assert [(item.name, item.qubits) for item in gates if isinstance(item, Gate)] == [
            ("h", (0,)), (name, (1,)), ("x", (5,)),
        ]  # fmt: skip


PHASES = HEAD3.replace("h q[0];", "gphase(0.3); x q[1]; c[0] = measure q[1];") + (
    "if (c[0]) { gphase(0.2); x q[2]; }\n"
)


def test_no_noise_comes_after_a_global_phase() -> None:
    program = depolarized(parse_qasm_program(PHASES, "c.qasm"), 0.3)
    phase, _, channel, _, branch = program.operations
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
    wide = Gate("wide", (0, 1, 2, 3), np.eye(16))
    circuit = GateSequence(4, (*parse_qasm(HEAD2, "c.qasm").gates, wide))
    inside = CircuitProgram(4, 1, (circuit.gates[0], Conditional((0,), 1, circuit.gates)))
    for program, place in (
        (CircuitProgram(4, 0, circuit.gates), "gate 1"), (inside, "operation 1, inner gate 1"),
    ):  # fmt: skip
        with pytest.raises(
            InputError, match=rf"^{place} \(wide\): acts on 4 qubits, but .* noise acts on at most 3"
        ):
            depolarized(program, 0.1)
