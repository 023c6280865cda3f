"""OpenQASM: quotients and powers of integers, as the language and Qiskit's reader have them."""

from __future__ import annotations

import ast
import math
import re
import warnings
from pathlib import Path
from random import Random

import pytest

from tnplan.circuits.circuit import Gate
from tnplan.circuits.parametric import ParametricCircuit
from tnplan.circuits.qasm.read import parse_qasm_program
from tnplan.common.errors import InputError

pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")

HEAD3 = 'OPENQASM 3.0;\ninclude "stdgates.inc";\nqubit q;\n'
HEAD2 = 'OPENQASM 2.0;\ninclude "qelib1.inc";\nqreg q[1];\n'
SEEDS = 300


def angle(text: str, head: str = HEAD3) -> float:
    """The angle of the last gate of a program."""
    gate = parse_qasm_program(f"{head}{text}", "c.qasm").operations[-1]
    assert isinstance(gate, Gate)
    return float(gate.params[0])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("rx(1/2*pi) q;", 0.0), ("rx((3/2)) q;", 1.0), ("rx(0x10/3) q;", 5.0), ("rx((1/2)+0.5) q;", 0.5),
        ("rx(arccos(3/5)) q;", math.pi / 2), ("const int a = 1; rx(a/2) q;", 0.0),
        ("int n = -7; rx(n/2) q;", -3.0), ("uint[8] n = 7; rx(n/2) q;", 3.0),
        ("int n = 7; n /= 2; rx(n) q;", 3.0),
        ("gate g(t) a { rx(t + 5/2) a; } g(0.5) q;", 0.5), ("int[8] a = 7; int[16] b = -2; rx(a/b) q;", -3.0),
        ("rx(int(7.9)/2) q;", 3.0), ("bit b = true; rx(b/2) q;", 0.0),
    ],
)  # fmt: skip
def test_quotients_of_integers_are_integers_and_say_so(text: str, value: float) -> None:
    message = r"^c\.qasm: line 4: divides .* by -?\w+.* as integers, which gives -?.*\d; for .* as in 1\.0/2"
    with pytest.warns(UserWarning, match=message) as said:
        found = angle(text)
    if not text.startswith("gate"):
        assert found == value
    assert len(said) == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("rx(pi*1/2) q;", math.pi / 2), ("rx(1.0/2*pi) q;", math.pi / 2), ("rx(7/2.0) q;", 3.5),
        ("rx(6/2) q;", 3.0), ("rx(-6/2) q;", -3.0), ("rx(pi/2) q;", math.pi / 2), ("rx(float(1)/2) q;", 0.5),
        ("rx(1/float[64](2)) q;", 0.5), ("rx(7%4) q;", 3.0), ("rx(2.0**-1) q;", 0.5), ("rx(2**3) q;", 8.0),
        ("rx(1**-3) q;", 1.0), ("rx((-1)**-3) q;", -1.0), ("float a = 1; rx(a/2) q;", 0.5),
        ("angle[8] a = pi; rx(a/2) q;", math.pi / 2), ("rx(-7%4) q;", -3.0), ("rx(-2**2) q;", -4.0),
    ],
)  # fmt: skip
def test_other_quotients_say_nothing(text: str, value: float) -> None:
    assert angle(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rx(-1/2*pi) q;", r"divides -1 by 2 as integers: 0 towards 0, and -1 rounded down as Qiskit does; "),
        ("rx(7/(-2)) q;", r"divides 7 by -2 as integers: -3 towards 0, and -4 rounded down as Qiskit does; "),
        ("rx(2**-1) q;", r"has 2\*\*\(-1\) of integers, which is not an integer; write a decimal point"),
        ("rx(2**100/(-3)) q;", r"divides 1267650600228229401496703205376 by -3 as integers"),
        ("rx(2**50000/(-3)) q;", r"divides an integer of 50001 bits by -3 as integers: an integer of"),
        ("rx(0**-1) q;", r"divides by 0; give another divisor"),
        ("rx(1/0) q;", r"divides by 0; give another divisor"),
    ],
)  # fmt: skip
def test_what_readers_take_in_two_ways_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"(?m)^c\.qasm: line 4 \(rx\): {message}.*$") as refused:
        angle(text)
    assert "\n" not in str(refused.value)


def test_one_warning_counts_all_lines() -> None:
    loop = "for int k in [0:9] { rx(k/4) q; }\n"
    with pytest.warns(UserWarning, match=r"line 4: divides 1 by 4 .* gives 0 \(and so on 2 more lines\); "):
        parse_qasm_program(HEAD3 + loop * 3, "c.qasm")


