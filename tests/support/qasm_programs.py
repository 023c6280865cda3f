"""Random OpenQASM 3 programs with classical control, and the same programs in Python, to compare with.

Qubits stay in basis states: gates are X and controlled X, and a coin is H on a fresh qubit, measured at once.
So an outcome is decided by the coins alone, and plain Python says what it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.program import (
    BitAssignment,
    CircuitProgram,
    Conditional,
    Measurement,
    Operation,
    Reset,
    WhileLoop,
)
from tnplan.circuits.qasm.read import circuit_of
from tnplan.circuits.qasm.source import parse_source

N_DATA, N_BITS = 3, 3
HEAD = f"""OPENQASM 3.0;
include "stdgates.inc";
qubit[{N_DATA}] q; qubit r;
bit[{N_BITS}] c; bit d = 1; bool b; int[8] i = 3; uint[6] u = 5; float f = 0.5; const int n = 2;
def toss(qubit t) -> bit {{ bit m; h t; m = measure t; reset t; return m; }}
def add(int[8] a, qubit t) -> int[8] {{ if (a > 3) {{ x t; }} a += 2; return a; }}
"""


def parse_qasm(text: str, place: str, folder: Path | None = None) -> GateSequence:
    """A text as a circuit, as a file of it in a folder is read; `place` names it in errors."""
    return circuit_of(parse_source(text, place, folder=folder), {})


def signed(value: int) -> int:
    """An integer as int[8] holds it."""
    return (value + 128) % 256 - 128


class NoCoinError(Exception):
    """No coin is left."""


@dataclass
class World:
    """What the program in Python acts on."""

    coins: Iterator[int]
    q: list[int] = field(default_factory=lambda: [0] * N_DATA)
    c: list[int] = field(default_factory=lambda: [0] * N_BITS)
    turns: list[float] = field(default_factory=list)

    def toss(self) -> int:
        """A coin."""
        try:
            return next(self.coins)
        except StopIteration:
            raise NoCoinError from None

    def x(self, target: int, *controls: int) -> None:
        """X where the controls are 1."""
        self.q[target] ^= all(self.q[k] for k in controls)

    def rx(self, angle: float) -> None:
        """Note an angle."""
        self.turns.append(angle)

    def add(self, a: int, target: int) -> int:
        """The second subroutine of the head."""
        if a > 3:
            self.x(target)
        return signed(a + 2)


@dataclass
class Pair:
    """A program in both languages; Python's variables are globals."""

    qasm: list[str] = field(default_factory=list)
    python: list[str] = field(default_factory=list)

    def add(self, qasm: str, python: str, depth: int) -> None:
        """A statement in each language."""
        self.qasm.append("  " * depth + qasm)
        self.python.append("    " * depth + python)


