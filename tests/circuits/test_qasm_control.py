"""Classical control of OpenQASM 3: random programs against the same ones in Python, and cases by hand."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

import tnplan
from tests.support.qasm_programs import HEAD, Machine, NoCoinError, Writer, executed
from tests.support.slow import slow_after
from tnplan.circuits.circuit import Gate
from tnplan.circuits.program import (
    BitAssignment,
    CircuitProgram,
    Conditional,
    Measurement,
    Reset,
    WhileLoop,
    final_measurements,
)
from tnplan.circuits.qasm.read import parse_qasm_program
from tnplan.common.errors import InputError

pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")

TOO_MANY_BITS = (11, 54, 60, 74, 80)
"""Seeds of programs whose values depend on 13 measured bits or more, which is refused."""
HEAD3 = 'OPENQASM 3.0;\ninclude "stdgates.inc";\n'


@pytest.mark.parametrize("seed", range(25))
def test_known_control_is_that_of_python(seed: int) -> None:
    pair = Writer(seed, 0).written(8)
    program = parse_qasm_program(HEAD + "\n".join(pair.qasm), "c.qasm")
    world = executed(pair.python, ())
    turns = [item.params[0] for item in program.operations if isinstance(item, Gate) and item.params]
    np.testing.assert_allclose(turns, world.turns, rtol=0, atol=1e-12)
    flips = tuple(item for item in program.operations if not (isinstance(item, Gate) and item.params))
    bits, qubits = Machine(
        CircuitProgram(program.n_qubits, program.n_bits, flips, program.start), iter(())
    ).run()
    assert (bits, qubits[: len(world.q)]) == (world.c, world.q)


@pytest.mark.parametrize("seed", slow_after(20, [seed for seed in range(90) if seed not in TOO_MANY_BITS]))
def test_control_by_measured_bits_is_that_of_python(seed: int) -> None:
    """For all outcomes of seven coins."""
    pair = Writer(seed, 3).written(8)
    program = parse_qasm_program(HEAD + "\n".join(pair.qasm), "c.qasm")
    compared = 0
    for coins in product((0, 1), repeat=7):
        try:
            world = executed(pair.python, coins)
        except NoCoinError:
            continue
        bits, qubits = Machine(program, iter(coins)).run()
        assert (bits, qubits[: len(world.q)]) == (world.c, world.q), coins
        compared += 1
    assert compared > 60


@pytest.mark.parametrize("seed", TOO_MANY_BITS)
def test_values_of_too_many_measured_bits_are_refused(seed: int) -> None:
    with pytest.raises(InputError, match=r"^c\.qasm: line \d+ \(\w+\): depends on \d+ measured bits; let"):
        parse_qasm_program(HEAD + "\n".join(Writer(seed, 3).written(8).qasm), "c.qasm")


def test_the_state_vector_runs_loops_and_assignments() -> None:
    """Until two coins fall on the same side; the parity of the tosses is that of the flips of q[2]."""
    text = HEAD3 + (
        "qubit[3] q; bit[2] c = 1; bit odd; bit again = 1;\n"
        "while (again) { reset q[0:1]; h q[0:1]; c = measure q[0:1]; x q[2]; odd = !odd;\n"
        "  again = c[0] ^ c[1]; }\n"
        "bit last = measure q[2];"
    )
    program = parse_qasm_program(text, "c.qasm")
    assert any(isinstance(item, WhileLoop) for item in program.operations)
    counts = tnplan.simulate(program, shots=600, seed=2, device="cpu", threads=1).answer.counts
    assert counts is not None
    assert set(counts) == {"00000", "11000", "00101", "11101"}
    odd = sum(count for bits, count in counts.items() if bits[2] == "1")
    assert abs(odd - 400) < 4.5 * np.sqrt(600 * 2 / 9)


@pytest.mark.parametrize(
    ("text", "operations"),
    [
        ("c = measure q; if (c[0] || c[1]) x q[0];", "MM?"),
        ("c[0] = measure q[0]; c[1] = c[0]; x q[1];", "MgA"),
        ("c[0] = measure q[0]; c[0] = 0;", "MA"),
        ("measure q;", "MM"),
        ("bit[2] d = \"10\"; if (d == 2) x q[0];", "g"),
        ("box { x q[0]; } end; x q[0];", "g"),
        ("reset q; x q[0]; reset q;", "gR"),
        ("c[0] = measure q[0]; rx(c[0] * pi) q[1];", "M?"),
        ("c[0] = measure q[0]; int k = 1; if (c[0]) k = 0; x q[k];", "M?"),
        ("c[0] = measure q[0]; for int k in [0:c[0]] x q[k];", "M?"),
        ("def f(qubit r) -> bit { return measure r; } if (f(q[0]) == 1) x q[1];", "M?"),
        ("const int k = 2; gate g a { for int i in [1:k] { x a; } } g q[0];", "g"),
        ("switch (2) { case 1, 2 { x q[0]; } default { h q; } }", "g"),
        ("const float a = arccos(3.0 / 5); if (a > 0.92 && a < 0.93) x q[0];", "g"),
        ("int n = 8; if (n / 2 == 4 && -n / 2 == -4 && -n % 3 == -2) x q[0];", "g"),
        ("uint[3] n = 9; if (n == 1 && n - 2 == -1) x q[0]; n -= 2; if (n == 7) x q[1];", "gg"),
        ("angle[4] a = pi; if (a[3] == 1 && a == pi) x q[0]; a <<= 1; if (a == 0) x q[1];", "gg"),
        ("let a = q[1] ++ q[0]; cx a[0], a[1];", "g"),
        ("array[int[8], 2, 2] m = {{1, 2}, {3, 4}}; m[0] = m[1]; if (m[0, 1] == 4) x q[0];", "g"),
        ("for bit k in \"01\" { if (k) x q[0]; } for int k in {0, 1} x q[k];", "ggg"),
    ],
)  # fmt: skip
def test_programs_become_few_operations(text: str, operations: str) -> None:
    program = parse_qasm_program(HEAD3 + "qubit[2] q; bit[2] c;\n" + text, "c.qasm")
    letters = {Gate: "g", Measurement: "M", Reset: "R", Conditional: "?", BitAssignment: "A"}
    assert "".join(letters[type(item)] for item in program.operations) == operations


def test_bits_with_values_are_in_results_without_a_run_a_shot() -> None:
    program = parse_qasm_program(HEAD3 + 'bit[3] c = "011"; qubit q; x q; c[2] = measure q;', "c.qasm")
    assert (program.start, final_measurements(program)) == ((1, 1, 0), {2: 0})
    done = tnplan.simulate(program, shots=5, device="cpu", threads=1)
    assert done.answer.counts == {"111": 5}
    bare = parse_qasm_program(HEAD3 + "qubit[2] q; x q[1]; measure q;", "c.qasm")
    assert tnplan.simulate(bare, shots=5, device="cpu", threads=1).answer.counts == {"01": 5}


def test_iterative_phase_estimation_finds_the_phase() -> None:
    """An angle whose bits are measured turns later gates; the phase 5/16 is exact in four bits."""
    text = HEAD3 + (
        "qubit q; qubit r; angle[4] c; x r; uint[4] power = 8; bit[4] out;\n"
        "for int k in [0:3] { reset q; h q; ctrl @ pow(power) @ p(2 * pi * 5 / 16) q, r;\n"
        "  inv @ p(c / 2) q; h q; c >>= 1; c[3] = measure q; power >>= 1; }\n"
        "out = bit[4](c);"
    )
    counts = tnplan.simulate(
        parse_qasm_program(text, "c.qasm"), shots=20, seed=1, device="cpu", threads=1
    ).answer.counts
    assert counts == {"1010": 20}  # 5, bit 0 first


def test_inputs_are_set(tmp_path: Path) -> None:
    path = tmp_path / "c.qasm"
    head = 'include "stdgates.inc"; input float t; input bit[2] b; qubit[2] q;\n'
    path.write_text(head + "rx(t) q[0]; if (b == 2) x q[1];")
    for given in ({"t": 0.5, "b": 2}, {"t": "pi * 0.5 / pi", "b": "10"}, {"t": np.float64(0.5), "b": 2}):
        circuit = tnplan.load_circuit(path, given)
        assert [gate.name for gate in circuit.gates] == ["rx", "x"]
        assert circuit.gates[0].params == (0.5,)
        value = tnplan.propagate(path, "Z0 Z1", parameters=given, device="cpu").value
        assert value == pytest.approx(-np.cos(0.5), abs=1e-12)
        done = tnplan.simulate(path, parameters=given, observable="Z0 Z1", device="cpu", threads=1)
        assert done.answer.expectation == pytest.approx(-np.cos(0.5), abs=1e-12)
        network = tnplan.network(path, parameters=given, amplitude="01", dtype="complex128")
        assert complex(tnplan.contract(network)) == pytest.approx(np.cos(0.25), abs=1e-12)
    for wrong, message in (
        ({"t": 1}, r"c\.qasm: line 1 \(input\): has no value for 'b'; give a value: parameters b=VALUE"),
        ({"t": 1, "b": 2, "x": 0}, "^parameter x: is not an input of"),
        ({"t": "nope", "b": 2}, "^parameter t: is 'nope'; write a number"),
        ({"t": "1 +", "b": 2}, r"^parameter t: line 1: is not OpenQASM"),
        ({"t": [1], "b": 2}, r"^parameter t: is \[1\]; give a number"),
        ({"t": float("nan"), "b": 2}, "number nan; let all numbers be finite"),
        ({"t": 1, "b": 4}, r"converts 4 to bit\[2\]"),
    ):
        with pytest.raises(InputError, match=message):
            tnplan.load_circuit(path, wrong)
    with pytest.raises(InputError, match="parameter t: is unknown: circuit has no parameters"):
        tnplan.simulate(circuit, parameters={"t": 1})
    (tmp_path / "c.qsim").write_text("1\n0 h 0\n")
    with pytest.raises(InputError, match=r"c\.qsim has no parameters"):
        tnplan.load_circuit(tmp_path / "c.qsim", {"t": 1})
