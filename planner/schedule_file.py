"""schedule.json: writing, reading and the identity of a schedule. Knows the format, not the meaning."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.files import identity_of, plain, read_json, write_text
from planner.schedule import FORMAT, OPCODES, VERSION, Instruction, Schedule


def to_document(schedule: Schedule) -> dict[str, Any]:
    """The JSON document of a schedule, without its identity."""
    document: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    for item in fields(schedule):
        if item.name in ("identity", "once", "body"):
            continue
        document[item.name] = plain(getattr(schedule, item.name))
    for part in ("once", "body"):
        document[part] = [{"op": type(i).op, **plain(i)} for i in getattr(schedule, part)]
    return document


def with_identity(schedule: Schedule) -> Schedule:
    """The schedule with `identity` set: the SHA-256 of its canonical JSON."""
    return replace(schedule, identity=identity_of(to_document(schedule)))


def save_schedule(schedule: Schedule, path: str | Path) -> None:
    """Write schedule.json, to a temporary name first, then moved into place."""
    document = {**to_document(schedule), "identity": schedule.identity}
    write_text(path, json.dumps(document, separators=(",", ":")) + "\n")


def load_schedule(path: str | Path) -> Schedule:
    """Read schedule.json and check its form and its identity (not its meaning: see `passes.verify`)."""
    document = read_json(path, FORMAT, VERSION)
    return from_document(document, str(path))


def from_document(document: dict[str, Any], place: str) -> Schedule:
    """Build a schedule from its JSON document; `place` names the file in errors."""
    import msgspec

    stated = document.get("identity")
    body = {key: value for key, value in document.items() if key != "identity"}
    computed = identity_of(body)
    if stated != computed:
        raise InputError(
            f"{place}: identity",
            f"{str(stated)[:12]}... is not that of the contents ({computed[:12]}...)",
            "the file was changed after planning; write it again with 'tnplan plan'",
        )
    content = {key: value for key, value in body.items() if key not in ("format", "version", "once", "body")}
    try:
        for part in ("once", "body"):
            content[part] = ()
        schedule = msgspec.convert(content, Schedule)
        parts = {part: tuple(_instruction(entry, f"{part}[{i}]") for i, entry in enumerate(body[part]))
                 for part in ("once", "body")}
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        raise InputError(place, f"not a schedule: {error}", "write it again with 'tnplan plan'") from None
    return replace(schedule, identity=str(stated), **parts)


def _instruction(entry: Any, place: str) -> Instruction:
    import msgspec

    kind = OPCODES.get(entry.get("op")) if isinstance(entry, dict) else None
    if kind is None:
        raise TypeError(f"{place} has no known op")
    instruction: Instruction = msgspec.convert({k: v for k, v in entry.items() if k != "op"}, kind)
    return instruction
