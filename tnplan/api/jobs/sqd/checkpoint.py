"""The loop on disk after an iteration, so that an interrupted one goes on with the same numbers.

Changelog of `tnplan.sqd.checkpoint`:
1 (2026-11-26): first version.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.api.jobs.sqd.recovery import Loop, SubspaceState
from tnplan.planner.common.array_file import open_archive
from tnplan.planner.common.arrays import Array
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import write_file

FORMAT = "tnplan.sqd.checkpoint"
VERSION = 1
ARRAYS = (
    "occupancies", "carryover_alpha", "carryover_beta", "best_alpha", "best_beta", "best_amplitudes",
    "best_occupancies",
)  # fmt: skip


def write_loop(path: Path, identity: str, loop: Loop) -> None:
    """Replace the checkpoint; the loop has been through an iteration."""
    best = loop.best
    assert best is not None
    assert loop.occupancies is not None
    document = {
        "format": FORMAT, "version": VERSION, "identity": identity, "iterations": loop.iterations,
        "best_energy_hartree": best.energy, "random": loop.random.bit_generator.state,
    }  # fmt: skip
    values = (loop.occupancies, *loop.carryover, *best.strings, best.amplitudes, best.occupancies)
    content: dict[str, Any] = dict(zip(ARRAYS, values, strict=True))
    write_file(path, lambda stream: np.savez(stream, document=json.dumps(document), **content))


def read_loop(path: Path, identity: str, resume: bool) -> Loop | None:
    """The loop to go on from; None where no checkpoint stands. Refuses one of another run."""
    if not path.exists():
        return None
    if not resume:
        raise _refusal(path, "is the checkpoint of an interrupted run", "continue it with --resume, or ")
    damaged = _refusal(path, "is no checkpoint of a run, or damaged")
    try:
        with open_archive(path, "") as archive:
            document = json.loads(str(archive.read("document")))
            values = {name: archive.read(name) for name in ARRAYS}
        form, version, owner = (document[name] for name in ("format", "version", "identity"))
    except (KeyError, ValueError, TypeError):
        raise damaged from None
    if (form, version) != (FORMAT, VERSION):
        raise _refusal(path, f"is {form} {version}, not {FORMAT} {VERSION}")
    if owner != identity:
        problem = "belongs to a run of other integrals, samples or options"
        raise _refusal(path, problem, "resume with those of that run, or ")
    try:
        return _loop(document, values)
    except (KeyError, ValueError, TypeError, IndexError):
        raise damaged from None


def _loop(document: dict[str, Any], values: dict[str, Array]) -> Loop:
    """The loop of what a checkpoint holds; ValueError where parts do not fit each other."""
    random = np.random.default_rng(0)
    random.bit_generator.state = document["random"]
    alpha, beta, amplitudes = (values[f"best_{name}"] for name in ("alpha", "beta", "amplitudes"))
    occupancies = values["occupancies"], values["best_occupancies"]
    fits = amplitudes.shape == (*alpha.shape, *beta.shape) and occupancies[0].shape == occupancies[1].shape
    if not (fits and all(np.isfinite(numbers).all() for numbers in values.values())):
        raise ValueError
    iterations = list(document["iterations"])
    float(iterations[-1]["energy_hartree"])
    best = SubspaceState(float(document["best_energy_hartree"]), (alpha, beta), amplitudes, occupancies[1])
    carryover = values["carryover_alpha"], values["carryover_beta"]
    return Loop(random, iterations, occupancies[0], carryover, best)


def _refusal(path: Path, problem: str, else_: str = "") -> InputError:
    """What the file is, and what to do unless `else_` to start again."""
    return InputError(str(path), problem, f"{else_}delete the file to start again")
