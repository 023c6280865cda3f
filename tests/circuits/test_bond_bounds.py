"""Bounds of bonds, and what crosses them, against the ranks of states."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.circuit_families import random_cases
from tests.support.circuits import state_vector
from tnplan.circuits.bond_bounds import chain_order, log2_bonds, log2_cuts
from tnplan.circuits.circuit import GateSequence

RANK = 1e-10
"""Singular values below this part of the largest are rounding."""


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_bonds_are_no_larger_than_their_bounds(first: int) -> None:
    """The Schmidt rank of a state. What crosses a cut in the network is bounded by not a number of qubits."""
    for case in random_cases(first, 10, most_qubits=9, most_depth=6):
        if not isinstance(case.circuit, GateSequence):
            continue
        n, order = case.circuit.n_qubits, chain_order(case.circuit)
        bonds, cuts = log2_bonds(case.circuit, order), log2_cuts(case.circuit, order)
        state = state_vector(case.circuit).reshape((2,) * n).transpose(order)
        for site in range(1, n):
            values = np.linalg.svd(state.reshape(2**site, -1), compute_uv=False)
            rank = int((values > RANK * values[0]).sum())
            assert np.log2(rank) <= bonds[site - 1] + 1e-9
            assert bonds[site - 1] == pytest.approx(min(cuts[site - 1], site, n - site))
