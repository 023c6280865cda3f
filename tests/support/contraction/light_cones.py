"""Expectation values by contraction in one process, light cone after light cone."""

from __future__ import annotations

from collections.abc import Sequence

from tnplan.api.circuits.contraction.expectation import LightCones, PlannedAhead
from tnplan.api.contraction.options import ContractionOptions
from tnplan.executor.observables.pauli_sum import PauliSum
from tnplan.planner.common.arrays import Array
from tnplan.planner.networks.circuits.circuit import GateSequence
from tnplan.planner.networks.circuits.program import CircuitProgram


def expectations(
    circuit: GateSequence | CircuitProgram, sums: Sequence[PauliSum], options: ContractionOptions
) -> Array:
    """The expectation values <psi| O |psi> of some observables O; Tr(rho O) where the circuit is noisy."""
    cones = LightCones(circuit, sums)
    with PlannedAhead(cones, options, 1) as planned:
        return cones.expectations([planned.values(number) for number in range(len(cones))])
