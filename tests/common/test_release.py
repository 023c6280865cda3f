"""The hash of the sources: what changes it and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tnplan.common import release


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with sources in two folders."""
    package = tmp_path / "tnplan"
    for source in ("api/one.py", "executor/two.cu"):
        (package / source).parent.mkdir(parents=True)
        (package / source).write_text("a\n")
    monkeypatch.setattr(release, "PACKAGE", package)
    return package


def hashed() -> str:
    """Read anew."""
    release.source_hash.cache_clear()
    return release.source_hash()


def test_each_source_counts(package: Path) -> None:
    seen = {hashed()}
    for source in ("api/one.py", "executor/two.cu"):
        (package / source).write_text("changed\n")
        seen.add(hashed())
    (package / "api" / "one.py").rename(package / "api" / "other.py")
    seen.add(hashed())
    assert len(seen) == 4
    release.source_hash.cache_clear()


def test_other_files_do_not_count(package: Path) -> None:
    first = hashed()
    (package / "api" / "__pycache__").mkdir()
    (package / "api" / "__pycache__" / "one.cpython-311.pyc").write_bytes(b"1")
    assert hashed() == first
    release.source_hash.cache_clear()
