"""How far compressed states are from exact ones."""

from __future__ import annotations

import numpy as np

from tnplan.executor.statevector.simulator import Simulator


def whole(simulator: Simulator) -> np.ndarray:
    """All amplitudes, complex128, of norm 1, the first qubit most significant."""
    n = simulator.n_qubits
    return simulator.amplitudes_at(np.arange(1 << n)[:, None] >> np.arange(n)[::-1] & 1)


def infidelity(state: np.ndarray, exact: np.ndarray) -> float:
    """1 - F, from the part that is orthogonal to the exact state, so that small ones are not lost."""
    return float(np.linalg.norm(state - np.vdot(exact, state) * exact) ** 2)
