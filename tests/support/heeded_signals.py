"""Signals as a terminal has them, for processes that tests start."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def heeded(*numbers: signal.Signals) -> Iterator[None]:
    """What is started inside does not ignore these, as children of `nohup` and background shells do.

    No function runs between fork and exec for that, as JAX's threads would not survive it.
    """
    ignored = [each for each in numbers if signal.getsignal(each) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
