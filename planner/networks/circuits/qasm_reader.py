"""qiskit's circuit of an OpenQASM 2 or 3 text (extra `qasm`), and the line of each of its instructions.

Raises InputError with a line for all that qiskit does not read. Knows no circuit of ours.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from typing import TYPE_CHECKING, Any

from planner.errors import InputError

if TYPE_CHECKING:
    from qiskit import QuantumCircuit

WORDS = {"while_loop": "while", "for_loop": "for", "if_else": "if", "break_loop": "break"}
"""The words of OpenQASM for operations that qiskit names otherwise."""

POSITION = re.compile(r"(?:<input>:|L)?(\d+)(?:,|:C)\d+: ")
"""How the messages of the parsers begin: `<input>:4,0: `, `4,0: ` or `L4:C0: `."""
COMMENT = re.compile(r"//[^\n]*")
DEFINITION = re.compile(r"\bgate\b[^{;]*\{[^}]*\}")
REGISTER = re.compile(r"qreg\s+(\w+)\s*\[\s*(\d+)\s*\]")
CONDITION = re.compile(r"if\s*\([^)]*\)\s*")
NO_INSTRUCTION = re.compile(r"(OPENQASM|include|opaque|creg|qreg)\b")


def read_qiskit(text: str, place: str) -> tuple[QuantumCircuit, Iterator[int | None]]:
    """The circuit, and a line for each instruction, those inside a condition after the condition's own.

    A text says which version it is in its first statement (none: 2). Lines are None where they are not
    known, such as where an included file has instructions. `place` names the text in errors.
    """
    version = re.search(r"^\s*OPENQASM\s+(\d)", text, re.MULTILINE)
    if version is not None and version[1] == "3":
        circuit, lines = _imported(lambda: _read_3(text, place), place, "OpenQASM 3", "qiskit-qasm3-import")
    else:
        circuit, lines = _imported(lambda: _read_2(text, place), place, "OpenQASM", "qiskit"), lines_2(text)
    n_instructions = _count(circuit)
    return circuit, iter(lines if len(lines) == n_instructions else [None] * n_instructions)


def instruction_place(name: str, number: int, line: int | None) -> str:
    """What errors call an instruction: its line, or its number where that is not known."""
    where = f"instruction {number}" if line is None else f"line {line}"
    return f"{where} ({WORDS.get(name, name)})"


def lines_2(text: str) -> list[int | None]:
    """The line of each instruction of an OpenQASM 2 text that qiskit reads.

    A statement on whole registers has an instruction for each of their qubits; what is behind a condition
    has two, the condition's and its own.
    """
    bare = DEFINITION.sub(lambda found: "\n" * found[0].count("\n"), COMMENT.sub("", text))
    sizes: dict[str, int] = {}
    lines: list[int | None] = []
    line = 1
    for part in bare.split(";"):
        statement = part.strip()
        at = line + part[: len(part) - len(part.lstrip())].count("\n")
        line += part.count("\n")
        register = REGISTER.match(statement)
        if register is not None:
            sizes[register[1]] = int(register[2])
        if statement and not NO_INSTRUCTION.match(statement):
            lines += [at] * _instructions(statement, sizes)
    return lines


def _instructions(statement: str, sizes: dict[str, int]) -> int:
    """How many instructions a statement of OpenQASM 2 has."""
    body = CONDITION.sub("", statement, count=1)
    each = 1 if body == statement else 2
    if re.match(r"barrier\b", body):
        return each
    if re.match(r"measure\b", body):
        body = body.split("->")[0]
    operands = re.sub(r"^\w+", "", body).rpartition(")")[2].split(",")
    return each * max(sizes.get(operand.strip(), 1) for operand in operands)


def _count(circuit: QuantumCircuit) -> int:
    """Instructions of a circuit with those inside its conditions."""
    return sum(
        1 + sum(_count(block) for block in getattr(instruction.operation, "blocks", ()))
        for instruction in circuit.data
    )


def _imported(read: Callable[[], Any], place: str, what: str, package: str) -> Any:
    try:
        return read()
    except ImportError:
        raise InputError(
            place, f"{what} needs {package}", "install it with: pip install 'tnplan[qasm]'"
        ) from None


def _read_2(text: str, place: str) -> QuantumCircuit:
    import qiskit.qasm2

    try:
        return qiskit.qasm2.loads(text, custom_instructions=qiskit.qasm2.LEGACY_CUSTOM_INSTRUCTIONS)
    except Exception as error:
        raise _refusal(place, getattr(error, "message", str(error)), None) from None


def _read_3(text: str, place: str) -> tuple[QuantumCircuit, list[int | None]]:
    """Traces qiskit's importer: the line of the statement that it is at goes to what this appends."""
    from openqasm3 import ast
    from openqasm3.parser import QASM3ParsingError, parse
    from qiskit import QuantumCircuit
    from qiskit.circuit import ControlFlowOp
    from qiskit_qasm3_import import ConversionError
    from qiskit_qasm3_import.converter import ConvertVisitor

    blocks = (ast.BranchingStatement, ast.WhileLoop, ast.ForInLoop, ast.Box)
    lines: list[int | None] = []
    at: int | None = None

    class Traced(QuantumCircuit):
        def append(self, instruction: Any, *arguments: Any, **options: Any) -> Any:
            added = super().append(instruction, *arguments, **options)
            if not isinstance(instruction, ControlFlowOp):
                lines.extend([at] * len(added))
            return added

    class Tracer(ConvertVisitor):
        def visit(self, node: Any, context: Any = None) -> Any:
            nonlocal at
            at = at if node.span is None else node.span.start_line
            if isinstance(node, blocks):
                lines.append(at)
            return super().visit(node, context)

        def visit_Program(self, node: Any, context: Any) -> Any:  # noqa: N802
            context.circuit = Traced()
            return super().visit_Program(node, context)

        def visit_QuantumPhase(self, node: Any, context: Any) -> Any:  # noqa: N802
            result = super().visit_QuantumPhase(node, context)
            phase = context.circuit.global_phase
            if isinstance(phase, float) and not math.isfinite(phase):
                raise ConversionError("gphase: the angle is not finite", node)
            return result

    try:
        with redirect_stderr(io.StringIO()):
            program = parse(text)
        return Tracer().convert(program).circuit, lines
    except QASM3ParsingError as error:
        raise _refusal(place, str(error) or _syntax(error), at) from None
    except ImportError:
        raise
    except Exception as error:
        raise _refusal(place, getattr(error, "message", str(error)), at) from None


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


def _refusal(place: str, message: str, line: int | None) -> InputError:
    """The error for a message of a parser, which may begin with its own position."""
    position = POSITION.match(message)
    if position is not None:
        line, message = int(position[1]), message[position.end() :]
    return InputError(
        place if line is None else f"{place}: line {line}",
        f"is no OpenQASM that qiskit reads ({message})", "mend the file",
    )  # fmt: skip
