"""What commands print: text that gives a terminal no orders, in whatever encoding it has."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tnplan.common.shown_text import IN_PLACE, escaped
from tnplan.executor.device.comm.launcher import launched_rank

if TYPE_CHECKING:
    from tnplan.jobs.progress import Progress

SHOWN = 16
"""Rows of a list that are printed; --output and --json have all."""


def say(text: str, err: bool = False) -> None:
    """Print a line to standard output or error; what is not printed is escaped."""
    click.echo(escaped(text, allowed="\n\t"), err=err)


def say_once(text: str) -> None:
    """Print a line to standard error on the first rank, for all ranks."""
    if launched_rank() == 0:
        say(text, err=True)


def say_json(document: Any) -> None:
    """Print a document for programs, indented."""
    say(json.dumps(document, indent=1))


def say_progress(at: Progress) -> None:
    """Print how far a job is to standard error."""
    say(at.text, err=True)


def say_result(
    document: Any, as_json: bool, lines: Iterable[str], written: Iterable[Path | str | None] = ()
) -> None:
    """On the first rank, print a result as JSON, or in lines with the files that were written."""
    if launched_rank() > 0:
        return
    if as_json:
        say_json(document)
        return
    for line in lines:
        say(line)
    for path in written:
        if path is not None:
            say(f"written: {path}")


def first_rows(name: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """The first rows of a list, and how many are left out."""
    listed = list(rows)
    yield from (f"{name} {key}: {value}" for key, value in listed[:SHOWN])
    if len(listed) > SHOWN:
        yield f"... and {len(listed) - SHOWN} more"


def largest_rows(name: str, values: Iterable[tuple[str, Any]], form: str = ".9g") -> Iterator[str]:
    """The rows of the largest values, in a format of numbers; of complex ones both parts."""
    ordered = sorted(values, key=lambda row: -abs(row[1]))
    return first_rows(name, ((key, number_text(value, form)) for key, value in ordered))


def number_text(value: complex, form: str) -> str:
    """A number in a format; a complex one as its two parts with their signs."""
    if isinstance(value, complex):
        return f"{value.real:+{form}} {value.imag:+{form}}i"
    return f"{value:{form}}"


def allow_any_encoding() -> None:
    """Where an output has not all characters, others stand for those that it lacks."""
    for stream in (sys.stdout, sys.stderr):
        encoding = getattr(stream, "encoding", None) or "utf-8"
        if not encoding.lower().replace("-", "").startswith("utf") and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=IN_PLACE)
