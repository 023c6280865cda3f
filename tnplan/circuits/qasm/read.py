"""OpenQASM 2 and 3 as circuits and programs (extra `qasm`).

The statements of a file are run, as nodes of the reference parser, and the operations that they become are
recorded. What measured bits decide is run for each of their values.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.program import BitAssignment, CircuitProgram, Measurement
from tnplan.circuits.qasm.declarations import Declarations
from tnplan.circuits.qasm.expressions import Evaluator, Undetermined, determined
from tnplan.circuits.qasm.gate_calls import LARGEST_GATE, LARGEST_OF_CIRCUIT
from tnplan.circuits.qasm.operators import BINARY
from tnplan.circuits.qasm.quantum_statements import QuantumStatements
from tnplan.circuits.qasm.recorder import Match, Recorder, Slot
from tnplan.circuits.qasm.scopes import Bits, Scopes, Subroutine
from tnplan.circuits.qasm.source import Source, included_file, parse_source, shown
from tnplan.circuits.qasm.values import (
    MOST_BITS,
    BitString,
    FixedWidth,
    Measured,
    Mistake,
    applied,
    described,
    integer,
    truth,
)
from tnplan.common.errors import InputError, located
from tnplan.common.files import read_text

STANDARD_FILES = ("qelib1.inc", "stdgates.inc")
DEEPEST_INCLUDE = 16
"""Files that include one another."""
LARGEST_ROUNDS = 100_000
"""Of all `while`s together, and all `for`s that have to be left: what never ends is refused in a second."""
LABELS = {
    "WhileLoop": "while", "ForInLoop": "for", "BranchingStatement": "if", "SwitchStatement": "switch",
    "QuantumReset": "reset", "QuantumMeasurementStatement": "measure", "PlainMeasurement": "measure",
    "QuantumPhase": "gphase", "Box": "box", "ReturnStatement": "return", "IODeclaration": "input",
}  # fmt: skip
WITHOUT_EFFECT = ("IntegerLiteral", "BitstringLiteral", "Identifier")
REFUSED = {
    "Pragma": ("is a pragma", "leave it out"),
    "CalibrationGrammarDeclaration": ("is about pulses", "leave it out"),
    "CalibrationStatement": ("is about pulses", "leave it out"),
    "CalibrationDefinition": ("is about pulses", "leave it out"),
}


LEAVING = ("BreakStatement", "ContinueStatement", "EndStatement", "ReturnStatement", "FunctionCall")
"""Nodes that leave a round, or call what may end the program."""


class Jump(Exception):  # noqa: N818
    """A statement that leaves a block: break, continue, return or end."""

    def __init__(self, word: str, value: Any = None) -> None:
        super().__init__(word)
        self.word, self.value = word, value


class Interpreter:
    """Runs statements.

    - `parameters`: Values of what a file declares as input: numbers, or text of OpenQASM.
    - `largest_gate`: Qubits of a gate that is not split.
    """

    def __init__(self, parameters: Mapping[str, Any], largest_gate: int) -> None:
        self.recorder, self.scopes = Recorder(), Scopes()
        # Expressions may call subroutines, and subroutines have statements: evaluator and
        # interpreter call each other.
        self.evaluator = Evaluator(self.scopes, self.recorder, self.call)
        self.declarations = Declarations(self.evaluator, parameters)
        self.quantum = QuantumStatements(self.declarations, self.call, self._run_body, largest_gate)
        self.gates = self.quantum.gates
        self._file, self._included = "", 0
        self._folder: Path | None = None
        self._repeats = self._rounds = 0
        none = lambda node: None  # noqa: E731
        declare, quantum = self.declarations, self.quantum
        # By the names of the reference parser's nodes, without an import of it: plain statements
        # need no parser.
        self._handlers: dict[str, Callable[[Any], None]] = {
            "PlainGate": quantum.plain_gate,
            "PlainMeasurement": quantum.plain_measurement,
            "QuantumGate": lambda node: quantum.gate(node.name.name, node.arguments, node),
            "QuantumPhase": lambda node: quantum.gate("gphase", [node.argument], node),
            "QuantumMeasurementStatement": lambda node: quantum.measure(node.measure.qubit, node.target),
            "QuantumReset": quantum.reset,
            "QuantumBarrier": quantum.barrier,
            # Timing has no effect on the state, so that delays are passed over.
            "DelayInstruction": none,
            "Box": lambda node: self._block(node.body),
            "CompoundStatement": lambda node: self._block(node.statements),
            "BranchingStatement": self._if,
            "SwitchStatement": self._switch,
            "WhileLoop": self._while,
            "ForInLoop": self._for,
            "BreakStatement": lambda node: _jump("break"),
            "ContinueStatement": lambda node: _jump("continue"),
            "EndStatement": lambda node: _jump("end"),
            "ReturnStatement": self._return,
            "ExpressionStatement": self._expression,
            "Include": self._include,
            "QuantumGateDefinition": lambda node: quantum.define(node, self._file),
            "SubroutineDefinition": self._define_subroutine,
            "ClassicalAssignment": declare.assign,
            "QubitDeclaration": declare.qubits,
            "ClassicalDeclaration": declare.variable,
            "ConstantDeclaration": declare.constant,
            "IODeclaration": declare.interface,
            "AliasStatement": declare.alias,
            "ExternDeclaration": declare.extern,
        }

    def run(self, source: Source) -> None:
        """Run a file, up to its end or an `end`."""
        if not self._included:
            self._folder = source.folder
        with self._in_file(source.place, source.version):
            try:
                for statement in source.statements:
                    self.execute(statement)
            except Jump as jump:
                if jump.word != "end":
                    raise InputError(
                        source.place, f"has {jump.word!r} outside of a loop or subroutine", "remove it"
                    ) from None
                # `end` ends the whole program, also from an included file.
                if self._included:
                    raise

    def execute(self, statement: Any) -> None:
        """Run one statement, or all ways of it where it depends on measured bits."""
        kind = type(statement).__name__
        before, n_effects = self.recorder.place, self.recorder.effects
        self.recorder.place = self._place(statement)
        try:
            # Only what may run more than once is counted: the statements of a file are as many as
            # its text has.
            if self._repeats:
                self.gates.spend()
            handler = self._handlers.get(kind)
            if handler is None:
                raise Mistake(*REFUSED.get(kind, (f"is not supported ({kind})", "write it with gates")))
            handler(statement)
        # A statement that needs a value which measured bits decide is run again once for each value
        # of them (`_split`). Invariant: it had no effect before that, or it is refused.
        except Undetermined as undetermined:
            self._split(statement, undetermined.value, n_effects)
        except Mistake as problem:
            raise InputError(self._label(statement), problem.problem, problem.remedy) from None
        self.recorder.place = before

    def call(self, subroutine: Subroutine, nodes: Sequence[Any]) -> Any:
        """Run a subroutine with the nodes of its arguments; gives its result."""
        arguments = self.declarations.arguments(subroutine, nodes)
        # Invariant: `live` is a stack: variables of the subroutine come after those of its callers,
        # and go with it.
        n_live = len(self.recorder.live)
        result: Any = None
        # The body sees the file's block and its own, not the caller's blocks.
        with self.scopes.subroutine(), self._in_file(subroutine.place, self.evaluator.version), self._again():
            for name, symbol in arguments:
                self.scopes.define(name, symbol)
            try:
                for statement in subroutine.body:
                    self.execute(statement)
            except Jump as jump:
                if jump.word != "return":
                    raise
                result = jump.value
            if subroutine.result is not None:
                if result is None:
                    raise Mistake(f"calls {subroutine.name}, which returns nothing", "let it return a value")
                result = self.declarations.as_type(result, subroutine.result)
        del self.recorder.live[n_live:]
        return result

    def _run_body(self, statements: Sequence[Any], place: str) -> None:
        """Run the statements of a definition, whose file is `place`."""
        with self._in_file(place, self.evaluator.version), self._again():
            for statement in statements:
                self.execute(statement)

    @contextmanager
    def _in_file(self, place: str, version: int) -> Iterator[None]:
        before = self._file, self.evaluator.version
        self._file, self.evaluator.version = place, version
        try:
            yield
        finally:
            self._file, self.evaluator.version = before

    @contextmanager
    def _again(self) -> Iterator[None]:
        """Statements inside may be run more than once: they count."""
        self._repeats += 1
        try:
            yield
        finally:
            self._repeats -= 1

    def _place(self, statement: Any) -> str:
        line = getattr(statement, "line", None)
        if line is None:
            line = None if statement.span is None else statement.span.start_line
        return self._file if line is None else f"{self._file}: line {line}"

    def _label(self, statement: Any) -> str:
        """The place of a statement with the word that it begins with."""
        name = getattr(statement, "name", None)
        word = LABELS.get(type(statement).__name__)
        if type(statement).__name__ in ("PlainGate", "QuantumGate"):
            word = name if isinstance(name, str) else getattr(name, "name", None)
        return self._place(statement) + (f" ({shown(word)[:60]})" if word else "")

    def _split(self, statement: Any, value: Measured, n_effects: int) -> None:
        """Run a statement for each value of the bits that decide it."""
        if self.quantum.in_definition or self.recorder.effects != n_effects:
            raise InputError(
                self._label(statement), "depends on bits that it measures itself", "write two statements"
            )
        # `assume` lets the statement see the bits as known on each way, so that it cannot come here
        # for the same bits again.
        rows = range(len(value.table))
        try:
            self.recorder.branch(
                value.bits, rows, [self._way(lambda: self.execute(statement)) for _ in rows], assume=True
            )
        except Mistake as problem:
            raise InputError(self._label(statement), problem.problem, problem.remedy) from None

    @staticmethod
    def _way(action: Callable[[], None]) -> Callable[[], None]:
        """An action that is done where measured bits say so; it may not leave the block."""

        def guarded() -> None:
            try:
                action()
            except Jump as jump:
                raise Mistake(
                    f"has {jump.word!r} under a condition on measured bits",
                    "put the statements that it skips into an if",
                ) from None

        return guarded

    def _block(self, statements: Sequence[Any]) -> None:
        n_live = len(self.recorder.live)
        with self.scopes.block():
            for statement in statements:
                self.execute(statement)
        del self.recorder.live[n_live:]

    def _include(self, node: Any) -> None:
        if node.filename in STANDARD_FILES:
            self.gates.include()
            return
        if self._included >= DEEPEST_INCLUDE:
            raise Mistake(
                f"includes {node.filename!r} inside {DEEPEST_INCLUDE} others", "include fewer files"
            )
        path = included_file(node.filename, self._file, self._folder)
        try:
            text = read_text(path, "an OpenQASM file")
        except InputError as error:
            raise Mistake(f"includes {node.filename!r}: {error}", "give a file that can be read") from None
        self._included += 1
        self.run(parse_source(text, str(path), self.evaluator.version))
        self._included -= 1

    def _define_subroutine(self, node: Any) -> None:
        name = node.name.name
        self.scopes.define(name, Subroutine(name, node.arguments, node.body, node.return_type, self._file))

    def _if(self, node: Any) -> None:
        match = self._match(node.condition)
        then, otherwise = (lambda: self._block(node.if_block)), (lambda: self._block(node.else_block))
        # More measured bits than a table may have: one comparison of a register with a number,
        # without the values themselves.
        if match is not None:
            self.recorder.branch_match(match, self._way(then), self._way(otherwise))
            return
        holds = applied(truth, self.evaluator.value(node.condition))
        # Both ways are run now and recorded as branches; what is known at reading time takes one way alone.
        if isinstance(holds, Measured):
            ways = [int(value) for value in holds.table]
            self.recorder.branch(holds.bits, ways, [self._way(otherwise), self._way(then)], assume=False)
        elif holds:
            then()
        else:
            otherwise()

    def _match(self, node: Any) -> Match | None:
        """A condition that a register of more measured bits than a table has is a number."""
        if type(node).__name__ != "BinaryExpression" or node.op.name != "==":
            return None
        if type(node.lhs).__name__ != "Identifier" or type(node.rhs).__name__ not in WITHOUT_EFFECT:
            return None  # what calls a subroutine may be evaluated only once
        left = self.evaluator.value(node.lhs)
        if not isinstance(left, BitString):
            return None
        right = self.evaluator.value(node.rhs)
        if not isinstance(right, int | FixedWidth):
            return None
        number = integer(right)
        bits: list[int] = []
        value = 0
        # Bits that are known either decide the comparison or drop out; the others must be single
        # measured bits themselves.
        for k, item in enumerate(left.items):
            if isinstance(item, bool):
                if item != bool(number >> k & 1):
                    return None
            elif len(item.bits) != 1 or item.table != (False, True):
                return None
            else:
                value |= (number >> k & 1) << len(bits)
                bits.append(item.bits[0])
        is_possible = 0 <= number < 1 << len(left.items)
        return Match(tuple(bits), value) if is_possible and len(bits) > MOST_BITS else None

    def _switch(self, node: Any) -> None:
        target = self.evaluator.value(node.target)
        cases = [
            [integer(determined(self.evaluator.value(label))) for label in values] for values, _ in node.cases
        ]
        bodies = [body.statements for _, body in node.cases]
        bodies.append([] if node.default is None else node.default.statements)
        # The number of the case as a function of the target; for a measured target a table of
        # cases. The first case that has the value wins, and the default is the last body.
        chosen = applied(
            lambda value: next((k for k, case in enumerate(cases) if integer(value) in case), len(cases)),
            target,
        )
        if not isinstance(chosen, Measured):
            self._block(bodies[chosen])
            return
        actions = [self._way(lambda body=body: self._block(body)) for body in bodies]  # type: ignore[misc]
        self.recorder.branch(chosen.bits, chosen.table, actions, assume=False)

    def _while(self, node: Any) -> None:
        self.quantum.outside_definition()
        with self._again():
            while True:
                self._count_round()
                before = self.recorder.effects
                holds = applied(truth, self.evaluator.value(node.while_condition))
                # From here on measured bits decide how many rounds there are: the rest becomes a loop of the
                # program. Rounds before it that were decided at reading time stand before the loop.
                if isinstance(holds, Measured):
                    if self.recorder.effects != before:
                        raise Mistake("measures in its condition", "measure into a bit inside the loop")
                    self.recorder.loop(
                        lambda: applied(truth, self.evaluator.value(node.while_condition)),
                        self._way(lambda: self._block(node.block)),
                    )
                    return
                self.gates.spend()
                if not holds or not self._round(node.block):
                    return

    def _count_round(self) -> None:
        """Count a round of a loop that nobody knows to end."""
        self._rounds += 1
        if self._rounds > LARGEST_ROUNDS:
            raise Mistake(f"runs more than {LARGEST_ROUNDS} rounds", "let it end, or write a for loop")

    def _round(self, statements: Sequence[Any]) -> bool:
        """One round of a loop; whether there may be another one."""
        n_blocks, n_live = len(self.scopes.blocks), len(self.recorder.live)
        try:
            self._block(statements)
        except Jump as jump:
            if jump.word not in ("break", "continue"):
                raise
            del self.scopes.blocks[n_blocks:]
            del self.recorder.live[n_live:]
            return jump.word == "continue"
        return True

    def _for(self, node: Any) -> None:
        kind, name = self.evaluator.type(node.type), node.identifier.name
        values = self._values(node.set_declaration)
        # A round and each statement of it count one at least. A loop of too many is refused before the first,
        # unless it may be left; then it is one that nobody knows to end.
        must_be_left = not self.gates.has_room(_count(values) * (1 + len(node.block)))
        if must_be_left and not _may_be_left(node.block):
            self.gates.refuse()
        with self._again():
            for value in values:
                if must_be_left:
                    self._count_round()
                self.gates.spend()
                # Each round has its own variable and its own block: what a round declares is not
                # there in the next.
                with self.scopes.block():
                    slot = self.recorder.declare(Slot(self.declarations.convert(value, kind), kind))
                    self.scopes.define(name, slot)
                    is_last = not self._round(node.block)
                    self.recorder.live.remove(slot)
                if is_last:
                    return

    def _values(self, node: Any) -> Any:
        """What a loop goes over."""
        kind = type(node).__name__
        if kind == "RangeDefinition":
            return self.evaluator.numbers(node)
        if kind == "DiscreteSet":
            return [self.evaluator.value(entry) for entry in node.values]
        collection = self.evaluator.named(node.name) if kind == "Identifier" else self.evaluator.value(node)
        if isinstance(collection, Bits):
            return [self.recorder.read(slot) for slot in collection.slots]
        items = self.declarations.items(collection)
        if items is None:
            raise Mistake(
                "loops over something that is not a range", "write [first:last], a set, bits or an array"
            )
        return items

    def _expression(self, node: Any) -> None:
        self.evaluator.value(node.expression)

    def _return(self, node: Any) -> None:
        value = None if node.expression is None else self.evaluator.value(node.expression)
        raise Jump("return", value)


def _may_be_left(statements: Sequence[Any]) -> bool:
    """Whether a loop may end before its last round, or a round before its last statement."""
    waiting: list[Any] = [statements]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list | tuple):
            waiting += item
        elif type(item).__name__ in LEAVING:
            return True
        elif is_dataclass(item):
            waiting += vars(item).values()
    return False


def _count(values: Sequence[Any]) -> int:
    """How many there are, at least, also of a range that is too long for `len`."""
    if not isinstance(values, range):
        return len(values)
    return max(0, (values.stop - values.start) // values.step)


def _jump(word: str) -> None:
    raise Jump(word)


NO_PARAMETERS: Mapping[str, Any] = {}


def parse_qasm_program(
    text: str, place: str, parameters: Mapping[str, Any] = NO_PARAMETERS
) -> CircuitProgram:
    """Parse an OpenQASM program that is no file; `place` names it in errors."""
    return program_of(parse_source(text, place), parameters)


def program_of(source: Source, parameters: Mapping[str, Any]) -> CircuitProgram:
    """The program of statements, with values for their inputs."""
    run = _run(source, parameters, LARGEST_GATE)
    operations, n_bits, start, n_scratch = run.recorder.finished()
    n_qubits, barriers = run.evaluator.n_qubits, tuple(run.recorder.barriers)
    return located(
        source.place, lambda: CircuitProgram(n_qubits, n_bits, operations, start, n_scratch, barriers)
    )


def circuit_of(source: Source, parameters: Mapping[str, Any]) -> GateSequence:
    """The circuit of statements, with values for their inputs."""
    run = _run(source, parameters, LARGEST_OF_CIRCUIT)
    gates: list[Gate] = []
    done: set[int] = set()
    # A circuit for all engines: gates alone, each qubit measured at its end at most.
    for operation, place in zip(run.recorder.operations, run.recorder.places, strict=True):
        if isinstance(operation, Measurement):
            done.add(operation.qubit)
        elif isinstance(operation, Gate):
            again = [qubit for qubit in operation.qubits if qubit in done] if done else ()
            if again:
                raise InputError(
                    f"{place} ({operation.name})", f"acts on qubit {again[0]} after its measurement",
                    "measure only at the end of a circuit",
                )  # fmt: skip
            gates.append(operation)
        elif not isinstance(operation, BitAssignment):
            word = {"Conditional": "if", "WhileLoop": "while", "Reset": "reset"}[type(operation).__name__]
            raise InputError(
                f"{place} ({word})", "is not a gate",
                "use only gates and measure at the end, or simulate the file: tnplan statevector",
            )  # fmt: skip
    return located(source.place, lambda: GateSequence(run.evaluator.n_qubits, tuple(gates)))


def input_names(source: Source) -> tuple[str, ...]:
    """The inputs that a file declares."""
    return tuple(
        node.identifier.name for node in source.statements
        if type(node).__name__ == "IODeclaration" and node.io_identifier.name == "input"
    )  # fmt: skip


def _run(source: Source, parameters: Mapping[str, Any], largest_gate: int) -> Interpreter:
    run = Interpreter(parameters, largest_gate)
    try:
        run.run(source)
    except RecursionError:
        raise InputError(
            source.place, "nests subroutines, definitions or blocks too deeply", "use fewer levels"
        ) from None
    unused = sorted(set(parameters) - run.declarations.used)
    if unused:
        raise InputError(
            f"parameter {unused[0]}", f"is not an input of {source.place}",
            "leave it out, or declare it as an input, such as: input float NAME",
        )  # fmt: skip
    _warn_of_quotients(run.evaluator.cut_quotients)
    return run


def _warn_of_quotients(cut: Mapping[str, tuple[int, int]]) -> None:
    """Say once where quotients of integers lost a rest, by places and the integers there."""
    if not cut:
        return
    place, (x, y) = next(iter(cut.items()))
    others = f" (and so on {len(cut) - 1} more lines)" if len(cut) > 1 else ""
    quotient = BINARY["/"](x, y)
    warnings.warn(
        f"{place}: divides {described(x)} by {described(y)} as integers, which gives {described(quotient)}"
        f"{others}; for a real quotient write a decimal point, as in 1.0/2, or float(a)/b",
        stacklevel=3,
    )  # fmt: skip
