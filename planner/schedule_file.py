"""schedule.json: writing, reading and the identity of a schedule. Knows the format, not the meaning."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints

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
    document = read_json(path, FORMAT, VERSION, "write it again with 'tnplan plan'")
    return from_document(document, str(path))


def from_document(document: dict[str, Any], place: str) -> Schedule:
    """Build a schedule from its JSON document; `place` names the file in errors."""
    import msgspec

    stated = document.get("identity")
    body = {key: value for key, value in document.items() if key != "identity"}
    try:
        computed = identity_of(body)
    except ValueError:
        raise InputError(
            place, "holds a number that is not finite", "write it again with 'tnplan plan'"
        ) from None
    if stated != computed:
        raise InputError(
            f"{place}: identity",
            f"{str(stated)[:12]}... is not that of the contents ({computed[:12]}...)",
            "the file was changed after planning; write it again with 'tnplan plan'",
        )
    for part in ("once", "body"):
        if not isinstance(body.get(part), list):
            raise InputError(
                f"{place}: {part}", "is no list of instructions", "write it again with 'tnplan plan'"
            )
    try:
        parts: dict[str, Any] = {
            part: tuple(_instruction(entry, f"{part}[{i}]") for i, entry in enumerate(body.pop(part)))
            for part in ("once", "body")
        }
        content = {key: value for key, value in body.items() if key not in ("format", "version")}
        form: Any = msgspec.convert(content, _form())
    except (msgspec.ValidationError, TypeError) as error:
        raise InputError(place, f"not a schedule: {error}", "write it again with 'tnplan plan'") from None
    return Schedule(**msgspec.structs.asdict(form), **parts, identity=str(stated))


def _form() -> type:
    """The fields of a schedule that are no instructions: msgspec converts no union of dataclasses."""
    import msgspec

    hints = get_type_hints(Schedule)
    names = [item.name for item in fields(Schedule) if item.name not in ("once", "body", "identity")]
    return msgspec.defstruct("Form", [(name, hints[name]) for name in names], forbid_unknown_fields=True)


def _instruction(entry: Any, place: str) -> Instruction:
    import msgspec

    kind = OPCODES.get(str(entry.get("op"))) if isinstance(entry, dict) else None
    if kind is None:
        raise TypeError(f"{place} has no known op")
    instruction: Instruction = msgspec.convert({k: v for k, v in entry.items() if k != "op"}, kind)
    return instruction
