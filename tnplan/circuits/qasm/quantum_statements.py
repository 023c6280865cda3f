"""Gates, measurements and resets of an OpenQASM file, and the definitions of its gates.

Takes nodes of the reference parser, and plain statements. Inside a definition calls are kept, not recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

from tnplan.circuits.gates import Kind
from tnplan.circuits.program import Reset
from tnplan.circuits.qasm.declarations import Declarations
from tnplan.circuits.qasm.expressions import determined
from tnplan.circuits.qasm.gate_calls import (
    DEFINITIONS,
    Call,
    Definition,
    GateCalls,
    Modifier,
    n_controls,
    n_qubits,
)
from tnplan.circuits.qasm.recorder import Slot
from tnplan.circuits.qasm.scopes import Bits, Qubits, Subroutine
from tnplan.circuits.qasm.source import PlainGate, PlainMeasurement, parse_source, shown
from tnplan.circuits.qasm.values import Mistake, Type, real


class QuantumStatements:
    """Runs statements that act on qubits.

    `call` runs a subroutine, `run_body` the statements of a definition and the place of its file. A gate on
    more than `largest_gate` qubits is split.
    """

    def __init__(
        self,
        declarations: Declarations,
        call: Callable[[Subroutine, Sequence[Any]], Any],
        run_body: Callable[[Sequence[Any], str], None],
        largest_gate: int,
    ) -> None:
        self.declarations, self.call, self.run_body = declarations, call, run_body
        self.evaluator, self.scopes = declarations.evaluator, declarations.scopes
        self.recorder = declarations.recorder
        self.gates = GateCalls(self._body, self._standard, largest_gate)
        self._calls: list[Call] | None = None
        self._definition: Definition | None = None
        self._standards: dict[str, Definition] = {}

    @property
    def in_definition(self) -> bool:
        """Whether the statements of a definition are run."""
        return self._calls is not None

    def define(self, node: Any, place: str) -> None:
        """`gate g(a) x, y { ... }`, in the file `place`."""
        name = node.name.name
        definition = _definition(node, place, len(self.gates.definitions))
        names = definition.params + definition.qubits
        if len(set(names)) != len(names):
            raise Mistake(
                f"defines gate {shown(name)!r} with the same name for two parameters", "use other names"
            )
        if name in self.gates.definitions or isinstance(self.scopes.find(name), Subroutine):
            raise Mistake(f"defines {shown(name)!r}, which already exists", "choose another name")
        self.gates.definitions[name] = definition

    def plain_gate(self, item: PlainGate) -> None:
        """A gate on indexed qubits."""
        name = item.name
        if isinstance(self.scopes.find(name), Subroutine):
            raise Mistake(f"calls the subroutine {name!r} with indexed qubits", "write name(arguments)")
        # Where measured bits decide an angle, `determined` raises Undetermined: the statement is then
        # run for each of their values, and the program chooses among gates.
        params = tuple([
            argument if type(argument) is float and isfinite(argument)
            else real(determined(self.evaluator.value(argument)))
            for argument in item.arguments
        ])  # fmt: skip
        qubits = []
        for register, index in item.operands:
            symbol = self.scopes.find(register)
            if not isinstance(symbol, Qubits) or symbol.is_single:
                self.evaluator.named(register)
                raise Mistake(f"uses an index for {shown(register)!r}", "name a register of qubits")
            if index >= len(symbol.numbers):
                raise Mistake(
                    f"has index {index} in a register of {len(symbol.numbers)}",
                    f"use 0 to {len(symbol.numbers) - 1}",
                )
            qubits.append(symbol.numbers[index])
        self._apply(name, params, (), tuple(qubits))

    def plain_measurement(self, item: PlainMeasurement) -> None:
        """The measurement of an indexed qubit."""
        register, index = item.qubit
        qubits, bits = self.scopes.find(register), self.scopes.find(item.target[0])
        if (
            isinstance(qubits, Qubits) and isinstance(bits, Bits)
            and not (qubits.is_single or bits.is_single)
            and index < len(qubits.numbers) and item.target[1] < len(bits.slots)
        ):  # fmt: skip
            qubit, bit = qubits.numbers[index], bits.slots[item.target[1]]
            self.declarations.measure(Qubits((qubit,), True), Bits((bit,), True))
            return
        self.measure(_operand(item.qubit), _operand(item.target))

    def gate(self, name: str, arguments: Sequence[Any], node: Any) -> None:
        """A gate or a subroutine on what `node` names, registers one qubit after another."""
        symbol = self.scopes.find(name)
        if isinstance(symbol, Subroutine):
            if node.modifiers:
                raise Mistake(f"modifies the subroutine {name!r}", "modify only gates")
            self.call(symbol, [*arguments, *node.qubits])
            return
        params = tuple(real(determined(self.evaluator.value(argument))) for argument in arguments)
        modifiers = tuple(self._modifier(modifier) for modifier in node.modifiers)
        operands = [self.evaluator.qubits(operand) for operand in node.qubits]
        # Broadcasting (OpenQASM 3, "Applying gates"): registers of one length go qubit by qubit,
        # single qubits stay.
        lengths = {len(qubits.numbers) for qubits in operands if not qubits.is_single}
        if len(lengths) > 1:
            raise Mistake(f"acts on registers of {sorted(lengths)} qubits", "use registers of one length")
        for k in range(lengths.pop() if lengths else 1):
            self._apply(
                name, params, modifiers,
                tuple(qubits.numbers[0 if qubits.is_single else k] for qubits in operands),
            )  # fmt: skip

    def measure(self, operand: Any, target: Any) -> None:
        """A measurement, of which nothing is kept where there is no target."""
        self.outside_definition()
        qubits = self.evaluator.qubits(operand)
        if target is None:
            self.evaluator.measured(qubits)
            return
        bits = self.declarations.target(target)
        if not isinstance(bits, Bits):
            self.declarations.set(target, self.evaluator.measured(qubits))
            return
        self.declarations.measure(qubits, bits)

    def reset(self, node: Any) -> None:
        """A reset; one of a qubit that nothing has acted on does nothing."""
        self.outside_definition()
        for qubit in self.evaluator.qubits(node.qubits).numbers:
            if qubit in self.recorder.touched:
                self.recorder.emit(Reset(qubit))

    def barrier(self, node: Any) -> None:
        """A barrier, which does nothing."""
        for operand in node.qubits:
            self.evaluator.qubits(operand)
        if self.recorder.is_certain:
            self.recorder.barriers.append(len(self.recorder.operations))

    def outside_definition(self) -> None:
        """Refuse what stands in the definition of a gate."""
        if self._calls is not None:
            raise Mistake(
                "is not a gate, but is used in the definition of a gate", "define a subroutine with def"
            )

    def _body(self, definition: Definition, params: tuple[float, ...]) -> tuple[Call, ...]:
        """The calls in a definition, its qubits being 0, 1, ..."""
        calls: list[Call] = []
        outer, inside, place = self._calls, self._definition, self.recorder.place
        # Invariant: while `_calls` is a list, gates are kept as calls and nothing is recorded.
        self._calls, self._definition = calls, definition
        # A definition sees constants of the file beside its own angles and qubits, and only gates
        # that are defined before it.
        with self.scopes.subroutine(in_definition=True):
            for name, value in zip(definition.params, params, strict=True):
                self.scopes.define(name, Slot(value, Type("angle"), True))
            for number, name in enumerate(definition.qubits):
                self.scopes.define(name, Qubits((number,), True))
            self.run_body(definition.body, definition.place)
        self._calls, self._definition, self.recorder.place = outer, inside, place
        return tuple(calls)

    def _standard(self, name: str) -> Definition:
        """The definition of a standard gate; those of the file are not seen in it."""
        if not self._standards:
            source = parse_source(DEFINITIONS, "standard gates")
            nodes = [node for node in source.statements if type(node).__name__ == "QuantumGateDefinition"]
            self._standards = {node.name.name: _definition(node, source.place, 0) for node in nodes}
        return self._standards[name]

    def _modifier(self, node: Any) -> Modifier:
        word = node.modifier.name
        if word == "inv":
            return word, None
        if word == "pow":
            return word, float(real(determined(self.evaluator.value(node.argument))))
        count = 1 if node.argument is None else self.evaluator.size(node.argument)
        return word, count

    def _apply(
        self, name: str, params: tuple[float, ...], modifiers: tuple[Modifier, ...], qubits: tuple[int, ...]
    ) -> None:
        """Record a gate on single qubits, or keep the call inside a definition."""
        within = self._definition
        # By the number of the definition that is read: a body has earlier gates alone, so that no
        # gate calls itself.
        target = self.gates.find(name, None if within is None else within.number)
        if target is None:
            if name in self.gates.definitions:
                raise Mistake(f"uses gate {shown(name)!r} inside its own definition", "define it before")
            raise Mistake(
                f"uses gate {shown(name)!r}, which is not defined",
                "define it before, or include stdgates.inc (version 3) or qelib1.inc (version 2)",
            )
        expected = target.n_params if not isinstance(target, Definition) else len(target.params)
        if len(params) != expected:
            raise Mistake(f"has {len(params)} angles", f"give {expected} angles")
        n_operands = n_qubits(target) + (n_controls(modifiers) if modifiers else 0)
        if len(qubits) != n_operands:
            raise Mistake(f"acts on {len(qubits)} qubits", f"give {n_operands} qubits")
        if len(set(qubits)) != len(qubits):
            raise Mistake("acts on one qubit twice", "name each qubit once")
        if self._calls is not None:
            self._calls.append(Call(shown(name), target, params, modifiers, qubits))
            return
        self.recorder.touched.update(qubits)
        if isinstance(target, Kind) and not modifiers and 0 < n_operands <= self.gates.largest:
            self.recorder.emit(self.gates.standard_gate(shown(name), target, params, qubits))
            return
        for gate in self.gates.gates(Call(shown(name), target, params, modifiers, qubits)):
            self.recorder.emit(gate)


def _definition(node: Any, place: str, number: int) -> Definition:
    params = tuple(param.name for param in node.arguments)
    qubits = tuple(qubit.name for qubit in node.qubits)
    return Definition(shown(node.name.name), params, qubits, node.body, place, number)


def _operand(indexed: tuple[str, int]) -> Any:
    """The node of a name with an index."""
    from openqasm3 import ast

    return ast.IndexedIdentifier(ast.Identifier(indexed[0]), [[ast.IntegerLiteral(indexed[1])]])
