"""Options that are made from calls: names, types, defaults and texts come from signature and docstring."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

from tests.support.root import ROOT
from tnplan.cli.from_signature import options_of, taken
from tnplan.cli.option_types import FILE


def call(
    source: str | Path, count: int = 3, share: float | None = None, mode: str = "slow",
    keep_all: bool = False, sort: bool = True, sure: bool | None = None, note: str = "", *,
    target: str | Path | None = None, progress: Any = None,
) -> None:  # fmt: skip
    """Do it.

    Parameters
    ----------
    source : path
        A file.
    count : int
        How many, with `keep_all` all.
    share : float, optional
        Beside `sort` a share, see `load`.
    mode : {"slow", "fast"}
        "slow" is exact.
    keep_all, sort : bool
        A flag.
    sure : bool, optional
        Whether it is sure.
    note : str
        A note.
    target : path, optional
        Where
        to write.
    progress : callable
        Hears of it.
    """


def made(*decorators: Callable[[Any], Any]) -> dict[str, click.Parameter]:
    """The parameters of a command with these options."""

    def command(**options: Any) -> dict[str, Any]:
        return options

    done: Any = command
    for decorator in decorators:
        done = decorator(done)
    return {one.name or "": one for one in click.command()(done).params}


def test_options_are_those_of_the_signature() -> None:
    options = made(options_of(call))
    assert list(options) == ["source", "count", "share", "mode", "keep_all", "sort", "sure", "note", "target"]
    assert [one.opts[0] for one in options.values()] == [
        "--source", "--count", "--share", "--mode", "--keep-all", "--sort", "--sure", "--note", "--target",
    ]  # fmt: skip
    assert options["source"].required
    assert options["source"].type is options["target"].type is FILE
    assert (options["count"].type, options["count"].default) == (click.INT, 3)
    assert options["share"].type is click.FLOAT
    assert isinstance(options["mode"].type, click.Choice)
    assert (list(options["mode"].type.choices), options["mode"].default) == (["slow", "fast"], "slow")
    assert options["sort"].secondary_opts == ["--no-sort"]
    assert options["sure"].secondary_opts == ["--no-sure"]
    assert options["sure"].default is None
    assert not options["keep_all"].secondary_opts


def test_texts_are_those_of_the_docstring() -> None:
    texts = {name: getattr(one, "help", "") for name, one in made(options_of(call)).items()}
    assert texts["count"] == "How many, with --keep-all all."
    assert texts["share"] == "Beside --sort a share, see load."
    assert texts["mode"] == "slow is exact."
    assert texts["keep_all"] == texts["sort"] == "A flag."
    assert texts["target"] == "Where to write."


def test_what_differs_is_said_beside_the_command() -> None:
    options = made(
        options_of(
            call,
            source=click.argument("source"),
            count="Another text.",
            share={"flags": ["--part"], "type": click.FloatRange(0)},
            mode=None,
            progress={"type": str},
        )
    )
    assert isinstance(options["source"], click.Argument)
    assert getattr(options["count"], "help", "") == "Another text."
    assert options["count"].default == 3
    assert options["share"].opts == ["--part"]
    assert isinstance(options["share"].type, click.FloatRange)
    assert "mode" not in options
    assert options["progress"].opts == ["--progress"]


def test_what_cannot_be_made_is_refused() -> None:
    with pytest.raises(TypeError, match="call has no parameters counts, modes"):
        options_of(call, modes="x", counts=None)

    def other(thing: complex) -> None:
        """Do it."""

    with pytest.raises(TypeError, match="no option can be made of thing: 'complex'; say its type"):
        options_of(other)


@dataclass(frozen=True)
class Base:
    """What all have.

    Parameters
    ----------
    common : int
        Of all.
    """

    common: int = 1


@dataclass(frozen=True)
class Special(Base):
    """More.

    Parameters
    ----------
    own : float
        Its own.
    """

    own: float = 2.0


def test_a_class_of_options_gives_its_fields_its_own_first() -> None:
    options = made(options_of(Special))
    assert list(options) == ["own", "common"]
    assert [getattr(one, "help", "") for one in options.values()] == ["Its own.", "Of all."]
    values = {"own": 3.0, "common": 4, "other": 5}
    assert taken(Special, values) == Special(4, 3.0)
    assert values == {"other": 5}


@pytest.mark.parametrize("command", ["execute", "pauli", "statevector"])
def test_a_gpu_begins_before_numpy_is_imported(command: str) -> None:
    """What makes the options of a command must not keep its call from starting the GPU first."""
    code = (
        "import sys\nfrom tnplan.cli.main import cli\n"
        f"assert cli.get_command(None, {command!r}).params\nassert 'numpy' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
