"""OpenQASM that qiskit reads as something else, or not in one line or a short time: mended or refused."""

from __future__ import annotations

import os
import threading
import time
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tnplan.cli.main import run
from tnplan.planner.common.errors import InputError
from tnplan.planner.networks.circuits.load import load_circuit, load_program
from tnplan.planner.networks.circuits.program import Conditional
from tnplan.planner.networks.circuits.qasm.read import parse_qasm, parse_qasm_program

qasm2 = pytest.importorskip("qiskit.qasm2", reason="needs the extra qasm")
pytest.importorskip("qiskit_qasm3_import", reason="needs the extra qasm")

HEAD2 = 'OPENQASM 2.0;\ninclude "qelib1.inc";\n'
HEAD3 = 'OPENQASM 3.0;\ninclude "stdgates.inc";\n'
LONG = "9" * 20
ANGLES = "0.3, 0.5, 0.7, 0.9"


def controlled(matrix: np.ndarray, value: int = 1) -> np.ndarray:
    """The matrix where the new first qubit has this value."""
    side = len(matrix)
    result = np.eye(2 * side, dtype=np.complex128)
    part = slice(value * side, (value + 1) * side)
    result[part, part] = matrix
    return result


def cu() -> np.ndarray:
    """cu of ANGLES, as the standard gates of OpenQASM 3 define it."""
    theta, phi, lam, gamma = map(float, ANGLES.split(","))
    c, s = np.cos(theta / 2), np.sin(theta / 2)
    u = np.array([[c, -np.exp(1j * lam) * s], [np.exp(1j * phi) * s, np.exp(1j * (phi + lam)) * c]])
    return controlled(np.exp(1j * gamma) * u)


CHANGES = {
    "inv": lambda m: m.conj().T, "ctrl": controlled, "negctrl": lambda m: controlled(m, 0),
    "pow(2)": lambda m: m @ m,
}  # fmt: skip


MODIFIERS = [*(names for n in range(3) for names in product(CHANGES, repeat=n)), ("inv", "ctrl", "ctrl")]


@pytest.mark.parametrize("modifiers", MODIFIERS, ids=str)
def test_modifiers_of_cu_keep_all_angles(modifiers: tuple[str, ...]) -> None:
    """Also inside a gate, with angles of its own and inverted from outside."""
    expected = cu()
    for name in reversed(modifiers):
        expected = CHANGES[name](expected)
    n = len(expected).bit_length() - 1
    qubits, names = ", ".join(f"q[{k}]" for k in range(n)), ", ".join(f"x{k}" for k in range(n))
    mods = "".join(f"{name} @ " for name in modifiers)
    texts = [f"qubit[{n}] q; {mods}cu({ANGLES}) {qubits};"]
    if "pow(2)" not in modifiers:
        inside = f"gate g(a, b, c, d) {names} {{ inv @ {mods}cu(a, b, c, d) {names}; }}"
        texts.append(f"{inside} qubit[{n}] q; inv @ g({ANGLES}) {qubits};")
    for text in texts:
        (gate,) = parse_qasm(HEAD3 + text, "c.qasm").gates
        axes = [gate.qubits.index(k) for k in range(n)]
        found = gate.matrix.reshape((2,) * (2 * n)).transpose([*axes, *(n + k for k in axes)])
        np.testing.assert_allclose(found.reshape(2**n, 2**n), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (HEAD2 + "qreg q[10000000]; h q[0];", 3), (HEAD2 + "qreg q[1];\ncreg c[1000000];", 4),
        (HEAD2 + "qreg q[60000]; // a\nqreg r[60000];", 4), (HEAD3 + "qubit[10000000] q;", 3),
        (HEAD3 + "qubit[2*5000000] q;", 3), (HEAD3 + "qubit q; /*\n*/ bit[100001] c;", 4),
        (HEAD3 + "qubit[60000] q;\nqubit[60000] r;", 4), (HEAD3 + "qreg q[1000000];", 3),
        (HEAD3 + "h $9999999;", 3), (HEAD3 + "qubit[2] q; ctrl(1000000) @ x q;", 3),
    ],
)  # fmt: skip
def test_large_registers_are_refused_before_they_are_made(text: str, line: int) -> None:
    begin = time.process_time()
    message = rf"^c\.qasm: line {line}: makes more than 100000 qubits or bits; use 100000 of each"
    with pytest.raises(InputError, match=message):
        parse_qasm_program(text, "c.qasm")
    assert time.process_time() - begin < 10
    assert parse_qasm(HEAD2 + "qreg q[100000]; creg c[100000]; h q[0];", "c.qasm").n_qubits == 100_000


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (HEAD2 + f"qreg q[{LONG}];", 3), (HEAD2 + f"qreg q[1];\ncreg c[ {LONG}];", 4),
        (HEAD2 + f"qreg q[1];\nx q[{LONG}];", 4), (f"OPENQASM {LONG}.0;", 1), (f"OPENQASM 2.{LONG};", 1),
    ],
)  # fmt: skip
def test_integers_at_which_qiskit_panics_are_refused(
    capfd: pytest.CaptureFixture[str], text: str, line: int
) -> None:
    with pytest.raises(InputError, match=rf"^c\.qasm: line {line}: has an integer of more than 18 digits"):
        parse_qasm(text, "c.qasm")
    assert capfd.readouterr().err == ""
    large = parse_qasm(HEAD2 + f"qreg q[1]; rx({LONG}) q[0];", "c.qasm")
    assert large.gates[0].params == (float(LONG),)


