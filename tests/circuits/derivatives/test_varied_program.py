"""Derivatives of gates by parameters: against differences, and what is refused instead of being lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.circuits.circuit import Gate
from tnplan.circuits.derivatives.dual_number import VariedGate
from tnplan.circuits.derivatives.varied_program import varied_program
from tnplan.circuits.parametric import ParametricCircuit
from tnplan.circuits.program import CircuitProgram
from tnplan.common.errors import InputError

pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")

HEAD = 'OPENQASM 3.0;\ninclude "stdgates.inc";\n'
INPUTS = "input float a;\ninput angle b;\ninput float[64] c;\nqubit[3] q;\n"
VALUES = {"a": 0.3, "b": 0.7, "c": 1.25}
EXPRESSIONS = """
gate pair(x, y) p, r { rx(x * y) p; cp(y / 2) p, r; ctrl @ rz(sin(x)) p, r; }
gate wide(x) p, r, s { ry(x) p; pair(x, 2) r, s; }
def turn(qubit p, angle x) { rx(x - 1) p; }
h q;
rx(2 * a) q[0];
pair(a, -b) q[0], q[1];
wide(c) q[2], q[0], q[1];
inv @ wide(a) q[0], q[1], q[2];
u3(a, b ** 2, c) q[2];
inv @ ry(exp(c)) q[1];
pow(2) @ p(sqrt(b)) q[1];
ctrl @ u3(a, b, c) q[0], q[1];
ctrl @ gphase(a) q[0];
crx(arctan(a / b)) q[0], q[2];
turn(q[1], b + 0.1);
for int i in [0:2] { rzz(a * i) q[0], q[1]; }
float e = a * b;
rz(e + cos(e)) q[0];
rz(0.4) q[0];
gphase(a);
"""


def circuit_of(text: str, tmp_path: Path) -> ParametricCircuit:
    path = tmp_path / "circuit.qasm"
    path.write_text(text)
    return ParametricCircuit(path)


def gates(program: CircuitProgram) -> list[Gate]:
    found = [one for one in program.operations if isinstance(one, Gate)]
    assert len(found) == len(program.operations)
    return found


def unitary(program: CircuitProgram) -> np.ndarray:
    """The matrix of all gates."""
    n = program.n_qubits
    total: np.ndarray = np.eye(2**n, dtype=complex).reshape((2,) * n + (-1,))
    for one in gates(program):
        total = applied(one.matrix, one.qubits, total)
    return total.reshape(2**n, -1)


def applied(matrix: np.ndarray, qubits: tuple[int, ...], state: np.ndarray) -> np.ndarray:
    q = len(qubits)
    state = np.tensordot(matrix.reshape((2,) * (2 * q)), state, (range(q, 2 * q), qubits))
    return np.moveaxis(state, range(q), qubits)


def test_the_change_of_the_whole_circuit(tmp_path: Path) -> None:
    """The sum over gates of U ... dG ... V is a difference of the whole, up to a phase."""
    circuit, h = circuit_of(HEAD + INPUTS + EXPRESSIONS, tmp_path), 1e-5
    program = varied_program(circuit.program, VALUES, ("a", "b", "c"))
    n, items = program.n_qubits, gates(program)
    for name in VALUES:
        total = np.zeros((2**n, 2**n), complex)
        for place, one in enumerate(items):
            if not isinstance(one, VariedGate) or name not in one.tangents:
                continue
            state = np.eye(2**n, dtype=complex).reshape((2,) * n + (-1,))
            for k, other in enumerate(items):
                matrix = one.tangents[name] if k == place else other.matrix
                state = applied(matrix, other.qubits, state)
            total += state.reshape(2**n, -1)
        up, down = (unitary(circuit.program({**VALUES, name: VALUES[name] + s * h})) for s in (1, -1))
        inverse = unitary(circuit.program(VALUES)).conj().T
        found, wanted = total @ inverse, (up - down) / (2 * h) @ inverse
        difference = found - wanted
        difference -= np.trace(difference) / 2**n * np.eye(2**n)
        assert np.abs(wanted).max() > 0.1
        assert np.abs(difference).max() < 1e-6
    plain = [one for one in items if not isinstance(one, VariedGate)]
    assert not any(one.params for one in plain)


def test_parameters_that_are_not_named_are_constants(tmp_path: Path) -> None:
    circuit = circuit_of(HEAD + INPUTS + EXPRESSIONS, tmp_path)
    program = varied_program(circuit.program, VALUES, ("b",))
    names = {name for one in gates(program) if isinstance(one, VariedGate) for name in one.tangents}
    assert names == {"b"}


def test_equal_angles_of_other_parameters_are_told_apart(tmp_path: Path) -> None:
    text = HEAD + (
        "input float a;\ninput float b;\nqubit[1] q;\ngate g(x) p { rx(x) p; }\n"
        "g(a) q[0];\ng(b) q[0];\ng(0.5) q[0];\nrx(a) q[0];\nrx(b) q[0];\nrx(0.5) q[0];\n"
    )
    program = varied_program(circuit_of(text, tmp_path).program, {"a": 0.5, "b": "1/2"}, ("a", "b"))
    found = [sorted(getattr(one, "tangents", {})) for one in gates(program)]
    assert found == [["a"], ["b"], [], ["a"], ["b"], []]


# fmt: off
REFUSED: list[Row] = [
    (("input int n;\nqubit q;\nrx(n * 0.1) q;", {"n": 2}), "circuit.qasm: line 3 (input)",
     "no derivatives by 'n', of type int", "declare it as float"),
    (("input angle[16] n;\nqubit q;\nrx(n) q;", {"n": 0.3}), "circuit.qasm: line 3 (input)",
     "rounds to angle[16] a value", "use float, or angle"),
    (("input float[32] n;\nqubit q;\nrx(n) q;", {"n": 0.3}), "circuit.qasm: line 3 (input)",
     "rounds to float[32] a value", "use float, or angle"),
    (("input float n;\nqubit q;\nangle[8] x = n;\nrx(x) q;", {"n": 0.3}), "circuit.qasm: line 5",
     "rounds to angle[8] a value", "use float, or angle"),
    (("input float n;\nqubit q;\nrx(mod(n, 1)) q;", {"n": 1.3}), "operation 0 (rx)",
     "whose derivative is not known", "ask only for other"),
    (("input float n;\nqubit q;\npow(n) @ rx(1.0) q;", {"n": 1.3}), "operation 0 (rx)",
     "whose derivative is not known", "ask only for other"),
    (("input float n;\nqubit q;\nif (n > 1) rx(0.1) q;", {"n": 1.0}), "gradient",
     "changes which gates the circuit has", "ask only for other"),
    (("input float n;\nqubit[2] q;\nctrl @ u2(n, 0.1) q[0], q[1];", {"n": 1.3}), "gate 0 (cu2)",
     "are not known", "use gates of the"),
]
# fmt: on


@table(REFUSED)
def test_what_has_no_derivative_is_refused(
    refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text, values = refusal.given
    circuit = circuit_of(HEAD + text + "\n", Path())
    circuit.program(values)
    refusal.raised_by(lambda: varied_program(circuit.program, values, ("n",)))


def test_cirq_is_refused() -> None:
    cirq = pytest.importorskip("cirq")
    sympy = pytest.importorskip("sympy")
    circuit = ParametricCircuit(cirq.Circuit(cirq.rx(sympy.Symbol("a"))(cirq.LineQubit(0))))
    with pytest.raises(InputError, match="has no derivatives here"):
        varied_program(circuit.program, {"a": 0.3}, ("a",))
