"""Which tnplan this is: its version, and a hash of its sources, by which builds of one version differ."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGE = Path(__file__).absolute().parents[2]
"""The folder of `tnplan`, where planner, executor and compress may be links."""
FOLDERS = ("planner", "executor", "compress")
SUFFIXES = (".py", ".cu", ".cuh", ".toml")


def release() -> str:
    """The version that is installed; without an installation that of the source tree."""
    try:
        return version("tnplan")
    except PackageNotFoundError:
        project = Path(__file__).resolve().parents[2] / "pyproject.toml"
        if not project.is_file():
            return "unknown"
        import tomllib

        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])


@cache
def source_hash() -> str:
    """The SHA-256 of the sources that this process runs, by their names in the package."""
    digest = hashlib.sha256()
    for top in (PACKAGE, *(PACKAGE / name for name in FOLDERS)):
        root = top.resolve()
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root)
            is_other = top == PACKAGE and name.parts[0] in FOLDERS
            if path.suffix in SUFFIXES and path.is_file() and not is_other:
                digest.update(f"{top.name}/{name.as_posix()}\n".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
