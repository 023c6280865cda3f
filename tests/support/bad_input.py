"""A folder of good files, ways to spoil them, and what every refusal must look like."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tnplan.cli.main import run
from tnplan.common.files import identity_of
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import save_network, save_path
from tnplan.planner.networks.tensors import random_tensors, save_tensors
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.schedule.file import save_schedule

Spoil = Callable[[Path], object]

NETWORK = Network(
    (("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")),
    ("a", "e"),
    {"a": 4, "b": 8, "c": 8, "d": 2, "e": 4},
)
PATH = ContractionPath(NETWORK, ((0, 1), (4, 2), (5, 3)), ("d",), "complex64", "chain", "t.npz")
QSIM = "2\n0 h 0\n1 cz 0 1\n2 rz 1 0.5\n"
QASM = 'OPENQASM 2.0;\ninclude "qelib1.inc";\nqreg q[2];\nh q[0];\ncx q[0],q[1];\n'


def make_folder(folder: Path) -> None:
    """path.json, its network and tensors, a schedule for groups of 4 and one for 1, circuits, a profile."""
    save_path(PATH, folder / "path.json")
    save_network(NETWORK, folder / "net.json", dtype="complex64", name="chain", tensors="t.npz")
    save_tensors(random_tensors(NETWORK, "complex64", 1), folder / "t.npz")
    for name, ranks in (("four.json", 4), ("one.json", 1)):
        save_schedule(plan(PATH, load_profile("cpu"), devices=ranks, ranks_per_group=ranks), folder / name)
    (folder / "c.qsim").write_text(QSIM)
    (folder / "c.qasm").write_text(QASM)
    (folder / "h.toml").write_text((Path(load_profile.__code__.co_filename).parent / "cpu.toml").read_text())
    (folder / "folder").mkdir()
    (folder / "old").write_text("old")


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """The bytes of every file under a folder; None for a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def refused(capsys: pytest.CaptureFixture[str], line: str, *says: str, after_progress: bool = False) -> str:
    """Run a command line in the current folder: status 2, one line that says it, every file as it was.

    Returns that line, which nothing but progress stands before, and only where `after_progress` says so.
    """
    before = snapshot(Path())
    status = run(shlex.split(line))
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    lines = [text for text in err.splitlines() if text.strip()]
    if after_progress:
        lines = [text for text in lines if text.startswith("tnplan: ")]
    assert len(lines) == 1, err
    assert lines[0].startswith("tnplan: error: "), lines
    assert "; " in lines[0], "without a remedy"
    for text in says:
        assert text in lines[0], lines
    assert status == 2, lines
    assert out == ""
    assert snapshot(Path()) == before
    return lines[0]


def text(name: str, content: str | bytes) -> Spoil:
    """Write a file."""
    return lambda folder: (folder / name).write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )


def cut(name: str, share: float = 0.5) -> Spoil:
    """Keep the first part of a file."""

    def spoil(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * share)])

    return spoil


def swap(name: str, old: str, new: str) -> Spoil:
    """Replace a piece of text that the file has."""

    def spoil(folder: Path) -> None:
        content = (folder / name).read_text()
        assert old in content
        (folder / name).write_text(content.replace(old, new))

    return spoil


def edit(name: str, place: str, value: Any, *, sign: bool = False) -> Spoil:
    """Set the value at `place`, such as inputs.3.1, in a JSON file; None removes it.

    `sign` puts a schedule's identity right again, as somebody who means it would.
    """

    def spoil(folder: Path) -> None:
        document = json.loads((folder / name).read_text())
        *keys, last = [int(key) if key.isdigit() else key for key in place.split(".")]
        inner = document
        for key in keys:
            inner = inner[key]
        if value is None:
            del inner[last]
        else:
            inner[last] = value
        if sign:
            document.pop("identity")
            document["identity"] = identity_of({k: v for k, v in document.items() if k != "devices"})
        (folder / name).write_text(json.dumps(document))

    return spoil


def tensors(**changes: Any) -> Spoil:
    """Replace arrays of t.npz; None removes one."""

    def spoil(folder: Path) -> None:
        with np.load(folder / "t.npz") as archive:
            arrays = {name: archive[name] for name in archive}
        arrays = {name: array for name, array in {**arrays, **changes}.items() if array is not None}
        np.savez(folder / "t.npz", **arrays)

    return spoil
