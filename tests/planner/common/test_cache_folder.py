"""Where caches are: what the user names, the home, a private temporary folder, nowhere."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tnplan.planner.common.cache_folder import cache_folder, private_folder
from tnplan.planner.common.compiled.numba_cache import cached_njit


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
    assert found == temporary / f"tnplan-{os.getuid()}" / "k"
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


@pytest.mark.parametrize("place", ["ours", "none", "numba's own"])
def test_numba_keeps_functions_where_tnplan_does(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    import numba

    ours, own, before = tmp_path / "ours", tmp_path / "own", numba.config.CACHE_DIR
    monkeypatch.setenv("TNPLAN_CACHE_DIR", "0" if place == "none" else str(ours))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    if place == "numba's own":
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(own))
        monkeypatch.setattr(numba.config, "CACHE_DIR", str(own))

    def twice(x: int) -> int:
        return 2 * x

    assert cached_njit(nogil=True)(twice)(4) == 8
    assert ours.exists() == (place == "ours")
    assert own.exists() == (place == "numba's own")
    if place != "numba's own":
        assert before == numba.config.CACHE_DIR
