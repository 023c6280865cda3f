"""Reading and writing files: JSON with a format and a version, canonical identities, atomic writes."""

from __future__ import annotations

import atexit
import gzip
import hashlib
import json
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from errno import EINTR
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO
from uuid import uuid4

from tnplan.common.errors import InputError
from tnplan.common.system_calls import PRIVATE

# msgspec describes a class when it first converts one, and shows the description to other threads before it
# is whole: two that begin at once crash the interpreter. Ranks may be threads, so only `converted` calls it.
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


GZIP = b"\x1f\x8b"
"""How a file begins that gzip has packed."""
DEEPEST = 800
"""Objects and lists of a JSON file that may lie within each other."""


def plain(value: Any) -> Any:
    """Dataclasses, tuples and dicts as JSON-ready dicts and lists; fields computed at start are left out."""
    names = field_names(value.__class__)
    if names is not None:
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    return value


@lru_cache(1024)
def field_names(kind: type) -> tuple[str, ...] | None:
    """The fields of a dataclass that its start takes; None of other types. A schedule has thousands."""
    return tuple(item.name for item in fields(kind) if item.init) if is_dataclass(kind) else None


def identity_of(document: Any) -> str:
    """The SHA-256 of the canonical JSON (sorted keys, no spaces) of a document."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def open_input(path: str | Path) -> Iterator[BinaryIO]:
    """A file to read from; InputError where it cannot be read, there or later, or is no regular file."""
    file = file_path(path)
    remedy = "check the name and the permissions"
    try:
        mode = os.stat(file).st_mode
        if stat.S_ISREG(mode):
            with file.open("rb") as stream:
                yield stream
            return
        problem = "is a directory" if stat.S_ISDIR(mode) else "is a device or a pipe"
        raise InputError(str(path), f"cannot be read (it {problem})", "give the name of a file")
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror or error})", remedy) from None


def read_text(path: str | Path, expected: str) -> str:
    """The text of a file, which may be packed by gzip; `expected` is the kind of file that errors ask for."""
    try:
        with open_input(path) as stream:
            content = stream.read()
        if content.startswith(GZIP):
            content = gzip.decompress(content)
        return content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InputError(
            str(path), f"is packed by gzip and cannot be unpacked ({error})", f"give {expected}"
        ) from None
    except UnicodeDecodeError:
        raise InputError(str(path), "is not UTF-8 text", f"give {expected}") from None


def load_json(path: str | Path) -> Any:
    """Parse a JSON file; errors name the file and the place in it."""
    text = read_text(path, "a JSON file")
    try:
        document = json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}: line {error.lineno} column {error.colno}", f"not JSON ({error.msg})", "correct the file"
        ) from None
    except RecursionError:
        raise InputError(str(path), "is nested too deeply to be read", "give a flatter file") from None
    except _RepeatedKeyError as error:
        raise InputError(f"{path}: {error}", "appears twice in one object", "give each key once") from None
    except ValueError:
        raise InputError(str(path), "holds a number of too many digits", "correct the file") from None
    # What is read goes through recursive readers later; the depth is bounded once, here.
    if _is_too_deep(document):
        raise InputError(
            str(path), f"is nested too deeply to be read (over {DEEPEST} levels)", "give a flatter file"
        )
    return document


class _RepeatedKeyError(ValueError):
    """A key that stands twice in a JSON object."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKeyError(next(key for key in keys if keys.count(key) > 1))
    return table


def _is_too_deep(document: Any) -> bool:
    """Whether more than DEEPEST lists and dicts of a document lie within each other."""
    level = [document]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for value in level:
            if type(value) is list:
                # Lists of names and numbers are most of a file.
                if value and type(value[0]) in (list, dict):
                    inner += value
                else:
                    inner += [entry for entry in value if type(entry) in (list, dict)]
            elif type(value) is dict:
                inner += [entry for entry in value.values() if type(entry) in (list, dict)]
        if not inner:
            return False
        level = inner
    return any(type(value) in (list, dict) for value in level)


def file_path(name: Any) -> Path:
    """The path that a file's name means; anything but text or a path is refused."""
    if not isinstance(name, str | os.PathLike) or not str(name) or "\0" in str(name):
        raise InputError(f"file {name!r}", "is not the name of a file", "give its path")
    return Path(name)


def read_json(path: str | Path, format_: str, version: int, remedy: str = "") -> dict[str, Any]:
    """Read a JSON object and check its `format` and `version`; `remedy` says what to do about another one."""
    document = load_json(path)
    if not isinstance(document, dict) or "format" not in document:
        raise InputError(f"{path}: format", "is missing", f"give a file whose format is {format_!r}")
    if document["format"] != format_:
        raise InputError(
            f"{path}: format", f"is {document['format']!r}", f"give a file whose format is {format_!r}"
        )
    stated = document.get("version")
    if type(stated) is not int or stated != version:
        raise InputError(
            f"{path}: version",
            f"is {stated!r}",
            f"this tnplan reads version {version} of {format_}{remedy and f': {remedy}'}",
        )
    return document


def write_text(path: str | Path, text: str) -> None:
    """Write a text file whole or not at all."""
    write_file(path, lambda stream: stream.write(text.encode()))


