"""Declarations of an OpenQASM file, assignments, and the arguments of subroutines: who holds which value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tnplan.circuits.circuit import LARGEST_CIRCUIT
from tnplan.circuits.derivatives.dual_number import DualNumber, Varied
from tnplan.circuits.qasm.expressions import Evaluator, is_constant, name_and_indices
from tnplan.circuits.qasm.recorder import Slot
from tnplan.circuits.qasm.scopes import Array, Bits, Ignored, Named, Qubits, Subroutine
from tnplan.circuits.qasm.source import parse_value, shown
from tnplan.circuits.qasm.values import (
    BitString,
    FixedWidth,
    Mistake,
    Type,
    applied,
    bits_of,
    converted,
    real,
    register_bits,
    truth,
    wrapped,
)
from tnplan.common.errors import InputError

START = {"bool": False, "int": 0, "uint": 0, "float": 0.0, "angle": 0.0, "complex": 0j, "bit": False}
"""What variables without a value start as; the language leaves it open."""


class Declarations:
    """Defines names in the scopes of an evaluator, and sets variables.

    `parameters` are the values of inputs; those that a file takes are in `used`.
    """

    def __init__(self, evaluator: Evaluator, parameters: Mapping[str, Any]) -> None:
        self.evaluator, self.recorder, self.scopes = evaluator, evaluator.recorder, evaluator.scopes
        self.parameters = parameters
        self.used: set[str] = set()

    def qubits(self, node: Any) -> None:
        """`qubit[n] q;`"""
        size = None if node.size is None else self.evaluator.size(node.size)
        self.scopes.define(node.qubit.name, self.evaluator.new_qubits(size))

    def variable(self, node: Any) -> None:
        """`int n = 3;`"""
        name = node.identifier.name
        if type(node.type).__name__ == "ArrayType":
            self.scopes.define(name, self._array(node.type, node.init_expression))
            return
        kind = self.evaluator.type(node.type)
        if kind.kind in ("duration", "stretch"):
            self.scopes.define(name, Ignored(f"a {kind.kind}"))
            return
        # Bits of the file's own block are results; those of inner blocks and subroutines end with them.
        is_result, start = len(self.scopes.blocks) == 1, node.init_expression
        if kind.kind == "bit" and type(start).__name__ == "QuantumMeasurement":
            bits = self._new(kind, None, is_result=is_result)
            assert isinstance(bits, Bits)
            self.measure(self.evaluator.qubits(start.qubit), bits)
            self.scopes.define(name, bits)
            return
        value = None if start is None else self.evaluator.value(start)
        self.scopes.define(name, self._new(kind, value, is_result=is_result))

    def constant(self, node: Any) -> None:
        """`const int n = 3;`"""
        kind = self.evaluator.type(node.type)
        if kind.kind in ("duration", "stretch"):
            self.scopes.define(node.identifier.name, Ignored(f"a {kind.kind}"))
            return
        value = self.convert(self.evaluator.value(node.init_expression), kind)
        self.scopes.define(node.identifier.name, Slot(value, kind, is_constant=True))

    def interface(self, node: Any) -> None:
        """`input float theta;` and `output bit c;`"""
        if node.io_identifier.name == "output":
            # An output is a variable of the file that has no value at first.
            node.init_expression = None
            self.variable(node)
            return
        name, kind = node.identifier.name, self.evaluator.type(node.type)
        if name not in self.parameters:
            raise Mistake(f"has no value for {name!r}", f"give a value: --set {name}=VALUE")
        self.used.add(name)
        value = self.convert(self._input_value(name, kind), kind)
        if isinstance(self.parameters[name], Varied) and not isinstance(value, DualNumber):
            raise Mistake(f"has no derivatives by {name!r}, of type {kind}", "declare it as float")
        self.scopes.define(name, self._new(kind, value, is_constant=True))

    def alias(self, node: Any) -> None:
        """`let a = q[0:1] ++ r;`"""
        self.scopes.define(node.target.name, self._aliased(node.value))

    def extern(self, node: Any) -> None:
        """`extern f(int) -> int;`, which cannot be called."""
        self.scopes.define(node.name.name, Ignored("extern"))

    def assign(self, node: Any) -> None:
        """`a = b;` and `a += b;`"""
        value = self._array_value(node.rvalue)
        word = node.op.name
        if word != "=":
            old = self.evaluator.value(_as_expression(node.lvalue))
            value = self.evaluator.operated(word[:-1], old, value)
        self.set(node.lvalue, value)

    def target(self, node: Any) -> Any:
        """What a name with or without indices stands for, to be set."""
        name, indices = name_and_indices(node)
        symbol: Any = self.evaluator.named(name)
        # OpenQASM 3, "Scoping of variables": a subroutine changes its arguments and what it
        # declares, and nothing of the file.
        if self.scopes.is_global(name) and not is_constant(symbol):
            raise Mistake(
                f"uses {shown(name)!r} of the whole file in a subroutine",
                "give the variable as an argument, or return it",
            )
        # All brackets but a number's choose parts of registers and arrays; those of a number choose
        # bits of it, which are set together with the rest of the number.
        for index in indices:
            if isinstance(symbol, Slot):
                return _BitTarget(symbol, index)
            symbol = self.evaluator.indexed(symbol, index, name)
        return symbol

    def set(self, node: Any, value: Any) -> None:
        """Give a value to what a node names."""
        target = self.target(node)
        if isinstance(target, _BitTarget):
            self._set_bits_of(target, value)
        elif isinstance(target, Slot):
            self._set_slot(target, self.convert(value, target.type))
        elif isinstance(target, Bits):
            for slot, bit in zip(target.slots, self._bits(value, target), strict=True):
                self._set_slot(slot, bit)
        elif isinstance(target, Array):
            self._set_array(target, value)
        else:
            raise Mistake("gives a value to something that is not a variable", "name a variable")

    def measure(self, qubits: Qubits, bits: Bits) -> None:
        """Measure qubits into bits."""
        if len(bits.slots) != len(qubits.numbers):
            raise Mistake(
                f"measures {len(qubits.numbers)} qubits into {len(bits.slots)} bits",
                "use registers of one length",
            )
        for qubit, slot in zip(qubits.numbers, bits.slots, strict=True):
            if slot.is_constant:
                raise Mistake("measures into a constant", "measure into a bit")
            self.recorder.measure(qubit, slot)

    def convert(self, value: Any, kind: Type) -> Any:
        """A value as a type."""
        if isinstance(value, Array | Named):
            raise Mistake(f"converts to {kind} something that is not a number", "give a number or bits")
        return converted(value, kind)

    def as_type(self, value: Any, node: Any) -> Any:
        """A value as the type of a node."""
        return self.convert(value, self.evaluator.type(node))

    def arguments(self, subroutine: Subroutine, nodes: Sequence[Any]) -> list[tuple[str, Named]]:
        """The names of a subroutine's arguments and what they stand for in a call."""
        if len(nodes) != len(subroutine.arguments):
            raise Mistake(
                f"gives {subroutine.name} {len(nodes)} arguments",
                f"give {len(subroutine.arguments)} arguments",
            )
        return [
            (argument.name.name, self._argument(argument, node))
            for argument, node in zip(subroutine.arguments, nodes, strict=True)
        ]

    def items(self, value: Any) -> Sequence[Any] | None:
        """The values of an array or a register of bits, one after another."""
        if isinstance(value, Array) and not any(isinstance(slot, list) for slot in value.slots):
            return [self.recorder.read(slot) for slot in value.slots]
        return register_bits(value)

    def _new(self, kind: Type, value: Any, *, is_result: bool = False, is_constant: bool = False) -> Named:
        """A new variable of a type; bits of the whole file are results."""
        if kind.kind == "bit":
            n = 1 if kind.width is None else kind.width
            bits = Bits(
                tuple(
                    self.recorder.declare(Slot(False, Type("bit"), is_constant), is_result) for _ in range(n)
                ),
                kind.width is None,
            )
            if value is not None:
                for slot, bit in zip(bits.slots, self._bits(value, bits), strict=True):
                    self.recorder.write(slot, bit)
            return bits
        start = START[kind.kind] if value is None else value
        return self.recorder.declare(Slot(self.convert(start, kind), kind, is_constant))

    def _bits(self, value: Any, bits: Bits) -> Sequence[Any]:
        """The bits that a value has for a register."""
        if isinstance(value, Array | Named):
            raise Mistake("converts to bits something that is not a number", "give a number or bits")
        # A single `bit` takes the truth of a value, a register `bit[n]` its n bits, the lowest first.
        if bits.is_single:
            if isinstance(value, BitString | FixedWidth):
                value = self._single(value)
            return [applied(truth, value)]
        n = len(bits.slots)
        return bits_of(converted(value, Type("bit", n)), n)

    @staticmethod
    def _single(value: Any) -> Any:
        """The bit of a register of one, or of a number."""
        if isinstance(value, BitString):
            if len(value.items) != 1:
                raise Mistake(f"converts to one bit a value of length {len(value.items)}", "give one bit")
            return value.items[0]
        if value.kind == "bit" and value.width != 1:
            raise Mistake(f"converts to one bit a value of length {value.width}", "give one bit")
        return truth(value)

    def _input_value(self, name: str, kind: Type) -> Any:
        """The value of an input: a number, or the value of a text."""
        value = self.parameters[name]
        if isinstance(value, Varied):
            plain = self._read(name, value.value, kind)
            return value.number(name, real(plain))
        return self._read(name, value, kind)

    def _read(self, name: str, value: Any, kind: Type) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, bool | int | float | complex):
            return value
        place = f"parameter {name}"
        if not isinstance(value, str):
            raise InputError(place, f"is {value!r}", "give a number")
        if kind.kind == "bit" and kind.width is not None and re.fullmatch("[01]+", value):
            return FixedWidth("bit", len(value), int(value, 2))
        # `--set t=1/2` is 0.5: a value from outside is no part of the program.
        self.evaluator.has_real_quotients = kind.kind not in ("int", "uint")
        try:
            return self.evaluator.value(parse_value(value, place))
        except Mistake as problem:
            if value.isidentifier():
                remedy = "write a number, such as 0.3 or pi/4"
                raise InputError(place, f"is {value[:40]!r}", remedy) from None
            raise InputError(place, f"{value[:40]!r}: {problem.problem}", problem.remedy) from None
        finally:
            self.evaluator.has_real_quotients = False

    def _set_slot(self, slot: Slot, value: Any) -> None:
        if slot.is_constant:
            raise Mistake("gives a value to a constant", "name a variable")
        self.recorder.write(slot, value)

    def _set_bits_of(self, target: _BitTarget, value: Any) -> None:
        """Set bits of a number."""
        old = self.recorder.read(target.slot)
        kind = target.slot.type
        if kind.width is None or kind.kind == "float" or len(target.index) != 1:
            raise Mistake(
                "sets a bit of a number that has no width", "give the number a width, such as uint[8]"
            )
        chosen = self.evaluator.indices(target.index[0], kind.width)
        if isinstance(chosen, int):
            bits = [(chosen, applied(truth, value))]
        else:
            register = converted(value, Type("bit", len(chosen)))
            bits = list(zip(chosen, bits_of(register, len(chosen)), strict=True))
        new = old
        for index, bit in bits:
            # `applied` lifts the setting of a bit to tables: where measured bits decide the old
            # number or the new bit, the result is a table over both.
            new = applied(lambda number, on, index=index: _with_bit(number, index, on), new, bit)
        self._set_slot(target.slot, new)

    def _aliased(self, node: Any) -> Bits | Qubits:
        kind = type(node).__name__
        if kind == "Concatenation":
            first, second = self._aliased(node.lhs), self._aliased(node.rhs)
            if isinstance(first, Bits) and isinstance(second, Bits):
                return Bits(first.slots + second.slots)
            if isinstance(first, Qubits) and isinstance(second, Qubits):
                return Qubits(first.numbers + second.numbers)
            raise Mistake("puts qubits and bits together", "use only qubits, or only bits")
        if kind == "IndexExpression":
            base = self._aliased(node.collection)
            register = self.evaluator.indexed(base, node.index, "the alias")
        elif kind == "Identifier":
            is_physical = node.name.startswith("$")
            register = self.evaluator.qubits(node) if is_physical else self.evaluator.named(node.name)
        else:
            register = None
        if not isinstance(register, Bits | Qubits):
            raise Mistake("gives a second name to something that is not a register", "name a register")
        return register

    def _argument(self, argument: Any, node: Any) -> Named:
        if type(argument).__name__ == "QuantumArgument":
            qubits = self.evaluator.qubits(_as_operand(node))
            size = None if argument.size is None else self.evaluator.size(argument.size)
            if len(qubits.numbers) != (1 if size is None else size):
                raise Mistake(
                    f"gives {len(qubits.numbers)} qubits for {argument.name.name!r}", f"give {size or 1}"
                )
            return Qubits(qubits.numbers, size is None)
        if type(argument.type).__name__ == "ArrayReferenceType":
            array = self._aliased_array(node)
            base = self.evaluator.type(argument.type.base_type)
            if array.base != base:
                raise Mistake(f"gives an array of {array.base} for one of {base}", "use one type")
            return array
        kind = self.evaluator.type(argument.type)
        # Classical arguments are copies (call by value), arrays and qubits are the caller's own.
        return self._new(kind, self.evaluator.value(node))

    def _aliased_array(self, node: Any) -> Array:
        symbol: Any = None
        if type(node).__name__ == "Identifier":
            symbol = self.evaluator.named(node.name)
        elif type(node).__name__ == "IndexExpression" and type(node.collection).__name__ == "Identifier":
            symbol = self.evaluator.indexed(
                self.evaluator.named(node.collection.name), node.index, "the array"
            )
        if not isinstance(symbol, Array):
            raise Mistake("passes something that is not an array where an array is expected", "give an array")
        return symbol

    def _array(self, node: Any, start: Any) -> Array:
        base = self.evaluator.type(node.base_type)
        sizes = [self.evaluator.size(dimension) for dimension in node.dimensions]
        # dtype=object: the product of given extents must not wrap at 64 bits before it is compared.
        if np.prod(sizes, dtype=object) > LARGEST_CIRCUIT:
            raise Mistake("has a large array", f"use at most {LARGEST_CIRCUIT} entries")

        def new_slots(level: int) -> Any:
            if level == len(sizes):
                return self.recorder.declare(Slot(self.convert(START[base.kind], base), base))
            return [new_slots(level + 1) for _ in range(sizes[level])]

        array = Array(base, new_slots(0))
        if start is not None:
            self._set_array(array, self._array_value(start))
        return array

    def _array_value(self, node: Any) -> Any:
        """The value of an expression, which may be an array: nested lists."""
        if type(node).__name__ == "ArrayLiteral":
            return [self._array_value(entry) for entry in node.values]
        try:
            array: Any = self._aliased_array(node)
        except Mistake:
            return self.evaluator.value(node)
        return self._contents(array.slots)

    def _contents(self, slots: Any) -> Any:
        if isinstance(slots, list):
            return [self._contents(slot) for slot in slots]
        return self.recorder.read(slots)

    def _set_array(self, array: Array, value: Any) -> None:
        def put(slots: Any, values: Any) -> None:
            if isinstance(slots, Slot) and not isinstance(values, list):
                self._set_slot(slots, self.convert(values, array.base))
            elif isinstance(slots, list) and isinstance(values, list) and len(slots) == len(values):
                for slot, entry in zip(slots, values, strict=True):
                    put(slot, entry)
            else:
                raise Mistake("gives an array a value of another shape", "give a value of its shape")

        put(array.slots, value)


