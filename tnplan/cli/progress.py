"""How the progress of a job is shown."""

from __future__ import annotations

import time

from tnplan.common.units import time_text
from tnplan.jobs.progress import Progress, StatusLine, TimeLeft

EVERY_S = 1.0
"""Seconds between lines of progress on a terminal, where each replaces the one before."""
LOG_EVERY_S = 10.0
"""The same in a log, after the first seconds of a job."""


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
            self.show(at.text if left_s is None else f"{at.text}, about {_rounded(left_s)} left")


def _rounded(time_s: float) -> str:
    return f"{time_s:.0f} s" if time_s < 120 else time_text(time_s)
