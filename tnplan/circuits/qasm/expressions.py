"""Expressions of OpenQASM: their values, the types that a file names, and the parts that indices choose.

Takes nodes of the reference parser. What has to be known, and measured bits decide, raises `Undetermined`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from tnplan.circuits.circuit import LARGEST_CIRCUIT
from tnplan.circuits.qasm.operators import (
    ARGUMENTS,
    BINARY,
    FUNCTIONS,
    FUNCTIONS_2,
    REAL_QUOTIENT,
    UNARY,
    cut_quotient,
    integer_power,
)
from tnplan.circuits.qasm.recorder import Recorder, Slot
from tnplan.circuits.qasm.scopes import Array, Bits, Ignored, Named, Qubits, Scopes, Subroutine
from tnplan.circuits.qasm.source import shown
from tnplan.circuits.qasm.values import (
    LARGEST_WIDTH,
    BitString,
    FixedWidth,
    Measured,
    Mistake,
    Type,
    applied,
    bit_string,
    bits_of,
    converted,
    integer,
    joined,
    register_bits,
    truth,
    written,
)

CONSTANTS = {"pi": math.pi, "π": math.pi, "tau": math.tau, "τ": math.tau, "euler": math.e, "ℇ": math.e}
TYPES = {
    "IntType": "int", "UintType": "uint", "FloatType": "float", "AngleType": "angle", "BitType": "bit",
    "BoolType": "bool", "ComplexType": "complex", "DurationType": "duration", "StretchType": "stretch",
}  # fmt: skip
LITERALS = ("IntegerLiteral", "FloatLiteral", "BooleanLiteral")


class Undetermined(Exception):  # noqa: N818
    """A value has to be known, and measured bits decide it."""

    def __init__(self, value: Measured) -> None:
        super().__init__(value)
        self.value = value


def determined(value: Any) -> Any:
    """A value that measured bits do not decide."""
    single = joined(value)
    if isinstance(single, Measured):
        raise Undetermined(single)
    return single


class Evaluator:
    """The values of expressions where names stand for what `scopes` says.

    `call` runs a subroutine with the nodes of its arguments and gives its result; `version` is 2 or 3.
    """

    def __init__(
        self, scopes: Scopes, recorder: Recorder, call: Callable[[Subroutine, Sequence[Any]], Any]
    ) -> None:
        self.scopes, self.recorder, self.call = scopes, recorder, call
        self.version = 3
        self.n_qubits = 0
        self.cut_quotients: dict[str, tuple[int, int]] = {}
        """The places where the quotient of two integers lost its rest, with the first such integers."""
        self.has_real_quotients = False
        """Whether `/` of integers is that of real numbers in version 3 too: for values from outside."""
        self._physical = False
        self._visits: dict[str, Callable[[Any], Any]] = {
            "IntegerLiteral": lambda node: node.value,
            "FloatLiteral": lambda node: node.value,
            "BooleanLiteral": lambda node: node.value,
            "ImaginaryLiteral": lambda node: node.value * 1j,
            "BitstringLiteral": lambda node: FixedWidth("bit", node.width, node.value),
            "Identifier": lambda node: self._content(node.name, self.named(node.name)),
            "UnaryExpression": lambda node: applied(UNARY[node.op.name], self.value(node.expression)),
            "BinaryExpression": self._binary,
            "IndexExpression": lambda node: self._content("", self._indexed_expression(node)),
            "FunctionCall": self._function,
            "Cast": lambda node: converted(self.value(node.argument), self.type(node.type)),
            "SizeOf": self._size,
            "Concatenation": self._concatenation,
            "QuantumMeasurement": lambda node: self.measured(self.qubits(node.qubit)),
        }

    def value(self, node: Any) -> Any:
        """The value of an expression, which may be a number already."""
        if isinstance(node, int | float):
            return node
        visit = self._visits.get(type(node).__name__)
        if visit is None:
            words = {"DurationLiteral": "a duration", "DurationOf": "durationof", "ArrayLiteral": "an array"}
            description = words.get(type(node).__name__, type(node).__name__)
            raise Mistake(f"uses {description} where a number or bits are expected", "write a number")
        return visit(node)

    def integer(self, node: Any) -> int:
        """A whole number that is known."""
        return integer(determined(self.value(node)))

    def named(self, name: str) -> Named:
        """What a name stands for."""
        symbol = self.scopes.find(name)
        if symbol is not None:
            if self.scopes.in_definition and self.scopes.is_global(name) and not is_constant(symbol):
                raise Mistake(
                    f"uses {shown(name)!r} in the definition of a gate", "use its own qubits and angles"
                )
            return symbol
        if name in CONSTANTS and (self.version == 3 or name == "pi"):
            return Slot(CONSTANTS[name], Type("float"), True)
        raise Mistake(f"uses {shown(name)!r}, which is not declared", "declare it before")

    def type(self, node: Any) -> Type:
        """The type that a file names."""
        kind = TYPES.get(type(node).__name__)
        if kind is None:
            raise Mistake("uses a type that is not supported here", "use a scalar type")
        size = getattr(node, "size", None)
        if size is None:
            return Type(kind)
        return Type(kind, self.size(size))

    def size(self, node: Any) -> int:
        """The number in the brackets of a type."""
        width = self.integer(node)
        _check_count(width, LARGEST_WIDTH)
        if width < 1:
            raise Mistake(f"has the size {written(width)}", "give a positive one")
        return width

    def qubits(self, node: Any) -> Qubits:
        """The qubits that an operand names."""
        name, indices = name_and_indices(node)
        if name.startswith("$"):
            return self._physical_qubit(name)
        symbol: Any = self.named(name)
        for index in indices:
            symbol = self.indexed(symbol, index, name)
        if not isinstance(symbol, Qubits):
            raise Mistake(f"uses {shown(name)!r} for a qubit", "give a qubit")
        return symbol

    def new_qubits(self, size: int | None) -> Qubits:
        """Qubits that are declared."""
        if self._physical:
            raise Mistake("declares qubits, but also uses physical qubits", "use qubits of one kind")
        first = self.n_qubits
        self.n_qubits += 1 if size is None else size
        _check_count(self.n_qubits, LARGEST_CIRCUIT)
        return Qubits(tuple(range(first, self.n_qubits)), size is None)

    def indexed(self, base: Any, index: Any, name: str) -> Any:
        """The part of a register, an array or a number that one pair of brackets chooses."""
        if type(index).__name__ == "DiscreteSet":
            elements: list[Any] = [index]
        else:
            elements = index
        if isinstance(base, Array):
            return self._subarray(base, elements)
        if len(elements) != 1:
            raise Mistake(f"uses {len(elements)} indices for {shown(name)!r}", "give one index")
        # A number with a width has bits to choose from; for any other number an index is an error.
        if isinstance(base, Slot) and isinstance(base.value, FixedWidth | Measured):
            return self._bits_of_number(self.recorder.read(base), elements[0])
        if isinstance(base, FixedWidth | BitString):
            return self._bits_of_number(base, elements[0])
        if not isinstance(base, Bits | Qubits) or base.is_single:
            raise Mistake(f"uses an index for {shown(name)!r}, which has none", "leave the index out")
        items: Any = base.slots if isinstance(base, Bits) else base.numbers
        chosen = self.indices(elements[0], len(items))
        register_type: Any = type(base)
        if isinstance(chosen, int):
            return register_type((items[chosen],), True)
        return register_type(tuple(items[k] for k in chosen))

    def indices(self, element: Any, size: int) -> int | Sequence[int]:
        """One index, or those of a range or a set, of something with `size` parts; -1 is the last."""
        kind = type(element).__name__
        if kind == "RangeDefinition":
            return self._range(element, size)
        if kind == "DiscreteSet":
            return [_inside(self.integer(item), size) for item in element.values]
        return _inside(self.integer(element), size)

    def numbers(self, node: Any) -> Sequence[int]:
        """The numbers of a range, both ends included."""
        if node.start is None or node.end is None:
            raise Mistake("has a range without its ends", "write [first:last]")
        step = self._step(node)
        return range(self.integer(node.start), self.integer(node.end) + (1 if step > 0 else -1), step)

    def bits_value(self, bits: Bits) -> Any:
        """The value of a bit or a register."""
        items = tuple(self.recorder.read(slot) for slot in bits.slots)
        return items[0] if bits.is_single else bit_string(items)

    def _physical_qubit(self, name: str) -> Qubits:
        if self.n_qubits and not self._physical:
            raise Mistake("uses physical qubits, but also declares qubits", "use qubits of one kind")
        self._physical = True
        qubit = int(name[1:][:18])
        self.n_qubits = max(self.n_qubits, qubit + 1)
        _check_count(self.n_qubits, LARGEST_CIRCUIT)
        return Qubits((qubit,), True)

    def _content(self, name: str, symbol: Any) -> Any:
        """The value of what a name or an index stands for."""
        if isinstance(symbol, Slot):
            return self.recorder.read(symbol)
        if isinstance(symbol, Bits):
            return self.bits_value(symbol)
        if isinstance(symbol, Named):
            words = {Qubits: "qubits", Array: "an array", Subroutine: "a subroutine"}
            description = symbol.description if isinstance(symbol, Ignored) else words[type(symbol)]
            named = f"{shown(name)!r}, which is {description}," if name else description
            raise Mistake(f"uses {named} for a value", "give a number or bits")
        return symbol

    def _indexed_expression(self, node: Any) -> Any:
        base = node.collection
        kind = type(base).__name__
        if kind == "Identifier":
            return self.indexed(self.named(base.name), node.index, base.name)
        indexed = self._indexed_expression(base) if kind == "IndexExpression" else self.value(base)
        return self.indexed(indexed, node.index, "a value")

    def _bits_of_number(self, value: Any, element: Any) -> Any:
        """Bits of a number of a fixed width."""
        width = len(value.items) if isinstance(value, BitString) else determined(applied(_width, value))
        items = bits_of(value, width)
        chosen = self.indices(element, len(items))
        return items[chosen] if isinstance(chosen, int) else bit_string(tuple(items[k] for k in chosen))

    def _subarray(self, array: Array, elements: Iterable[Any]) -> Any:
        selection = _chosen(array.slots, [partial(self.indices, element) for element in elements])
        return Array(array.base, selection) if isinstance(selection, list) else selection

    def _step(self, node: Any) -> int:
        step = 1 if node.step is None else self.integer(node.step)
        if step == 0:
            raise Mistake("has a range of step 0", "give another step")
        return step

    def _range(self, node: Any, size: int) -> Sequence[int]:
        step = self._step(node)
        first, last = (0, size - 1) if step > 0 else (size - 1, 0)
        first = first if node.start is None else _inside(self.integer(node.start), size)
        last = last if node.end is None else _inside(self.integer(node.end), size)
        return range(first, last + (1 if step > 0 else -1), step)

    def _binary(self, node: Any) -> Any:
        word = node.op.name
        left = self.value(node.lhs)
        if word in ("&&", "||") and not isinstance(left, Measured | BitString):
            if truth(left) != (word == "&&"):
                return truth(left)
            return applied(truth, self.value(node.rhs))
        if word == "/" and _is_literal(node):
            return self._operated(word, left, self.value(node.rhs), self._literal_quotient)
        return self.operated(word, left, self.value(node.rhs))

    def operated(self, word: str, left: Any, right: Any) -> Any:
        """The result of an operator of two values, with the quotients and powers of the file's version."""
        return self._operated(word, left, right, self._quotient)

    def _operated(self, word: str, left: Any, right: Any, quotient: Callable[[Any, Any], Any]) -> Any:
        if self.version == 2 or self.has_real_quotients:
            function = REAL_QUOTIENT if word == "/" else BINARY[word]
        else:
            function = {"/": quotient, "**": integer_power}.get(word, BINARY[word])
        return applied(function, left, right)

    def _quotient(self, a: Any, b: Any) -> Any:
        """The quotient of version 3. A rest of integers that is lost is noted."""
        integers = cut_quotient(a, b)
        if integers is not None:
            self.cut_quotients.setdefault(self.recorder.place, integers)
        return BINARY["/"](a, b)

    def _literal_quotient(self, a: Any, b: Any) -> Any:
        """The quotient of literals. One that readers round in two ways is refused."""
        integers = cut_quotient(a, b)
        if integers is not None and (integers[0] < 0) != (integers[1] < 0):
            x, y = integers
            down = x // y
            raise Mistake(
                f"divides {written(x)} by {written(y)} as integers: {written(down + 1)} towards 0, "
                f"and {written(down)} rounded down as Qiskit does",
                "write a decimal point, as in 1.0/2, or the integer itself",
            )
        return self._quotient(a, b)

    def _function(self, node: Any) -> Any:
        name = node.name.name
        # Subroutines of the file hide functions of the language with the same name.
        symbol = self.scopes.find(name)
        if isinstance(symbol, Subroutine):
            return self.call(symbol, node.arguments)
        if isinstance(symbol, Ignored):
            raise Mistake(f"calls {name!r}, which is {symbol.description}", "define it with def")
        function = (FUNCTIONS if self.version == 3 else FUNCTIONS_2).get(name)
        if function is None:
            raise Mistake(f"calls {shown(name)!r}, which is not a function", "define it with def")
        expected = ARGUMENTS.get(name, 1)
        if len(node.arguments) != expected:
            raise Mistake(f"gives {name} {len(node.arguments)} arguments", f"give {expected} arguments")
        return applied(function, *map(self.value, node.arguments))

    def _size(self, node: Any) -> int:
        target: Any = node.target
        symbol = self.named(target.name) if type(target).__name__ == "Identifier" else None
        dimension = 0 if node.index is None else self.integer(node.index)
        if isinstance(symbol, Bits | Qubits) and dimension == 0:
            return len(symbol.slots if isinstance(symbol, Bits) else symbol.numbers)
        if not isinstance(symbol, Array):
            raise Mistake("takes the size of something that is not an array", "give an array or a register")
        level = symbol.slots
        for _ in range(dimension):
            level = level[0] if isinstance(level, list) else None
        if not isinstance(level, list):
            problem = (
                f"asks for the size of dimension {written(dimension)} of an array that has fewer dimensions"
            )
            raise Mistake(problem, "give a smaller index")
        return len(level)

    def _concatenation(self, node: Any) -> Any:
        items: list[Any] = []
        for side in (node.lhs, node.rhs):
            bits = register_bits(self.value(side))
            if bits is None:
                raise Mistake("concatenates something that is not a register of bits", "use registers")
            items += bits
        return bit_string(tuple(items))

    def measured(self, qubits: Qubits) -> Any:
        """What a measurement of qubits gives."""
        slots = tuple(self.recorder.measured_bit(qubit) for qubit in qubits.numbers)
        return self.bits_value(Bits(slots, qubits.is_single))


