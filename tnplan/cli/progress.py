"""How the progress of a job is shown."""

from __future__ import annotations

import time

from tnplan.common.units import time_text
from tnplan.jobs.progress import Progress, StatusLine

EVERY_S = 1.0
"""Seconds between lines of progress on a terminal, where each replaces the one before."""
LOG_EVERY_S = 10.0
"""The same in a log, after the first seconds of a job."""


class ProgressLines(StatusLine):
    """Shows how far a job is and how long it may still take.

    The lines that come before the work say what the job runs on. They are printed when the work begins, so
    that a refusal stands alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self._first: list[str] = []
        self._begin: tuple[int, float] | None = None
        self._last_s = time.monotonic()
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
        now_s = time.monotonic()
        # What a checkpoint had done at the first report took none of this run's time: rates count
        # from there.
        if self._begin is None:
            self._begin = at.done, now_s
            self.say(*self._first, *([at.text] if at.done else []))
        done, begin_s = self._begin
        every_s = EVERY_S if self.is_terminal else min(LOG_EVERY_S, max(EVERY_S, (now_s - begin_s) / 2))
        if at.done > done and now_s - self._last_s >= every_s:
            self._last_s = now_s
            left_s = (now_s - begin_s) / (at.done - done) * (at.total - at.done)
            text = f"{left_s:.0f} s" if left_s < 120 else time_text(left_s)
            self.show(f"{at.text}, about {text} left")
