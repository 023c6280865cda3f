"""Rank simplification: contract what costs nothing before a path is searched. Structure and values together.

Traces are taken, indices that nothing else carries are summed, and pairs are contracted whose result is not
larger than the larger of the two. Open indices are never summed. Knows no path and no device.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tnplan.planner.networks.network import Network

Term = tuple[str, ...]


def simplify(network: Network, arrays: Sequence[np.ndarray]) -> tuple[Network, list[np.ndarray]]:
    """The simplified network and its tensors; the result is unchanged.

    Deterministic: the smallest tensor is merged first, with the neighbour that gives the smallest result, the
    lower number deciding between equals.
    """
    simplified = Simplified(network, arrays)
    return simplified.network, simplified.arrays


@dataclass(frozen=True, eq=False)
class _Merge:
    """Tensors that became tensor `new` with indices `result`; `numbers` are those of `arrays`."""

    numbers: tuple[int, ...]
    terms: tuple[Term, ...]
    arrays: tuple[np.ndarray, ...]
    new: int
    result: Term


class Simplified:
    """A simplified network, its tensors, and the backward pass of derivatives.

    - `network`, `arrays`: What is simplified.
    - `wanted`: The tensors by which derivatives are wanted: their merges are recorded.
    """

    def __init__(self, network: Network, arrays: Sequence[np.ndarray], wanted: Collection[int] = ()) -> None:
        state = _Simplifier(network, arrays, wanted)
        state.run()
        numbers = sorted(state.terms)
        inputs = tuple(state.terms[number] for number in numbers)
        present = {index for term in inputs for index in term}
        sizes = {index: size for index, size in network.size_dict.items() if index in present}
        self.network = Network(inputs, network.output, sizes)
        self.arrays = [state.arrays[number] for number in numbers]
        self.depending = tuple(position for position, number in enumerate(numbers) if number in state.needed)
        """The places of the tensors that depend on those wanted."""
        self._numbers, self._state, self._wanted = numbers, state, wanted

    def back(self, cotangents: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """The derivatives by the tensors wanted, from those by the simplified tensors at places `depending`.

        Nothing is conjugated.
        """
        state = self._state
        by_number = {self._numbers[position]: array for position, array in cotangents.items()}
        # Reverse mode: the derivative by one tensor of a merge is that of the result with all others of it.
        for step in reversed(state.history):
            after = by_number.pop(step.new)
            for position, number in enumerate(step.numbers):
                if number not in state.needed:
                    continue
                others = [other for k, other in enumerate(step.arrays) if k != position]
                terms = [term for k, term in enumerate(step.terms) if k != position]
                operands, terms = [after, *others], [step.result, *terms]
                by_number[number] = _spread(operands, terms, step.terms[position], state.sizes)
        return {number: by_number[number] for number in self._wanted}


class _Simplifier:
    def __init__(self, network: Network, arrays: Sequence[np.ndarray], wanted: Collection[int]) -> None:
        self.needed = set(wanted)
        """The tensors that depend on those wanted."""
        self.history: list[_Merge] = []
        """What became of them, a step each."""
        self.sizes = network.size_dict
        self.output = set(network.output)
        self.terms: dict[int, Term] = {}
        self.arrays: dict[int, np.ndarray] = {}
        self.volumes: dict[int, int] = {}
        """The elements of each tensor."""
        self.owners: dict[str, set[int]] = {}
        self.queue: list[tuple[int, int]] = []
        self.count = 0
        for term in network.inputs:
            for index in term:
                self.owners.setdefault(index, set()).add(self.count)
            self.terms[self.count] = term
            self.count += 1
        for number, array in enumerate(arrays):
            self._settle(number, array)

    def run(self) -> None:
        while self.queue:
            size, number = heapq.heappop(self.queue)
            # Entries are not taken out of the heap when a tensor changes: stale ones are passed over here.
            if number not in self.terms or size != self.volumes[number]:
                continue
            partner = self._partner(number)
            if partner is not None:
                self._merge(number, partner)

    def _remember(self, step: _Merge) -> None:
        """Keep a step for the backward pass, if derivatives go through it."""
        if not self.needed.isdisjoint(step.numbers):
            self.needed.add(step.new)
            self.history.append(step)

    def _settle(self, number: int, array: np.ndarray) -> None:
        """Keep a tensor, its traces taken and the indices that only it has summed."""
        term = self.terms[number]
        distinct = dict.fromkeys(term)
        result = tuple([index for index in distinct if len(self.owners[index]) > 1 or index in self.output])
        if result != term:
            self._remember(_Merge((number,), (term,), (array,), number, result))
            array = einsum((array,), (term,), result)
        self.arrays[number] = array
        self.terms[number] = result
        self.volumes[number] = prod([self.sizes[index] for index in result])
        heapq.heappush(self.queue, (self.volumes[number], number))

    def _partner(self, number: int) -> int | None:
        """The neighbour (for a scalar: any tensor) with the smallest result that is small enough."""
        volumes = self.volumes
        own = volumes[number]
        # The elements of a result are those of both, divided by the extents of shared indices: once where the
        # index stays, twice where it is summed, as no third tensor and no result has it.
        divided = {} if self.terms[number] else dict.fromkeys(self.terms.keys() - {number}, 1)
        for index in self.terms[number]:
            owners, extent = self.owners[index], self.sizes[index]
            factor = extent * extent if len(owners) == 2 and index not in self.output else extent
            for other in owners:
                if other != number:
                    divided[other] = divided.get(other, 1) * factor
        # Only merges whose result is no larger than one of both: no later contraction becomes larger by them.
        results = ((own * volumes[other] // factor, other) for other, factor in divided.items())
        small = [(size, other) for size, other in results if size <= max(own, volumes[other])]
        return min(small)[1] if small else None

    def _result(self, first: int, second: int) -> Term:
        both = {first, second}
        indices = dict.fromkeys(self.terms[first] + self.terms[second])
        return tuple(index for index in indices if index in self.output or not self.owners[index] <= both)

    def _merge(self, first: int, second: int) -> None:
        first, second = sorted((first, second))
        result = self._result(first, second)
        terms = (self.terms.pop(first), self.terms.pop(second))
        pair = (self.arrays.pop(first), self.arrays.pop(second))
        array = einsum(pair, terms, result)
        new = self.count
        self.count += 1
        self._remember(_Merge((first, second), terms, pair, new, result))
        for index in terms[0] + terms[1]:
            self.owners[index] -= {first, second}
            self.owners[index].add(new)
        self.terms[new] = result
        self._settle(new, array)
        # Neighbours that had no partner may have one now.
        for neighbour in sorted(set().union(*(self.owners[index] for index in result)) - {new}):
            heapq.heappush(self.queue, (self.volumes[neighbour], neighbour))


def einsum(arrays: Sequence[np.ndarray], terms: Sequence[Term], output: Term) -> np.ndarray:
    """NumPy's einsum with index names of any length; at most 52 different ones."""
    numbers: dict[str, int] = {}
    operands: list[Any] = []
    for array, term in zip(arrays, terms, strict=True):
        operands += [array, [numbers.setdefault(index, len(numbers)) for index in term]]
    return np.asarray(np.einsum(*operands, [numbers[index] for index in output]))


def _spread(
    arrays: Sequence[np.ndarray], terms: Sequence[Term], term: Term, sizes: Mapping[str, int]
) -> np.ndarray:
    """The product of tensors with the indices of a term: equal along those that none of them has, and on the
    diagonal of those that stand in it twice."""
    present = {index for indices in terms for index in indices}
    distinct = tuple(dict.fromkeys(term))
    shared = tuple(index for index in distinct if index in present)
    product = einsum(arrays, terms, shared)
    shape = [sizes[index] if index in present else 1 for index in distinct]
    values = np.broadcast_to(product.reshape(shape), [sizes[index] for index in distinct])
    if distinct == term:
        return values
    whole = np.zeros([sizes[index] for index in term], values.dtype)
    places = np.ix_(*(range(sizes[index]) for index in distinct))
    whole[tuple(places[distinct.index(index)] for index in term)] = values
    return whole
