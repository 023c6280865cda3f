"""Files of caches: what is damaged or may be someone else's is not used, and costs time alone."""

from __future__ import annotations

import errno
import os
import pickle
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.robustness.damages import DAMAGES
from tnplan.common import cache_folder
from tnplan.common.cache_folder import has_entry, locked_entry, read_entry, write_entry
from tnplan.common.kernels import compile_kernel
from tnplan.common.kernels.compile_kernel import cached_njit
from tnplan.common.kernels.kernel import kernel
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_cache import CachedPath, PathCache

PATH = ContractionPath(Network((("a",), ("a", "b")), ("b",), {"a": 2, "b": 3}), ((0, 1),), (), "float64")
CONTENT = bytes(range(256)) * 4
FOREIGN = 12345
"""A user that nobody is."""
jit = kernel(nogil=True, error_model="numpy")


@jit
def total(numbers: Any) -> int:
    found = 0
    for number in numbers:
        found += number
    return found


@jit
def total_by_numba(n: int) -> Any:
    """It returns no number of 64 bits, and so is left to numba."""
    return np.float32(2 * n)


def doubled(x: int) -> int:
    return 2 * x


def _compiled() -> int:
    total.loaded.clear()
    return int(total(np.arange(5)))


def _left_to_numba() -> int:
    total_by_numba.loaded.clear()
    total_by_numba.__dict__.pop("dispatcher", None)
    compile_kernel.globals_of_modules.clear()
    return int(total_by_numba(5))


def _searched() -> int:
    cache = PathCache(Path(os.environ["TNPLAN_CACHE_DIR"]) / "paths")
    found = cache.find(PATH.network, "float64") or CachedPath(PATH, 5.0, 1.0)
    cache.keep(found)
    return int(found.cost) * 2


CALLS: dict[str, Callable[[], int]] = {
    "object code": _compiled,
    "a kernel left to numba": _left_to_numba,
    "numba's code": lambda: int(cached_njit()(doubled)(5)),
    "a path": _searched,
}
"""A call for each kind of cache; all give 10."""


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty caches."""
    monkeypatch.setenv("TNPLAN_CACHE_DIR", str(tmp_path / "caches"))
    for name in ("NUMBA_CACHE_DIR", "TNPLAN_PATH_CACHE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "caches"


def files(folder: Path) -> list[Path]:
    """All files of the caches."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", CALLS)
def test_damage_costs_time_alone(kind: str, caches: Path) -> None:
    """After each damage to all files the value is right, and all files are whole again."""
    call = CALLS[kind]
    assert call() == 10
    names = files(caches)
    assert names
    for damage in DAMAGES.values():
        for file in names:
            damage(file)
        assert call() == 10
        assert files(caches) == names
        assert all(read_entry(file.parent, file.name) is not None for file in names)


@pytest.mark.parametrize("kind", CALLS)
def test_what_is_kept_is_not_made_again(kind: str, caches: Path) -> None:
    assert CALLS[kind]() == 10
    before = {file: file.stat().st_ino for file in files(caches)}
    assert CALLS[kind]() == 10
    written = {file: file.stat().st_ino for file in files(caches)}
    assert written == before or kind == "a path"


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("fault", ["no room", "no file", "folder removed", "read-only"])
def test_what_cannot_be_kept_costs_time_alone(
    kind: str, fault: str, caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, a quota of files, a folder that goes away, a disk without writing."""
    CALLS[kind]()
    for file in files(caches):
        file.unlink()
    opened = os.open

    def refuse(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EDQUOT if fault == "no file" else errno.EROFS, "refused")
        return opened(path, flags, *rest, **named)

    if fault == "folder removed":
        for folder in list(caches.iterdir()):
            folder.rmdir()
            folder.write_text("in the way")
    elif fault != "no room":
        monkeypatch.setattr(cache_folder.os, "open", refuse)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if fault == "no room":
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        found = [CALLS[kind]() for _ in range(2)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert found == [10, 10]
    assert fault == "folder removed" or not files(caches)


class Planted:
    """Its pickle makes a file where it is loaded."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


@pytest.mark.parametrize("is_open", ["nothing", "file", "folder", "cache", "above"])
def test_what_others_can_have_written_is_not_run(
    is_open: str, caches: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """A planted pickle, its checksum right: it is run in a file of the user's own, and else nowhere."""
    call = CALLS["numba's code"]
    call()
    (file,) = files(caches)
    assert write_entry(file.parent, file.name, pickle.dumps(Planted(tmp_path / "was run")))
    opened = {"file": file, "folder": file.parent, "cache": caches, "above": tmp_path}.get(is_open)
    if opened is not None:
        opened.chmod(0o777 if is_open == "above" else 0o720)
    cache_folder.usable.clear()  # as in a new process
    try:
        assert [call() for _ in range(3)] == [10] * 3
    finally:
        tmp_path.chmod(0o700)
    assert (tmp_path / "was run").exists() == (is_open == "nothing")
    said = [str(one.message) for one in recwarn]
    assert len(said) == (is_open != "nothing")
    for line in said:
        assert str(file if is_open == "file" else caches) in line
        assert "others" in line
        assert "chmod" in line
        assert "\n" not in line


def test_a_file_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert write_entry(tmp_path, "entry", CONTENT)
    owner, told = os.stat(tmp_path).st_uid, os.fstat

    def of_another(handle: int) -> os.stat_result:
        facts = list(told(handle))
        facts[4] = owner if os.path.isdir(f"/proc/self/fd/{handle}") else FOREIGN
        return os.stat_result(facts)

    monkeypatch.setattr(cache_folder.os, "fstat", of_another)
    with pytest.warns(UserWarning, match=f"belongs to user {FOREIGN}"):
        assert read_entry(tmp_path, "entry") is None
    assert (tmp_path / "entry").exists()  # it is not ours to remove
    assert write_entry(tmp_path, "entry", CONTENT)
    monkeypatch.undo()
    assert read_entry(tmp_path, "entry") == CONTENT


def test_no_changed_byte_passes(tmp_path: Path) -> None:
    """Every bit of a file counts, its name too."""
    assert write_entry(tmp_path, "entry", b"content")
    whole = (tmp_path / "entry").read_bytes()
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        (tmp_path / "entry").write_bytes(changed)
        assert read_entry(tmp_path, "entry") is None
        assert not has_entry(tmp_path, "entry")  # it is removed
    (tmp_path / "other").write_bytes(whole)
    assert read_entry(tmp_path, "other") is None
    (tmp_path / "entry").write_bytes(whole)
    assert read_entry(tmp_path, "entry") == b"content"


def test_files_are_private_and_nothing_else_is_left(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert write_entry(tmp_path, "entry", CONTENT)
    finally:
        os.umask(before)
    assert (tmp_path / "entry").stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["entry"]
    assert not write_entry(tmp_path / "nowhere", "entry", CONTENT)
    assert read_entry(tmp_path / "nowhere", "entry") is None


def test_a_holder_that_is_stopped_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with locked_entry(tmp_path, "lock"):
        monkeypatch.setattr(cache_folder, "LONGEST_WAIT_S", 0.05)
        with locked_entry(tmp_path, "lock"):
            pass


def test_a_lock_follows_no_link_and_waits_for_no_pipe(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    for make in (lambda file: file.symlink_to(target), os.mkfifo, Path.mkdir):
        lock = tmp_path / "lock"
        make(lock)
        with locked_entry(tmp_path, "lock"):
            assert target.read_text() == "precious"
        if lock.is_dir():
            lock.rmdir()
        else:
            lock.unlink(missing_ok=True)
