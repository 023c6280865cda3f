"""Where caches are: what the user names, the home, a private temporary folder, nowhere."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path

import pytest

from tnplan.common.cache_folder import cache_folder, own_folder, private_folder
from tnplan.common.kernels.compile_kernel import cached_njit


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def test_the_first_place_that_can_be_written_is_taken(tmp_path: Path, temporary: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    named, base = tmp_path / "named", tmp_path / "base"
    assert cache_folder("k", {"TNPLAN_CACHE_DIR": str(named), "XDG_CACHE_HOME": str(base)}) == named / "k"
    environment = {"TNPLAN_CACHE_DIR": str(file), "XDG_CACHE_HOME": str(base)}
    assert cache_folder("k", environment) == base / "tnplan" / "k"
    found = cache_folder("k", {"XDG_CACHE_HOME": str(file)})
    assert found == temporary / f"tnplan-{os.geteuid()}" / "k"
    assert found.is_dir()
    assert found.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("value", ["", "0"])
def test_caches_are_turned_off(value: str) -> None:
    assert cache_folder("k", {"TNPLAN_CACHE_DIR": value}) is None


def test_a_folder_that_others_can_enter_or_a_link_is_not_taken(tmp_path: Path) -> None:
    folder = private_folder(tmp_path)
    assert folder is not None
    folder.chmod(0o755)
    assert private_folder(tmp_path) is None
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    assert private_folder(tmp_path) is None
    folder.unlink()
    folder.write_text("a file")
    assert private_folder(tmp_path) is None
    file = tmp_path / "file"
    file.write_text("no folder")
    assert private_folder(file) is None


@pytest.mark.parametrize(
    ("mode", "above", "is_used"),
    [
        (0o700, 0o755, True), (0o755, 0o755, True), (0o500, 0o755, None), (0o700, 0o1777, True),
        (0o700, 0o775, True), (0o720, 0o755, False), (0o770, 0o755, False), (0o702, 0o755, False),
        (0o777, 0o755, False), (0o1777, 0o755, False), (0o700, 0o777, False), (0o700, 0o757, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("level", ["place", "folder"])
def test_a_folder_that_others_can_write_is_refused_once(
    mode: int, above: int, is_used: bool | None, level: str, tmp_path: Path, temporary: Path
) -> None:
    """Of the folder that is named and of the one in it; members of a group may write above it."""
    place = tmp_path / "above" / "place"
    (place / "k").mkdir(parents=True, mode=0o700)
    for folder in (place, place / "k"):
        folder.chmod(0o700)
    (place if level == "place" else place / "k").chmod(mode)
    (tmp_path / "above").chmod(above)
    environment = {"TNPLAN_CACHE_DIR": str(place), "XDG_CACHE_HOME": str(tmp_path / "base")}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = [cache_folder("k", environment) for _ in range(2)]
    if is_used is None:  # root may write it all the same
        is_used = os.geteuid() == 0
    assert found == [place / "k" if is_used else tmp_path / "base" / "tnplan" / "k"] * 2
    assert len(said) == (not is_used and mode != 0o500)
    for one in said:
        assert str(place) in str(one.message)
        assert "others" in str(one.message)
        assert "chmod" in str(one.message)


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.warns(UserWarning, match=f"belongs to user {owner}, and this is user {owner + 1}"):
        assert own_folder(tmp_path) is None


def test_folders_that_are_made_are_private(tmp_path: Path) -> None:
    """Whatever the mask of rights says."""
    before = os.umask(0)
    try:
        found = cache_folder("k", {"XDG_CACHE_HOME": str(tmp_path / "a" / "b")})
    finally:
        os.umask(before)
    assert found == tmp_path / "a" / "b" / "tnplan" / "k"
    for folder in (found, *list(found.parents)[:3]):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_links_of_the_user_are_followed_when_a_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert own_folder(tmp_path / "link") == tmp_path / "elsewhere"
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    assert own_folder(tmp_path / "circle") is None


@pytest.mark.parametrize("place", ["ours", "none", "numba's own"])
def test_numba_keeps_functions_where_tnplan_does(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    ours, own = tmp_path / "ours", tmp_path / "own"
    monkeypatch.setenv("TNPLAN_CACHE_DIR", "0" if place == "none" else str(ours))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    if place == "numba's own":
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(own))

    def twice(x: int) -> int:
        return 2 * x

    assert cached_njit(nogil=True)(twice)(4) == 8
    kept = {folder: len(list(folder.glob("*.numba"))) for folder in (ours / "numba", own)}
    assert kept == {ours / "numba": place == "ours", own: place == "numba's own"}
    again = cached_njit(nogil=True)(twice)
    assert again(4) == 8
    assert sum(again.stats.cache_hits.values()) == (place != "none")
    assert again.stats.cache_path == {"ours": str(ours / "numba"), "numba's own": str(own)}.get(place, "")
