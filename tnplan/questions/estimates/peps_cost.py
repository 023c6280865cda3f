"""The cost of PEPS: bonds grow by the operator Schmidt ranks of the gates; what follows has known shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from tnplan.circuits.gates import PAULI_MATRICES, letters_of
from tnplan.executor.peps.levels import DisjointGates, Pair, levels_of
from tnplan.executor.peps.regions import LOOP_BOND, RegionPlan
from tnplan.executor.peps.state import BATCH_BYTES
from tnplan.planner.hardware.profile import Profile
from tnplan.questions.engines.peps import pieces_of, words_of
from tnplan.questions.estimates.cost import Cost, slowness
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import CircuitQuery, ExpectationValues, Sample

START_S, BATCH_S, SEND_S, EDGE_S, SITE_S, STEP_S = 0.004, 5e-4, 5e-5, 1.1e-5, 4e-5, 2e-5
"""Seconds of the start, of a batch of gates, of a batch of messages and of each message in it, of a site of a
region and of a contraction in one, beside their operations, where `slowness` is 1."""
SHARE_OF_RATE = {"gates": 1.0, "messages": 0.5, "regions": 0.7, "samples": 0.5}
"""Of the rate of large products."""
EIGEN_FLOP = 250.0
"""Real operations of eigenvectors in the cube of their number."""
SWEEPS = {False: 1, True: 15}
"""Sweeps of messages where bonds are not limited, and where they are."""
FACTOR = 6.0
"""By how much the time may be off: messages take as many sweeps as they take."""
OBJECTS_BYTES = 0.2e6
"""What small objects take."""
MOST_WORDS = 8
"""Words whose regions are looked at; the others are taken as these."""


@dataclass
class PepsWork:
    """What is done: numbers of calls and real operations, and the bytes that are there at once."""

    batches: float = 0.0
    sends: float = 0.0
    edges: float = 0.0
    sites: float = 0.0
    steps: float = 0.0
    operations: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SHARE_OF_RATE, 0.0))
    peak_bytes: float = 0.0

    def seconds(self, rate: float) -> float:
        """The time at so many real operations a second."""
        calls = START_S + BATCH_S * self.batches + SITE_S * self.sites + STEP_S * self.steps
        calls += SEND_S * self.sends + EDGE_S * self.edges
        return slowness() * calls + sum(n / SHARE_OF_RATE[k] for k, n in self.operations.items()) / rate


def peps_cost(query: CircuitQuery, profile: Profile, options: QuestionOptions) -> Cost:
    """What a PEPS takes on one device; where bonds are limited, with a second run at half of the bond."""
    pieces = [levels_of([(gate.qubits, gate.matrix) for gate in piece]) for piece in pieces_of(query)]
    rate = profile.rate(options.dtype, options.precision)
    work, is_limited = peps_work(query, pieces, options.max_bond, options)
    seconds = work.seconds(rate)
    if is_limited and options.max_bond is not None and not isinstance(query.question, Sample):
        half, _ = peps_work(query, pieces, max(1, options.max_bond // 2), options)
        seconds += half.seconds(rate)
        work.peak_bytes = max(work.peak_bytes, half.peak_bytes)  # small bonds have larger regions
    return Cost(1, OBJECTS_BYTES + work.peak_bytes, seconds, FACTOR)


def peps_work(
    query: CircuitQuery, pieces: Sequence[Sequence[DisjointGates]], max_bond: int | None,
    options: QuestionOptions,
) -> tuple[PepsWork, bool]:  # fmt: skip
    """One run with a limit, and whether a bond reaches it."""
    shapes = _Shapes(query.n_qubits, [p for levels in pieces for level in levels for p in level.pairs])
    work, is_limited, item = PepsWork(), False, np.dtype(options.dtype).itemsize
    for levels in pieces:
        for level in levels:
            is_limited |= _apply(shapes, level, max_bond, work, item)
        _messages(shapes, SWEEPS[is_limited], work, item)
        if isinstance(query.question, ExpectationValues):
            _values(shapes, query.question, is_limited, work, item)
        elif isinstance(query.question, Sample):
            # Each string sends two messages an edge along the tree, and more around it.
            sizes = sum(size * sum(shape[:-1]) for size, shape in shapes.sized())
            work.operations["samples"] += query.question.shots * 8 * 6 * sizes
    return work, is_limited


class _Shapes:
    """A state by its extents, as `RegionValues` looks at it."""

    def __init__(self, n_qubits: int, pairs: Sequence[Pair]) -> None:
        self.bonds: dict[Pair, int] = dict.fromkeys(((min(p), max(p)) for p in pairs), 1)
        self.neighbours: list[list[int]] = [[] for _ in range(n_qubits)]
        for a, b in self.bonds:
            self.neighbours[a].append(b)
            self.neighbours[b].append(a)

    @property
    def weights(self) -> Mapping[Pair, int]:
        """The edges."""
        return self.bonds

    @property
    def tensors(self) -> list[Any]:
        """Things with the shapes of the tensors."""
        return [SimpleNamespace(shape=shape) for _, shape in self.sized()]

    def shape(self, site: int) -> tuple[int, ...]:
        """The extents of a tensor."""
        return (*(self.bonds[min(site, end), max(site, end)] for end in self.neighbours[site]), 2)

    def sized(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The size and the shape of each tensor."""
        for site in range(len(self.neighbours)):
            shape = self.shape(site)
            yield prod(shape), shape

    def elements(self) -> int:
        """Of all tensors."""
        return sum(size for size, _ in self.sized())


