"""What may happen to a file of a cache: each kind of damage as a function of its path."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random


def _edited(edit: Callable[[bytes, Random], bytes]) -> Callable[[Path], None]:
    """Change the bytes of a file, by random numbers that depend on its name."""

    def damage(file: Path) -> None:
        content = file.read_bytes()
        file.write_bytes(edit(content, Random(f"{file.name} {len(content)}")))

    return damage


def _flipped(content: bytes, random: Random) -> bytes:
    """One bit changed, anywhere."""
    bit = random.randrange(8 * len(content))
    changed = content[bit // 8] ^ 1 << bit % 8
    return content[: bit // 8] + bytes([changed]) + content[bit // 8 + 1 :]


def _another(file: Path) -> None:
    """The content of another file of the folder, or, where there is none, of this one under another name."""
    others = sorted(one for one in file.parent.iterdir() if one != file and one.is_file())
    content = others[0].read_bytes() if others else file.read_bytes()[:-1]
    file.write_bytes(content)


def _in_its_place(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def damage(file: Path) -> None:
        file.unlink()
        make(file)

    return damage


def _folder(file: Path) -> None:
    file.mkdir(mode=0o700)
    (file / "within").write_text("")


DAMAGES: dict[str, Callable[[Path], None]] = {
    "emptied": _edited(lambda content, _: b""),
    "cut": _edited(lambda content, random: content[: random.randrange(len(content))]),
    "cut by a byte": _edited(lambda content, _: content[:-1]),
    "longer": _edited(lambda content, _: content + b"\0"),
    "a flipped bit": _edited(_flipped),
    "zeros": _edited(lambda content, _: bytes(len(content))),
    "another entry": _another,
    "removed": Path.unlink,
    "a folder": _in_its_place(_folder),
    "a pipe": _in_its_place(os.mkfifo),
    "a link": _in_its_place(lambda file: file.symlink_to(file.parent / "nowhere")),
    "a link to itself": _in_its_place(lambda file: file.symlink_to(file)),
}
