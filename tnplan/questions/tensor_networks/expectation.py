"""Expectation values of sums of Pauli words by contraction, each word in its light cone."""

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
from tnplan.planner.hardware.cost import FLOPS_PER_PRODUCT
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.of_circuits.sandwich import WordCone
from tnplan.planner.networks.of_circuits.steps import Step, keeps_trace, steps_of
from tnplan.planner.networks.of_circuits.wires import Support, by_support, light_cone
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_in_proportion import MANY_TENSORS, quick_path
from tnplan.questions.tensor_networks.network_work import START_S, NetworkWork, predicted_work
from tnplan.questions.tensor_networks.networks import ClosedNetwork, Run, plan_closed

# The network that words are contracted in: folded, or with a ket and a bra, whichever costs less.


COMPARED_FROM = 10.5
"""log10 of the operations of all words from which on both networks may be made: a second of a CPU."""


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


# Expectation values of sums of Pauli words by contraction, each word in its light cone.


MOST_AHEAD = 4
"""Light cones that are planned at once: Python runs one of them, and the contraction, at a time."""


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
                    f"give one on the {circuit.n_qubits} qubits of the circuit",
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
