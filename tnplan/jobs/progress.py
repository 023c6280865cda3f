"""The progress of a call: what its listener gets, and a bar for notebooks and terminals."""

from __future__ import annotations

import builtins
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from tnplan.common.errors import InputError
from tnplan.common.shown_text import escaped

SHOWN_EVERY_S = 0.1
"""How often a notebook or a terminal is written to."""
LOGGED_EVERY_S = 10.0
"""How often a line is printed where lines cannot be replaced."""
CLEARED = "\r\x1b[2K"
"""What a terminal is told to empty its line."""


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

    - `clock`: Seconds, of which differences count.

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


class StatusLine:
    """On a terminal a line that each text replaces, and that is empty at the end; elsewhere a line each."""

    def __init__(self) -> None:
        self.is_terminal = sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *exception: object) -> None:
        self._write("")

    def show(self, text: str) -> None:
        """Put a text, shortened to the width of the terminal, in place of the one before."""
        if not self.is_terminal:
            self.say(text)
            return
        try:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns
        except (OSError, ValueError):  # a stream without a terminal's size
            columns = 0
        self._write(escaped(text)[: columns - 1 if columns else None])

    def say(self, *lines: str) -> None:
        """Print lines that stay."""
        if lines:
            self._write("".join(f"{escaped(line)}\n" for line in lines))

    def _write(self, text: str) -> None:
        text = CLEARED + text if self.is_terminal else text
        if text and sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()


class ProgressBar(StatusLine):
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
        super().__init__()
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
        replaces = self._notebook or self.is_terminal
        if not ended and now_s - self._last_s < (SHOWN_EVERY_S if replaces else LOGGED_EVERY_S):
            return
        self._last_s = now_s
        if self._notebook:
            self._show_html(at)
        elif ended:
            self.say(at.text)
        else:
            self.show(at.text)

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
        raise InputError("progress", f"is {progress!r}", "give True, or a function that takes a Progress")
    return progress


def _in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = getattr(builtins, "get_ipython", None)
    return shell is not None and hasattr(shell(), "kernel")
