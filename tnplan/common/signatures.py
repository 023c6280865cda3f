"""Signatures of calls: the texts of parameters in NumPy docstrings, and types that are imported late."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

INDENT = "    "


@dataclass(frozen=True)
class ParameterText:
    """What a docstring says of a parameter: its kind, such as "int, optional", and its text in lines."""

    kind: str
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The text in one line."""
        return " ".join(self.lines)

    def entry(self, name: str) -> list[str]:
        """The lines that describe a parameter of this name."""
        return [f"{name} : {self.kind}" if self.kind else name, *(f"{INDENT}{line}" for line in self.lines)]


def parameter_texts(docstring: str | None) -> dict[str, ParameterText]:
    """What the section Parameters says of each name; `a, b : int` describes two with the same text."""
    section = inspect.cleandoc(docstring or "").partition("\nParameters\n")[2].partition("\n\n")[0]
    texts: dict[str, ParameterText] = {}
    names, kind, lines = "", "", list[str]()
    for line in [*section.splitlines()[1:], "end"]:
        if line.startswith(INDENT):
            lines.append(line.strip())
            continue
        texts |= {name.strip(): ParameterText(kind, tuple(lines)) for name in names.split(",") if name}
        (names, _, kind), lines = line.partition(" : "), []
    return texts


def texts_of(call: Callable[..., Any]) -> dict[str, ParameterText]:
    """What the docstring of a call says of its parameters; that of a class adds to those that it extends."""
    texts: dict[str, ParameterText] = {}
    for kind in reversed(call.__mro__) if isinstance(call, type) else (call,):
        texts |= parameter_texts(kind.__doc__)
    return texts


def with_entries(docstring: str, name: str, texts: dict[str, ParameterText]) -> str:
    """The docstring with other entries in place of that of one name."""
    lines = inspect.cleandoc(docstring).splitlines()
    first = lines.index(name)
    after = next(k for k in range(first + 1, len(lines)) if not lines[k].startswith(INDENT))
    entries = [line for parameter, text in texts.items() for line in text.entry(parameter)]
    return "\n".join([*lines[:first], *entries, *lines[after:]])


class LaterModule:
    """Stands for a module until one of its names is used.

    A call imports what it needs while a GPU begins, so that its own module imports little. With this
    `typing.get_type_hints` finds the types all the same. Type checkers see the module itself.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)
