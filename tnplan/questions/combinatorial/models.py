"""Combinatorial questions as products of factors: what is allowed, and what it weighs.

A model has variables of few values, and factors on some of them. A configuration counts where every factor
allows it; its weight is the sum of those of the factors. So its number of configurations is the contraction
of the factors' zeros and ones, and the largest weight that over max-plus of their weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from math import gcd, lcm, log2, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.errors import InputError
from tnplan.questions.combinatorial.formulas import Formula
from tnplan.questions.combinatorial.instances import Graph

Array = NDArray[Any]
AT_ONCE = 5
"""Variables of a factor of a chain, besides those of states."""
LARGEST_WEIGHT = 2**52
"""Sums of weights stay below this, so that they are exact in float64."""


@dataclass(frozen=True, eq=False)
class Factor:
    """What some variables may be together, and what it weighs: arrays with an axis a variable."""

    variables: tuple[int, ...]
    allowed: Array
    weights: Array


@dataclass(eq=False)
class Model:
    """Factors over variables.

    Variables behind the first `n_free` follow from these: a configuration of the first ones is one of all.
    Weights are integers, `scale` times what was given; a configuration is worth `sign` times its weight.
    """

    extents: list[int]
    n_free: int
    sign: int = 1
    scale: int = 1
    factors: list[Factor] = field(default_factory=list)

    def add(self, variables: Sequence[int], allowed: Any, weights: Any = 0) -> None:
        """Add a factor; its weights are those of the model."""
        allowed = np.asarray(allowed, bool)
        self.factors.append(Factor(tuple(variables), allowed, np.broadcast_to(weights, allowed.shape)))

    def add_chain(
        self, variables: Sequence[int], n_states: int, step: Callable[[int, int, int], int | None],
        end: Callable[[int], tuple[bool, int]],
    ) -> None:  # fmt: skip
        """Add what depends on variables one after the other, as a chain of small factors.

        The first state is 0. After variable number k with some value it is step(state, k, value), None where
        that is not allowed; `end` says whether the last state is, and what it weighs. Between two factors of
        a chain stands a variable for the state, which follows from those before it.
        """
        before: list[int] = []
        if not variables:  # a factor of the state 0, on a variable that is always 0
            before = [len(self.extents)]
            self.extents.append(1)
        for first in range(0, max(1, len(variables)), AT_ONCE):
            group = variables[first : first + AT_ONCE]
            is_last = first + len(group) == len(variables)
            behind = [] if is_last else [len(self.extents)]
            self.extents += [n_states] * len(behind)
            scope = [*before, *group, *behind]
            shape = [self.extents[variable] for variable in scope]
            allowed, weights = np.zeros(shape, bool), np.zeros(shape, np.int64)
            for place in np.ndindex(*shape):
                state: int | None = place[0] if before else 0
                for k, value in enumerate(place[len(before) : len(before) + len(group)], first):
                    state = None if state is None else step(state, k, value)
                if state is not None and is_last:
                    allowed[place], weights[place] = end(state)
                elif state is not None:
                    allowed[place] = state == place[-1]
            self.add(scope, allowed, weights)
            before = behind

    def complete(self) -> Model:
        """The model with a factor on every variable, and factors of one variable taken into others."""
        on_factors = {variable for factor in self.factors for variable in factor.variables}
        bare = set(range(len(self.extents))) - on_factors
        for variable in sorted(bare):
            self.add([variable], np.ones(self.extents[variable]))
        if not self.factors:  # no variable at all: one configuration
            self.add_chain((), 1, lambda state, k, value: state, lambda state: (True, 0))
        larger = [factor for factor in self.factors if len(factor.variables) > 1]
        place = {variable: number for number, factor in enumerate(larger) for variable in factor.variables}
        lone = []
        for factor in (each for each in self.factors if len(each.variables) == 1):
            number = place.get(factor.variables[0])
            if number is None:
                lone.append(factor)
                continue
            into = larger[number]
            shape = [-1 if each == factor.variables[0] else 1 for each in into.variables]
            larger[number] = Factor(
                into.variables, into.allowed & factor.allowed.reshape(shape),
                into.weights + factor.weights.reshape(shape),
            )  # fmt: skip
        self.factors = larger + lone
        return self

    def binary(self) -> tuple[Model, list[range]]:
        """The same over binary variables, and those of each variable, its highest bit first."""
        widths = [max(1, (extent - 1).bit_length()) for extent in self.extents]
        if all(extent == 2 for extent in self.extents):
            return self, [range(variable, variable + 1) for variable in range(len(self.extents))]
        bits = [range(last - width, last) for width, last in zip(widths, accumulate(widths), strict=True)]
        model = Model([2] * sum(widths), self.n_free, self.sign, self.scale)
        for factor in self.factors:
            variables = [bit for variable in factor.variables for bit in bits[variable]]
            more = [(0, (1 << widths[each]) - self.extents[each]) for each in factor.variables]
            shape = [2] * len(variables)
            allowed = np.pad(factor.allowed, more).reshape(shape)
            model.add(variables, allowed, np.pad(factor.weights, more).reshape(shape))
        return model, bits

    def check_weights(self) -> None:
        """Raise InputError where sums of weights may be beyond what float64 has exactly."""
        heaviest = sum(int(np.abs(factor.weights).max(initial=0)) for factor in self.factors)
        if heaviest >= LARGEST_WEIGHT:
            problem = f"add up to {heaviest / self.scale:.3g}, more than 2^52 units of 1/{self.scale}"
            raise InputError("weights", problem, "round them to fewer digits")

    @property
    def bound(self) -> int:
        """A number that no number of configurations is above.

        The free variables have as many values together as the product of their extents. Of factors that
        share no variable, each allows its own number of values at most, whatever the others are.
        """
        gains = []
        for factor in self.factors:
            if max(factor.variables) < self.n_free:
                n_allowed = int(factor.allowed.sum())
                gains.append((log2(factor.allowed.size / max(n_allowed, 1)), n_allowed, factor.variables))
        left, bound = set(range(self.n_free)), 1
        for gain, n_allowed, variables in sorted(gains, key=lambda entry: -entry[0] / len(entry[2])):
            if gain > 0 and left.issuperset(variables):
                left -= set(variables)
                bound *= n_allowed
        return bound * prod(self.extents[variable] for variable in left)

    def worth(self, weight: int) -> Fraction | int:
        """What a configuration of this weight is worth."""
        value = Fraction(self.sign * int(weight), self.scale)
        return int(value) if value.denominator == 1 else value


def independent_sets(graph: Graph, is_soft: bool, colours: int) -> Model:
    """A variable a vertex, 1 where it is in the set; not both ends of an edge are."""
    weights, scale = _integers(graph.vertex_weights, [1] * len(graph.vertices))
    model = Model([2] * len(weights), len(weights), scale=scale)
    for vertex, weight in enumerate(weights):
        model.add([vertex], [1, 1], [0, weight])
    for edge in graph.edges:
        model.add(edge, [[1, 1], [1, 0]])
    return model


def matchings(graph: Graph, is_soft: bool, colours: int, is_perfect: bool = False) -> Model:
    """A variable an edge, 1 where it is in the matching; a vertex has one such edge at most, or exactly."""
    weights, scale = _integers(graph.edge_weights, [1] * len(graph.edges))
    model = Model([2] * len(weights), len(weights), scale=scale)
    for edge, weight in enumerate(weights):
        model.add([edge], [1, 1], [0, weight])
    incident: list[list[int]] = [[] for _ in graph.vertices]
    for number, ends in enumerate(graph.edges):
        for vertex in ends:
            incident[vertex].append(number)

    def step(state: int, k: int, value: int) -> int | None:
        return state + value if state + value < 2 else None

    for numbers in incident:
        if numbers or is_perfect:
            model.add_chain(numbers, 2, step, lambda state: (not is_perfect or state == 1, 0))
    return model


def dimers(graph: Graph, is_soft: bool, colours: int) -> Model:
    """Matchings that have every vertex."""
    return matchings(graph, is_soft, colours, True)


def colourings(graph: Graph, is_soft: bool, colours: int) -> Model:
    """A variable a vertex, its colour; ends of an edge differ, or where it is soft, weigh -1 if alike."""
    model = Model([colours] * len(graph.vertices), len(graph.vertices), sign=-1)
    equal = np.eye(colours, dtype=np.int64)
    for edge in graph.edges:
        model.add(edge, np.ones_like(equal) if is_soft else 1 - equal, -equal)
    return model


def ising(graph: Graph, is_soft: bool, colours: int) -> Model:
    """A variable a vertex, 0 for spin 1 and 1 for spin -1; the weight is -E = sum J s s' + sum h s."""
    n_edges, n_vertices = len(graph.edges), len(graph.vertices)
    joint = {**graph.edge_weights, **{n_edges + k: h for k, h in graph.vertex_weights.items()}}
    weights, scale = _integers(joint, [1] * n_edges + [0] * n_vertices)
    model = Model([2] * n_vertices, n_vertices, sign=-1, scale=scale)
    aligned = np.array([[1, -1], [-1, 1]])
    for edge, coupling in zip(graph.edges, weights, strict=False):
        model.add(edge, np.ones((2, 2)), coupling * aligned)
    for vertex, strength in enumerate(weights[n_edges:]):
        if strength:
            model.add([vertex], [1, 1], [strength, -strength])
    return model


