"""What commands print: text that gives a terminal no orders, in whatever encoding it has."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from tnplan.common.shown_text import IN_PLACE, escaped
from tnplan.executor.device.comm.launcher import launched_rank
from tnplan.jobs.progress import CLEARED, Progress


def say(text: str, err: bool = False) -> None:
    """Print a line to standard output or error; what is not printed is escaped."""
    # In place of a line of progress that is shown.
    clears = err and sys.stderr is not None and sys.stderr.isatty()
    click.echo((CLEARED if clears else "") + escaped(text, allowed="\n\t"), err=err)


def say_once(text: str) -> None:
    """Print a line to standard error on the first rank, for all ranks."""
    if launched_rank() == 0:
        say(text, err=True)


def say_progress(at: Progress) -> None:
    """Print how far a job is to standard error."""
    say(at.text, err=True)


def say_result(document: Any, as_json: bool, shown: Iterable[object], written: Iterable[object] = ()) -> None:
    """On the first rank, print a result as JSON, or in lines with the files that were written."""
    if launched_rank() == 0:
        files = (f"written: {path}" for path in written if path is not None)
        for line in [json.dumps(document, indent=1)] if as_json else (*shown, *files):
            say(str(line))


def beside(output: Path | None) -> list[Path]:
    """The files of a result with arrays."""
    return [] if output is None else [output, output.with_suffix(".json")]


def allow_any_encoding() -> None:
    """Where an output has not all characters, others stand for those that it lacks."""
    for stream in (sys.stdout, sys.stderr):
        encoding = getattr(stream, "encoding", None) or "utf-8"
        if not encoding.lower().replace("-", "").startswith("utf") and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=IN_PLACE)
