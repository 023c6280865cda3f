"""Python's collector of cycles, at rest while much is made that has none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Nothing looks for cycles: it looks at all that is there again and again while objects get more.

    For work that makes a great many and no cycles, of which it takes two fifths. Of several threads the first
    one wakes it, which costs the others time alone.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
