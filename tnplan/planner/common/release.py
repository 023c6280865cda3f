"""Which tnplan this is: its version, and a hash of its sources, by which builds of one version differ."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).absolute().parents[2]
"""The folder of `tnplan`, where planner, executor and compress may be links."""
FOLDERS = ("planner", "executor", "compress")
SUFFIXES = (".py", ".cu", ".cuh", ".toml")


def release() -> str:
    """The version that is installed; without an installation that of the source tree."""
    from importlib.metadata import PackageNotFoundError, version

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
        root = os.path.realpath(top)
        for name in sorted(_sources(root, FOLDERS if top == PACKAGE else ())):
            digest.update(f"{top.name}/{name}\n".encode())
            with open(f"{root}/{name}", "rb") as file:
                digest.update(hashlib.sha256(file.read()).digest())
    return digest.hexdigest()


def _sources(root: str, others: tuple[str, ...]) -> Iterator[str]:
    """The sources below a folder by their names from there, those in the folders `others` of it left out."""
    for folder, folders, files in os.walk(root):
        inside = os.path.relpath(folder, root).replace(os.sep, "/")
        if inside == ".":
            folders[:] = [name for name in folders if name not in others]
        for name in files:
            if name.endswith(SUFFIXES):
                yield name if inside == "." else f"{inside}/{name}"
