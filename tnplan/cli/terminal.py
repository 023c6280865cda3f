"""What commands print: text that gives a terminal no orders, in whatever encoding it has."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from tnplan.common.shown_text import IN_PLACE, escaped


def say(text: str, err: bool = False) -> None:
    """Print a line to standard output or error; what is not printed is escaped."""
    click.echo(escaped(text, allowed="\n\t"), err=err)


def say_json(document: Any) -> None:
    """Print a document for programs, indented."""
    say(json.dumps(document, indent=1))


def say_written(paths: Iterable[Path]) -> None:
    """Print the names of the files that were written."""
    for path in paths:
        say(f"written: {path}")


def allow_any_encoding() -> None:
    """Where an output has not all characters, others stand for those that it lacks."""
    for stream in (sys.stdout, sys.stderr):
        encoding = getattr(stream, "encoding", None) or "utf-8"
        if not encoding.lower().replace("-", "").startswith("utf") and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=IN_PLACE)
