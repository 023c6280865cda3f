"""The loop on disk after an iteration, so that an interrupted one goes on with the same numbers.

Changelog of `tnplan.sqd.checkpoint`:
1 (2026-11-26): first version.
2 (2026-11-29): as `tnplan.common.checkpoint`. Version 1 is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.checkpoint import CheckpointFile
from tnplan.jobs.sqd.recovery import Loop, SubspaceState


class LoopCheckpoint(CheckpointFile):
    """The checkpoint of one run."""

    FORMAT, VERSION = "tnplan.sqd.checkpoint", 2
    ARRAYS = (
        "occupancies", "carryover_alpha", "carryover_beta", "best_alpha", "best_beta", "best_amplitudes",
        "best_occupancies",
    )  # fmt: skip
    JOB, OTHERS = "run", "integrals, samples or options"

    def write(self, loop: Loop) -> None:
        """Replace the file; the loop has been through an iteration."""
        best = loop.best
        assert best is not None
        assert loop.occupancies is not None
        document = {
            "iterations": loop.iterations, "best_energy_hartree": best.energy,
            "random": loop.random.bit_generator.state,
        }  # fmt: skip
        self.replace(
            document, loop.occupancies, *loop.carryover, *best.strings, best.amplitudes, best.occupancies
        )

    def read(self, resume: bool) -> Loop | None:
        """The loop to go on from; None where no checkpoint stands. Refuses one of another run."""
        return self.restored(resume, _loop)


def _loop(document: dict[str, Any], values: dict[str, Array]) -> Loop:
    """The loop of what a checkpoint holds; ValueError where parts do not fit each other."""
    # The state of the bit generator is what makes the resumed loop draw the same numbers; the seed
    # here is replaced.
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