class Writer:
    """Writes a random program; `coins` is how many it may toss, 0 for one without measurements."""

    def __init__(self, seed: int, coins: int) -> None:
        self.random, self.coins, self.measured = Random(seed), coins, coins > 0
        self.pair, self.loops, self.names = Pair(), 0, 0

    def written(self, statements: int) -> Pair:
        """The program."""
        self.block(statements, 0, "")
        return self.pair

    def block(self, statements: int, depth: int, loop: str) -> None:
        """Some statements, at least one."""
        for _ in range(self.random.randint(1, statements)):
            self.statement(depth, loop)

    def number(self, loop: str) -> tuple[str, str]:
        """An int in both languages."""
        first = self.random.choice(["i", "n", str(self.random.randint(0, 9)), loop or "i"])
        kind = self.random.randrange(5)
        if kind == 0:
            return first, first
        second = str(self.random.randint(1, 5))
        sign = self.random.choice("+-*")
        if kind == 1:
            return f"{first} {sign} {second}", f"{first} {sign} {second}"
        if kind == 2:
            return f"({first} {sign} i) {sign} {second}", f"({first} {sign} i) {sign} {second}"
        if kind == 3:
            return f"int({second} * f)", f"int({second} * f)"
        return f"i % {second}", f"math_mod(i, {second})"

    def condition(self, loop: str) -> tuple[str, str]:
        """A condition in both languages."""
        k = self.random.randrange(N_BITS)
        left, right = self.number(loop), self.number(loop)
        sign = self.random.choice(["<", ">", "<=", ">=", "==", "!="])
        simple = [
            (f"i {sign} {self.random.randint(-3, 6)}", None), ("b", "bool(b)"),
            (f"c[{k}]", f"bool(W.c[{k}])"), ("d == 1", "d == 1"), ("!d", "not d"),
            (f"c == {self.random.randrange(8)}", None),
            (f"u {sign} 20", None), (f"u[{k}]", f"bool(u >> {k} & 1)"), ("b ^ c[0]", "bool(b ^ W.c[0])"),
            (f"{left[0]} {sign} {right[0]}", f"{left[1]} {sign} {right[1]}"), ("~d == 1", "d == 0"),
            ("c[0:1] == 2", "W.c[:2] == [0, 1]"), ("popcount(c) > 1", "sum(W.c) > 1"),
        ]  # fmt: skip
        qasm, python = self.random.choice(simple)
        if python is None:
            python = qasm.replace("c ==", "W.c[0] + 2 * W.c[1] + 4 * W.c[2] ==")
        if self.random.random() < 0.3:
            other = self.condition(loop)
            word, name = self.random.choice([("&&", "and"), ("||", "or")])
            return f"({qasm}) {word} ({other[0]})", f"(({python}) {name} ({other[1]}))"
        return qasm, f"({python})"

    def statement(self, depth: int, loop: str) -> None:
        """One statement."""
        random, add = self.random, self.pair.add
        k, j = random.sample(range(N_DATA), 2)
        qasm, python = self.number(loop)
        simple = [
            (f"x q[{k}];", f"W.x({k})"), (f"cx q[{j}], q[{k}];", f"W.x({k}, {j})"),
            (f"i = {qasm};", f"i = signed({python})"), (f"i += {random.randint(1, 7)};", None),
            (f"u = u * {random.randint(1, 5)} + {k};", None), (f"u <<= {k};", f"u = (u << {k}) % 64"),
            (f"u[{k}] = d;", f"u = u & ~(1 << {k}) | int(d) << {k}"),
            ("b = {};", None), (f"c[{k}] = {{}};", None), ("d = {};", None),
            (f"i = add(i, q[{k}]);", f"i = W.add(i, {k})"),
            (f"x q[u % {N_DATA}];", f"W.x(u % {N_DATA})"),
            ("reset q[0];", "W.q[0] = 0") if self.measured else ("f = f + 0.25;", "f = f + 0.25"),
            ("rx(f * i) r; rx(-f * i) r;", "W.rx(f * i); W.rx(-f * i)") if not self.measured
            else (f"c[{k}] = measure q[{j}];", f"W.c[{k}] = int(W.q[{j}])"),
        ]  # fmt: skip
        choice = random.randrange(10)
        if choice < 5 or depth > 3:
            qasm, found = random.choice(simple)
            python = found or qasm
            if "{}" in qasm:
                cond = self.condition(loop)
                python = f"{qasm.replace('c[', 'W.c[').split(' = ')[0]} = int({cond[1]})"
                qasm = qasm.format(cond[0])
            elif found is None:
                name, rest = qasm[0], qasm.rstrip(";")
                value = rest.split("= ")[1] if "+=" not in rest else f"i + {rest.split('+= ')[1]}"
                python = f"{name} = signed({value})" if name == "i" else f"{name} = ({value}) % 64"
            add(qasm, python, depth)
        elif choice == 5:
            self.branch(depth, loop)
        elif choice == 6:
            self.loop(depth)
        elif choice == 7:
            self.switch(depth, loop)
        elif self.coins and choice != 9:
            self.toss(depth)
        elif self.measured:
            self.overwritten(depth)
        else:
            self.branch(depth, loop)

    def overwritten(self, depth: int) -> None:
        """A bit that decides something, or that another variable came from, is measured again."""
        add = self.pair.add
        k, (j, t) = self.random.randrange(N_BITS), self.random.sample(range(N_DATA), 2)
        measure = f"c[{k}] = measure q[{j}];", f"W.c[{k}] = int(W.q[{j}])"
        kind = self.random.randrange(3)
        if kind == 0:  # the condition, with a variable that is changed beside it
            add(f"if (c[{k}]) {{", f"if W.c[{k}]:", depth)
            add(*measure, depth + 1)
            add("i += 1; } else {", "i = signed(i + 1)", depth + 1)
            self.pair.python.append("    " * depth + "else:")
            add(f"i -= 1; x q[{t}]; }}", f"i = signed(i - 1); W.x({t})", depth + 1)
        elif kind == 1:  # the range of a loop, in its body
            self.names += 1
            name = f"k{self.names}"
            add(f"for int {name} in [0:int(c[{k}])] {{", f"for {name} in range(W.c[{k}] + 1):", depth)
            add(*measure, depth + 1)
            add(f"if (c[{k}]) {{ x q[{name}]; }} }}", f"if W.c[{k}]: W.x({name})", depth + 1)
        else:  # what another variable was set to, on one way
            add(*measure, depth)
            add(f"d = measure q[{t}];", f"d = int(W.q[{t}])", depth)
            add(f"i = int(c[{k}]); c[{k}] = 0; if (d) {{", f"i = W.c[{k}]; W.c[{k}] = 0", depth)
            self.pair.python.append("    " * depth + "if d:")
            add(measure[0] + " }", measure[1], depth + 1)
            add(f"if (i == 1) {{ x q[{t}]; }}", f"if i == 1: W.x({t})", depth)

    def branch(self, depth: int, loop: str) -> None:
        """An if, with or without else."""
        qasm, python = self.condition(loop)
        self.pair.add(f"if ({qasm}) {{", f"if {python}:", depth)
        self.block(3, depth + 1, loop)
        if self.random.random() < 0.5:
            self.pair.add("} else {", "else:", depth)
            self.block(3, depth + 1, loop)
        self.pair.qasm.append("  " * depth + "}")

    def loop(self, depth: int) -> None:
        """A loop over a range or a set; one of a program without coins may be left early."""
        if self.loops > 2:
            self.pair.add(f"x q[{depth % N_DATA}];", f"W.x({depth % N_DATA})", depth)
            return
        self.loops += 1
        self.names += 1
        name = f"k{self.names}"
        start, step = self.random.randint(-2, 3), self.random.choice([1, 1, 2, -1])
        end = start + step * self.random.randint(0, 3)
        last = end + (1 if step > 0 else -1)
        self.pair.add(
            f"for int {name} in [{start}:{step}:{end}] {{",
            f"for {name} in range({start}, {last}, {step}):",
            depth,
        )
        coins, self.coins = self.coins, 0
        self.block(3, depth + 1, name)
        if not self.measured and self.random.random() < 0.4:
            word = self.random.choice(["break", "continue"])
            qasm, python = self.condition(name)
            self.pair.add(f"if ({qasm}) {word};", f"if {python}: {word}", depth + 1)
            self.block(2, depth + 1, name)
        self.coins = coins
        self.pair.qasm.append("  " * depth + "}")
        self.loops -= 1

    def switch(self, depth: int, loop: str) -> None:
        """A switch of an int."""
        self.pair.add("switch (i) {", "if i in (0, 3):", depth)
        self.pair.qasm.append("  " * depth + "  case 0, 3 {")
        self.block(2, depth + 1, loop)
        self.pair.qasm.append("  " * depth + "  }")
        self.pair.add("  case 4 {", "elif i == 4:", depth)
        self.block(2, depth + 1, loop)
        self.pair.add("  } default {", "else:", depth)
        self.block(2, depth + 1, loop)
        self.pair.qasm.append("  " * depth + "} }")

    def toss(self, depth: int) -> None:
        """A coin into a bit or, until it is 0, in a loop."""
        self.coins -= 1
        k = self.random.randrange(N_BITS)
        kind = self.random.randrange(4)
        if kind == 0:
            self.pair.add("d = toss(r);", "d = W.toss()", depth)
        elif kind == 1:
            self.pair.add(f"h r; c[{k}] = measure r; reset r;", f"W.c[{k}] = W.toss()", depth)
        elif kind == 2:
            self.pair.add("b = bool(toss(r));", "b = W.toss()", depth)
        else:
            self.pair.add(f"c[{k}] = measure q[0];", f"W.c[{k}] = int(W.q[0])", depth)
            self.pair.add(f"i = int(c[{k}]);", f"i = W.c[{k}]", depth)
            start = self.random.choice([("d = 1;", "d = 1"), ("d = measure q[1];", "d = int(W.q[1])")])
            self.pair.add(start[0] + " while (d) {", start[1], depth)
            self.pair.python.append("    " * depth + "while d:")
            self.pair.add("d = toss(r);", "d = W.toss()", depth + 1)
            if self.random.random() < 0.5:
                self.pair.add(f"c[{k}] = measure q[{k}];", f"W.c[{k}] = int(W.q[{k}])", depth + 1)
                self.pair.add(f"x q[{k}];", f"W.x({k})", depth + 1)
            else:
                self.pair.add(f"c[{k}] = !c[{k}]; x q[{k}];", f"W.c[{k}] ^= 1; W.x({k})", depth + 1)
            self.pair.add(f"if (c[{k}] && d) {{ b = !b; }}", f"if W.c[{k}] and d: b = 1 - b", depth + 1)
            self.pair.qasm.append("  " * depth + "}")


