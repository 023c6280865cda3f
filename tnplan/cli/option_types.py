"""Option types that commands share: names of files, sizes in bytes and counts, parsed in one place."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tnplan.common.units import LARGEST


class FileType(click.Path):
    """The path of a file. An empty one, as an unset variable of a shell gives, is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, of the type that `path_type` says."""
        if value == "":
            self.fail("the path is empty; give the name of a file", param, ctx)
        return super().convert(value, param, ctx)


class TextType(click.ParamType):
    """What `read` makes of a text; a value of another kind, such as a default, is one already."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value."""
        return self._read(value) if isinstance(value, str) else value


def _seconds(text: Any) -> Any:
    """Seconds, or `auto`."""
    return text if text == "auto" else click.FloatRange(0, 1e9).convert(text, None, None)


def _count(text: str) -> int:
    """A positive integer: `4194304`, or a power such as `2^32`."""
    match = re.fullmatch(r" *([0-9]{1,30})(?:(?:\^|\*\*)([0-9]{1,2}))? *", text)
    if match is not None:
        count = int(match[1]) ** int(match[2] or 1)
        if 1 <= count <= LARGEST:
            return count
    raise click.BadParameter(f"{text!r} is not a count; write a positive integer or a power such as 2^32")


def _qubit(text: str) -> int:
    """The number of a qubit."""
    if re.fullmatch("[0-9]{1,9}", text) is None:
        raise ValueError
    return int(text)


def listed(name: str, read: Callable[[str], Any], problem: str = "", example: str = "") -> TextType:
    """A tuple of values, in the order in which a text has them: `0,3,5`."""

    def values(text: str) -> tuple[Any, ...]:
        try:
            return tuple(read(word.strip()) for word in text.split(","))
        except ValueError:
            remedy = f"write them with commas, such as {example}"
            raise click.BadParameter(f"{text!r} {problem}; {remedy}") from None

    return TextType(name, values)


def _stops(text: str) -> tuple[int, ...] | str:
    """Numbers of operations in the order given, `10,20`; or the word for the barriers of a circuit."""
    if text.strip() == "barriers":
        return "barriers"
    return listed("N,N,...", _qubit, "holds no numbers", "10,20,30").convert(text, None, None)


def _devices(text: str) -> tuple[int, ...]:
    """Numbers of devices, rising: `1,2,6`; `1,2,4,...,1024` and `1,...,1024` go on by doubling."""
    counts: list[int] = []
    doubling = False
    for word in map(str.strip, text.split(",")):
        if word == "..." and counts and not doubling:
            doubling = True
        elif re.fullmatch(r"[1-9][0-9]{0,8}", word):
            last = int(word)
            while doubling and counts[-1] * 2 < last:
                counts.append(counts[-1] * 2)
            doubling = False
            counts.append(last)
        else:
            raise click.BadParameter(
                f"{word!r} in {text!r} is not a number of devices; write 1,2,4 or 1,2,4,...,1024"
            )
    if doubling:
        raise click.BadParameter(f"{text!r} ends in dots; say up to which number, as in 1,2,4,...,1024")
    return tuple(sorted(set(counts)))


def _parameter(text: str) -> tuple[str, str]:
    """The name of a parameter and the text of its value: `theta=0.3` or `theta=pi/4`."""
    name, sign, value = text.partition("=")
    if not (sign and name.strip() and value.strip()):
        raise click.BadParameter(f"{text!r} sets nothing; write a name and a value, such as theta=0.3")
    return name.strip(), value.strip()


def _parameters(
    ctx: click.Context, param: click.Parameter, value: tuple[tuple[str, str], ...]
) -> dict[str, str]:
    """The values by the names of the parameters; none is set twice."""
    names = [name for name, _ in value]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise click.BadParameter(f"sets {twice} twice; set it once", ctx, param)
    return dict(value)


FILE = FileType(path_type=Path)
PROFILE = FileType(path_type=str)
"""The name of a shipped hardware profile, or of a TOML file."""
SECONDS = TextType("SECONDS|auto", _seconds)
COUNT = TextType("COUNT", _count)
QUBITS = listed("Q,Q,...", _qubit, "names no qubits", "0,3,5")
BITS = listed("BITS,...", str)
STOPS = TextType("N,N,...", _stops)
THRESHOLDS = listed("E,E,...", float, "holds no numbers", "1e-3,5e-4")
DEVICES = TextType("P,P,...", _devices)


def added(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Add options to a command, which lists them in this order."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


circuit_argument = click.argument("circuit", type=FILE, metavar="CIRCUIT")
as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
set_parameters = click.option(
    "--set", "parameters", type=TextType("NAME=VALUE", _parameter), multiple=True, callback=_parameters,
    help="The value of an input of an OpenQASM 3 file, such as theta=0.3 or theta=pi/4."
)  # fmt: skip
