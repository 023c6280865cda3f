"""schedule.json: writing, reading and the identity of a schedule. Knows the format, not the meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from hashlib import sha256
from json.encoder import encode_basestring_ascii
from math import isfinite
from operator import attrgetter
from pathlib import Path
from typing import Any, get_type_hints

from tnplan.common.errors import InputError
from tnplan.common.files import converted, field_names, identity_of, read_json, write_text
from tnplan.planner.schedule.schedule import FORMAT, OPCODES, VERSION, Instruction, LoopLevel, Schedule

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


BESIDE = ("devices", "identity")
"""Fields that change nothing of what a schedule does."""
PARTS = ("once", "outer", "body")
_CANONICAL, _IN_ORDER = JsonText(sort=True), JsonText(sort=False)


def _members(schedule: Schedule) -> dict[str, Any]:
    """What the JSON of a schedule holds, without its identity and what that is not of."""
    names = [item.name for item in fields(schedule) if item.name not in (*BESIDE, *PARTS)]
    outer = [
        {"depth": level.depth, "inner": level.inner, "instructions": level.instructions}
        for level in schedule.outer
    ]
    parts = {"once": schedule.once, "outer": outer, "body": schedule.body}
    return {
        "format": FORMAT, "version": VERSION, **{name: getattr(schedule, name) for name in names}, **parts
    }  # fmt: skip


def with_identity(schedule: Schedule) -> Schedule:
    """The schedule with `identity` set: the SHA-256 of its canonical JSON."""
    return replace(schedule, identity=sha256(_CANONICAL.text(_members(schedule)).encode()).hexdigest())


def save_schedule(schedule: Schedule, path: str | Path) -> None:
    """Write schedule.json, to a temporary name first, then moved into place."""
    beside = {name: getattr(schedule, name) for name in BESIDE}
    write_text(path, _IN_ORDER.text({**_members(schedule), **beside}) + "\n")


def load_schedule(path: str | Path) -> Schedule:
    """Read schedule.json and check its form and its identity (not its meaning: see `passes.verify`)."""
    document = read_json(path, FORMAT, VERSION, "write it again with 'tnplan plan'")
    return from_document(document, str(path))


def from_document(document: dict[str, Any], place: str) -> Schedule:
    """Build a schedule from its JSON document; `place` names the file in errors."""
    import msgspec

    stated, devices = document.get("identity"), document.get("devices")
    body = {key: value for key, value in document.items() if key not in BESIDE}
    try:
        computed = identity_of(body)
    except ValueError:
        raise InputError(
            place, "holds a number that is not finite", "write it again with 'tnplan plan'"
        ) from None
    if stated != computed:
        raise InputError(
            f"{place}: identity",
            f"is {str(stated)[:12]}..., but the contents have {computed[:12]}...: they were changed",
            "write it again with 'tnplan plan'",
        )
    for key in PARTS:
        if not isinstance(body.get(key), list):
            raise InputError(f"{place}: {key}", "is not a list", "write it again with 'tnplan plan'")
    try:
        once, outer, entries = (body.pop(key) for key in PARTS)
        parts: dict[str, Any] = {
            "once": _instructions(once, "once"),
            "outer": tuple(_outer(entry, f"outer[{i}]") for i, entry in enumerate(outer)),
            "body": _instructions(entries, "body"),
        }
        content = {key: value for key, value in body.items() if key not in ("format", "version")}
        form = converted(content, _form())
    except (msgspec.ValidationError, TypeError) as error:
        raise InputError(place, f"not a schedule: {error}", "write it again with 'tnplan plan'") from None
    schedule = Schedule(**msgspec.structs.asdict(form), **parts, devices=devices, identity=str(stated))
    if devices is not None and (type(devices) is not int or devices < schedule.ranks_per_group):
        problem = f"is {devices!r}, and a group has {schedule.ranks_per_group} ranks"
        raise InputError(f"{place}: devices", problem, "write it again with 'tnplan plan'")
    return schedule


def _form() -> type:
    """The fields of a schedule that are no instructions: msgspec converts no union of dataclasses."""
    import msgspec

    hints = get_type_hints(Schedule)
    names = [item.name for item in fields(Schedule) if item.name not in (*PARTS, *BESIDE)]
    return msgspec.defstruct("Form", [(name, hints[name]) for name in names], forbid_unknown_fields=True)


def _outer(entry: Any, place: str) -> LoopLevel:
    known = isinstance(entry, dict) and set(entry) == {"depth", "inner", "instructions"}
    numbers = known and type(entry["depth"]) is int and type(entry["inner"]) is int
    if not (numbers and isinstance(entry["instructions"], list)):
        raise TypeError(f"{place} is not a part with a depth, inner loops and instructions")
    return LoopLevel(entry["depth"], _instructions(entry["instructions"], place), entry["inner"])


def _instructions(entries: list[Any], place: str) -> tuple[Instruction, ...]:
    return tuple(_instruction(entry, f"{place}[{number}]") for number, entry in enumerate(entries))


def _instruction(entry: Any, place: str) -> Instruction:
    kind = OPCODES.get(str(entry.get("op"))) if isinstance(entry, dict) else None
    if kind is None:
        raise TypeError(f"{place} has no known op")
    instruction: Instruction = converted({k: v for k, v in entry.items() if k != "op"}, kind)
    return instruction
