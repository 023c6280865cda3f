"""The text of an OpenQASM file becomes statements, each with its line. Knows the grammar, not the meaning.

The reference parser (extra `qasm`) reads what people write by hand. It takes 0.2 ms a statement, so that
gates and measurements of indexed qubits outside of blocks, of which long files consist, are read here: their
text is blanked out before the reference parser sees the rest, and all is put together in the file's order.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tnplan.circuits.qasm.values import Mistake
from tnplan.common.errors import InputError

QUOTE_OR_COMMENT = re.compile(r"""("[^"\n]*"|'[^'\n]*')|//[^\n]*|/\*.*?\*/""", re.DOTALL)
VERSION = re.compile(r"\s*OPENQASM\s+(\d+)")
MARKS_2 = re.compile(r"\b(?:qreg|creg)\b|qelib1\.inc")
MARKS_3 = re.compile(r"\b(?:qubit|bit|def|input|output|let|const|uint|gphase|ctrl|inv|pow)\b|stdgates\.inc")
ENDS = re.compile(r"""["'][^"'\n]*["']|[{};]""")
NAME = r"[^\W\d]\w*"
OPERAND = rf"{NAME}\s*\[\s*\d+\s*\]"
PLAIN_GATE = re.compile(
    rf"\s*({NAME})\s*(?:\(([^()]*(?:\([^()]*\)[^()]*)*)\)\s*|\s)({OPERAND}(?:\s*,\s*{OPERAND})*)\s*;"
)
INDEXED = re.compile(rf"({NAME})\s*\[\s*(\d+)\s*\]")
PLAIN_MEASUREMENT = re.compile(
    rf"\s*(?:({OPERAND})\s*=\s*measure\s+({OPERAND})|measure\s+({OPERAND})\s*->\s*({OPERAND}))\s*;"
)
NO_GATES = frozenset((
    "qreg", "creg", "reset", "measure", "barrier", "qubit", "bit", "let", "return", "delay", "nop",
    "int", "uint", "float", "angle", "bool", "complex", "const", "duration", "stretch", "input",
    "output", "else", "end", "break", "continue", "gphase", "include", "OPENQASM", "pragma",
    "opaque",
))  # fmt: skip
"""Words that stand before an indexed name and are no gates."""
COMMA = re.compile(r",(?![^(]*\))")
"""A comma that is in no brackets, where none are inside others."""
FLOAT = re.compile(r"\s*-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*")
WORDS_3 = frozenset((
    "def", "cal", "defcal", "extern", "box", "let", "break", "continue", "else", "end", "return",
    "for", "while", "in", "switch", "case", "default", "pragma", "input", "output", "const",
    "readonly", "mutable", "qubit", "void", "bool", "bit", "int", "uint", "float", "angle",
    "complex", "array", "duration", "stretch", "gphase", "inv", "pow", "ctrl", "negctrl",
    "durationof", "sizeof", "delay", "nop", "defcalgrammar", "im", "true", "false",
))  # fmt: skip
"""Words of OpenQASM 3 that are names as any other in OpenQASM 2."""
CHANGED_WORDS = WORDS_3 | {"opaque"}
"""Words of a text of version 2 that `_as_version_3` changes."""
ESCAPE = "\u02b9"
"""Behind such a name of version 2, so that the reference parser takes it for one: a letter, in no file."""
WORD_OR_POWER = re.compile(rf'"[^"\n]*"|\^|\bopaque\b[^;]*;|{NAME}')
LINE_END = re.compile(r" +$", re.MULTILINE)
"""Blanks before the end of a line, which the reference parser would read one by one."""
LONGEST_NESTING = 200
"""Brackets inside brackets: the reference parser calls itself for each."""
LONGEST_NUMBER = 4000
"""Digits of an integer: Python refuses to read more than 4300."""
QUOTED_OR_LONG = re.compile(rf"""["'][^"'\n]*["']|\w{{{LONGEST_NUMBER + 1},}}""")


FOLDERS_VARIABLE = "TNPLAN_INCLUDE_PATH"
"""Environment variable: more folders whose files may be included, with colons between them."""


@dataclass(slots=True)
class PlainGate:
    """A gate on indexed qubits; `arguments` are numbers or nodes of the reference parser."""

    name: str
    arguments: tuple[Any, ...]
    operands: tuple[tuple[str, int], ...]
    line: int


@dataclass(slots=True)
class PlainMeasurement:
    """The value of an indexed qubit goes to an indexed bit."""

    qubit: tuple[str, int]
    target: tuple[str, int]
    line: int


@dataclass(frozen=True, eq=False)
class Source:
    """The statements of a file in their order, and the version of its language, 2 or 3.

    Files that it includes lie below `folder`; None where there is no file.
    """

    place: str
    version: int
    statements: tuple[Any, ...]
    folder: Path | None = None


