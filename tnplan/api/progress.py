"""How far a call is: what it tells whoever listens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


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

    Examples
    --------
    >>> tnplan.Progress(3, 8, "slice 3 of 8")
    Progress(done=3, total=8, text='slice 3 of 8')
    """

    done: int
    total: int
    text: str
    detail: Any = field(default=None, repr=False)


Listener = Callable[[Progress], None]
