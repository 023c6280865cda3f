"""Expectation values of sums of Pauli words by contraction, each word in its light cone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tnplan.api.circuits.contraction.networks import contract_batch
from tnplan.api.contraction.options import ContractionOptions
from tnplan.api.progress import Progress
from tnplan.executor.observables.pauli_sum import PauliSum
from tnplan.planner.common.arrays import Array
from tnplan.planner.common.errors import InputError
from tnplan.planner.networks.circuits.circuit import GateSequence
from tnplan.planner.networks.circuits.program import CircuitProgram
from tnplan.planner.networks.circuits.questions.pauli_leaves import Support, leaves, support_of
from tnplan.planner.networks.circuits.questions.sandwich import sandwich
from tnplan.planner.networks.circuits.questions.steps import keeps_trace, steps_of


def expectations(
    circuit: GateSequence | CircuitProgram,
    sums: Sequence[PauliSum],
    options: ContractionOptions | None = None,
) -> Array:
    """The expectation values <psi| O |psi> of some observables O; Tr(rho O) where the circuit is noisy.

    Words on the same qubits, with Z on the same ones, are values of one batch, and what does not depend on
    the word is contracted once. Equal words of several sums are contracted once.

    Parameters
    ----------
    circuit : GateSequence or CircuitProgram
        Gates, channels, resets and measurements whose bits nothing depends on.
    sums : sequence of PauliSum
        The observables.
    options : ContractionOptions, optional
        How they are contracted; `precision` "fp64", the default, or "fp32".

    Returns
    -------
    array
        Complex128, one value for each sum.

    Raises
    ------
    InputError
        For sums on another number of qubits, and circuits that depend on measured bits.
    """
    options = options or ContractionOptions()
    steps = steps_of(circuit, "circuit")
    for number, one in enumerate(sums):
        if one.n_qubits != circuit.n_qubits:
            raise InputError(
                f"observable {number}", f"is on {one.n_qubits} qubits",
                f"give one on the {circuit.n_qubits} qubits of the circuit",
            )  # fmt: skip
    groups: dict[Support, dict[tuple[int, int], complex]] = {}
    for one in sums:
        for x, z, _ in one.masks():
            groups.setdefault(support_of(x, z), {})[x, z] = 1.0
    keeps_all = all(keeps_trace(step) for step in steps)
    for number, (support, words) in enumerate(groups.items()):
        if support.qubits or not keeps_all:
            opened = sandwich(steps, support)
            found = contract_batch(opened, leaves(list(words), support), options)
            words.update(zip(words, found.tolist(), strict=True))
        if options.progress is not None:
            done = number + 1
            options.progress(Progress(done, len(groups), f"light cone {done} of {len(groups)}"))
    values = [sum(value * groups[support_of(x, z)][x, z] for x, z, value in one.masks()) for one in sums]
    return np.array(values, np.complex128)
