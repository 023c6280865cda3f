"""OpenQASM: large registers and expansions, modifiers, ranges, versions, pipes, and files that are spoilt."""

from __future__ import annotations

import os
import re
import time
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.support.circuits import unitary
from tests.support.qasm_programs import parse_qasm
from tnplan.circuits.load import load_circuit, load_program
from tnplan.circuits.program import Conditional
from tnplan.circuits.qasm.read import parse_qasm_program
from tnplan.common.errors import InputError

pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")

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
    inside = f"gate g(a, b, c, d) {names} {{ inv @ {mods}cu(a, b, c, d) {names}; }}"
    for text in (
        f"qubit[{n}] q; {mods}cu({ANGLES}) {qubits};",
        f"{inside} qubit[{n}] q; inv @ g({ANGLES}) {qubits};",
    ):
        for gates in (parse_qasm(HEAD3 + text, "c").gates, parse_qasm_program(HEAD3 + text, "c").operations):
            np.testing.assert_allclose(unitary(gates, n), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (HEAD2 + "qreg q[10000000]; h q[0];", 3), (HEAD2 + "qreg q[1];\ncreg c[1000000];", 4),
        (HEAD2 + "qreg q[60000]; // a\nqreg r[60000];", 4), (HEAD3 + "qubit[10000000] q;", 3),
        (HEAD3 + "qubit[2*5000000] q;", 3), (HEAD3 + "qubit q; /*\n*/ bit[100001] c;", 4),
        (HEAD3 + "qubit[60000] q;\nqubit[60000] r;", 4), (HEAD3 + "qreg q[1000000];", 3),
        (HEAD3 + f"h $9999999; x ${LONG};", 3), (HEAD3 + "qubit[2] q; ctrl(1000000) @ x q;", 3),
        (HEAD2 + f"qreg q[{LONG}];", 3), (HEAD3 + "qubit q; bit[60000] c;\nbit[60000] d;", 4),
    ],
)  # fmt: skip
def test_large_registers_are_refused_before_they_are_made(text: str, line: int) -> None:
    begin = time.process_time()
    message = rf"^c\.qasm: line {line}( \(\w+\))?: needs more than 100000 (qubits or )?bits; use at most 100"
    with pytest.raises(InputError, match=message):
        parse_qasm_program(text, "c.qasm")
    assert time.process_time() - begin < 10


def test_the_largest_registers_are_read() -> None:
    assert parse_qasm(HEAD2 + "qreg q[100000]; creg c[100000]; h q[0];", "c.qasm").n_qubits == 100_000


def nested(depth: int, n_qubits: int) -> str:
    """A definition that calls the one before it twice, `depth` times, on so many qubits."""
    names = ", ".join(f"x{k}" for k in range(n_qubits))
    gates = [f"gate g0 {names} {{ {' '.join(f'h x{k};' for k in range(n_qubits))} }}"]
    gates += [f"gate g{k + 1} {names} {{ g{k} {names}; g{k} {names}; }}" for k in range(depth)]
    qubits = ", ".join(f"q[{k}]" for k in range(n_qubits))
    return HEAD2 + "\n".join(gates) + f"\nqreg q[{n_qubits}];\ng{depth} {qubits};"


