"""The progress of a call: what its listener gets, and a bar for notebooks and terminals."""

from __future__ import annotations

import builtins
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tnplan.common.errors import InputError

SHOWN_EVERY_S = 0.1
"""How often a notebook or a terminal is written to."""
LOGGED_EVERY_S = 10.0
"""How often a line is printed where lines cannot be replaced."""


@dataclass(frozen=True)
class Progress:
    """How far a job is.

    Parameters
    ----------
    done, total : int
        Units of work done, and in all: slices, gates, iterations, shots. `total` is 0 before the work begins,
        when `text` says what the job runs on.
    text : str
        The same in one line, for people.
    detail : object
        What the engine itself says: None, or its own description of the step.
    share : float or None
        The work done as a share of all work, where the cost of steps is known: predicted where some cost more
        than others. None: not known, and no time left is shown.

    Examples
    --------
    >>> tnplan.Progress(3, 8, "slice 3 of 8")
    Progress(done=3, total=8, text='slice 3 of 8')
    """

    done: int
    total: int
    text: str
    detail: Any = field(default=None, repr=False)
    share: float | None = field(default=None, repr=False)


Listener = Callable[[Progress], None]


class TimeLeft:
    """Estimates how long a job still takes: what its share of the work took, over what is left.

    Parameters
    ----------
    clock : callable
        Seconds, of which differences count.

    Examples
    --------
    >>> left = TimeLeft(iter([0.0, 2.0]).__next__)
    >>> left.after(tnplan.Progress(0, 5, "", share=0.0))
    >>> left.after(tnplan.Progress(1, 5, "", share=0.25))
    6.0
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start: tuple[float, float] | None = None

    def after(self, at: Progress) -> float | None:
        """Seconds left after a report; None where they are not known."""
        if at.share is None:
            return None
        now = self._clock()
        # What a checkpoint had done at the first report took none of this run's time: rates count from there.
        if self._start is None:
            self._start = now, at.share
        began, before = self._start
        return None if at.share <= before else (now - began) / (at.share - before) * (1 - at.share)


class ProgressBar:
    """Shows how far a job is: a bar in a notebook, a line on standard error elsewhere.

    What `progress=True` stands for.

    Examples
    --------
    >>> bar = tnplan.ProgressBar()
    >>> bar
    ProgressBar(on standard error)
    >>> tnplan.execute(schedule, progress=bar)  # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._notebook = _in_notebook()
        self._handle: Any = None
        self._last_s = -LOGGED_EVERY_S

    def __repr__(self) -> str:
        return f"ProgressBar({'in a notebook' if self._notebook else 'on standard error'})"

    def __call__(self, at: Progress) -> None:
        """Show it, where it is time to or the job is done."""
        if at.total == 0:
            return
        now_s, ended = time.monotonic(), at.done >= at.total
        replaces = self._notebook or sys.stderr.isatty()
        if not ended and now_s - self._last_s < (SHOWN_EVERY_S if replaces else LOGGED_EVERY_S):
            return
        self._last_s = now_s
        if self._notebook:
            self._show_html(at)
        elif replaces:
            print(f"\r\x1b[2K{at.text}", end="\n" if ended else "", file=sys.stderr, flush=True)
        else:
            print(at.text, file=sys.stderr, flush=True)

    def _show_html(self, at: Progress) -> None:
        from html import escape

        from IPython.display import HTML, display

        value, most = (at.done, at.total) if at.share is None else (at.share, 1)
        shown = HTML(f'<progress value="{value}" max="{most}"></progress> {escape(at.text)}')
        if self._handle is None:
            self._handle = display(shown, display_id=True)
        else:
            self._handle.update(shown)


def as_listener(progress: Listener | bool | None) -> Listener | None:
    """The listener that `progress` stands for: a function, a bar for True, none for False and None."""
    if progress is True:
        return ProgressBar()
    if progress is None or progress is False:
        return None
    if not callable(progress):
        raise InputError("progress", f"is {progress!r}", "give True, or a function of a Progress")
    return progress


def _in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = getattr(builtins, "get_ipython", None)
    return shell is not None and hasattr(shell(), "kernel")