def test_version_2_divides_real_numbers() -> None:
    assert angle("rx(1/2*pi) q[0];", HEAD2) == math.pi / 2
    assert angle("rx(-7/2) q[0];", HEAD2) == -3.5
    assert angle("rx(2^(-1)) q[0];", HEAD2) == 0.5
    # Without a version, words of version 2 alone mean version 2.
    assert angle("rx(3/2) q[0];", 'include "qelib1.inc"; qreg q[1];') == 1.5
    with pytest.warns(UserWarning, match=r"c\.qasm: line 1: divides 3 by 2 as integers"):
        assert angle("rx(3/2) q;", 'include "stdgates.inc"; qubit q;') == 1.0


def test_values_from_outside_are_real() -> None:
    text = HEAD3 + "input float t; input int n; rx(t) q; rx(n) q;"
    program = parse_qasm_program(text, "c.qasm", {"t": "-1/2*pi", "n": "9/3"})
    assert [one.params[0] for one in program.operations if isinstance(one, Gate)] == [-math.pi / 2, 3.0]


def test_a_circuit_that_gets_many_values_warns_once(tmp_path: Path) -> None:
    path = tmp_path / "c.qasm"
    path.write_text(HEAD3 + "input float t; rx(t + 1/2) q;")
    circuit = ParametricCircuit(path)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for value in (0.1, 0.2, 0.3):
            circuit.gate_sequence({"t": value})
    assert len(said) == 1


def expression(random: Random, depth: int) -> str:
    """A random constant expression."""
    if depth == 0 or random.random() < 0.15:
        number = random.choice(["pi", *(f"{random.randrange(1, 20)}" for _ in range(2)), "0.75", "2.5"])
        return random.choice(["-", ""]) + number if random.random() < 0.2 else number
    kind = random.random()
    if kind < 0.2:
        return f"({expression(random, depth - 1)})"
    if kind < 0.28:
        word = random.choice(["float", "float[64]", "int"])
        return f"{word}({expression(random, depth - 1)})"
    sign = random.choice(["+", "-", "*", "*", "/", "/", "/", random.choice(["%", "**"])])
    return f"{expression(random, depth - 1)} {sign} {expression(random, depth - 1)}"


def by_c(node: ast.expr) -> int | float:
    """The value of an expression by the rules of C99; Python's grammar has the same order of operators."""
    if isinstance(node, ast.Constant):
        return node.value  # type: ignore[return-value]
    if isinstance(node, ast.Name):
        return math.pi
    if isinstance(node, ast.UnaryOp):
        return -by_c(node.operand)
    if isinstance(node, ast.Call):
        kind = ast.unparse(node.func)
        return math.trunc(by_c(node.args[0])) if kind == "int" else float(by_c(node.args[0]))
    assert isinstance(node, ast.BinOp)
    a, b = by_c(node.left), by_c(node.right)
    integers = isinstance(a, int) and isinstance(b, int)
    sign = type(node.op).__name__
    if sign == "Div":
        return int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b)) if integers else a / b
    if sign == "Mod":
        return int(math.fmod(a, b)) if integers else math.fmod(a, b)
    if sign == "Pow":
        return a**b
    return {"Add": a + b, "Sub": a - b, "Mult": a * b}[sign]


def read_here(text: str) -> tuple[float, str | None]:
    """Our value of an angle, or why it is refused."""
    try:
        return angle(f"rx({text}) q;"), None
    except InputError as error:
        return math.nan, str(error)


def read_by_qiskit(text: str) -> float | None:
    """Qiskit's value of an angle; None for what it refuses."""
    qasm3 = pytest.importorskip("qiskit.qasm3")
    importer = pytest.importorskip("qiskit_qasm3_import")
    try:
        circuit = qasm3.loads(f"{HEAD3}rx({text}) q;")
    except (importer.ConversionError, qasm3.QASM3ImporterError, ArithmeticError):
        return None
    return float(circuit.data[0].operation.params[0])


@pytest.mark.filterwarnings("ignore:c.qasm. line")
def test_random_expressions_are_those_of_qiskit_and_of_c() -> None:
    """Both readers agree, or one refuses in one line; what Qiskit cannot read has the value of C99."""
    both = alone = refused = 0
    for seed in range(SEEDS):
        text = expression(Random(seed), 3)
        value, refusal = read_here(text)
        if refusal is not None:
            assert re.fullmatch(r"c\.qasm: line 4 \(rx\): [^\n]*", refusal), text
            refused += 1
            continue
        tree = ast.parse(text, mode="eval").body
        assert value == pytest.approx(by_c(tree), rel=1e-12, abs=1e-12), text
        other = read_by_qiskit(text)
        if other is None:
            alone += 1
        else:
            both += 1
            assert value == pytest.approx(other, rel=1e-12, abs=1e-12), text
    assert both > SEEDS // 3
    assert alone > SEEDS // 10
    assert refused < SEEDS // 4
