"""Option types that commands share: names of files, sizes in bytes and counts, parsed in one place."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tnplan.common.errors import InputError
from tnplan.common.units import LARGEST, size_in_bytes


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
        try:
            return size_in_bytes(
                value if isinstance(value, int | float) else str(value), "", unlimited=self.unlimited
            )
        except InputError as error:
            self.fail(f"{error.problem}; {error.remedy}")


class SecondsType(click.FloatRange):
    """Seconds, or `auto`."""

    name = "SECONDS|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or "auto"."""
        return value if value == "auto" else super().convert(value, param, ctx)


class TextType(click.ParamType):
    """What is read from text; a value of another kind, such as a default, is one already."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value."""
        return self.read(value) if isinstance(value, str) else value

    def read(self, text: str) -> Any:
        """The value that a text stands for."""
        raise NotImplementedError


class CountType(TextType):
    """A positive integer: `4194304`, or a power such as `2^32`."""

    name = "COUNT"

    def read(self, text: str) -> int:
        """The number."""
        text = text.strip()
        match = re.fullmatch(r"([0-9]{1,30})(?:(?:\^|\*\*)([0-9]{1,2}))?", text)
        if match is not None:
            count = int(match[1]) ** int(match[2] or 1)
            if 1 <= count <= LARGEST:
                return count
        self.fail(f"{text!r} is no count; write a positive integer or a power such as 2^32")


class QubitsType(TextType):
    """Qubits, separated by commas: `0,3,5`."""

    name = "Q,Q,..."

    def read(self, text: str) -> tuple[int, ...]:
        """The numbers of the qubits, in the order given."""
        if re.fullmatch(r" *[0-9]{1,9} *(, *[0-9]{1,9} *)*", text) is None:
            self.fail(f"{text!r} names no qubits; write their numbers with commas, such as 0,3,5")
        return tuple(map(int, text.split(",")))


class BitsType(TextType):
    """Bit strings, separated by commas: `010,111`."""

    name = "BITS,..."

    def read(self, text: str) -> tuple[str, ...]:
        """The strings, in the order given."""
        return tuple(map(str.strip, text.split(",")))


class ThresholdsType(TextType):
    """Numbers, separated by commas: `1e-3,5e-4`."""

    name = "E,E,..."

    def read(self, text: str) -> tuple[float, ...]:
        """The numbers, in the order given."""
        try:
            return tuple(map(float, text.split(",")))
        except ValueError:
            self.fail(f"{text!r} holds no numbers; write them with commas, such as 1e-3,5e-4")


class SettingType(TextType):
    """The value of a parameter: `theta=0.3` or `theta=pi/4`."""

    name = "NAME=VALUE"

    def read(self, text: str) -> tuple[str, str]:
        """The name and the text of the value."""
        name, sign, value = text.partition("=")
        if not (sign and name.strip() and value.strip()):
            self.fail(f"{text!r} sets nothing; write a name and a value, such as theta=0.3")
        return name.strip(), value.strip()


def _settings(
    ctx: click.Context, param: click.Parameter, value: tuple[tuple[str, str], ...]
) -> dict[str, str]:
    """The values by their names; none is set twice."""
    names = [name for name, _ in value]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise click.BadParameter(f"sets {twice} twice; set it once", ctx, param)
    return dict(value)


FILE = FileType(path_type=Path)
PROFILE = FileType(path_type=str)
"""The name of a shipped hardware profile, or of a TOML file."""
SIZE = SizeType(unlimited=True)
SECONDS = SecondsType(0, 1e9)
COUNT = CountType()
QUBITS = QubitsType()
BITS = BitsType()
THRESHOLDS = ThresholdsType()


def added(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Add options to a command, which lists them in this order."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
set_parameters = click.option(
    "--set", "parameters", type=SettingType(), multiple=True, callback=_settings,
    help="The value of an input of an OpenQASM 3 file, such as theta=0.3 or theta=pi/4."
)  # fmt: skip