def _apply(shapes: _Shapes, level: DisjointGates, max_bond: int | None, work: PepsWork, item: int) -> bool:
    """A level of gates; whether a bond is limited."""
    groups: Counter[Any] = Counter()
    grown: dict[Pair, int] = {}
    is_limited, sizes = False, {}
    for (a, b), matrix in level.pairs.items():
        edge = min(a, b), max(a, b)
        blocks = matrix.reshape(2, 2, 2, 2).transpose(0, 2, 1, 3).reshape(4, 4)
        old, rank = shapes.bonds[edge], int(np.linalg.matrix_rank(blocks))
        # A bond has no more weights than either end has values otherwise.
        most = min(prod(shapes.shape(end)) // old for end in edge)
        new = min(old * rank, most)
        is_limited |= new > (max_bond or new)
        grown[edge] = new = min(new, max_bond or new)
        ends = sorted(tuple(sorted(shapes.shape(end))) for end in edge)
        key = (*ends, old, rank)
        groups[key] += 1
        sizes[key] = sum(prod(end) for end in ends), max(prod(end) for end in ends), old * rank, new, old
    for key, count in groups.items():
        both, largest, n, new, old = sizes[key]
        at_once = max(1, BATCH_BYTES["numpy"] // (item * largest))
        work.batches += ceil(count / at_once)
        work.operations["gates"] += count * (16 * both * (old + new) + EIGEN_FLOP * float(n) ** 3)
        moved = min(count, at_once) * item * (2 * both + 2 * both * new / old)
        work.peak_bytes = max(work.peak_bytes, item * shapes.elements() + moved)
    shapes.bonds |= grown
    return is_limited


def _messages(shapes: _Shapes, sweeps: int, work: PepsWork, item: int) -> None:
    groups: Counter[tuple[int, ...]] = Counter()
    for a, ends in enumerate(shapes.neighbours):
        for b in ends:
            bond = shapes.bonds[min(a, b), max(a, b)]
            others = sorted(shapes.shape(a)[:-1])
            others.remove(bond)
            groups[*others, bond] += 1
    largest = 0.0
    for shape, count in groups.items():
        size = 2 * prod(shape)
        at_once = max(1, BATCH_BYTES["numpy"] // (item * size))
        work.sends += sweeps * ceil(count / at_once)
        work.edges += sweeps * count
        work.operations["messages"] += sweeps * count * 8 * size * sum(shape)
        largest = max(largest, min(count, at_once) * item * size)
    matrices = 2 * sum(bond**2 for bond in shapes.bonds.values())
    work.peak_bytes = max(work.peak_bytes, item * (shapes.elements() + 2 * matrices) + 3 * largest)


def _values(
    shapes: _Shapes, question: ExpectationValues, is_limited: bool, work: PepsWork, item: int
) -> None:
    """Values of words: the regions that the run will take, by their shapes."""
    words = words_of(question)
    small = shapes
    if is_limited and max(shapes.bonds.values(), default=1) > LOOP_BOND:
        small = _Shapes(len(shapes.neighbours), list(shapes.bonds))
        small.bonds = {edge: min(bond, LOOP_BOND) for edge, bond in shapes.bonds.items()}
        _messages(small, SWEEPS[True], work, item)
    costs = _RegionCosts(small)
    values = costs if small is shapes else _RegionCosts(shapes, costs)
    some = words[:MOST_WORDS]
    for word in some:
        values.of_word({qubit: PAULI_MATRICES[letter] for qubit, letter in letters_of(*word).items()})
    share = len(words) / max(1, len(some))
    for one in {id(costs): costs, id(values): values}.values():
        work.sites += share * one.n_sites
        work.steps += share * one.n_steps
        work.operations["regions"] += share * one.operations
        live = shapes.elements() + 2 * sum(bond**2 for bond in shapes.bonds.values())
        live += small.elements() if small is not shapes else 0
        work.peak_bytes = max(work.peak_bytes, item * (live + one.peak))


class _RegionCosts(RegionPlan):
    """Goes through the regions of words as these do, and counts."""

    def __init__(self, shapes: _Shapes, small: _RegionCosts | None = None) -> None:
        tensors = shapes.tensors
        super().__init__(
            SimpleNamespace(neighbours=shapes.neighbours, weights=shapes.weights, tensors=tensors), small
        )
        self.n_sites = self.n_steps = 0
        self.operations, self.peak = 0.0, 0.0

    def site_work(self, site: int) -> float:
        """Counts a site."""
        work, size = super().site_work(site), prod(self.state.tensors[site].shape)
        self.n_sites += 1
        self.operations += 8 * work
        self.peak = max(self.peak, 4 * size)
        return work

    def core_work(self, inner: Collection[int], tree: Any) -> float:
        """Counts the rest of a region."""
        work = super().core_work(inner, tree)
        self.n_steps += 2 * len(inner) - 1
        self.operations += 8 * float(tree.contraction_cost())
        self.peak = max(self.peak, tree.peak_size() + tree.max_size())  # an operand is transposed
        return work
