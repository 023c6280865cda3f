"""How the progress of a job is shown."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from tnplan.cli.terminal import say
from tnplan.executor.device.comm.launcher import launched_rank
from tnplan.jobs.progress import TimeLeft

if TYPE_CHECKING:
    from tnplan.jobs.progress import Progress

LOG_EVERY_S = 10.0
"""Seconds between lines of progress in a log."""
SAY_EVERY_S = 1.0
"""The same where a job is expected to be short."""
SHOW_EVERY_S = 1.0
"""Seconds between lines of progress on a terminal, where each replaces the one before."""


class ProgressLines:
    """Prints the progress of a job on the first rank: on a terminal a line that is rewritten, in a log a line
    now and then. With an estimate of the time left where the work that is left is known.

    The first line says what the job runs on. It is printed when the work begins, so that a refusal stands
    alone.
    """

    def __init__(self, log_every_s: float | None = None) -> None:
        self._is_shown = launched_rank() == 0
        self._first: str | None = None
        self._is_terminal = self._is_shown and sys.stderr is not None and sys.stderr.isatty()
        every_s = LOG_EVERY_S if log_every_s is None else log_every_s
        self._every_s = min(every_s, SHOW_EVERY_S) if self._is_terminal else every_s
        self._last = time.monotonic()
        self._left = TimeLeft()
        self._done_before: int | None = None
        self._live: Any = None

    def __enter__(self) -> ProgressLines:
        if self._is_terminal:
            from rich.live import Live

            from tnplan.reporting.tables import console

            self._live = Live(
                "preparing ...", refresh_per_second=4, transient=True, console=console(stderr=True)
            )
            self._live.__enter__()
        return self

    def __exit__(self, error: object, *exception: object) -> None:
        if error is None and self._done_before is None:
            self._say_first()
        if self._live is not None:
            self._live.__exit__(None, None, None)

    def __call__(self, at: Progress) -> None:
        """Print how far the job is, when it is time to."""
        if at.total == 0:
            self._first = at.text if self._first is None else f"{self._first}\n{at.text}"
            return
        now, left_s = time.monotonic(), self._left.after(at)
        if self._done_before is None:
            self._done_before = at.done
            self._say_first()
            if self._is_shown and at.done:
                self._print(at.text)
        if not self._is_shown or at.done <= self._done_before or now - self._last < self._every_s:
            return
        self._last = now
        line = at.text if left_s is None else f"{at.text}, about {_duration(left_s)} left"
        if self._live is not None:
            self._live.update(line)
        else:
            self._print(line)

    def _say_first(self) -> None:
        if self._is_shown and self._first is not None:
            self._print(self._first)

    def _print(self, line: str) -> None:
        if self._live is not None:
            self._live.console.print(line, highlight=False)
        else:
            say(line, err=True)


def _duration(time_s: float) -> str:
    if time_s < 120:
        return f"{time_s:.0f} s"
    if time_s < 7200:
        return f"{time_s / 60:.0f} min"
    if time_s < 172800:
        return f"{time_s / 3600:.1f} h"
    from tnplan.common.units import time_text

    return time_text(time_s)