def parse_source(text: str, place: str, version: int | None = None, folder: Path | None = None) -> Source:
    """The statements of a text; `place` names it in errors.

    `version` is that of the file that includes this one, and None where none does. `folder` is that of the
    file that has the text.
    """
    # Blanks in the place of comments: all else keeps its line and its column.
    bare = QUOTE_OR_COMMENT.sub(lambda match: match[1] or _blank(match[0]), text)
    if version is None:
        version = language_version(bare, place)
    words = frozenset(re.findall(r"\w+", bare))
    if version == 2 and ("^" in bare or not words.isdisjoint(CHANGED_WORDS)):
        bare = _as_version_3(bare)
    _check_nesting(bare, place)
    if max(map(len, words), default=0) > LONGEST_NUMBER:
        _check_numbers(bare, place)
    plain: list[tuple[int, int, Any]] = list(_plain(bare))
    pieces, end = [], 0
    for begin, stop, _ in plain:
        # Plain statements are blanked and not cut out: line numbers of what the reference parser
        # reads stay right.
        pieces += [bare[end:begin], _blank(bare[begin:stop])]
        end = stop
    parsed = _parse(LINE_END.sub("", "".join([*pieces, bare[end:]])), place)
    placed = [((item.line, begin - bare.rfind("\n", 0, begin) - 1), item) for begin, _, item in plain]
    placed += [((node.span.start_line, node.span.start_column), node) for node in parsed]
    # Statements of both readers in the order of the file, by line and column.
    placed.sort(key=lambda pair: pair[0])
    return Source(place, version, tuple(item for _, item in placed), folder)


def included_file(name: str, beside: str, own: Path | None) -> Path:
    """The file that an `include` in the file `beside` names; Mistake where there is none that may be read.

    `own` is the folder of the circuit's file, None for a circuit that is no file. Links count as the files
    that they lead to.
    """
    named = [Path(folder) for folder in os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep) if folder]
    is_outside = own is None or Path(name).is_absolute() or ".." in Path(name).parts
    # Invariant: no file is opened whose real path, links followed, lies outside of the allowed
    # folders. A circuit from elsewhere must not read this user's files into error messages.
    allowed = [folder.resolve() for folder in (named if is_outside else [*named, own]) if folder is not None]
    for folder in (Path(beside).parent, *named):
        try:
            file = (folder / name).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):  # not there; links in a circle; no name of a file
            continue
        if any(file.is_relative_to(root) for root in allowed):
            return folder / name
        is_outside = True
    if not is_outside:
        raise Mistake(
            f"includes {name!r}, which is not there", "put that file into the same folder as this one"
        )
    if own is None:
        problem = f"includes {name!r}, but this text is not in a folder"
        raise Mistake(problem, f"name the folder of that file in {FOLDERS_VARIABLE}")
    raise Mistake(
        f"includes {name!r}, which is outside of the circuit's folder",
        f"put the file below that folder, or name its own in {FOLDERS_VARIABLE}",
    )


def language_version(bare: str, place: str) -> int:
    """The version of a text without comments: what it says, else what its words show."""
    match = VERSION.match(bare)
    if match is None:
        return 2 if MARKS_2.search(bare) and not MARKS_3.search(bare) else 3
    if match[1] not in ("2", "3"):
        line = bare[: match.end()].count("\n") + 1
        raise InputError(f"{place}: line {line}", f"is OpenQASM {match[1][:20]}", "write OPENQASM 2.0 or 3.0")
    return int(match[1])


def shown(name: str) -> str:
    """A name as the file has it."""
    return name.removesuffix(ESCAPE)


def parse_value(text: str, place: str) -> Any:
    """The node of one expression."""
    statements = _parse(f"({text});", place)
    if len(statements) != 1 or not hasattr(statements[0], "expression"):
        raise InputError(place, f"{text[:40]!r} is not a value", "write a number, such as 0.3 or pi/4")
    return statements[0].expression


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text) if "\n" in text else " " * len(text)


def _as_version_3(bare: str) -> str:
    """A text of version 2 in the words of version 3: `**` for `^`, no `opaque`, no words of version 3."""

    def changed(match: re.Match[str]) -> str:
        word = match[0]
        if word == "^":
            return "**"
        if word.startswith("opaque") and word.endswith(";"):
            return _blank(word)
        return word + ESCAPE if word in WORDS_3 else word

    return WORD_OR_POWER.sub(changed, bare)


def _check_nesting(bare: str, place: str) -> None:
    """Refuse brackets that are nested deeper than the reference parser can go."""
    depth = 0
    for bracket in re.finditer(r"[][(){}]", bare):
        depth += 1 if bracket[0] in "([{" else -1
        if depth > LONGEST_NESTING:
            line = bare.count("\n", 0, bracket.start()) + 1
            raise InputError(
                f"{place}: line {line}",
                f"has brackets nested more than {LONGEST_NESTING} levels deep",
                "use fewer levels",
            )


