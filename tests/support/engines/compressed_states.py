"""How far compressed states are from exact ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.support.circuits import state_vector
from tests.support.engines.unseen_circuits import KINDS, unseen_circuit
from tnplan.executor.statevector.simulator import Simulator


def whole(simulator: Simulator) -> np.ndarray:
    """All amplitudes, complex128, of norm 1, the first qubit most significant."""
    n = simulator.n_qubits
    return simulator.amplitudes_at(np.arange(1 << n)[:, None] >> np.arange(n)[::-1] & 1)


def infidelity(state: np.ndarray, exact: np.ndarray) -> float:
    """1 - F, from the part that is orthogonal to the exact state, so that small ones are not lost."""
    return float(np.linalg.norm(state - np.vdot(exact, state) * exact) ** 2)


def check_coverage(seeds: range, qubits: range, simulated: Callable[..., Simulator]) -> None:
    """The bound is never below the error; the estimate is within 2 in 90 % of all runs.

    - `simulated`: The compressed state after a circuit, from that, the dtype, bits, seed and a generator.
    """
    near = []
    for seed in seeds:
        random = np.random.default_rng(seed)
        kind, n = KINDS[seed % len(KINDS)], int(random.choice(qubits))
        circuit = unseen_circuit(kind, n, seed)
        exact = state_vector(circuit).reshape(-1)
        for dtype in ("complex64", "complex128"):
            for bits in (8, 16):
                simulator = simulated(circuit, dtype, bits, seed, random)
                errors: Any = simulator.state.errors  # type: ignore[attr-defined]
                error = infidelity(whole(simulator), exact)
                assert error <= 1 - errors.fidelity_bound + 1e-15, (kind, n, seed, dtype, bits)
                near.append(0.5 <= error / (1 - errors.fidelity_estimate) <= 2)
    assert np.mean(near) >= 0.9
