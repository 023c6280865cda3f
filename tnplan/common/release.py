"""Which tnplan this is: its version, and a hash of its sources, by which builds of one version differ."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).absolute().parents[1]
"""The folder of `tnplan`."""
SUFFIXES = (".py", ".cu", ".cuh", ".toml")


def release() -> str:
    """The version that is installed; without an installation that of the source tree."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tnplan")
    except PackageNotFoundError:
        project = PACKAGE.parent / "pyproject.toml"
        if not project.is_file():
            return "unknown"
        import tomllib

        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])


@cache
def source_hash() -> str:
    """The SHA-256 of the sources that this process runs, by their names in the package."""
    digest = hashlib.sha256()
    for path in sorted(path for path in PACKAGE.rglob("*") if path.suffix in SUFFIXES):
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