def name_and_indices(node: Any) -> tuple[str, Sequence[Any]]:
    """The name of an operand, and the brackets behind it."""
    return (node.name, ()) if isinstance(node.name, str) else (node.name.name, node.indices)


def _is_literal(node: Any) -> bool:
    """Whether an expression consists of numbers."""
    kind = type(node).__name__
    if kind == "UnaryExpression":
        return _is_literal(node.expression)
    return kind in LITERALS or (
        kind == "BinaryExpression" and _is_literal(node.lhs) and _is_literal(node.rhs)
    )


def is_constant(symbol: Named) -> bool:
    """Whether what a name stands for keeps its value: constants, inputs and subroutines."""
    slots = symbol.slots if isinstance(symbol, Bits) else (symbol,)
    return isinstance(symbol, Subroutine) or all(
        isinstance(slot, Slot) and slot.is_constant for slot in slots
    )


def _check_count(count: int, most: int) -> None:
    if count > most:
        raise Mistake(
            f"needs more than {LARGEST_CIRCUIT} qubits or bits", f"use at most {LARGEST_CIRCUIT} of each"
        )


def _width(value: Any) -> int:
    if not isinstance(value, FixedWidth):
        raise Mistake(
            "uses an index for a number without a width", "give the number a width, such as uint[8]"
        )
    return value.width


def _inside(index: int, size: int) -> int:
    """An index from 0, of which -1 is the last."""
    if not -size <= index < size:
        raise Mistake(f"has index {written(index)} in a register of {size}", f"use 0 to {size - 1}")
    return index % size


def _chosen(slots: Any, indices: Sequence[Callable[[int], int | Sequence[int]]]) -> Any:
    """The part of nested lists for an index a level."""
    if not indices:
        return slots
    if not isinstance(slots, list):
        raise Mistake("has more indices than its array has dimensions", "give fewer indices")
    chosen = indices[0](len(slots))
    if isinstance(chosen, int):
        return _chosen(slots[chosen], indices[1:])
    return [_chosen(slots[k], indices[1:]) for k in chosen]
