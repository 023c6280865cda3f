"""The cost of PEPS: bonds grow by the operator Schmidt ranks of the gates; what follows has known shapes.

Sweeps of messages, and bonds that are smaller than ranks allow, are known from pilots: the same gates with
small bonds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil, inf, log, log2, prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from tnplan.circuits.gates import PAULI_MATRICES, letters_of
from tnplan.executor.peps.levels import DisjointGates, Pair, levels_of
from tnplan.executor.peps.messages import iterated_messages
from tnplan.executor.peps.regions import LOOP_BOND, RegionPlan
from tnplan.executor.peps.state import BATCH_BYTES, PepsState
from tnplan.planner.hardware.profile import Profile
from tnplan.questions.engines.mps import EXACT_CUTOFF
from tnplan.questions.engines.peps import MOST_SWEEPS, TOLERANCE, pieces_of, words_of
from tnplan.questions.estimates.cost import Cost, slowness
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import CircuitQuery, ExpectationValues, Sample

CALLS = {
    "start": 2e-3, "gates": 1.2e-5, "qubits": 1e-5, "batches": 3.2e-4, "pairs": 8.3e-5, "sends": 5.4e-5,
    "edges": 8.5e-6, "words": 5e-4, "regions": 8e-5, "steps": 1.4e-5,
}  # fmt: skip
"""Seconds of the start with its gates and qubits, of a batch of pairs and of each pair in it, of a batch of
messages and of each message in it, of a word, a region and a contraction in it, beside their operations,
where `slowness` is 1. These and the following are fitted to seeds 100 to 147 of
benchmarks/questions/peps_prediction.py."""
MOVED = {"gates": 7.8e-9, "messages": 1e-8, "regions": 2.2e-9}
"""Seconds of a complex128 that is copied, scaled and multiplied, where `slowness` is 1."""
SHARE_OF_RATE = {"gates": 1.0, "messages": 0.5, "regions": 0.83, "samples": 0.5}
"""Of the rate of large products."""
EIGEN_FLOP = 150.0
"""Real operations of eigenvectors in the cube of their number."""
SWEEPS = 12
"""Sweeps of messages where bonds are limited, and no pilot says how many."""
FEWER = 0.75
"""Sweeps at twice the bond, where one pilot alone says how many."""
STEEPER = 1.6
"""How much faster the first change falls with the next doubling of a bond than with the last one."""
FACTOR = 3.0
"""By how much the time may be off: messages take as many sweeps as they take."""
OBJECTS_BYTES, GATE_BYTES = 4e4, 500.0
"""What small objects take, and those of a gate."""
WIDE = 16
"""Bytes of a complex128, in which bonds are cut."""
MOST_WORDS = 8
"""Words whose regions are looked at; the others are taken as these."""
LARGEST_PILOT, PILOT_SHARE, LEAST_PILOT_S = 512, 0.1, 0.5
"""The largest bond of a pilot; what a pilot may take of the time that it is to predict, and in any case."""


@dataclass
class PepsWork:
    """What is done: numbers of calls, of elements and of real operations, and the bytes there at once."""

    calls: dict[str, float] = field(default_factory=partial(defaultdict, float))
    moved: dict[str, float] = field(default_factory=partial(defaultdict, float))
    operations: dict[str, float] = field(default_factory=partial(defaultdict, float))
    peak_bytes: float = 0.0

    def seconds(self, rate: float) -> float:
        """The time at so many real operations a second."""
        calls = CALLS["start"] + sum(CALLS[kind] * n for kind, n in self.calls.items())
        calls += sum(MOVED[kind] * n for kind, n in self.moved.items())
        return slowness() * calls + sum(n / SHARE_OF_RATE[kind] for kind, n in self.operations.items()) / rate


@dataclass
class Pilot:
    """What a run with a limit has: the bonds after each level, and how messages converge in each piece."""

    bond: int
    bonds: list[Mapping[Pair, int]] = field(default_factory=list)
    sweeps: list[float] = field(default_factory=list)
    residuals: list[float] = field(default_factory=list)
    """The change by the first sweep."""
    is_cut: bool = True


@dataclass(frozen=True)
class _Run:
    """A question by a PEPS: its gates, and the bytes of an element."""

    query: CircuitQuery
    pieces: Sequence[Sequence[DisjointGates]]
    options: QuestionOptions

    def new_state(self) -> PepsState:
        """The state before all gates."""
        pairs = [pair for levels in self.pieces for level in levels for pair in level.pairs]
        return PepsState(self.query.n_qubits, pairs, self.options.dtype)

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.options.dtype).itemsize


def peps_cost(query: CircuitQuery, profile: Profile, options: QuestionOptions, limit_s: float) -> Cost:
    """What a PEPS takes on one device; where bonds are limited, with a second run at half of the bond.

    Pilots of `limit_s` at most say what shapes do not: the gates with a smaller bond, and the messages.
    """
    gates = pieces_of(query)
    pieces = [levels_of([(gate.qubits, gate.matrix) for gate in piece]) for piece in gates]
    run, bond = _Run(query, pieces, options), options.max_bond
    rate = profile.rate(options.dtype, options.precision)
    work, reached = peps_work(run, bond, None)
    seconds = work.seconds(rate)
    allowed_s = min(limit_s, max(LEAST_PILOT_S, PILOT_SHARE * seconds))
    pilots = _pilots(run, min(reached, bond or reached), rate, allowed_s)
    if pilots:
        known = _forecast(pilots, bond or reached, options.precision)
        work, reached = peps_work(run, bond, known)
        seconds = work.seconds(rate)
    is_cut = bond is not None and reached > bond and (not pilots or pilots[-1].is_cut)
    if bond is not None and is_cut and not isinstance(query.question, Sample):
        bond = max(1, bond // 2)
        half, _ = peps_work(run, bond, _forecast(pilots, bond, options.precision))
        seconds += half.seconds(rate)
        work.peak_bytes = max(work.peak_bytes, half.peak_bytes)  # small bonds have larger regions
    memory_bytes = OBJECTS_BYTES + GATE_BYTES * sum(map(len, gates)) + work.peak_bytes
    return Cost(1, memory_bytes, seconds, FACTOR)


def _pilots(run: _Run, bond: int, rate: float, allowed_s: float) -> list[Pilot]:
    """Runs with the largest bond, of the limit and its halves, that takes no more than this, and its half."""
    bond = min(bond, LARGEST_PILOT)
    while bond > 1 and peps_work(run, bond, None, has_values=False)[0].seconds(rate) > allowed_s:
        bond //= 2
    return [] if bond <= 1 else [_pilot(run, each) for each in (bond // 2, bond) if each > 1]


def _pilot(run: _Run, bond: int) -> Pilot:
    """The gates with a small bond, and the messages."""
    state, pilot, precision = run.new_state(), Pilot(bond), run.options.precision
    cutoff = EXACT_CUTOFF[precision] if run.options.cutoff is None else run.options.cutoff
    for levels in run.pieces:
        for level in levels:
            state.apply(level, bond, cutoff)
            edges = [(min(pair), max(pair)) for pair in level.pairs]
            pilot.bonds.append({edge: len(state.weights[edge]) for edge in edges})
        pilot.residuals.append(iterated_messages(state, 0.0, 1).residual)
        pilot.sweeps.append(iterated_messages(state, TOLERANCE[precision], MOST_SWEEPS).sweeps)
    pilot.is_cut = state.largest_discarded > EXACT_CUTOFF[precision]
    return pilot


def _forecast(pilots: Sequence[Pilot], bond: int, precision: str) -> Pilot | None:
    """What a run with a limit has, by pilots with smaller ones.

    The logarithm of the change by the first sweep goes on as between the last two, or faster, and each sweep
    takes the same share of it.
    """
    if not pilots:
        return None
    last = pilots[-1]
    for pilot in pilots:
        if pilot.bond == bond or not pilot.is_cut:
            return pilot
    before = pilots[-2] if len(pilots) > 1 else None
    doublings, sweeps, small = log2(bond / last.bond), [], TOLERANCE[precision]
    for piece, (count, residual) in enumerate(zip(last.sweeps, last.residuals, strict=True)):
        if before is None or residual <= small:
            sweeps.append(max(1.0, count * FEWER**doublings))
            continue
        slope = STEEPER * min(0.0, log(residual / max(before.residuals[piece], small)))
        left = (log(residual / small) + doublings * slope) / log(residual / small)
        sweeps.append(max(1.0, 1 + (count - 1) * left))
    return Pilot(last.bond, last.bonds, sweeps)


def peps_work(
    run: _Run, max_bond: int | None, known: Pilot | None, has_values: bool = True
) -> tuple[PepsWork, int]:
    """One run with a limit, and the largest bond that its gates ask for."""
    query, work, number, reached = run.query, PepsWork(), 0, 1
    shapes = _Shapes(query.n_qubits, [p for levels in run.pieces for level in levels for p in level.pairs])
    for piece, levels in enumerate(run.pieces):
        for level in levels:
            bonds = {} if known is None else {
                edge: bond for edge, bond in known.bonds[number].items() if bond < known.bond
            }  # fmt: skip
            reached = max(reached, _apply(shapes, level, (max_bond or inf, bonds), work, run.item))
            number += 1
        is_limited = reached > (max_bond or inf)
        sweeps = 1.0 if not is_limited else SWEEPS if known is None else known.sweeps[piece]
        _messages(shapes, sweeps, work, run.item)
        if isinstance(query.question, ExpectationValues) and has_values:
            _values(shapes, query.question, sweeps if is_limited else None, work, run.item)
        elif isinstance(query.question, Sample):
            # Each string sends two messages an edge along the tree, and more around it.
            sizes = sum(size * sum(shape[:-1]) for size, shape in shapes.sized())
            work.operations["samples"] += query.question.shots * 8 * 6 * sizes
    work.calls["qubits"] += query.n_qubits
    return work, reached


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


def _apply(
    shapes: _Shapes, level: DisjointGates, limits: tuple[float, Mapping[Pair, int]], work: PepsWork, item: int
) -> int:
    """A level of gates; the largest bond that they ask for.

    Bonds are no more than the first of `limits`, and than those that are known.
    """
    groups: Counter[Any] = Counter()
    grown: dict[Pair, int] = {}
    max_bond, known = limits
    largest_bond, sizes = 1, {}
    for (a, b), matrix in level.pairs.items():
        edge = min(a, b), max(a, b)
        blocks = matrix.reshape(2, 2, 2, 2).transpose(0, 2, 1, 3).reshape(4, 4)
        old, rank = shapes.bonds[edge], int(np.linalg.matrix_rank(blocks))
        # A bond has no more weights than either end has values otherwise.
        new = min(old * rank, known.get(edge, old * rank), *(prod(shapes.shape(end)) // old for end in edge))
        largest_bond = max(largest_bond, new)
        grown[edge] = new = int(min(new, max_bond))
        ends = sorted(tuple(sorted(shapes.shape(end))) for end in edge)
        key = (*ends, old, rank)
        groups[key] += 1
        sizes[key] = sum(prod(end) for end in ends), max(prod(end) for end in ends), old * rank, new, old
    work.calls["gates"] += len(level.pairs) + len(level.singles)
    live = item * shapes.elements()
    for key, count in groups.items():
        both, largest, n, new, old = sizes[key]
        at_once = min(count, max(1, BATCH_BYTES["numpy"] // (item * largest)))
        work.calls["batches"] += ceil(count / at_once)
        work.calls["pairs"] += count
        work.moved["gates"] += count * both * (1 + new / old) * item / WIDE
        flop = 16 * both * (old + new) + EIGEN_FLOP * float(n) ** 3 * WIDE / item
        work.operations["gates"] += count * flop
        # While a bond is cut: both factors, their product, what LAPACK overwrites, vectors and projectors.
        cut = item * both + WIDE * (5 * n * n + 4 * n * new)
        put = item * both * (1 + 1.5 * new / old) + WIDE * 2 * n * new
        work.peak_bytes = max(work.peak_bytes, live + at_once * max(cut, put))
    shapes.bonds |= grown
    return largest_bond


def _messages(shapes: _Shapes, sweeps: float, work: PepsWork, item: int) -> None:
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
        work.calls["sends"] += sweeps * ceil(count / at_once)
        work.calls["edges"] += sweeps * count
        work.moved["messages"] += sweeps * count * size * item / WIDE
        work.operations["messages"] += sweeps * count * 8 * size * sum(shape)
        largest = max(largest, min(count, at_once) * item * size)
    matrices = 2 * sum(bond**2 for bond in shapes.bonds.values())
    work.peak_bytes = max(work.peak_bytes, item * (shapes.elements() + 2 * matrices) + 3 * largest)


def _values(
    shapes: _Shapes, question: ExpectationValues, sweeps: float | None, work: PepsWork, item: int
) -> None:
    """Values of words: the regions that the run will take, by their shapes.

    Where bonds are limited, loops are in a state that is cut, whose messages take so many sweeps.
    """
    words = words_of(question)
    small = shapes
    if sweeps is not None and max(shapes.bonds.values(), default=1) > LOOP_BOND:
        small = _Shapes(len(shapes.neighbours), list(shapes.bonds))
        small.bonds = {edge: min(bond, LOOP_BOND) for edge, bond in shapes.bonds.items()}
        _messages(small, sweeps, work, item)
    costs = _RegionCosts(small)
    values = costs if small is shapes else _RegionCosts(shapes, costs)
    some = words[:MOST_WORDS]
    for word in some:
        values.of_word({qubit: PAULI_MATRICES[letter] for qubit, letter in letters_of(*word).items()})
    share = len(words) / max(1, len(some))
    work.calls["words"] += len(words)
    for region_costs in {id(costs): costs, id(values): values}.values():
        work.calls["regions"] += share * len(region_costs.found)
        work.calls["steps"] += share * region_costs.n_steps
        work.operations["regions"] += share * region_costs.operations
        work.moved["regions"] += share * region_costs.moved * item / WIDE
        live = shapes.elements() + 2 * sum(bond**2 for bond in shapes.bonds.values())
        live += small.elements() if small is not shapes else 0
        work.peak_bytes = max(work.peak_bytes, item * (live + region_costs.peak))


class _RegionCosts(RegionPlan):
    """Goes through the regions of words as these do, and counts."""

    def __init__(self, shapes: _Shapes, small: _RegionCosts | None = None) -> None:
        tensors = shapes.tensors
        super().__init__(
            SimpleNamespace(neighbours=shapes.neighbours, weights=shapes.weights, tensors=tensors), small
        )
        self.n_steps = 0
        self.operations, self.moved, self.peak = 0.0, 0.0, 0.0

    def site_work(self, site: int) -> float:
        """Counts a site."""
        work, size = super().site_work(site), prod(self.state.tensors[site].shape)
        self.operations += 8 * work
        self.moved += size
        self.peak = max(self.peak, 4 * size)
        return work

    def core_work(self, inner: Collection[int], tree: Any) -> float:
        """Counts the rest of a region."""
        work = super().core_work(inner, tree)
        self.n_steps += 2 * len(inner) - 1
        self.operations += 8 * float(tree.contraction_cost())
        self.moved += float(tree.total_write())
        # Tensors stay until the end, results in between until they are used; operands may be copied.
        live = 2 * sum(prod(self.state.tensors[site].shape) for site in inner)
        for node, *operands in tree.traverse():
            sizes = [tree.get_size(op) for op in operands]
            size = tree.get_size(node)
            self.peak = max(self.peak, live + size + sum(sizes))
            live += size - sum(s for op, s in zip(operands, sizes, strict=True) if not tree.is_leaf(op))
        return work
