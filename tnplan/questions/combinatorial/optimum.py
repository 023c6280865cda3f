"""The largest weight of a model, how many configurations have it, and one of them.

The configuration is found by going back through a tree that is contracted over max-plus with everything on
the way kept: where the values of a tensor's indices are known, those summed in its step are values at which
the terms attain the entry. Where keeping takes too much memory, slices are contracted one after the other
until one attains the optimum; the values of its sliced indices are those of the configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.errors import InputError
from tnplan.executor.device.cpu.algebra import NAMED, Optima
from tnplan.jobs.arrays.compiled import CompiledContraction
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.arrays.planning import find_path, memory_bytes
from tnplan.jobs.progress import Listener
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.questions.combinatorial.counting import (
    EXACT,
    at_most,
    by_remainders,
    is_tree_faster,
    largest_prime,
    network_of,
    residues_of,
    schedule_of,
)
from tnplan.questions.combinatorial.least_cost import COST_S, least_cost
from tnplan.questions.combinatorial.models import Model
from tnplan.questions.combinatorial.passes import best_order

Array = NDArray[Any]
Term = tuple[str, ...]
MOST_HALVINGS = 40
"""How often the memory for a tree is halved until all that is kept fits."""


@dataclass(frozen=True)
class Optimum:
    """The largest weight, the number of configurations that have it where that was asked for, and one of
    them: a value a variable."""

    weight: int
    number: int | None
    values: list[int]
    primes: int


def largest_weight(
    model: Model, options: ContractionOptions, counts: bool, progress: Listener | None
) -> Optimum | None:
    """The optimum of a model; None where no configuration is allowed."""
    binary, bits = model.binary()
    order, log_size = best_order(binary, only_allowed=False)
    tables, table_s = None, COST_S * 2 ** min(log_size, 1000.0)
    algebra = Optima() if counts else NAMED["max-plus"]
    if options.device != "gpu" and not is_tree_faster(model, algebra, options, table_s):
        threads = (options.threads or 1) * options.devices
        tables = least_cost(binary, order, memory_bytes(options, "cpu"), threads, progress)
    if tables is None:
        return _by_tree(model, options, counts, progress)
    optimum = tables.optimum(counts)
    if optimum is None:
        return None
    weight, number, of_bits = optimum
    values = [int("".join(str(of_bits[bit]) for bit in each), 2) for each in bits]
    return Optimum(weight, number, values, 0)


def _by_tree(
    model: Model, options: ContractionOptions, counts: bool, progress: Listener | None
) -> Optimum | None:  # fmt: skip
    """The optimum by contraction of a tree."""
    arrays = [np.where(factor.allowed, factor.weights, -inf) for factor in model.factors]
    number, primes = None, 0
    if counts:
        best, number, primes = _counted(model, arrays, options, progress)
    else:
        algebra = NAMED["max-plus"]
        schedule = schedule_of(model, algebra, options, 1)
        with CompiledContraction(schedule, options.changed(algebra=algebra)) as contraction:
            best = float(contraction(*arrays))
    if best == -inf:
        return None
    values_by_index = _attaining(model, arrays, best, options)
    values = [values_by_index[f"v{variable}"] for variable in range(len(model.extents))]
    return Optimum(int(best), number, values, primes)


def _counted(
    model: Model, arrays: Sequence[Array], options: ContractionOptions, progress: Listener | None
) -> tuple[float, int, int]:
    """The largest weight, the number of optima, and how many primes it took."""
    algebra = Optima()
    pairs = [array + 1j * (array > -inf) for array in arrays]
    # -inf + 0j: NumPy's product of -inf with a complex number would be NaN.
    for pair, array in zip(pairs, arrays, strict=True):
        pair.real = array
    schedule = schedule_of(model, algebra, options, 1)
    with CompiledContraction(schedule, options.changed(algebra=algebra)) as contraction:
        result = complex(contraction(*pairs))
        best, rounded = result.real, result.imag
        # Counts are not negative: below 2^53 all that go into this one are exact, as in `count_once`.
        if best == -inf or rounded < EXACT:
            return best, int(rounded), 0
        bound = at_most(model.bound, rounded, schedule)
        algebra.prime = largest_prime()
        compute = lambda: int(complex(contraction(*pairs)).imag)  # noqa: E731
        residues = residues_of(algebra, compute, bound, progress)
    return best, by_remainders(residues), len(residues)


def _attaining(
    model: Model, arrays: Sequence[Array], best: float, options: ContractionOptions
) -> dict[str, int]:
    """Values of all indices of the network whose terms attain the largest weight."""
    call = network_of(model)
    limit = memory_bytes(options, "cpu") / np.dtype(float).itemsize
    for halving in range(MOST_HALVINGS):
        smaller = options.changed(device="cpu", memory=limit * 8 / 2**halving, algebra=NAMED["max-plus"])
        path = find_path(call, "float64", smaller)
        tree = _Tree(path)
        if tree.kept_elements <= limit:
            break
    else:
        problem = "is too small for the tensors of one slice"
        raise InputError("memory", problem, "allow more memory", topic="memory")
    extents = [call.size_dict[index] for index in path.sliced_inds]
    for places in product(*map(range, extents)):
        fixed = dict(zip(path.sliced_inds, places, strict=True))
        values = tree.optimum(arrays, fixed, best)
        if values is not None:
            return values
    raise RuntimeError(f"no slice attains the optimum {best}")


class _Tree:
    """The pairwise steps of a path for one slice, with all results kept."""

    def __init__(self, path: ContractionPath) -> None:
        self._sizes, self._inputs = path.network.size_dict, path.network.inputs
        sliced = set(path.sliced_inds)
        self._terms = [tuple(i for i in term if i not in sliced) for term in self._inputs]
        self._steps: list[tuple[tuple[int, ...], int]] = []
        live = dict(enumerate(self._terms))
        for numbers in path.ssa_path or ((0,),):
            operands = [live.pop(number) for number in numbers]
            rest = {index for term in live.values() for index in term}
            term = tuple(dict.fromkeys(i for operand in operands for i in operand if i in rest))
            live[len(self._terms)] = term
            self._steps.append((tuple(numbers), len(self._terms)))
            self._terms.append(term)

    @property
    def kept_elements(self) -> int:
        """The elements of all tensors together."""
        return sum(prod(self._sizes[index] for index in term) for term in self._terms)

    def optimum(self, arrays: Sequence[Array], fixed: dict[str, int], best: float) -> dict[str, int] | None:
        """Values of all indices that attain an optimum, in the slice of some; None where none do."""
        tensors = [
            array[tuple(fixed.get(index, slice(None)) for index in term)]
            for array, term in zip(arrays, self._inputs, strict=True)
        ]
        for numbers, out in self._steps:
            result, term = tensors[numbers[0]], self._terms[numbers[0]]
            for k, number in enumerate(numbers[1:], 2):
                later = {i for each in numbers[k:] for i in self._terms[each]}
                needed = later.union(self._terms[out])
                result, term = self._product(result, term, tensors[number], self._terms[number], needed)
            tensors.append(_largest(result, term, self._terms[out]))
        if tensors[-1].item() != best:
            return None
        values = dict(fixed)
        for numbers, _ in reversed(self._steps):
            # The values of the result's indices are known: the others' are where the sum is largest.
            operands = [self._terms[number] for number in numbers]
            free = tuple(dict.fromkeys(i for term in operands for i in term if i not in values))
            total = np.zeros([self._sizes[index] for index in free])
            for number, term in zip(numbers, operands, strict=True):
                fixed_part = tensors[number][tuple(values.get(index, slice(None)) for index in term)]
                total = total + _spread(fixed_part, tuple(i for i in term if i not in values), free)
            values |= zip(free, map(int, np.unravel_index(total.argmax(), total.shape)), strict=True)
        return values

    def _product(self, a: Array, a_term: Term, b: Array, b_term: Term, open_: set[str]) -> tuple[Array, Term]:
        """The largest sums over what both have and nothing else does; its term is [batch | m | n]."""
        batch = tuple(i for i in a_term if i in b_term and i in open_)
        k = tuple(i for i in a_term if i in b_term and i not in open_)
        m = tuple(i for i in a_term if i not in b_term and i in open_)
        n = tuple(i for i in b_term if i not in a_term and i in open_)
        sizes = [prod(self._sizes[i] for i in modes) for modes in (batch, m, n, k)]
        left = _largest(a, a_term, (*batch, *m, *k)).reshape(sizes[0], sizes[1], sizes[3])
        right = _largest(b, b_term, (*batch, *n, *k)).reshape(sizes[0], sizes[2], sizes[3])
        result = np.empty(sizes[:3])
        NAMED["max-plus"].bind_product(left, right, result)()
        term = (*batch, *m, *n)
        return result.reshape([self._sizes[i] for i in term]), term


def _largest(array: Array, term: Term, output: Term) -> Array:
    """The largest entries over what the output has not, its axes in the output's order."""
    axes = tuple(axis for axis, index in enumerate(term) if index not in output)
    left = tuple(index for index in term if index in output)
    reduced = array.max(axis=axes) if axes else array
    return np.asarray(reduced.transpose([left.index(index) for index in output]), order="C")


def _spread(array: Array, term: Term, order: Term) -> Array:
    """A view with the axes of `order`, of extent 1 where the term has no such index."""
    array = array.transpose([term.index(index) for index in order if index in term])
    return array.reshape([array.shape[[i for i in order if i in term].index(index)] if index in term else 1
                          for index in order])  # fmt: skip
