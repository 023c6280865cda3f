"""qiskit's circuit of an OpenQASM 3 text, traced: the line of each instruction is kept.

What qiskit's importer reads as something else is mended (modifiers of `cu`) or refused (ranges).
"""

from __future__ import annotations

import io
import math
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tnplan.planner.common.errors import InputError
from tnplan.planner.networks.circuits.circuit import LARGEST_CIRCUIT
from tnplan.planner.networks.circuits.qasm.text import refusal, too_large

if TYPE_CHECKING:
    from qiskit import QuantumCircuit


@dataclass
class _Trace:
    """The line of the statement that the importer is at, and those of all instructions so far."""

    place: str
    at: int | None = None
    lines: list[int | None] = field(default_factory=list)

    def check_size(self, size: int) -> None:
        """Refuse more qubits or bits than a circuit of ours has."""
        if size > LARGEST_CIRCUIT:
            raise too_large(self.place, self.at)


def read_3(text: str, place: str) -> tuple[QuantumCircuit, list[int | None]]:
    """The circuit, and a line for each instruction; `place` names the text in errors."""
    from openqasm3.parser import QASM3ParsingError, parse

    trace = _Trace(place)
    tracer = _tracer(trace)
    try:
        with redirect_stderr(io.StringIO()):
            program = parse(text)
        return tracer.convert(program).circuit, trace.lines
    except QASM3ParsingError as error:
        raise refusal(place, str(error) or _syntax(error), trace.at) from None
    except (ImportError, InputError):
        raise
    except Exception as error:
        raise refusal(place, getattr(error, "message", str(error)), trace.at) from None


def _tracer(trace: _Trace) -> Any:
    """qiskit's importer, which puts what it passes into `trace`."""
    from openqasm3 import ast
    from qiskit.circuit.library import CUGate
    from qiskit_qasm3_import import ConversionError
    from qiskit_qasm3_import.converter import ConvertVisitor

    blocks = (ast.BranchingStatement, ast.WhileLoop, ast.ForInLoop, ast.Box)
    comparisons = (ast.BinaryOperator["=="], ast.BinaryOperator["!="])
    circuit, resolver, plain_cu = _circuit(trace), _resolver(trace), _plain_cu()

    class Tracer(ConvertVisitor):
        def visit(self, node: Any, context: Any = None) -> Any:
            trace.at = trace.at if node.span is None else node.span.start_line
            if isinstance(node, blocks):
                trace.lines.append(trace.at)
            return super().visit(node, context)

        def visit_Program(self, node: Any, context: Any) -> Any:  # noqa: N802
            context.circuit = circuit
            return super().visit_Program(node, context)

        def visit_QuantumPhase(self, node: Any, context: Any) -> Any:  # noqa: N802
            result = super().visit_QuantumPhase(node, context)
            phase = context.circuit.global_phase
            if isinstance(phase, float) and not math.isfinite(phase):
                raise ConversionError("gphase: the angle is not finite", node)
            return result

        def _apply_gate_modifier(self, modifier: Any, gate: Any, context: Any) -> Any:
            if isinstance(gate, CUGate) and gate.ctrl_state == 1:
                gate = plain_cu(*gate.params)
            return super()._apply_gate_modifier(modifier, gate, context)

        def _resolve_generic(self, node: Any, context: Any, strict: bool) -> Any:
            return resolver(context, strict).resolve(node)

        def _resolve_constant_int(self, node: Any, context: Any) -> Any:
            value = super()._resolve_constant_int(node, context)
            trace.check_size(value)
            return value

        def _resolve_condition(self, node: Any, context: Any) -> Any:
            if isinstance(node, ast.BinaryExpression) and node.op in comparisons:
                for side in (node.lhs, node.rhs):
                    self._resolve_generic(side, context, strict=True)
            return super()._resolve_condition(node, context)

    return Tracer()


def _circuit(trace: _Trace) -> QuantumCircuit:
    """An empty circuit that keeps the line of each instruction and refuses to be too large."""
    from qiskit import QuantumCircuit
    from qiskit.circuit import ControlFlowOp

    class Traced(QuantumCircuit):
        def append(self, instruction: Any, *arguments: Any, **options: Any) -> Any:
            added = super().append(instruction, *arguments, **options)
            if not isinstance(instruction, ControlFlowOp):
                trace.lines.extend([trace.at] * len(added))
            return added

        def add_register(self, *registers: Any) -> None:
            super().add_register(*registers)
            trace.check_size(max(self.num_qubits, self.num_clbits))

    return Traced()


def _resolver(trace: _Trace) -> Any:
    """The importer's resolver of values, which refuses ranges that it takes for others."""
    from openqasm3 import ast
    from qiskit_qasm3_import import ConversionError
    from qiskit_qasm3_import.expression import ValueResolver

    class Resolver(ValueResolver):
        def visit_Identifier(self, node: Any) -> Any:  # noqa: N802
            if node.name.startswith("$"):
                trace.check_size(int(node.name[1:]) + 1)
            return super().visit_Identifier(node)

        def _index_collection(self, collection: Any, kind: Any, indexer: Any, base: Any) -> Any:
            value, found = super()._index_collection(collection, kind, indexer, base)
            part = indexer[0] if isinstance(indexer, list) else None
            if isinstance(part, ast.RangeDefinition):
                ends = (part.start, part.end, part.step)
                start, end, step = (None if one is None else self.visit(one)[0] for one in ends)
                if list(value) != [collection[k] for k in _range(len(collection), start, end, step or 1)]:
                    message = "a range that it takes for another one: list its indices in braces"
                    raise ConversionError(message, base)
            return value, found

    return Resolver


def _plain_cu() -> Any:
    """The gate `cu` as no controlled gate: the inverse of a control of qiskit's own has no fourth angle."""
    from qiskit.circuit import Gate
    from qiskit.circuit.library import CUGate

    class PlainCU(Gate):
        def __init__(self, *angles: Any) -> None:
            super().__init__("cu", 2, list(angles))

        def _define(self) -> None:
            self.definition = CUGate(*self.params).definition

        def inverse(self, annotated: bool = False) -> Any:
            theta, phi, lam, gamma = self.params
            return PlainCU(-theta, -lam, -phi, -gamma)

    return PlainCU


def _range(size: int, start: int | None, end: int | None, step: int) -> range:
    """The indices of a range of OpenQASM 3, both ends included, in a register of `size` bits."""
    first, last = (0, size - 1) if step > 0 else (size - 1, 0)
    first, last = first if start is None else start, last if end is None else end
    if not (-size <= first < size and -size <= last < size):
        raise IndexError("index out of range")
    return range(first % size, last % size + (1 if step > 0 else -1), step)


def _syntax(error: Exception) -> str:
    """Where the parser of OpenQASM 3 stopped, in the form of its other messages."""
    cause: Any = error.__cause__
    if cause is not None and cause.args and isinstance(cause.args[0], Exception):
        cause = cause.args[0]
    token = getattr(cause, "offendingToken", None)
    if token is None:
        return "a syntax error"
    what = "the file ends too soon" if token.text == "<EOF>" else f"unexpected {token.text!r}"
    return f"L{token.line}:C{token.column}: {what}"
