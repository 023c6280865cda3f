"""The cost of PEPS: bonds grow by the operator Schmidt ranks of the gates; what follows has known shapes.

Sweeps of messages, and bonds that are smaller than ranks allow, are known from pilots: the same gates with
small bonds. Of several ranks the work of each is counted, with what it sends and receives.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from math import ceil, inf, log, log2, prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from tnplan.circuits.gates import PAULI_MATRICES, letters_of
from tnplan.executor.peps.levels import DisjointGates, Pair, levels_of
from tnplan.executor.peps.messages import iterated_messages
from tnplan.executor.peps.partition import parts_of_graph
from tnplan.executor.peps.regions import LOOP_BOND, PlannedRegion, RegionPlan
from tnplan.executor.peps.state import BATCH_BYTES, PepsState
from tnplan.planner.hardware.profile import Profile, Tier
from tnplan.questions.engines.mps import EXACT_CUTOFF
from tnplan.questions.engines.peps import MOST_SWEEPS, TOLERANCE, pieces_of, words_of
from tnplan.questions.estimates.cost import Cost, room_bytes, slowness
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
WIDE, WEIGHT_BYTES = 16, 8
"""Bytes of a complex128, in which bonds are cut, and of a weight."""
LEVEL_MESSAGES, SWEEP_MESSAGES, STATE_MESSAGES = 3, 2, 2
"""Exchanges and gatherings of ranks in a level of gates, a sweep, and before and after the regions of a
state."""
MOST_WORDS = 8
"""Words whose regions are looked at; the others are taken as these."""
LARGEST_PILOT, PILOT_SHARE, LEAST_PILOT_S = 512, 0.1, 0.5
"""The largest bond of a pilot; what a pilot may take of the time that it is to predict, and in any case."""


@dataclass
class PepsWork:
    """What a rank does: numbers of calls, of elements and of real operations, and the bytes there at once.

    `messages` counts exchanges with other ranks and gatherings, of so many bytes each way.
    """

    calls: dict[str, float] = field(default_factory=partial(defaultdict, float))
    moved: dict[str, float] = field(default_factory=partial(defaultdict, float))
    operations: dict[str, float] = field(default_factory=partial(defaultdict, float))
    peak_bytes: float = 0.0
    messages: float = 0.0
    sent_bytes: float = 0.0
    received_bytes: float = 0.0

    def seconds(self, rate: float, link: Tier) -> float:
        """The time at so many real operations a second, with the messages over a link."""
        calls = CALLS["start"] + sum(CALLS[kind] * n for kind, n in self.calls.items())
        calls += sum(MOVED[kind] * n for kind, n in self.moved.items())
        operations = sum(n / SHARE_OF_RATE[kind] for kind, n in self.operations.items())
        messages_s = link.messages_s(self.messages, self.received_bytes)
        return slowness() * calls + operations / rate + messages_s


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


def peps_costs(
    query: CircuitQuery, profile: Profile, options: QuestionOptions, limit_s: float, counts: Sequence[int]
) -> tuple[dict[int, Cost], int | None]:
    """What a PEPS takes on each number of devices, and the least number whose memory suffices: of these
    numbers and powers of two. Where bonds are limited, with a second run at half of the bond.

    Pilots of `limit_s` at most say what shapes do not: the gates with a smaller bond, and the messages.
    """
    pieces = [levels_of([(gate.qubits, gate.matrix) for gate in piece]) for piece in pieces_of(query)]
    run, bond = _Run(query, pieces, options), options.max_bond
    rate, link = profile.rate(options.dtype, options.precision), profile.link(1)
    (alone,), asked = peps_work(run, bond, None)
    allowed_s = min(limit_s, max(LEAST_PILOT_S, PILOT_SHARE * alone.seconds(rate, link)))
    pilots = _pilots(run, min(asked, bond or asked), (rate, link), allowed_s)
    costs = dict[int, Cost]()
    powers = (1 << k for k in range(query.n_qubits.bit_length()))
    for count in sorted({*counts, *powers}):
        if count <= query.n_qubits and (count in counts or count < _least(costs, profile)):
            costs[count] = _cost_on(run, count, pilots, asked, profile)
    least = _least(costs, profile)
    return costs, int(least) if least < inf else None


def _least(costs: Mapping[int, Cost], profile: Profile) -> float:
    """The least number of devices whose memory suffices; infinity where none does."""
    fitting = (count for count, cost in costs.items() if cost.memory_bytes <= room_bytes(profile))
    return min(fitting, default=inf)


def _cost_on(run: _Run, ranks: int, pilots: Sequence[Pilot], asked: int, profile: Profile) -> Cost:
    """What a PEPS takes on some devices; `asked` is the largest bond that gates ask for without pilots."""
    options, bond = run.options, run.options.max_bond
    works, reached = peps_work(run, bond, _forecast(pilots, bond or asked, options.precision), ranks)
    runs = [works]
    is_cut = bond is not None and reached > bond and (not pilots or pilots[-1].is_cut)
    if bond is not None and is_cut and not isinstance(run.query.question, Sample):
        bond = max(1, bond // 2)
        runs.append(peps_work(run, bond, _forecast(pilots, bond, options.precision), ranks)[0])
    rate, link = profile.rate(options.dtype, options.precision), profile.link(ranks)
    seconds = sum(max(work.seconds(rate, link) for work in works) for works in runs)
    peak_bytes = max(work.peak_bytes for works in runs for work in works)  # small bonds: larger regions
    n_gates = sum(len(piece) for piece in pieces_of(run.query))
    return Cost(ranks, OBJECTS_BYTES + GATE_BYTES * n_gates + peak_bytes, seconds, FACTOR)


def _pilots(run: _Run, bond: int, rates: tuple[float, Tier], allowed_s: float) -> list[Pilot]:
    """Runs with the largest bond, of the limit and its halves, that takes no more than this, and its half."""
    bond = min(bond, LARGEST_PILOT)
    while bond > 1 and peps_work(run, bond, None, has_values=False)[0][0].seconds(*rates) > allowed_s:
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
    run: _Run, max_bond: int | None, known: Pilot | None, ranks: int = 1, has_values: bool = True
) -> tuple[list[PepsWork], int]:
    """What each rank does in one run with a limit, and the largest bond that its gates ask for."""
    query, works, number, reached = run.query, [PepsWork() for _ in range(ranks)], 0, 1
    pairs = [pair for levels in run.pieces for level in levels for pair in level.pairs]
    shapes = _Shapes(query.n_qubits, pairs, ranks)
    for piece, levels in enumerate(run.pieces):
        for level in levels:
            bonds = {} if known is None else {
                edge: bond for edge, bond in known.bonds[number].items() if bond < known.bond
            }  # fmt: skip
            reached = max(reached, _apply(shapes, level, (max_bond or inf, bonds), works, run.item))
            number += 1
        is_limited = reached > (max_bond or inf)
        sweeps = 1.0 if not is_limited else SWEEPS if known is None else known.sweeps[piece]
        _messages(shapes, sweeps, works, run.item)
        if isinstance(query.question, ExpectationValues) and has_values:
            _values(shapes, query.question, sweeps if is_limited else None, works, run.item)
        elif isinstance(query.question, Sample):
            _samples(shapes, query.question.shots, works, run.item)
    for work in works:
        work.calls["qubits"] += query.n_qubits
    return works, reached


class _Shapes:
    """A state by its extents, as `RegionValues` looks at it, and the rank of each site."""

    def __init__(self, n_qubits: int, pairs: Sequence[Pair], ranks: int) -> None:
        self.bonds: dict[Pair, int] = dict.fromkeys(((min(p), max(p)) for p in pairs), 1)
        self.neighbours: list[list[int]] = [[] for _ in range(n_qubits)]
        for a, b in self.bonds:
            self.neighbours[a].append(b)
            self.neighbours[b].append(a)
        self.owners = parts_of_graph(self.neighbours, ranks)

    @property
    def weights(self) -> Mapping[Pair, int]:
        """The edges."""
        return self.bonds

    @property
    def tensors(self) -> list[Any]:
        """Things with the shapes of the tensors."""
        return [SimpleNamespace(shape=self.shape(site)) for site in range(len(self.neighbours))]

    def cut(self, bond: int) -> _Shapes:
        """The same with no larger bonds."""
        small = copy(self)
        small.bonds = {edge: min(extent, bond) for edge, extent in self.bonds.items()}
        return small

    def shape(self, site: int) -> tuple[int, ...]:
        """The extents of a tensor."""
        return (*(self.bonds[min(site, end), max(site, end)] for end in self.neighbours[site]), 2)

    def sides(self, site: int, end: int) -> tuple[int, ...]:
        """The same: other bonds by their extents, that with a neighbour, the qubit."""
        bond, others = self.bonds[min(site, end), max(site, end)], sorted(self.shape(site)[:-1])
        others.remove(bond)
        return *others, bond, 2

    def elements(self, rank: int | None = None) -> int:
        """Of the tensors of a rank, or of all."""
        return sum(
            prod(self.shape(site)) for site in range(len(self.owners)) if rank in (None, self.owners[site])
        )

    def fetched(self, sites: Collection[int]) -> int:
        """Elements of tensors and of the messages to them."""
        return sum(
            prod(shape) + sum(bond**2 for bond in shape[:-1])
            for site in sites
            for shape in [self.shape(site)]
        )

    def matrices(self, rank: int) -> int:
        """Elements of the messages from the sites of a rank and to them."""
        return 2 * sum(
            bond**2
            for edge, bond in self.bonds.items()
            if rank in (self.owners[edge[0]], self.owners[edge[1]])
        )


def _send(works: Sequence[PepsWork], source: int, targets: Collection[int], size_bytes: float) -> None:
    """Count what a rank sends to others."""
    for target in targets:
        if target != source:
            works[source].sent_bytes += size_bytes
            works[target].received_bytes += size_bytes


def _meet(works: Sequence[PepsWork], count: float) -> None:
    """Count exchanges and gatherings of all ranks, where there are several."""
    for work in works if len(works) > 1 else ():
        work.messages += count


def _apply(
    shapes: _Shapes, level: DisjointGates, limits: tuple[float, Mapping[Pair, int]],
    works: Sequence[PepsWork], item: int,
) -> int:  # fmt: skip
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
        # The order of the ends, and which of two ranks cuts, are those of `PepsState.apply`.
        ends = sorted([(shapes.sides(a, b), a), (shapes.sides(b, a), b)], key=lambda end: end[0])
        owners = [shapes.owners[site] for _, site in ends]
        cutter, n = owners[(a + b) % 2], old * rank
        for owner in {*owners}:
            key = (*ends[0][0], *ends[1][0], old, rank, *owners, owner, cutter)
            own = [prod(sides) for (sides, _), other in zip(ends, owners, strict=True) if other == owner]
            groups[key] += 1
            sizes[key] = sum(own), max(own), n, new, old
            works[owner].calls["gates"] += 1
            _send(works, owner, [cutter], WIDE * n * n)
        _send(works, cutter, {*owners}, WIDE * n * new)
        _send(works, cutter, range(len(works)), WEIGHT_BYTES * new)
    for site in level.singles:
        works[shapes.owners[site]].calls["gates"] += 1
    live = [item * shapes.elements(rank) for rank in range(len(works))]
    for key, count in groups.items():
        both, largest, n, new, old = sizes[key]
        owner, cutter = key[-2:]
        work = works[owner]
        at_once = min(count, max(1, BATCH_BYTES["numpy"] // (item * largest)))
        work.calls["batches"] += ceil(count / at_once)
        work.calls["pairs"] += count
        work.moved["gates"] += count * both * (1 + new / old) * item / WIDE
        flop = 16 * both * (old + new) + (owner == cutter) * EIGEN_FLOP * float(n) ** 3 * WIDE / item
        work.operations["gates"] += count * flop
        # While a bond is cut: both factors, their product, what LAPACK overwrites, vectors and projectors.
        cut = item * both + WIDE * (5 * n * n + 4 * n * new)
        put = item * both * (1 + 1.5 * new / old) + WIDE * 2 * n * new
        work.peak_bytes = max(work.peak_bytes, live[owner] + at_once * max(cut, put))
    _meet(works, LEVEL_MESSAGES)
    shapes.bonds |= grown
    return largest_bond


def _messages(shapes: _Shapes, sweeps: float, works: Sequence[PepsWork], item: int) -> None:
    groups: Counter[tuple[int, ...]] = Counter()
    for a, ends in enumerate(shapes.neighbours):
        for b in ends:
            *sides, bond, _ = shapes.sides(a, b)
            groups[shapes.owners[a], *sides, bond] += 1
            _send(works, shapes.owners[a], [shapes.owners[b]], sweeps * item * bond**2)
    largest = [0.0] * len(works)
    for (owner, *shape), count in groups.items():
        size, work = 2 * prod(shape), works[owner]
        at_once = max(1, BATCH_BYTES["numpy"] // (item * size))
        work.calls["sends"] += sweeps * ceil(count / at_once)
        work.calls["edges"] += sweeps * count
        work.moved["messages"] += sweeps * count * size * item / WIDE
        work.operations["messages"] += sweeps * count * 8 * size * sum(shape)
        largest[owner] = max(largest[owner], min(count, at_once) * item * size)
    _meet(works, SWEEP_MESSAGES * sweeps)
    for rank, work in enumerate(works):
        live = item * (shapes.elements(rank) + 2 * shapes.matrices(rank))
        work.peak_bytes = max(work.peak_bytes, live + 3 * largest[rank])


def _samples(shapes: _Shapes, shots: int, works: Sequence[PepsWork], item: int) -> None:
    """Strings, a share of each rank, which fetches the whole state before."""
    # Each string sends two messages an edge along the tree, and more around it.
    all_shapes = [shapes.shape(site) for site in range(len(shapes.owners))]
    sizes = sum(prod(shape) * sum(shape[:-1]) for shape in all_shapes)
    for site, owner in enumerate(shapes.owners):
        _send(works, owner, range(len(works)), item * shapes.fetched([site]))
    _meet(works, 1)
    for work in works:
        work.operations["samples"] += shots / len(works) * 8 * 6 * sizes
        work.peak_bytes = max(work.peak_bytes, item * shapes.fetched(range(len(shapes.owners))))


def _values(
    shapes: _Shapes, question: ExpectationValues, sweeps: float | None, works: Sequence[PepsWork], item: int
) -> None:
    """Values of words: the regions that the run will take, by their shapes.

    Where bonds are limited, loops are in a state that is cut, whose messages take so many sweeps.
    """
    words = words_of(question)
    small = shapes
    if sweeps is not None and max(shapes.bonds.values(), default=1) > LOOP_BOND:
        small = shapes.cut(LOOP_BOND)
        _messages(small, sweeps, works, item)
    costs = _RegionCosts(small)
    values = costs if small is shapes else _RegionCosts(shapes, costs)
    some = words[:MOST_WORDS]
    for word in some:
        values.of_word({qubit: PAULI_MATRICES[letter] for qubit, letter in letters_of(*word).items()})
    share = len(words) / max(1, len(some))
    for region_costs, state in {id(costs): (costs, small), id(values): (values, shapes)}.values():
        most, fetched = _shared(state, region_costs.found, works, share * item)
        for rank, work in enumerate(works):
            work.calls["regions"] += share * len(region_costs.found)
            work.calls["steps"] += most * share * region_costs.n_steps
            work.operations["regions"] += most * share * region_costs.operations
            work.moved["regions"] += most * share * region_costs.moved * item / WIDE
            live = shapes.elements(rank) + shapes.matrices(rank) + fetched
            live += small.elements(rank) if small is not shapes else 0
            work.peak_bytes = max(work.peak_bytes, item * (live + region_costs.peak))
    for work in works:
        work.calls["words"] += len(words)


def _shared(
    shapes: _Shapes, found: Sequence[PlannedRegion], works: Sequence[PepsWork], item: float
) -> tuple[float, int]:
    """Regions of ranks, which fetch tensors for them, of so many bytes an element; as `RegionValues` has it.

    Returns the share of the work of the rank with most, and the elements that are fetched at once.
    """
    count = len(works)
    if count == 1:
        return 1.0, 0
    regions = [region for region in found if region.multiplications < inf]
    regions.sort(key=lambda region: -region.multiplications)
    largest = 0
    for number, region in enumerate(regions):
        rank = number % count
        away = [site for site in region.inside if shapes.owners[site] != rank]
        largest = max(largest, shapes.fetched(away))
        for site in away:
            _send(works, shapes.owners[site], [rank], item * shapes.fetched([site]))
    _meet(works, STATE_MESSAGES + ceil(len(regions) / count))
    most, total = (sum(region.multiplications for region in shared) for shared in (regions[::count], regions))
    return most / (total or 1.0), largest


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
