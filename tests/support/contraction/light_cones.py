"""Expectation values by contraction in one process, light cone after light cone."""

from __future__ import annotations

from collections.abc import Sequence

from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.pauli_sum import PauliSum
from tnplan.circuits.program import CircuitProgram
from tnplan.common.arrays import Array
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.questions.tensor_networks.expectation import LightCones, PlannedAhead


def expectations(
    circuit: GateSequence | CircuitProgram, sums: Sequence[PauliSum], options: ContractionOptions
) -> Array:
    """The expectation values <psi| O |psi> of some observables O; Tr(rho O) where the circuit is noisy."""
    cones = LightCones(circuit, sums)
    with PlannedAhead(cones, options, 1) as planned:
        return cones.expectations([planned.values(number) for number in range(len(cones))])
