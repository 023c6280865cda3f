"""The names of a file: variables, registers, qubits, subroutines, and which of them a place can see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tnplan.circuits.qasm.recorder import Slot
from tnplan.circuits.qasm.source import shown
from tnplan.circuits.qasm.values import Mistake, Type


@dataclass(frozen=True, eq=False)
class Bits:
    """A bit or a register of bits; bit 0 is the first, and the least significant."""

    slots: tuple[Slot, ...]
    is_single: bool = False

    @property
    def type(self) -> Type:
        """The type of its value."""
        return Type("bit", None if self.is_single else len(self.slots))


@dataclass(frozen=True, eq=False)
class Qubits:
    """A qubit or a register of qubits, by their numbers."""

    numbers: tuple[int, ...]
    is_single: bool = False


@dataclass(frozen=True, eq=False)
class Array:
    """An array of classical values; `slots` are nested lists."""

    base: Type
    slots: Any


@dataclass(frozen=True, eq=False)
class Subroutine:
    """A `def` of a file; `arguments`, `body` and `result` are nodes of the parser."""

    name: str
    arguments: Sequence[Any]
    body: Sequence[Any]
    result: Any
    place: str


@dataclass(frozen=True, eq=False)
class Ignored:
    """A name of what has no meaning here: a duration, or an `extern`, which cannot be called."""

    description: str


Named = Slot | Bits | Qubits | Array | Subroutine | Ignored


@dataclass
class Scopes:
    """What names stand for, the innermost block last; a subroutine sees the whole file and itself."""

    blocks: list[dict[str, Named]] = field(default_factory=lambda: [{}])

    in_definition: bool = False
    """Whether the innermost subroutine is the definition of a gate."""
    _is_inside: bool = False

    def find(self, name: str) -> Named | None:
        """What a name stands for."""
        for block in reversed(self.blocks):
            if name in block:
                return block[name]
        return None

    def is_global(self, name: str) -> bool:
        """Whether a name is one of the file, seen from inside a subroutine."""
        return self._is_inside and not any(name in block for block in self.blocks[1:])

    def define(self, name: str, symbol: Named) -> None:
        """Give a name to something; no name stands for two things in one block."""
        if name in self.blocks[-1]:
            raise Mistake(f"declares {shown(name)!r}, which already exists", "choose another name")
        self.blocks[-1][name] = symbol

    @contextmanager
    def block(self) -> Iterator[None]:
        """Names inside are forgotten after it."""
        self.blocks.append({})
        try:
            yield
        finally:
            self.blocks.pop()

    @contextmanager
    def subroutine(self, in_definition: bool = False) -> Iterator[None]:
        """Inside, the names of the file are seen and those of the caller are not."""
        before = self.blocks, self._is_inside, self.in_definition
        self.blocks, self._is_inside, self.in_definition = [self.blocks[0], {}], True, in_definition
        try:
            yield
        finally:
            self.blocks, self._is_inside, self.in_definition = before