def satisfiability(formula: Formula, is_soft: bool, colours: int) -> Model:
    """A variable each, 1 where it is true; every clause holds, or where it is soft, has its weight then."""
    model = Model([2] * formula.n_variables, formula.n_variables)
    for clause, weight in formula.weighed:
        literals, variables = set(clause), sorted({abs(literal) - 1 for literal in clause})

        def step(state: int, k: int, value: int, literals: Any = literals, names: Any = variables) -> int:
            return int(state or (names[k] + 1 if value else -names[k] - 1) in literals)

        is_hard, weighs = not is_soft or weight is None, weight or 0
        ends = ((not is_hard, 0), (True, weighs))
        model.add_chain(variables, 2, step, ends.__getitem__)
    return model


def whole_products(pairs: Iterable[Sequence[Fraction]]) -> tuple[list[tuple[int, int]], list[Fraction]]:
    """Pairs of weights as integers without a common factor, and what each pair was divided by."""
    whole, units = [], []
    for pair in pairs:
        multiple = lcm(pair[0].denominator, pair[1].denominator)
        first, second = (int(weight * multiple) for weight in pair)
        factor = gcd(first, second) or 1
        whole.append((first // factor, second // factor))
        units.append(Fraction(factor, multiple))
    return whole, units


def _integers(weights: dict[int, Fraction], defaults: Sequence[int]) -> tuple[list[int], int]:
    """Weights by number, or the default, as integers of one unit, and how many of these are 1."""
    given = [weights.get(number, Fraction(default)) for number, default in enumerate(defaults)]
    scale = lcm(1, *(weight.denominator for weight in given))
    return [int(weight * scale) for weight in given], scale
