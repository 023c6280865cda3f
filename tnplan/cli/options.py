"""Option types that commands share: names of files, sizes in bytes and counts, parsed in one place."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import click

UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
LARGEST = 2**100


class FileType(click.Path):
    """The path of a file. An empty one, as an unset variable of a shell gives, is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, of the type that `path_type` says."""
        if value == "":
            self.fail("the path is empty; give the name of a file", param, ctx)
        return super().convert(value, param, ctx)


class SizeType(click.ParamType):
    """Bytes: `1048576`, `1.5GiB`, `80GB`, and `unlimited` (infinity) where `unlimited` is set."""

    name = "SIZE"

    def __init__(self, *, unlimited: bool) -> None:
        self.unlimited = unlimited

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number of bytes, an int unless unlimited."""
        if isinstance(value, int | float):
            return value
        text = str(value).strip()
        if self.unlimited and text.lower() == "unlimited":
            return math.inf
        match = re.fullmatch(r"([0-9]{1,30}(?:\.[0-9]{1,30})?) ?([kmgt]i?b|b)?", text, re.IGNORECASE)
        if match is not None:
            size_bytes = round(float(match[1]) * UNITS[(match[2] or "").lower()])
            if 1 <= size_bytes <= LARGEST:
                return size_bytes
        more = ", or unlimited" if self.unlimited else ""
        self.fail(
            f"{text!r} is no size; write bytes, or a number with KiB, MiB, GiB, TiB, kB, MB, GB or TB{more}"
        )


class CountType(click.ParamType):
    """A positive integer: `4194304`, or a power such as `2^32`."""

    name = "COUNT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        if isinstance(value, int):
            return value
        text = str(value).strip()
        match = re.fullmatch(r"([0-9]{1,30})(?:(?:\^|\*\*)([0-9]{1,2}))?", text)
        if match is not None:
            count = int(match[1]) ** int(match[2] or 1)
            if 1 <= count <= LARGEST:
                return count
        self.fail(f"{text!r} is no count; write a positive integer or a power such as 2^32")


class QubitsType(click.ParamType):
    """Qubits, separated by commas: `0,3,5`."""

    name = "Q,Q,..."

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The numbers of the qubits, in the order given."""
        if isinstance(value, tuple):
            return value
        if re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", str(value)) is None:
            self.fail(f"{value!r} names no qubits; write their numbers with commas, such as 0,3,5")
        return tuple(map(int, str(value).split(",")))


FILE = FileType(path_type=Path)
PROFILE = FileType(path_type=str)
"""The name of a shipped hardware profile, or of a TOML file."""
SIZE = SizeType(unlimited=True)
COUNT = CountType()
QUBITS = QubitsType()