class _BitTarget:
    """Bits of a number, to be set."""

    def __init__(self, slot: Slot, index: Any) -> None:
        self.slot = slot
        self.index = [index] if type(index).__name__ == "DiscreteSet" else index


def _with_bit(number: Any, index: int, on: bool) -> FixedWidth:
    low = number.value & ~(1 << index) | int(on) << index
    return wrapped(number.kind, number.width, low)


def _as_expression(node: Any) -> Any:
    """The expression that reads what a left side names."""
    if isinstance(node.name, str):
        return node
    from openqasm3 import ast

    expression: Any = node.name
    for index in node.indices:
        expression = ast.IndexExpression(expression, index)
    return expression


def _as_operand(node: Any) -> Any:
    """The operand that an expression is: names of qubits may stand where numbers do."""
    if type(node).__name__ != "IndexExpression":
        if type(node).__name__ in ("Identifier", "IndexedIdentifier"):
            return node
        raise Mistake("passes something that is not a qubit where a qubit is expected", "give qubits")
    from openqasm3 import ast

    indices: list[Any] = []
    while type(node).__name__ == "IndexExpression":
        indices.insert(0, node.index)
        node = node.collection
    if type(node).__name__ != "Identifier":
        raise Mistake("passes something that is not a qubit where a qubit is expected", "give qubits")
    return ast.IndexedIdentifier(node, indices)
