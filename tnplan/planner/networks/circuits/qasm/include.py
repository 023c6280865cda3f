"""Which files an OpenQASM file may include: those below its folder, and below folders that the user names."""

from __future__ import annotations

import os
from pathlib import Path

from tnplan.planner.networks.circuits.qasm.values import Mistake

FOLDERS_VARIABLE = "TNPLAN_INCLUDE_PATH"
"""Environment variable: more folders whose files may be included, with colons between them."""


def included_file(name: str, beside: str, own: Path | None) -> Path:
    """The file that an `include` in the file `beside` names; Mistake where there is none that may be read.

    `own` is the folder of the circuit's file, None for a circuit that is no file. Links count as the files
    that they lead to.
    """
    named = [Path(folder) for folder in os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep) if folder]
    is_outside = own is None or Path(name).is_absolute() or ".." in Path(name).parts
    allowed = [folder.resolve() for folder in (named if is_outside else [*named, own]) if folder is not None]
    for folder in (Path(beside).parent, *named):
        try:
            file = (folder / name).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):  # not there; links in a circle; no name of a file
            continue
        if any(file.is_relative_to(one) for one in allowed):
            return folder / name
        is_outside = True
    if not is_outside:
        raise Mistake(f"includes {name!r}, which is not there", "put the file beside this one")
    if own is None:
        problem = f"includes {name!r}, and has no folder itself"
        raise Mistake(problem, f"name the folder of that file in {FOLDERS_VARIABLE}")
    raise Mistake(
        f"includes {name!r}, which lies outside of the circuit's folder",
        f"put the file below that folder, or name its own in {FOLDERS_VARIABLE}",
    )
