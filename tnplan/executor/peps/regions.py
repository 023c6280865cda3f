"""Values of Pauli words in a PEPS: regions around a word, whose boundary is closed by messages.

The tree of shortest paths between the letters of a word gives the Bethe approximation. A region with a loop
near it gives another value, and the sum of all such changes corrects the first: the loops of lowest order
(Evenbly, Pancotti, Milsted, Gray and Chan, arXiv 2409.03108) with all paths that lead to them.

Ranks share the regions of all words, which follow from shapes: each fetches the tensors of its own ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np

from tnplan.common.arrays import times_along
from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.peps.levels import Pair
from tnplan.executor.peps.state import PepsState

Array = Any
Region = frozenset[Pair]
"""Edges, their ends ascending."""
LONGER_LOOPS = 2
"""How much longer than the shortest loops at a word those that count may be."""
MOST_LOOPS = 64
"""Loops of one word."""
LOOP_BOND = 16
"""The bond up to which loops are contracted in the state itself, and not in one that is cut to it."""
MOST_GROWTHS = 8
"""How often a region takes in the sites around it."""
MOST_ELEMENTS = 2.0**25
"""Of a tensor of a region with loops."""
LOOP_WORK, REGION_WORK = 2.0**35, 2.0**27
"""Multiplications for a loop, and for a region with several."""


@dataclass(frozen=True)
class WordValue:
    """The Bethe value of a word, and that with loops.

    `change` is that of the last step to larger regions, 0 where a region is all there is. `loops` says how
    many loops there are, and `loops_left_out` how many of them are too large.
    """

    bethe: float
    value: float
    change: float
    loops: int
    loops_left_out: int


class RegionValues:
    """Values of words in a state with messages; where its bonds are large, those of `small`, which has the
    same graph, say how loops change them."""

    def __init__(
        self, state: PepsState, messages: Mapping[Pair, Array], small: RegionValues | None = None
    ) -> None:
        self.state, self.messages, self._small = state, messages, small or self
        self._norms: dict[tuple[Region, frozenset[int]], complex | None] = {}
        self._known: dict[Any, complex | None] = {}
        """What ranks have contracted, by `_key`; None where it was too large."""

    def of_words(self, words: Sequence[Mapping[int, Array]], most_bytes: float) -> list[WordValue]:
        """The values of words; collective over the ranks of the state, none of which fetches more bytes."""
        if self.state.ranks is not None:
            small = None if self._small is self else self._small.state
            planned = planned_regions(self.state, small, words) if self.state.rank == 0 else None
            # Invariant: rank 0 plans for all, since orders of contractions may differ.
            planned = self.state.ranks.broadcast_object(planned, 0)
            self._share(self.state.ranks, planned[0], most_bytes)
            if small is not None:
                self._small._share(self.state.ranks, planned[1], most_bytes)
        return [self.of_word(letters) for letters in words]

    def _share(self, ranks: Communicator, planned: Sequence[PlannedRegion], most_bytes: float) -> None:
        """Contract regions, each on one rank; the largest at the same time."""
        state, regions = self.state, [region for region in planned if region.multiplications < inf]
        values: dict[Any, complex | None] = {
            _key(region.edges, region.sites, region.letters): None
            for region in planned if region.multiplications == inf
        }  # fmt: skip
        sizes = [tensor.nbytes for tensor in state.tensors]
        own = sum(size for site, size in enumerate(sizes) if state.is_mine(site))
        own = max(ranks.gather_objects(own))
        largest = own + max((sum(sizes[site] for site in region.inside) for region in regions), default=0)
        if largest > most_bytes:
            raise InputError(
                "--observable", f"has regions that take {size_text(largest)} on one rank, with its sites",
                "allow more memory, or give a smaller --max-bond or words on fewer qubits", topic="memory",
            )  # fmt: skip
        ordered = sorted(regions, key=lambda region: -region.multiplications)
        for first in range(0, len(ordered), ranks.size):
            some = ordered[first : first + ranks.size]
            held = state.fetched(self.messages, [region.inside for region in some])
            if ranks.rank < len(some):
                one = some[ranks.rank]
                value = RegionValues(*held).contracted(one.edges, one.sites, one.letters, inf)
                values[_key(one.edges, one.sites, one.letters)] = value
        for part in ranks.gather_objects(values):
            self._known |= part

    def of_word(self, letters: Mapping[int, Array]) -> WordValue:
        """The value of a product of 2 x 2 matrices on qubits."""
        parts = [
            self._of_part(sites, tree, {qubit: letters[qubit] for qubit in sites if qubit in letters})
            for sites, tree in trees(self.state.neighbours, sorted(letters))
        ]
        bethe, value = (float(np.prod([part[k] for part in parts])) for k in (0, 1))
        # |a b - a' b'| is at most |a - a'| + |b - b'| where none is beyond 1.
        change, loops, left_out = (sum(part[k] for part in parts) for k in (2, 3, 4))
        return WordValue(bethe, value, change, int(loops), int(left_out))

    def _of_part(
        self, sites: frozenset[int], tree: Region, letters: Mapping[int, Array]
    ) -> tuple[float, float, float, int, int]:
        """The same of letters in one part of the graph, whose tree is given."""
        bethe, small = self._ratio(tree, sites, letters, inf), self._small
        first = bethe if small is self else small._ratio(tree, sites, letters, inf)
        assert bethe is not None
        assert first is not None
        loops = loops_at(self.state.neighbours, sites)
        values = [small._ratio(tree | loop, sites, letters, LOOP_WORK) for loop in loops]
        last = bethe + sum(value - first for value in values if value is not None)
        change = abs(last - bethe)
        # Larger regions with all their edges, as long as they are small enough.
        inside, rank = {site for edge in tree.union(*loops) for site in edge} | sites, 1
        for _ in range(MOST_GROWTHS if loops else 0):
            wider = inside.union(*(self.state.neighbours[site] for site in inside))
            region = frozenset(edge for edge in self.state.weights if inside.issuperset(edge))
            # Branches alone change nothing: each region has more independent loops than the one before.
            if wider == inside or len(region) - len(inside) + 1 > rank:
                value = small._ratio(region, sites, letters, REGION_WORK)
                if value is None:
                    break
                change = abs(bethe + value - first - last)
                last, rank = bethe + value - first, len(region) - len(inside) + 1
            if wider == inside:
                change = 0.0 if small is self else abs(last - bethe)
                break
            inside = wider
        return bethe, min(1.0, max(-1.0, last)), change, len(loops), values.count(None)

    def _ratio(
        self, region: Region, sites: frozenset[int], letters: Mapping[int, Array], most_work: float
    ) -> float | None:
        """The value in a region; None where it takes more multiplications."""
        key = region, sites if not region else frozenset()
        if key not in self._norms:
            self._norms[key] = self.contracted(region, sites, {}, most_work)
        norm = self._norms[key]
        if norm is None:
            return None
        above = self.contracted(region, sites, letters, most_work)
        assert above is not None
        return (above / norm).real

    def contracted(
        self, region: Region, sites: frozenset[int], letters: Mapping[int, Array], most_work: float
    ) -> complex | None:
        """<psi|letters|psi> of a region with messages around it."""
        if self._known:
            return self._known[_key(region, sites, letters)]
        state, xp = self.state, self.state.xp
        inner = sides(region, sites)
        # Edges to the outside, and those to branches that are contracted, have a matrix [ket, bra].
        closed: dict[Pair, Array] = {}
        value: Any = 1.0
        for site, ends in peeled(inner):
            ket, bra = self._ket(site, ends, closed, letters), state.tensors[site].conj()
            if not ends:
                value = value * (ket * bra).sum()
                continue
            (end,) = ends
            axis = state.neighbours[site].index(end)
            rows = [xp.moveaxis(array, axis, 0).reshape(array.shape[axis], -1) for array in (ket, bra)]
            weights = state.weights_of(site, end)
            closed[end, site] = (rows[0] @ rows[1].T) * weights[:, None] * weights[None, :]
        if inner:
            core = self._core(inner, closed, letters, most_work)
            if core is None:
                return None
            value = value * core
        return complex(value)

    def _ket(
        self, site: int, inner: Collection[int], closed: Mapping[Pair, Array], letters: Mapping[int, Array]
    ) -> Array:
        """A tensor with its letter, and with the matrix of every edge that is not inner."""
        state, xp = self.state, self.state.xp
        ket = state.tensors[site]
        if site in letters:
            ket = ket @ xp.asarray(letters[site].T.astype(state.dtype))
        for axis, end in enumerate(state.neighbours[site]):
            if end in inner:
                continue
            if (site, end) in closed:
                matrix = closed[site, end]
            else:
                weights = state.weights_of(site, end)
                matrix = self.messages[end, site] * weights[:, None] * weights[None, :]
            ket = times_along(ket, axis, matrix.T.astype(state.dtype))
        return ket

    def _core(
        self, inner: dict[int, set[int]], closed: Mapping[Pair, Array], letters: Mapping[int, Array],
        most_work: float,
    ) -> Any:  # fmt: skip
        """The rest, where every site has two edges or more; None where it takes more multiplications."""
        state, arrays = self.state, []
        tree = core_tree(state, inner)
        if most_work < inf and not is_small(tree, most_work):
            return None
        for site, within in sorted(inner.items()):
            ket, bra = self._ket(site, within, closed, letters), state.tensors[site].conj()
            for axis, end in enumerate(state.neighbours[site]):
                if end in within and end < site:  # the weights of an edge go to its second end
                    weights = state.weights_of(site, end).astype(state.dtype)
                    weights = weights.reshape(-1, *(1,) * (ket.ndim - axis - 1))
                    ket, bra = ket * weights, bra * weights
            arrays += [ket, bra]
        return tree.contract(arrays)


class PlannedRegion(NamedTuple):
    """A region, all of its sites, and about how many multiplications it takes; infinity where too many."""

    edges: Region
    sites: frozenset[int]
    letters: Mapping[int, Array]
    inside: frozenset[int]
    multiplications: float


class RegionPlan(RegionValues):
    """Goes through the regions of words by the shapes of a state alone: `found` has them."""

    def __init__(self, state: Any, small: RegionPlan | None = None) -> None:
        super().__init__(state, {}, small)
        self.small = small or self
        self.found: list[PlannedRegion] = []
        self._shapes = [tuple(tensor.shape) for tensor in state.tensors]

    def contracted(
        self, region: Region, sites: frozenset[int], letters: Mapping[int, Array], most_work: float
    ) -> complex | None:
        """Notes a region; 1 stands for its value."""
        inner = sides(region, sites)
        inside, work = frozenset(inner), 0.0
        for site, _ in peeled(inner):
            work += self.site_work(site)
        if inner:
            tree = core_tree(self.state, inner)
            is_made = is_small(tree, most_work)
            work = work + self.core_work(inner, tree) if is_made else inf
        self.found.append(PlannedRegion(region, sites, letters, inside, work))
        return 1.0 if work < inf else None

    def site_work(self, site: int) -> float:
        """Multiplications of a site."""
        return float(prod(self._shapes[site]) * sum(self._shapes[site]))

    def core_work(self, inner: Collection[int], tree: Any) -> float:
        """Multiplications of what is left without branches."""
        return sum(map(self.site_work, inner)) + float(tree.contraction_cost())


def planned_regions(
    state: PepsState, small: PepsState | None, words: Sequence[Mapping[int, Array]]
) -> tuple[list[PlannedRegion], list[PlannedRegion]]:
    """The regions of words in a state, and those in the state that stands for it in loops."""
    plan = RegionPlan(state, None if small is None else RegionPlan(small))
    for letters in words:
        plan.of_word(letters)
    return plan.found, plan.small.found


def _key(region: Region, sites: frozenset[int], letters: Mapping[int, Array]) -> Any:
    return region, sites, tuple((qubit, letters[qubit].tobytes()) for qubit in sorted(letters))


def is_small(tree: Any, most_work: float) -> bool:
    """Whether a contraction is one that is made."""
    return bool(tree.max_size() <= MOST_ELEMENTS and tree.contraction_cost() <= most_work)


def sides(region: Region, sites: Iterable[int]) -> dict[int, set[int]]:
    """Of each site the neighbours in a region."""
    inner: dict[int, set[int]] = {site: set() for site in sites}
    for a, b in region:
        inner.setdefault(a, set()).add(b)
        inner.setdefault(b, set()).add(a)
    return inner


def peeled(inner: dict[int, set[int]]) -> Iterator[tuple[int, set[int]]]:
    """Take the branches of a region off, from their leaves; each site with the one that is left beside it."""
    leaves = deque(sorted(site for site, ends in inner.items() if len(ends) < 2))
    while leaves:
        site = leaves.popleft()
        if site not in inner:
            continue
        ends = inner.pop(site)
        yield site, ends
        for end in ends:
            inner[end].discard(site)
            if len(inner[end]) < 2:
                leaves.append(end)


def core_tree(state: Any, inner: Mapping[int, Collection[int]]) -> Any:
    """The order in which kets and bras of sites with two edges or more are contracted: by shapes alone."""
    terms, shapes = [], []
    for site, within in sorted(inner.items()):
        for side in (0, 1):
            # Inner edges have an index for the ket and one for the bra.
            ends = state.neighbours[site]
            names = [(*sorted((site, end)), side if end in within else site + 2) for end in ends]
            terms.append((*names, (site,)))
            shapes.append(tuple(state.tensors[site].shape))
    return _tree(tuple(terms), tuple(shapes))


@lru_cache(512)
def _tree(terms: tuple[Any, ...], shapes: tuple[tuple[int, ...], ...]) -> Any:
    import cotengra

    return cotengra.array_contract_tree(terms, (), shapes=shapes, optimize="greedy")


def trees(neighbours: Sequence[Sequence[int]], wanted: Sequence[int]) -> list[tuple[frozenset[int], Region]]:
    """The sites and edges of a tree of shortest paths for the wanted sites of each part of a graph."""
    left, found = list(wanted), []
    while left:
        sites, edges = {left.pop(0)}, set()
        while left:
            before = _paths(neighbours, sites)
            reached = [site for site in left if site in before]
            if not reached:
                break
            nearest = min(reached, key=lambda site: (len(_back(before, site)), site))
            path = _back(before, nearest)
            edges |= {(min(a, b), max(a, b)) for a, b in pairwise(path)}
            sites |= set(path)
            left = [site for site in left if site not in sites]
        found.append((frozenset(sites), frozenset(edges)))
    return found


def _paths(neighbours: Sequence[Sequence[int]], sites: Iterable[int]) -> dict[int, int | None]:
    """Of each site in reach the one before it on a shortest path from the sites."""
    before: dict[int, int | None] = dict.fromkeys(sorted(sites))
    queue = deque(before)
    while queue:
        site = queue.popleft()
        for end in neighbours[site]:
            if end not in before:
                before[end] = site
                queue.append(end)
    return before


def _back(before: Mapping[int, int | None], site: int) -> list[int]:
    path = [site]
    while (last := before[path[-1]]) is not None:
        path.append(last)
    return path


def loops_at(neighbours: Sequence[Sequence[int]], sites: Collection[int]) -> list[Region]:
    """The shortest loops without chords that touch some sites, or that are nearest to them with the path
    there; the shortest first."""
    before = _paths(neighbours, sites)
    near = sorted(sites)
    while True:
        loops: dict[Region, None] = {}
        for site in near:
            loops.update(dict.fromkeys(_loops_through(neighbours, site)))
        if loops or len(near) == len(before):
            break
        near = sorted({end for site in near for end in neighbours[site]} | set(near))
    shortest = min(map(len, loops), default=0)
    chosen = [loop for loop in loops if len(loop) <= shortest + LONGER_LOOPS]
    chosen.sort(key=lambda loop: (len(loop), sorted(loop)))
    result = []
    for loop in chosen[:MOST_LOOPS]:
        ways = [_back(before, site) for site in {site for edge in loop for site in edge}]
        way = min(ways, key=lambda way: (len(way), way))
        result.append(loop | {(min(a, b), max(a, b)) for a, b in pairwise(way)})
    return result


def _loops_through(neighbours: Sequence[Sequence[int]], site: int) -> list[Region]:
    """The loops without chords through a site, of the shortest length there and a little more."""
    distance, branch, shortest = {site: 0}, {site: site}, len(neighbours) + 1
    queue = deque([site])
    while queue:
        last = queue.popleft()
        for end in neighbours[last]:
            if end not in distance:
                distance[end] = distance[last] + 1
                branch[end] = end if last == site else branch[last]
                queue.append(end)
            elif site not in (last, end) and branch[end] != branch[last]:
                shortest = min(shortest, distance[end] + distance[last] + 1)
    found: dict[Region, None] = {}
    paths = deque([[site, end] for end in neighbours[site]])
    while paths and shortest <= len(neighbours):
        path = paths.popleft()
        for end in neighbours[path[-1]]:
            if end == path[-2]:
                continue
            if end == site:
                loop = frozenset((min(a, b), max(a, b)) for a, b in zip(path, [*path[1:], site], strict=True))
                if _has_no_chord(neighbours, path):
                    found[loop] = None
            elif end not in path and len(path) + distance[end] <= shortest + LONGER_LOOPS:
                paths.append([*path, end])
    return list(found)


def _has_no_chord(neighbours: Sequence[Sequence[int]], path: Sequence[int]) -> bool:
    on_path = set(path)
    return all(sum(end in on_path for end in neighbours[site]) == 2 for site in path)
