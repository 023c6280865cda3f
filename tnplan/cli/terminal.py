"""What commands print: results and progress, in text that gives a terminal no orders, in any encoding."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from tnplan.common.shown_text import IN_PLACE, escaped
from tnplan.common.units import time_text
from tnplan.executor.device.comm.launcher import launched_rank
from tnplan.jobs.progress import CLEARED, Progress, StatusLine, TimeLeft

EVERY_S = 1.0
"""Seconds between lines of progress on a terminal, where each replaces the one before."""
LOG_EVERY_S = 10.0
"""The same in a log, after the first seconds of a job."""


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


class ProgressLines(StatusLine):
    """Shows how far a job is, and how long it may still take where the work that is left is known.

    The lines that come before the work say what the job runs on. They are printed when the work begins, so
    that a refusal stands alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self._first: list[str] = []
        self._begin: tuple[int, float] | None = None
        self._last_s = time.monotonic()
        self._left = TimeLeft()
        if self.is_terminal:
            self.show("preparing ...")

    def __exit__(self, error: object, *exception: object) -> None:
        super().__exit__(error, *exception)
        if error is None and self._begin is None:
            self.say(*self._first)

    def __call__(self, at: Progress) -> None:
        """Show how far the job is, when it is time to."""
        if at.total == 0:
            self._first.append(at.text)
            return
        now_s, left_s = time.monotonic(), self._left.after(at)
        if self._begin is None:
            self._begin = at.done, now_s
            self.say(*self._first, *([at.text] if at.done else []))
        done, begin_s = self._begin
        every_s = EVERY_S if self.is_terminal else min(LOG_EVERY_S, max(EVERY_S, (now_s - begin_s) / 2))
        if at.done > done and now_s - self._last_s >= every_s:
            self._last_s = now_s
            if left_s is None:
                self.show(at.text)
            else:
                left = f"{left_s:.0f} s" if left_s < 120 else time_text(left_s)
                self.show(f"{at.text}, about {left} left")
