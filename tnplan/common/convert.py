"""Documents converted to objects by msgspec, one thread at a time.

msgspec describes a class when it first converts one, and shows the description to other threads before it is
whole: two that begin at once crash the interpreter. Ranks may be threads, so nothing else calls it.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

from tnplan.common.errors import InputError

_ONE_AT_A_TIME = Lock()


def converted(content: Any, kind: Any) -> Any:
    """`content`, built of dicts and lists, as a `kind`; raises msgspec.ValidationError."""
    import msgspec

    with _ONE_AT_A_TIME:
        return msgspec.convert(content, kind)


def converted_file(document: dict[str, Any], kind: Any, place: str, remedy: str) -> Any:
    """The content of a file, less `format` and `version`, as a `kind`; errors name the place in the file."""
    import msgspec

    content = {key: value for key, value in document.items() if key not in ("format", "version")}
    try:
        return converted(content, kind)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at ")
        where = where.strip("`").removeprefix("$").removeprefix(".")
        raise InputError(f"{place}: {where}" if where else place, problem, remedy) from None
