"""Rank simplification: contract what costs nothing before a path is searched. Structure and values together.

Traces are taken, indices that nothing else carries are summed, and pairs are contracted whose result is not
larger than the larger of the two. Open indices are never summed. Knows no path and no device.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
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
    state = _Simplifier(network, arrays)
    state.run()
    inputs, values = state.tensors()
    present = {index for term in inputs for index in term}
    sizes = {index: size for index, size in network.size_dict.items() if index in present}
    return Network(tuple(inputs), network.output, sizes), values


class _Simplifier:
    def __init__(self, network: Network, arrays: Sequence[np.ndarray]) -> None:
        self.sizes = network.size_dict
        self.output = set(network.output)
        self.terms: dict[int, Term] = {}
        self.arrays: dict[int, np.ndarray] = {}
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
            if number not in self.terms or size != self._size(self.terms[number]):
                continue
            partner = self._partner(number)
            if partner is not None:
                self._merge(number, partner)

    def tensors(self) -> tuple[list[Term], list[np.ndarray]]:
        numbers = sorted(self.terms)
        return [self.terms[number] for number in numbers], [self.arrays[number] for number in numbers]

    def _size(self, term: Term) -> int:
        return prod(self.sizes[index] for index in term)

    def _settle(self, number: int, array: np.ndarray) -> None:
        """Keep a tensor, its traces taken and the indices that only it has summed."""
        term = self.terms[number]
        kept = tuple(
            index for index in dict.fromkeys(term) if index in self.output or self.owners[index] != {number}
        )
        self.arrays[number] = array if kept == term else _einsum((array,), (term,), kept)
        self.terms[number] = kept
        heapq.heappush(self.queue, (self._size(kept), number))

    def _partner(self, number: int) -> int | None:
        """The neighbour (for a scalar: any tensor) with the smallest result that is small enough."""
        term = self.terms[number]
        if term:
            others = set().union(*(self.owners[index] for index in term)) - {number}
        else:
            others = set(self.terms) - {number}
        best = None
        for other in sorted(others):
            size = self._size(self._result(number, other))
            if size > max(self._size(term), self._size(self.terms[other])):
                continue
            if best is None or size < best[0]:
                best = (size, other)
        return None if best is None else best[1]

    def _result(self, first: int, second: int) -> Term:
        both = {first, second}
        indices = dict.fromkeys(self.terms[first] + self.terms[second])
        return tuple(index for index in indices if index in self.output or not self.owners[index] <= both)

    def _merge(self, first: int, second: int) -> None:
        first, second = sorted((first, second))
        kept = self._result(first, second)
        terms = (self.terms.pop(first), self.terms.pop(second))
        array = _einsum((self.arrays.pop(first), self.arrays.pop(second)), terms, kept)
        new = self.count
        self.count += 1
        for index in terms[0] + terms[1]:
            self.owners[index] = (self.owners[index] - {first, second}) | {new}
        self.terms[new] = kept
        self._settle(new, array)
        for neighbour in sorted(set().union(*(self.owners[index] for index in kept)) - {new}):
            heapq.heappush(self.queue, (self._size(self.terms[neighbour]), neighbour))


def _einsum(arrays: Sequence[np.ndarray], terms: Sequence[Term], output: Term) -> np.ndarray:
    """NumPy's einsum with index names of any length; at most 52 different ones."""
    numbers: dict[str, int] = {}
    for term in terms:
        for index in term:
            numbers.setdefault(index, len(numbers))
    operands: list[Any] = []
    for array, term in zip(arrays, terms, strict=True):
        operands += [array, [numbers[index] for index in term]]
    return np.asarray(np.einsum(*operands, [numbers[index] for index in output]))
