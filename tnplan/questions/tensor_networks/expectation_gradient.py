"""Derivatives of expectation values by the parameters of a circuit, each word in its light cone.

The value of a word P is <psi| P |psi>. A parameter stands in gates of the ket, and in their conjugates in the
bra. The derivative is twice the real part of what the gates of the ket give: the derivative by each of
their tensors, from the reverse schedule, times that of the tensor by the parameter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.pauli_sum import PauliSum
from tnplan.circuits.program import CircuitProgram
from tnplan.common.arrays import Array
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.progress import Progress
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.of_circuits.sandwich import sandwich
from tnplan.planner.networks.of_circuits.steps import Step, keeps_trace, steps_of
from tnplan.planner.networks.of_circuits.wires import leaves, support_of
from tnplan.questions.tensor_networks.expectation import work_of_cones
from tnplan.questions.tensor_networks.networks import ClosedNetwork, value_and_gradients

BACKWARD = 3.0
"""The operations of a value with its gradient, in those of the value alone."""


def expectation_gradients(
    circuit: GateSequence | CircuitProgram,
    sums: Sequence[PauliSum],
    names: Sequence[str],
    options: ContractionOptions,
) -> tuple[Array, Array]:
    """The expectation values of observables, and their derivatives by parameters.

    Equal words of several sums are contracted once; each word is a network of its own.

    Parameters
    ----------
    circuit : GateSequence or CircuitProgram
        With derivatives in its gates (`varied_program`). Channels and resets may be among them.
    sums : sequence of PauliSum
        The observables, with real coefficients.
    names : sequence of str
        The parameters.
    options : ContractionOptions
        How they are contracted; `precision` "fp64", the default, or "fp32".

    Returns
    -------
    values : array
        float64 [observable].
    gradients : array
        float64 [observable, parameter].
    """
    steps = steps_of(circuit, "circuit")
    words = [*dict.fromkeys((x, z) for observable in sums for x, z, _ in observable.masks())]
    # The identity has the value 1 and no derivatives where all steps keep the trace.
    keeps_all = all(keeps_trace(step) for step in steps)
    rows_of: dict[tuple[int, int], Array] = {}
    costs: list[float] = []
    if options.progress is not None:
        supports = [support_of(*word) for word in words]

        def make(number: int) -> ClosedNetwork:
            support = supports[number]
            return ClosedNetwork.of(sandwich(steps, support), leaves([words[number]], support))

        work = work_of_cones(steps, supports, make, has_gradient=True)
        costs = [word.seconds(BACKWARD) for word in work]
        options.progress(Progress(0, len(words), f"light cone 0 of {len(words)}", share=0.0))
    for number, (x, z) in enumerate(words, 1):
        if x or z or not keeps_all:
            rows_of[x, z] = _word(steps, x, z, names, options)
        else:
            rows_of[x, z] = np.eye(1, 1 + len(names))[0]
        if options.progress is not None:
            share = sum(costs[:number]) / sum(costs)
            options.progress(
                Progress(number, len(words), f"light cone {number} of {len(words)}", share=share)
            )
    rows = np.array([sum(c.real * rows_of[x, z] for x, z, c in observable.masks()) for observable in sums])
    return rows[:, 0], rows[:, 1:]


def _word(steps: Sequence[Step], x: int, z: int, names: Sequence[str], options: ContractionOptions) -> Array:
    """The value of one word, then its derivatives."""
    support = support_of(x, z)
    opened = sandwich(steps, support)
    letters = [leaf[0] for leaf in leaves([(x, z)], support)]
    sizes = opened.network.size_dict
    network = Network((*opened.network.inputs, *opened.leaf_terms), (), sizes)
    # One reverse pass gives dv/dT for all tensors T of the ket that depend on parameters.
    value, by_tensor = value_and_gradients(
        network, [*opened.arrays, *letters], list(opened.tangents), options
    )
    row = np.zeros(1 + len(names))
    row[0] = value.real
    places = {name: place for place, name in enumerate(names, 1)}
    for number, gradient in by_tensor.items():
        for name, tangent in opened.tangents[number].items():
            # dv/dp = 2 Re sum_T sum_entries (dv/dT) (dT/dp), the bra's tensors being conjugates of
            # the ket's (head of this file).
            row[places[name]] += 2 * np.sum(gradient * tangent).real
    return row
