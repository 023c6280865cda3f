"""Trotter steps whose amplitudes fall below the normal range of single precision."""

from __future__ import annotations

import numpy as np
import pytest

import tnplan
from tests.support.engines.statevector import TOLERANCE, simulator_of
from tests.support.kernels.control_register import control_register, n_subnormal
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.qasm.gate_calls import X, Z
from tnplan.common.errors import InputError

N_QUBITS = 12
WORDS = [np.kron(one, one) for one in (X, 1j * X @ Z, Z)]
"""XX, YY, ZZ."""


def trotter(n_steps: int, angles: tuple[float, float, float], start: list[Gate]) -> GateSequence:
    """Trotter steps of a chain after some gates: exp(-i angle/2 P P) on each bond for P = X, Y, Z."""
    gates = list(start)
    for first in n_steps * [0, 1]:
        for qubit in range(first, N_QUBITS - 1, 2):
            for word, angle in zip(WORDS, angles, strict=True):
                matrix = np.cos(angle / 2) * np.eye(4) - 1j * np.sin(angle / 2) * word
                gates.append(Gate("turn", (qubit, qubit + 1), matrix))
    return GateSequence(N_QUBITS, tuple(gates))


def product_state(seed: int) -> list[Gate]:
    """Every qubit nearly in |0>: amplitudes of many ones are products of many small numbers."""
    draw = np.random.default_rng(seed)
    exponents = draw.uniform(-7, -2, N_QUBITS)
    return [gate("ry", (qubit,), (float(10**exponent),)) for qubit, exponent in enumerate(exponents)]


CHAINS = {
    "heisenberg from zeros": trotter(5, (0.1, 0.1, 0.1), []),
    "heisenberg": trotter(3, (0.1, 0.1, 0.1), product_state(1)),
    "xxz": trotter(3, (0.3, 0.3, 0.2), product_state(2)),
    "antiferromagnet": trotter(2, (-0.2, -0.2, 0.4), product_state(3)),
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", CHAINS)
def test_no_subnormal_amplitudes_are_left(name: str, threads: int) -> None:
    before = control_register()
    single, double = (
        simulator_of(CHAINS[name], dtype, threads=threads).array() for dtype in ("complex64", "complex128")
    )
    assert control_register() == before
    assert n_subnormal(single) == 0
    np.testing.assert_allclose(single, double, rtol=0, atol=TOLERANCE["complex64"])
    if name != "heisenberg from zeros":
        # Single precision cannot hold these: without flushing they would be subnormal.
        assert n_subnormal(double.astype(np.complex64)) > 0


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_a_callers_own_numbers_stay_what_they_are(precision: str) -> None:
    before, tiny = control_register(), np.finfo(np.float32).tiny
    done = tnplan.simulate(CHAINS["xxz"], observable="Z0 Z1", precision=precision, threads=2)
    assert control_register() == before
    assert abs(done.answer.expectation) <= 1 + 1e-5
    with pytest.raises(InputError):
        tnplan.simulate(CHAINS["xxz"], observable="Z99", precision=precision)
    assert control_register() == before
    assert np.float32(tiny) / np.float32(4) > 0