def test_a_panic_is_refused_and_an_interrupt_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(error: BaseException) -> object:
        def loads(*_: object, **__: object) -> None:
            raise error

        return loads

    panic = type("PanicException", (BaseException,), {})
    monkeypatch.setattr(qasm2, "loads", failing(panic("called `Result::unwrap()`")))
    with pytest.raises(InputError, match=r"^c\.qasm: is no OpenQASM that qiskit reads \(called `Result"):
        parse_qasm(HEAD2, "c.qasm")
    monkeypatch.setattr(qasm2, "loads", failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        parse_qasm(HEAD2, "c.qasm")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("qreg q[1];\nrx q[0];", r"line 4 \(rx\)"),
        ("qreg q[1];\nU // (1)\n q[0];", r"line 4 \(U\)"),
        ("qreg q[1]; creg c[1];\nif (c == 1) rx q[0];", r"line 4 \(rx\)"),
        ("gate g a {\n h a;\n rx a; }\nqreg q[1]; g q[0];", r"line 5 \(rx\)"),
        ("gate g(t) a { rx(t) a; }\nqreg q[1];\ng q[0];", r"line 5 \(g\)"),
        ("opaque g(t) a; qreg q[1];\ng q[0];", r"line 4 \(g\)"),
    ],
)
def test_a_gate_without_its_angles_has_its_line(text: str, place: str) -> None:
    with pytest.raises(InputError, match=rf"^c\.qasm: {place}: has no angles; give them in brackets"):
        parse_qasm_program(HEAD2 + text, "c.qasm")


def test_gates_that_take_no_angles_need_none() -> None:
    gates = "gate g a { h a; } gate f() a { g a; }"
    text = f"{gates} qreg q[2]; creg c[1];\ng q[0]; f q[0]; f() q; h q; u2 (1,2) q;"
    assert len(parse_qasm(HEAD2 + text, "c.qasm").gates) == 8


@pytest.mark.parametrize("head", ["/* OPENQASM 2.0; */ ", "/*\nOPENQASM 2.0;\n*/\n", "// 2\n \n", '/* " */'])
def test_the_version_is_looked_for_outside_comments(head: str) -> None:
    assert parse_qasm(head + HEAD3 + "qubit q; x q;", "c.qasm").gates[0].name == "x"
    line = head.count("\n") + 4
    with pytest.raises(InputError, match=rf"^c\.qasm: line {line}: .*gate 'nope' is not defined"):
        parse_qasm(head + HEAD3 + "qubit q;\nnope q;", "c.qasm")
    assert parse_qasm("// OPENQASM 3.0;\n" + HEAD2 + "qreg q[2]; x q;", "c.qasm").gates[1].qubits == (1,)


@pytest.mark.parametrize(
    "statement",
    ["x q[0:3];", "x q[3:];", "x q[:5];", "x q[-4:2];", "let a = q[1:7];", "reset q[1:3];",
     "c = measure q[0:9];", "if (c[0:4] == 1) { x q; }", "x q[5:-1:0];"],
)  # fmt: skip
def test_ranges_beyond_a_register_are_refused(statement: str) -> None:
    message = r"^c\.qasm: line 4: is no OpenQASM that qiskit reads \(index out of range\)"
    with pytest.raises(InputError, match=message):
        parse_qasm_program(HEAD3 + f"qubit[3] q; bit[3] c;\n{statement}", "c.qasm")


@pytest.mark.parametrize("statement", ["x q[0:-1];", "x q[2:-1:0];", "if (c[1:-1] == 1) { x q; }"])
def test_ranges_that_qiskit_takes_for_others_are_refused(statement: str) -> None:
    with pytest.raises(InputError, match=r"line 4: .*\(a range that it takes for another one: list its ind"):
        parse_qasm_program(HEAD3 + f"qubit[3] q; bit[3] c;\n{statement}", "c.qasm")


@pytest.mark.parametrize(
    ("part", "qubits"),
    [
        ("0:1", [0, 1]), ("1:", [1, 2, 3]), (":", [0, 1, 2, 3]), ("0:2:3", [0, 2]), ("3:-1:1", [3, 2, 1]),
        ("-3:-2", [1, 2]), ("2:1", []), ("{3, 0}", [3, 0]), ("0:9:3", [0]),
    ],
)  # fmt: skip
def test_ranges_have_both_ends(part: str, qubits: list[int]) -> None:
    text = HEAD3 + f"qubit[4] q; x q[{part}];"
    assert [gate.qubits for gate in parse_qasm(text, "c.qasm").gates] == [(qubit,) for qubit in qubits]
    (branch,) = parse_qasm_program(
        HEAD3 + "qubit q; bit[3] c; if (c[1:2] == 1) { x q; }", "c.qasm"
    ).operations
    assert isinstance(branch, Conditional)
    assert branch.bits == (1, 2)


@pytest.mark.parametrize("text", ["2\n0 h 0\n1 cnot 0 1\n", HEAD2 + "qreg q[2]; h q[0]; cx q[0], q[1];\n"])
def test_a_circuit_may_come_from_a_pipe(tmp_path: Path, text: str) -> None:
    pipe = tmp_path / "circuit"
    os.mkfifo(pipe)
    for load in (load_circuit, load_program):
        writer = threading.Thread(target=pipe.write_text, args=(text,), daemon=True)
        writer.start()
        read = load(pipe)
        writer.join()
        assert read.n_qubits == 2
    reading, writing = os.pipe()
    os.write(writing, text.encode())
    os.close(writing)
    assert run(["pauli", f"/dev/fd/{reading}", "--observable", "X0 X1"]) == 0
    os.close(reading)
