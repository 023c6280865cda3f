"""Both states of a sweep back in one array of a GPU, psi and lambda in turn: see `adjoint.joint_sweep`.

Knows CuPy, passes and launches; no circuit. Everything runs on the current stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.statevector.cuda.state import CupyState
from tnplan.executor.statevector.cuda.words import join
from tnplan.executor.statevector.scheduling.tiled_passes import Pass, Tile


class JointState:
    """Amplitude i of psi is element 2 i, that of lambda element 2 i + 1."""

    mirrored = False

    def __init__(self, final: CupyState) -> None:
        self._both = CupyState(final.n_bits + 1, final.dtype)
        self._prepared: Sequence[Any] = ()

    @property
    def tile(self) -> Tile:
        """That of both states."""
        return self._both.tile

    def prepare(self, passes: Sequence[Pass], from_zeros: bool) -> bool:
        """Have kernels compiled; whether there are such for all passes that take sums."""
        prepared = self._both.prepare_sums(passes)
        self._prepared = prepared or ()
        return prepared is not None

    def begin(self, psi: CupyState, words: Sequence[tuple[int, int, complex]]) -> None:
        """Take the final state, and lambda as the sum of words of it: masks x and z of bits, and factors."""
        join(self._both.amplitudes, psi.amplitudes, words)

    def run(self) -> Callable[[], NDArray[Any]]:
        """Launch all passes; what is returned waits for the sums, float64 [number]."""
        for item in self._prepared:
            self._both.apply(item)
        return self._sums

    def _sums(self) -> NDArray[Any]:
        numbers: list[int] = []
        values: list[NDArray[Any]] = [np.zeros(0)]
        for item in self._prepared:
            own = getattr(item, "word_sums", ())
            if own:
                weights = np.array([weight for _, weight in own])
                values.append(item.sums.get().sum(axis=0) * weights)
                numbers += [number for number, _ in own]
        found = np.zeros(len(numbers))
        found[numbers] = np.concatenate(values)
        return found
