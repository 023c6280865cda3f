"""The text of an OpenQASM file: its comments, its version, and the statements of version 2 with their lines.

Refuses what the parser of version 2 does not stop at with a line. Knows no qiskit and no circuit of ours.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from tnplan.planner.common.errors import InputError
from tnplan.planner.networks.circuits.circuit import LARGEST_CIRCUIT

POSITION = re.compile(r"(?:<input>:|L)?(\d+)(?:,|:C)\d+: ")
"""How the messages of the parsers begin: `<input>:4,0: `, `4,0: ` or `L4:C0: `."""
QUOTE_OR_COMMENT = re.compile(r"""("[^"\n]*"|'[^'\n]*')|//[^\n]*|/\*.*?\*/""", re.DOTALL)
VERSION = re.compile(r"\s*OPENQASM\s+(\d+)")
DEFINITION = re.compile(r"\bgate\b[^{;]*\{[^}]*\}")
HEADER = re.compile(r"(?:gate|opaque)\s+(\w+)\s*(\(\s*\w)?")
REGISTER = re.compile(r"(qreg|creg)\s+(\w+)\s*\[\s*(\d+)\s*\]")
CONDITION = re.compile(r"^if\s*\([^)]*\)\s*")
NO_INSTRUCTION = re.compile(r"(OPENQASM|include|opaque|creg|qreg)\b")
NAME = re.compile(r"(\w+)\s*(\()?")
LONGEST_INTEGER = 18
TOO_LONG = re.compile(rf"(?:\[\s*|^OPENQASM\s[\s\d.]*)\d{{{LONGEST_INTEGER + 1}}}")


def without_comments(text: str) -> str:
    """The text with a space in the place of each comment; all else keeps its line."""
    return QUOTE_OR_COMMENT.sub(lambda found: found[1] or " " + "\n" * found[0].count("\n"), text)


def version(bare: str) -> str:
    """The number before the point in the first statement of a text without comments; 2 where it says none."""
    found = VERSION.match(bare)
    return "2" if found is None else found[1]


def check_2(bare: str, place: str, takes_angles: Mapping[str, bool]) -> None:
    """Refuse what qiskit gives no line for in a version 2 text without comments, or would build at any size.

    These are long integers, large registers, and gates without the angles that they take; `takes_angles` says
    which gates do that the text does not define.
    """
    takes, made = dict(takes_angles), Counter[str]()
    for line, statement in _statements(bare, "[;{}]"):
        if TOO_LONG.search(statement):
            raise InputError(
                f"{place}: line {line}", f"has an integer of more than {LONGEST_INTEGER} digits",
                "write a smaller one",
            )  # fmt: skip
        register, header = REGISTER.match(statement), HEADER.match(statement)
        if register is not None:
            made[register[1]] += int(register[3])
            if made[register[1]] > LARGEST_CIRCUIT:
                raise too_large(place, line)
        elif header is not None:
            takes[header[1]] = header[2] is not None
        else:
            name = NAME.match(CONDITION.sub("", statement))
            if name is not None and takes.get(name[1]) and name[2] is None:
                raise InputError(
                    f"{place}: line {line} ({name[1]})", "has no angles",
                    "give them in brackets behind its name",
                )  # fmt: skip


def too_large(place: str, line: int | None) -> InputError:
    """The error for registers that no circuit of ours has."""
    return InputError(
        place if line is None else f"{place}: line {line}",
        f"makes more than {LARGEST_CIRCUIT} qubits or bits", f"use {LARGEST_CIRCUIT} of each at most",
    )  # fmt: skip


def refusal(place: str, message: str, line: int | None) -> InputError:
    """The error for a message of a parser, which may begin with its own position."""
    position = POSITION.match(message)
    if position is not None:
        line, message = int(position[1]), message[position.end() :]
    return InputError(
        place if line is None else f"{place}: line {line}",
        f"is no OpenQASM that qiskit reads ({message})", "mend the file",
    )  # fmt: skip


def lines_2(bare: str) -> list[int | None]:
    """The line of each instruction of an OpenQASM 2 text without comments that qiskit reads.

    A statement on whole registers has an instruction for each of their qubits; what is behind a condition
    has two, the condition's and its own.
    """
    sizes: dict[str, int] = {}
    lines: list[int | None] = []
    for line, statement in _statements(DEFINITION.sub(lambda found: "\n" * found[0].count("\n"), bare), ";"):
        register = REGISTER.match(statement)
        if register is not None:
            sizes[register[2]] = int(register[3])
        if not NO_INSTRUCTION.match(statement):
            lines += [line] * _instructions(statement, sizes)
    return lines


def _statements(bare: str, ends: str) -> Iterator[tuple[int, str]]:
    """What stands between the `ends`, and the line on which it begins."""
    line = 1
    for part in re.split(ends, bare):
        statement = part.strip()
        if statement:
            yield line + part[: len(part) - len(part.lstrip())].count("\n"), statement
        line += part.count("\n")


def _instructions(statement: str, sizes: Mapping[str, int]) -> int:
    """How many instructions a statement of OpenQASM 2 has."""
    body = CONDITION.sub("", statement)
    each = 1 if body == statement else 2
    if re.match(r"barrier\b", body):
        return each
    if re.match(r"measure\b", body):
        body = body.split("->")[0]
    operands = re.sub(r"^\w+", "", body).rpartition(")")[2].split(",")
    return each * max(sizes.get(operand.strip(), 1) for operand in operands)