def test_nested_definitions_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A definition on few qubits is one matrix, whatever is in it; a larger one is expanded up to a limit."""
    (gate,) = parse_qasm(nested(20, 3), "c.qasm").gates
    np.testing.assert_allclose(gate.matrix, np.eye(8), rtol=0, atol=1e-9)
    with pytest.raises(InputError, match=r"line 69 \(g64\): contains so many gates that rounding"):
        parse_qasm(nested(64, 3), "c.qasm")
    assert len(parse_qasm(nested(6, 4), "c.qasm").gates) == 4 * 2**6
    monkeypatch.setattr("tnplan.circuits.qasm.gate_calls.LARGEST_EXPANSION", 3000)
    with pytest.raises(InputError, match=r"line 69 \(g64\): runs more than 3000 statements"):
        parse_qasm(nested(64, 4), "c.qasm")
    with pytest.raises(InputError, match=r"runs more than 3000|nests subroutines, def"):
        parse_qasm(nested(600, 4), "c.qasm")


def test_a_file_of_version_3_says_so_by_its_words() -> None:
    for text in ("qubit[2] q; x q;", "gate g a { ctrl @ x a, a; } qubit[2] q; x q;"):
        assert len(parse_qasm('include "stdgates.inc";\n' + text, "c.qasm").gates) == 2
    two = 'include "qelib1.inc"; qreg q[1]; rx(2^3 / 2) q[0];'
    assert parse_qasm(two, "c.qasm").gates[0].params == (4.0,)
    with pytest.raises(InputError, match=r"^c\.qasm: line 2: is OpenQASM 4; write OPENQASM 2\.0 or 3\.0"):
        parse_qasm("// a\nOPENQASM 4.0; qubit q;", "c.qasm")


@pytest.mark.parametrize("name", ["c.qasm", "circuit.txt"])
def test_a_file_is_known_by_its_contents(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('/* a */ include "stdgates.inc"; qubit[2] q; h q;')
    assert load_circuit(tmp_path / name).n_qubits == 2
    (tmp_path / "c.qsim").write_text("# a; b\n2\n0 h 0\n")
    assert load_circuit(tmp_path / "c.qsim").n_qubits == 2


@pytest.mark.parametrize("head", ["/* OPENQASM 2.0; */ ", "/*\nOPENQASM 2.0;\n*/\n", "// 2\n \n", '/* " */'])
def test_the_version_is_looked_for_outside_comments(head: str) -> None:
    assert parse_qasm(head + HEAD3 + "qubit q; x q;", "c.qasm").gates[0].name == "x"
    line = head.count("\n") + 4
    with pytest.raises(InputError, match=rf"^c\.qasm: line {line} \(nope\): uses gate 'nope', which is"):
        parse_qasm(head + HEAD3 + "qubit q;\nnope q;", "c.qasm")
    assert parse_qasm("// OPENQASM 3.0;\n" + HEAD2 + "qreg q[2]; x q;", "c.qasm").gates[1].qubits == (1,)


@pytest.mark.parametrize(
    ("part", "qubits"),
    [
        ("0:1", [0, 1]), ("1:", [1, 2, 3]), (":", [0, 1, 2, 3]), ("0:2:3", [0, 2]), ("3:-1:1", [3, 2, 1]),
        ("-3:-2", [1, 2]), ("2:1", []), ("{3, 0}", [3, 0]), ("0:9:3", [0]),
        ("0:-1", [0, 1, 2, 3]), ("2:-1:0", [2, 1, 0]),
    ],
)  # fmt: skip
def test_ranges_have_both_ends(part: str, qubits: list[int]) -> None:
    text = HEAD3 + f"qubit[4] q; x q[{part}];"
    assert [gate.qubits for gate in parse_qasm(text, "c.qasm").gates] == [(qubit,) for qubit in qubits]
    *_, branch = parse_qasm_program(
        HEAD3 + "qubit[3] q; bit[3] c = measure q; if (c[1:2] == 1) { x q; }", "c.qasm"
    ).operations
    assert isinstance(branch, Conditional)
    assert (branch.bits, branch.value) == ((1, 2), 1)


def test_a_pipe_is_no_circuit(tmp_path: Path) -> None:
    """Nobody knows how much comes out of it; a file is read whole, and may be asked for twice."""
    pipe = tmp_path / "circuit"
    os.mkfifo(pipe)
    for load in (load_circuit, load_program):
        with pytest.raises(InputError, match=r"circuit: cannot be read \(it is a device or a pipe\)"):
            load(pipe)


SPOILT = HEAD3 + (
    "input float t; const int n = 3; qubit[n] q; bit[3] c; uint[4] u = 5; array[int[8], 2] m = {1, 2};\n"
    "gate g(a) x, y { ctrl @ rx(a / 2) x, y; inv @ pow(2) @ s y; }\n"
    "def f(int[8] k, qubit r) -> bit { bit b; x r; b = measure r; return b; }\n"
    "for int i in [0:n - 2] { g(t * i) q[i], q[i + 1]; if (i == 1) continue; h q[{0, 2}]; }\n"
    "c[0] = f(m[1], q[0]); switch (u) { case 1, 5 { x q[1]; } default { y q; } }\n"
    "while (c[0] && u > 2) { reset q[0]; c[0] = measure q[0]; }\n"
    "let a = q[0:1] ++ q[2]; c = measure a;\n"
    'if (c == 3 || c[1:2] != "01") { rx(c[0] * pi) q[1]; } else x q;\n'
)
SPOILT_2 = HEAD2 + (
    "opaque o(a) b; qreg q[4]; creg c[4]; creg d[2];\n"
    "gate maj(t) a, b, c { cx c, b; u3(t/2, -pi/4, 2^3) a; barrier a, b; U(sin(t), ln(2), 1.5e-3) b; }\n"
    "maj(pi/3) q[0], q[1], q[2]; h q; rz(-1/2*pi) q[3]; measure q[0] -> c[0]; if (c == 3) x q[1];\n"
    "barrier q; reset q[2]; measure q -> c; if (d == 1) maj(0.2) q[0], q[1], q[3]; cu1(0.1) q[0], q[3];\n"
)
SPOILT_3 = HEAD3 + (
    "const int[8] n = 7; const float f = 2.0 ** -1; const angle[8] w = pi / 3; complex z = 1.0 + 2.0im;\n"
    "qubit[4] q; bit[4] c; bool b = true; output bit[2] r; array[float, 2, 2] m = {{0.1, 2e-3}, {.5, 3}};\n"
    "uint[6] k = 37; let s = q[0:2:3]; extern e(int) -> int; duration d = 10ns; delay[d] q; reset s;\n"
    "gate g(t, p) x, y { gphase(t / 2); inv @ rz(-p) x; negctrl(1) @ pow(-2) @ U(t, p * 3 / 4, 0) x, y; }\n"
    "def h(qubit[2] x, int[4] a, readonly array[float, #dim = 2] v) -> bit\n"
    "{ for uint i in {0, 1} { rx(a * v[0, i]) x[i]; } return measure x[0]; }\n"
    "g(0.5, real(z)) q[0], q[1]; rx(n / 7 + floor(7.5 / 2) * mod(7, 3)) s; k <<= 2; m[0] = m[1];\n"
    "m[1, 0] += 2; rx(pi % 2) q[0];\n"
    "if (b && !(n != 7) || k[1:3] == 2) { x q[2]; } else if (c[0] ^ c[1]) { y q; } else { z q; }\n"
    'c[0:1] = measure q[1:2]; c = c << 1 | "0101"; r[0] = c[3] & c[2]; rz(popcount(c) * w) q[0];\n'
    "for float x in {0.1, m[0, 1]} { ry(x) q[0]; } int large = 1 << 40;\n"
    "rx(sizeof(m, 1) + arccos(0.3)) q[1];\n"
)
PROGRAMS: list[tuple[str, dict[str, float]]] = [(SPOILT, {"t": 0.5}), (SPOILT_2, {}), (SPOILT_3, {})]
PIECES = [
    "(", ")", "[", "]", "{", "}", ";", ",", "@", "=", "->", "1", "-1", "99999999999", "1e999", "q", "c", "n",
    "u", "m", "f", "g", "if", "while (true)", "for", "measure", "ctrl", "pow(0.5) @", "int", "angle",
    "\"01\"", "pi", "/ 0", "<<", "++", ":", "end", "\n", "\0", "é", "/*", "//", "#pragma a\n", "extern",
    "10ns", "2**50000", "2**-1", "%", "% 0.0", "**", "-1/2", "9" * 5000, "0x", "0xf", "im", "$0", "'", '"',
    "-", "!", "1e308*1e308", "log(0)", "sqrt(-1)", "arccos(2)", "sizeof", "float[3]", "input int y;",
    "OPENQASM 2;", 'include "x";', "return", "break", "def", "creg y[2];", "qreg y[2];", "opaque", "^",
    "rotl", "((((", "\u2028",
]  # fmt: skip


def refusal(text: str, parameters: dict[str, float]) -> str | None:
    """Why a program is refused; None for one that is read."""
    try:
        parse_qasm_program(text, "c.qasm", parameters)
    except InputError as error:
        return str(error)
    return None


def spoilt(text: str, random: Random) -> str:
    """The program with tokens taken out, put in, replaced, doubled or exchanged."""
    words = re.findall(r'"[^"]*"|\w+|\s+|[^\w\s]', text)
    for _ in range(random.choice([1, 1, 2, 5])):
        k, j = random.randrange(len(words)), random.randrange(len(words))
        piece = random.choice(PIECES)
        change = random.choice(["", piece, f" {piece} {words[k]}", words[k] * 2, None])
        if change is None:
            words[k], words[j] = words[j], words[k]
        else:
            words[k] = change
    return "".join(words)


@pytest.mark.filterwarnings("ignore:c.qasm. line")
@pytest.mark.parametrize("part", range(2))
def test_spoilt_programs_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    """250 spoilt programs: all are read, or refused with their place."""
    monkeypatch.setattr("tnplan.circuits.qasm.gate_calls.LARGEST_EXPANSION", 2000)
    random, refused = Random(part), 0
    for text, parameters in PROGRAMS:
        parse_qasm_program(text, "c.qasm", parameters)
    for _ in range(250):
        text, parameters = random.choice(PROGRAMS)
        message = refusal(spoilt(text, random), parameters)
        refused += message is not None
        pattern = r"(c\.qasm: |parameter t: is not an input of)[^\n]*"
        assert message is None or (re.fullmatch(pattern, message) and len(message) < 400)
    assert refused > 125


HUGE = "2**50000"


@pytest.mark.parametrize(
    "statement",
    [
        f"x q[{HUGE}];", f"rx({HUGE}/3) q;", f"rx(-({HUGE})/3) q;", f"int a = 1 << ({HUGE});",
        f"bit[3] d = {HUGE};", f"uint a = -({HUGE});", f"complex a = {HUGE};", f"c[{HUGE}] = 1;",
        f"x q[0:{HUGE}];", f"x q[{'9' * 5000}];", f"for int i in [{HUGE}:{HUGE}+1] x q[i];",
        "rx(7.5 % 0.0) q;", f"rx({'9' * 5000}) q;", "rx(0.0 / 0.0) q;", "rx(1e308 * 1e308 % 2) q;",
        f"rx(real({HUGE})) q;", f"int a = {HUGE}; rx(a) q;", f"int a = sizeof(q, {HUGE});",
    ],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_huge_numbers_are_refused_in_one_line(statement: str) -> None:
    message = refusal(HEAD3 + f"qubit[2] q; bit[2] c;\n{statement}", {})
    assert message is not None
    assert re.fullmatch(r"c\.qasm: line 4( \(\w+\))?: [^\n]{10,250}", message)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    for content in (HEAD3.encode() + b"qubit q; // \xff\n", HEAD2.encode("utf-16"), b"\x00\xff" * 9):
        (tmp_path / "c.qasm").write_bytes(content)
        with pytest.raises(InputError, match=r"c\.qasm: is not UTF-8 text; give a qsim or OpenQASM file"):
            load_circuit(tmp_path / "c.qasm")


def test_plain_statements_are_read_as_the_parser_reads_them() -> None:
    """Gates outside of blocks are read without the reference parser, those inside with it."""
    random, lines = Random(3), []
    for _ in range(200):
        name, angles = random.choice([("h", 0), ("rx", 1), ("u3", 3), ("mine", 2)])
        values = [
            random.choice(["0.1", "-pi/3", "2", "-.5e-1", "cos(pi / 5)", "1.", "(n)"]) for _ in range(angles)
        ]
        comment = random.choice(["", " // h q[0];\n", " /* x */"])
        text = f"{name}{'(' * bool(angles)}{', '.join(values)}{')' * bool(angles)} q[{random.randrange(3)}]"
        end = random.choice([" ", "\n", "\n\n"])
        lines.append(f"{text}{random.choice(['', ' '])};{comment}{end}")
    head = HEAD3 + "const float n = 0.7; gate mine(a, b) x { rx(a) x; rz(b) x; }\nqubit[3] q;\n"
    plain = parse_qasm(head + "".join(lines), "c.qasm")
    inside = parse_qasm(head + "{" + "".join(lines) + "}", "c.qasm")
    assert [(g.name, g.qubits, g.params) for g in plain.gates] == [
        (g.name, g.qubits, g.params) for g in inside.gates
    ]
    assert len(plain.gates) == 200