def _check_numbers(bare: str, place: str) -> None:
    """Refuse integers of more digits than Python reads."""
    for match in QUOTED_OR_LONG.finditer(bare):
        if match[0].isdigit():
            line = bare.count("\n", 0, match.start()) + 1
            raise InputError(
                f"{place}: line {line}", f"has a number of {len(match[0])} digits",
                f"write numbers of {LONGEST_NUMBER} digits at most",
            )  # fmt: skip


def _plain(bare: str) -> Iterator[tuple[int, int, PlainGate | PlainMeasurement]]:
    """Where plain statements begin and end, and what they are: those outside of blocks."""
    begin, line, counted = 0, 1, 0
    while True:
        match = PLAIN_GATE.match(bare, begin) or PLAIN_MEASUREMENT.match(bare, begin)
        item = None if match is None else _plain_item(match)
        if match is None or item is None:
            begin = _statement_end(bare, begin)
            if begin < 0:
                return
            continue
        start = begin
        while bare[start].isspace():
            start += 1
        begin = match.end()
        # Counted on from the last plain statement, so that long files take linear time.
        line += bare.count("\n", counted, start)
        counted = start
        item.line = line
        yield start, begin, item


def _statement_end(bare: str, begin: int) -> int:
    """Where a statement ends that is not plain, with all blocks that it has; -1 at the end of the text."""
    depth = 0
    # Inside of braces the meaning depends on the block, which is for the reference parser.
    for end in ENDS.finditer(bare, begin):
        depth += (end[0] == "{") - (end[0] == "}")
        if depth == 0 and end[0] in ";}":
            return end.end()
    return -1


def _plain_item(match: re.Match[str]) -> PlainGate | PlainMeasurement | None:
    if match.re is PLAIN_GATE:
        name, text, operands = match.groups()
        arguments = None if name in NO_GATES else _arguments(text)
        if arguments is None:
            return None
        return PlainGate(name, arguments, _indexed(operands), 0)
    target, qubit = (match[1], match[2]) if match[1] else (match[4], match[3])
    return PlainMeasurement(_indexed(qubit)[0], _indexed(target)[0], 0)


@lru_cache(4096)
def _indexed(text: str) -> tuple[tuple[str, int], ...]:
    """Names with their indices."""
    return tuple((name, int(index)) for name, index in INDEXED.findall(text))


def _arguments(text: str | None) -> tuple[Any, ...] | None:
    """The arguments of a gate; None for what the reference parser is to see in its place."""
    if text is None:
        return ()
    values = [_argument(argument) for argument in COMMA.split(text)]
    return None if None in values else tuple(values)


def _argument(text: str) -> Any:
    if FLOAT.fullmatch(text):
        value = text.strip()
        return int(value) if len(value) < 16 and value.isdigit() else float(value)
    return _parsed_argument(text)


@lru_cache(4096)
def _parsed_argument(text: str) -> Any:
    try:
        return parse_value(text, "")
    except InputError:
        return None


def _parse(text: str, place: str) -> list[Any]:
    """The statements that the reference parser finds."""
    if not text.strip():
        return []
    try:
        from openqasm3.parser import QASM3ParsingError, parse
    except ImportError:
        raise InputError(
            place,
            "OpenQASM needs the package openqasm3",
            "install it with: pip install 'tnplan[qasm]'",
            topic="installation",
        ) from None
    try:
        with redirect_stderr(io.StringIO()):
            return list(parse(text).statements)
    except QASM3ParsingError as error:
        raise _refusal(place, str(error) or _syntax(error)) from None
    except RecursionError:
        raise InputError(place, "is nested too deeply", "nest fewer blocks and brackets") from None
    except ValueError as error:
        raise _refusal(place, str(error)) from None


def _refusal(place: str, message: str) -> InputError:
    """The error for a message of the parser, which may begin with its own position."""
    position = re.match(r"L(\d+):C\d+: ", message)
    if position is not None:
        place, message = f"{place}: line {position[1]}", message[position.end() :]
    return InputError(place, f"is not OpenQASM ({message.replace(ESCAPE, '')})", "correct the file")


def _syntax(error: Exception) -> str:
    """Where the parser stopped, in the form of its other messages."""
    cause: Any = error.__cause__
    if cause is not None and cause.args and isinstance(cause.args[0], Exception):
        cause = cause.args[0]
    token = getattr(cause, "offendingToken", None)
    if token is None:
        return "a syntax error"
    problem = "the file ends too soon" if token.text == "<EOF>" else f"unexpected {token.text[:40]!r}"
    return f"L{token.line}:C{token.column}: {problem}"
