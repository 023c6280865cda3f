"""Expectation values of sums of Pauli words by contraction, each word in its light cone.

The derivative by a parameter: the value of a word P is <psi| P |psi>. A parameter stands in gates of the ket,
and in their conjugates in the bra. The derivative is twice the real part of what the gates of the ket give:
the derivative by each of their tensors, from the reverse schedule, times that of the tensor by the parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from math import inf, log10

import numpy as np

from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.pauli_sum import PauliSum
from tnplan.circuits.program import CircuitProgram
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.arrays.planning import steady_memory
from tnplan.jobs.progress import Progress
from tnplan.planner.hardware.cost import FLOPS_PER_PRODUCT
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.of_circuits.sandwich import WordCone, sandwich
from tnplan.planner.networks.of_circuits.steps import Step, keeps_trace, steps_of
from tnplan.planner.networks.of_circuits.wires import Support, by_support, leaves, light_cone, support_of
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_in_proportion import MANY_TENSORS, quick_path
from tnplan.questions.tensor_networks.networks import (
    START_S,
    ClosedNetwork,
    NetworkWork,
    Run,
    plan_closed,
    predicted_work,
    value_and_gradients,
)

# The network that words are contracted in: folded, or with a ket and a bra, whichever costs less.


COMPARED_FROM = 10.5
"""log10 of the operations of all words from which on both networks may be made: a second of a CPU."""
MOST_AHEAD = 4
"""Light cones that are planned at once: Python runs one of them, and the contraction, at a time."""
BACKWARD = 3.0
"""The operations of a value with its gradient, in those of the value alone."""


def word_network(steps: Sequence[Step], support: Support, masks: Sequence[tuple[int, int]]) -> ClosedNetwork:
    """The network of the expectation values of some words on a support.

    Dense gates are folded, others are not. The other network is made too, and paths that are found quickly
    are compared, where it may cost less: that of dense gates where two state vectors do, since ket and bra
    can be contracted apart; that of other gates where there is noise.
    """
    # Light cone: a gate outside the support of what stands after it meets its inverse and cancels.
    # Folded, ket and bra of a qubit share one index of four Pauli letters, and steps are real Pauli
    # transfer matrices.
    cone = WordCone(steps, support)
    first = ClosedNetwork.of(*(cone.folded(masks) if cone.is_dense else cone.unfolded(masks)))
    if not cone.can_fold or (not cone.is_dense and not cone.is_noisy):
        return first
    if len(first.network.inputs) >= MANY_TENSORS:
        return first
    cost = _log10_operations(first)
    apart = inf if cone.is_noisy else cone.log10_apart + log10(FLOPS_PER_PRODUCT["complex64"])
    # A comparison is a search for another path: not for what is contracted in no time.
    if cost + log10(first.count) < COMPARED_FROM or (cone.is_dense and cost < apart):
        return first
    other = ClosedNetwork.of(*(cone.unfolded(masks) if cone.is_dense else cone.folded(masks)))
    return min((first, other), key=_log10_operations)


def work_of_cones(
    steps: Sequence[Step], supports: Sequence[Support], make: Callable[[int], ClosedNetwork],
    has_gradient: bool = False,
) -> list[NetworkWork]:  # fmt: skip
    """The predicted work of light cones, whose networks `make` makes by their numbers."""
    sizes = [len(light_cone(steps, support.qubits, support.diagonal)) for support in supports]
    numbers = [number for number, size in enumerate(sizes) if size]
    work = [NetworkWork(START_S, 0.0)] * len(sizes)  # of those without a step

    def look(at: int) -> tuple[Network, int]:
        closed = make(numbers[at])
        return closed.network, closed.n_tensors

    of_cones = predicted_work([sizes[k] for k in numbers], look, has_schedules=has_gradient)
    for number, cone in zip(numbers, of_cones, strict=True):
        work[number] = cone
    return work


def _log10_operations(cone: ClosedNetwork) -> float:
    """Of one word, by a path that is found quickly."""
    if len(cone.network.inputs) < 2:
        return 0.0
    path = quick_path(cone.network, cone.dtype, load_profile("cpu"))
    return path_cost(path).log10_mnk_all_slices + log10(FLOPS_PER_PRODUCT[cone.dtype])


class LightCones:
    """The light cones of the words of some observables: one for words on the same qubits, with Z on the same.

    Parameters
    ----------
    circuit : GateSequence or CircuitProgram
        As of `expectations`.
    sums : sequence of PauliSum
        The observables.
    """

    def __init__(self, circuit: GateSequence | CircuitProgram, sums: Sequence[PauliSum]) -> None:
        for number, observable in enumerate(sums):
            if observable.n_qubits != circuit.n_qubits:
                raise InputError(
                    f"observable {number}", f"is on {observable.n_qubits} qubits",
                    f"give an observable on the {circuit.n_qubits} qubits of the circuit",
                )  # fmt: skip
        self._sums, self._steps = sums, steps_of(circuit, "circuit")
        self._keeps_trace = all(keeps_trace(step) for step in self._steps)
        groups = by_support(word for observable in sums for word in observable.masks())
        self._groups = [(support, list(words)) for support, words in groups.items()]

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def n_words(self) -> list[int]:
        """How many words each cone has."""
        return [len(words) for _, words in self._groups]

    def work(self) -> list[float]:
        """The predicted work of each cone."""
        supports = [support for support, _ in self._groups]
        work = work_of_cones(
            self._steps, supports, lambda number: word_network(self._steps, *self._groups[number])
        )
        return [cone.seconds(n_words) for cone, n_words in zip(work, self.n_words, strict=True)]

    def plan(self, number: int, options: ContractionOptions) -> Run:
        """What contracts a cone: the values of its words, complex128."""
        support, words = self._groups[number]
        if not support.qubits and self._keeps_trace:
            return lambda: np.ones(len(words), np.complex128)
        run = plan_closed(word_network(self._steps, support, words), options)
        return lambda: run().astype(np.complex128)

    def expectations(self, rows: Sequence[Array]) -> Array:
        """The values of the observables, complex128, from those of all cones."""
        values: dict[tuple[int, int], complex] = {}
        for (_, words), row in zip(self._groups, rows, strict=True):
            values.update(zip(words, row.tolist(), strict=True))
        return np.array(
            [sum(value * values[x, z] for x, z, value in observable.masks()) for observable in self._sums],
            np.complex128,
        )


class PlannedAhead:
    """Light cones that are contracted in turn, while threads plan the next ones on cores that are free.

    Parameters
    ----------
    cones : LightCones
        All of them.
    options : ContractionOptions
        How they are contracted.
    n_ahead : int
        How many are planned meanwhile, at most.
    step : int
        From a cone to the next one that is contracted here; ranks share them.
    """

    def __init__(
        self, cones: LightCones, options: ContractionOptions, n_ahead: int, step: int = 1
    ) -> None:  # fmt: skip
        self._cones, self._step = cones, step
        self._n_ahead = min(n_ahead, MOST_AHEAD, (len(cones) - 1) // step)
        self._waiting: dict[int, Future[Run]] = {}
        if self._n_ahead > 0:  # what is free changes while cones before are contracted
            options = replace(options, memory=steady_memory(options))
            self._pool = ThreadPoolExecutor(self._n_ahead, "tnplan plans")
        self._options = options

    def __enter__(self) -> PlannedAhead:
        return self

    def __exit__(self, *_: object) -> None:
        if self._n_ahead > 0:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def values(self, number: int) -> Array:
        """The values of the words of a cone, complex128."""
        if self._n_ahead <= 0:
            return self._cones.plan(number, self._options)()
        for later in range(number, len(self._cones), self._step)[: 1 + self._n_ahead]:
            if later not in self._waiting:
                self._waiting[later] = self._pool.submit(self._cones.plan, later, self._options)
        return self._waiting.pop(number).result()()


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
