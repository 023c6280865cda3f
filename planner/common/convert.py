"""Documents converted to objects by msgspec, one thread at a time.

msgspec describes a class when it first converts one, and shows the description to other threads before it is
whole: two that begin at once crash the interpreter. Ranks may be threads, so nothing else calls it.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

_ONE_AT_A_TIME = Lock()


def converted(content: Any, kind: Any) -> Any:
    """`content`, built of dicts and lists, as a `kind`; raises msgspec.ValidationError."""
    import msgspec

    with _ONE_AT_A_TIME:
        return msgspec.convert(content, kind)
