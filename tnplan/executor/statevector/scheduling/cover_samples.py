"""What the kernels that sort gates into passes are called with, so that they are compiled ahead."""

from __future__ import annotations

import numpy as np

from tnplan.common.kernels.ahead import Sample, Samples
from tnplan.executor.statevector.scheduling import qubit_cover_kernel

COVERS = Samples(__name__, "of_covers")
"""What sorts gates into passes, for states on CPUs and GPUs."""


def of_covers() -> list[Sample]:
    """The kernels with their arguments."""
    masks, rows, room = np.zeros(1, np.int64), np.zeros((1, 1), np.int64), np.zeros((4, 64), np.int64)
    return [
        (qubit_cover_kernel.next_passes, (masks, masks, masks, 0, 0, 0, 0, 0, room, masks, rows, masks)),
        (qubit_cover_kernel.remaining, (masks, masks, masks, 0, masks)),
        (qubit_cover_kernel.fill_rounds, (masks, masks, 0, 0, 0, 0, room, masks, masks, masks)),
    ]
