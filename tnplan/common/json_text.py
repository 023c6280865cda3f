"""JSON text of dataclasses, lists, tuples and dicts: that of `json.dumps` for the plain ones.

A schedule has a dozen small objects a step. Each is written at once by the template of its class, which takes
a quarter of the time of making dicts of them all and encoding these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from json.encoder import encode_basestring_ascii
from math import isfinite
from operator import attrgetter
from typing import Any

from tnplan.common.files import field_names

_INTEGERS = {int}


class JsonText(dict[type, Callable[[Any], str]]):
    """What writes the values of each type, without spaces, in ASCII; `sort`: with sorted keys.

    A class with an `op` has it as a first field. Raises ValueError for a number that is not finite.
    """

    def __init__(self, *, sort: bool) -> None:
        self._sort = sort
        super().__init__({
            type(None): lambda value: "null",
            bool: lambda value: "true" if value else "false",
            int: int.__repr__,
            float: _number,
            str: encode_basestring_ascii,
            tuple: self._list,
            list: self._list,
            dict: lambda table: self.members(table.items()),
        })  # fmt: skip

    def __missing__(self, kind: type) -> Callable[[Any], str]:
        names = field_names(kind)
        if names is not None:
            self[kind] = self._fields(names, getattr(kind, "op", None))
        else:
            bases = [base for base in (int, float, str, tuple, list, dict) if issubclass(kind, base)]
            if not bases:
                raise TypeError(f"Object of type {kind.__name__} is not JSON serializable")
            self[kind] = self[bases[0]]
        return self[kind]

    def text(self, value: Any) -> str:
        """The text of a value."""
        return self[value.__class__](value)

    def members(self, pairs: Iterable[tuple[str, Any]]) -> str:
        """The text of an object of these keys and values, in their order or sorted."""
        ordered = sorted(pairs) if self._sort else pairs
        texts = [f"{encode_basestring_ascii(key)}:{self.text(value)}" for key, value in ordered]
        return "{" + ",".join(texts) + "}"

    def _list(self, values: Sequence[Any]) -> str:
        if not values:
            return "[]"
        # Numbers of modes are most of a schedule: Python's own text of a list of them needs no spaces.
        if {*map(type, values)} == _INTEGERS:
            return str([*values]).replace(" ", "")
        return "[" + ",".join([self[value.__class__](value) for value in values]) + "]"

    def _fields(self, names: tuple[str, ...], op: str | None) -> Callable[[Any], str]:
        """What writes a dataclass with these fields: a template, filled in with their texts."""
        keys = list(names) if op is None else ["op", *names]
        if self._sort:
            keys.sort()
        pieces = [f'"{key}":"{op}"' if op is not None and key == "op" else f'"{key}":%s' for key in keys]
        template = "{" + ",".join(pieces) + "}"
        # One more than there are, since for a single name `attrgetter` gives no tuple.
        values_of = attrgetter(*(key for key in keys if op is None or key != "op"), "__class__")

        def write(item: Any) -> str:
            return template % tuple([self[value.__class__](value) for value in values_of(item)[:-1]])

        return write


def _number(value: float) -> str:
    if not isfinite(value):
        raise ValueError("a number that is not finite is not JSON")
    return float.__repr__(value)