def executed(python: Sequence[str], coins: Sequence[int]) -> World:
    """What plain Python makes of a program; raises `NoCoinError` where the coins do not suffice."""
    world = World(iter(coins))
    names: dict[str, Any] = {
        "W": world, "signed": signed, "d": 1, "b": 0, "i": 3, "u": 5, "f": 0.5, "n": 2,
        "math_mod": lambda a, m: a - m * int(a / m),
    }  # fmt: skip
    exec("\n".join(python), names)
    world.c.append(int(names["d"]))
    return world


@dataclass
class Machine:
    """Runs a program whose qubits are in basis states but for coins."""

    program: CircuitProgram
    coins: Iterator[int]

    def run(self) -> tuple[list[int], list[int]]:
        """The bits that are results, and the qubits."""
        program = self.program
        self.qubits: list[Any] = [0] * program.n_qubits
        self.bits = [*program.start, *[0] * (program.n_bits - len(program.start))]
        self._all(program.operations)
        return self.bits[: program.n_bits - program.n_scratch], self.qubits

    def _all(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            self._one(operation)

    def _value(self, bits: Sequence[int]) -> int:
        return sum(self.bits[bit] << k for k, bit in enumerate(bits))

    def _one(self, operation: Operation) -> None:
        if isinstance(operation, Gate):
            *controls, target = operation.qubits
            if operation.name == "h":
                assert self.qubits[target] == 0
                self.qubits[target] = "coin"
            elif operation.name in ("x", "cx", "ccx"):
                self.qubits[target] ^= all(self.qubits[k] for k in controls)
            else:
                raise AssertionError(operation.name)
        elif isinstance(operation, Measurement):
            if self.qubits[operation.qubit] == "coin":
                self.qubits[operation.qubit] = next(self.coins)
            self.bits[operation.bit] = int(self.qubits[operation.qubit])
        elif isinstance(operation, Reset):
            self.qubits[operation.qubit] = 0
        elif isinstance(operation, BitAssignment):
            self.bits[operation.bit] = int(operation.table[self._value(operation.bits)])
        elif isinstance(operation, Conditional):
            holds = self._value(operation.bits) == operation.value
            self._all(operation.body if holds else operation.otherwise)
        elif isinstance(operation, WhileLoop):
            while self._value(operation.bits) == operation.value:
                self._all(operation.body)
        else:
            raise AssertionError(operation)