def write_json(path: str | Path, document: Any) -> None:
    """Write a document for people to read too: indented, and ended by a line break."""
    write_text(path, json.dumps(document, indent=1) + "\n")


def write_file(path: str | Path, write: Callable[[BinaryIO], Any]) -> None:
    """Let `write` fill a temporary file beside `path`, then move it there; nothing is left half-written."""
    with Staged() as files:
        files.add(path, write)
        files.move()


class _Unfinished:
    """Files of this process that are to be gone at its end: threads that write may not come to it then."""

    def __init__(self) -> None:
        self._paths: set[Path] | None = set()
        """None: the process ends."""
        self._lock = Lock()
        atexit.register(self.delete)

    def open(self, path: Path) -> int:
        """Make a file, and give its descriptor; raises OSError where that fails, or something is there."""
        with self._lock:
            if self._paths is None:
                raise InterruptedError(EINTR, "the process ends")
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | PRIVATE, 0o666)
            self._paths.add(path)
            return handle

    def add(self, path: Path) -> None:
        """A file that is there is to be gone too."""
        with self._lock:
            if self._paths is not None:
                self._paths.add(path)

    def forget(self, path: Path) -> None:
        """A file is deleted or in its place."""
        with self._lock:
            if self._paths is not None:
                self._paths.discard(path)

    def delete(self) -> None:
        """Delete them all, as the process ends; none is made any more."""
        with self._lock:
            paths, self._paths = self._paths or set(), None
        for path in paths:
            with suppress(OSError):
                path.unlink()


unfinished = _Unfinished()


class Staged:
    """Files written under temporary names beside their own, and moved there when all are whole.

    To be used in `with`, at whose end those that were not moved are deleted.
    """

    def __init__(self) -> None:
        self._files: list[tuple[Path, Path]] = []

    def __enter__(self) -> Staged:
        return self

    def __exit__(self, *exception: object) -> None:
        for temporary, _ in self._files:
            temporary.unlink(missing_ok=True)
            unfinished.forget(temporary)

    def add(self, path: str | Path, write: Callable[[BinaryIO], Any]) -> None:
        """Let `write` fill the temporary file of `path`; raises InputError where it cannot be written."""
        target = file_path(path)
        temporary = target.parent / f".{target.name}.{uuid4().hex[:8]}"
        # Named before it exists, so that Ctrl-C at any moment leaves none behind.
        self._files.append((temporary, target))
        try:
            handle = unfinished.open(temporary)
        except OSError as error:
            self._files.pop()
            unfinished.forget(temporary)
            raise InputError(
                str(target), f"cannot be written ({error.strerror})",
                "choose a folder that exists and is writable", topic="files that cannot be written",
            ) from None  # fmt: skip
        try:
            with os.fdopen(handle, "w+b") as stream:
                write(stream)
        except OSError as error:
            raise _not_written(target, error) from None

    def move(self) -> None:
        """Move every file to its place, in the order in which they were added; raises InputError."""
        while self._files:
            temporary, target = self._files[0]
            try:
                temporary.replace(target)
            except OSError as error:
                raise _not_written(target, error) from None
            unfinished.forget(temporary)
            del self._files[0]


def _not_written(target: Path, error: OSError) -> InputError:
    return InputError(
        str(target), f"cannot be written ({error.strerror or error})",
        "free space there or choose another place", topic="files that cannot be written",
    )  # fmt: skip


def check_writable(path: str | Path, *inputs: object) -> None:
    """Refuse an output path that cannot be written or is one of the `inputs`, before any work is done.

    Inputs that are no names of files are passed over.
    """
    target = file_path(path)
    # Real paths, since an input may have a link or another spelling for a name.
    own = os.path.realpath(target)
    files = [source for source in inputs if isinstance(source, str | Path)]
    if own in map(os.path.realpath, files):
        raise InputError(str(target), "is an input and would be replaced", "give the output another name")
    try:
        is_folder, is_there, is_file = target.is_dir(), target.exists(), target.is_file()
        has_folder = target.parent.is_dir() and os.access(target.parent, os.W_OK)
    except OSError as error:
        raise InputError(
            str(target),
            f"cannot be written ({error.strerror})",
            "give another name or place",
            topic="files that cannot be written",
        ) from None
    if is_folder:
        raise InputError(str(target), "is a folder", "give the name of a file")
    if is_there and not is_file:
        raise InputError(
            str(target), "is a device or a pipe, which a file would replace", "give the name of a file"
        )
    if not has_folder:
        raise InputError(
            str(target), "its folder does not exist or is not writable",
            "choose a folder that exists and is writable", topic="files that cannot be written",
        )  # fmt: skip


def check_suffix(path: str | Path, *suffixes: str) -> None:
    """Refuse an output path whose name promises another format than the `suffixes` that can be written."""
    if Path(path).suffix.lower() not in suffixes:
        raise InputError(
            str(path),
            f"does not end in {' or '.join(suffixes)}",
            "give it this ending: no other format is written",
        )


def check_json_name(path: str | Path) -> None:
    """Refuse an output of JSON whose name promises arrays, which NumPy could not read."""
    if (suffix := Path(path).suffix.lower()) in (".npy", ".npz"):
        raise InputError(str(path), f"ends in {suffix}, and is written as JSON", "let its name end in .json")
