"""The problems by name: how each is read, modelled, shown, and checked from its instance alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tnplan.common.errors import InputError
from tnplan.questions.combinatorial import models
from tnplan.questions.combinatorial.formulas import Formula, read_formula
from tnplan.questions.combinatorial.instances import Graph, read_graph, weights_by_number

Pair = tuple[Fraction, Fraction]
UNIT = Fraction(1)


@dataclass(frozen=True)
class Problem:
    """A problem: `build` makes its model, hard constraints or soft ones, with so many colours.

    `shown` is a configuration of the variables as a user sees it. `worth` computes its value from the
    instance, without the model, and is None where it is no solution. `products` are the weights of 0 and 1 of
    each variable, for sums of their products: from the instance, and what is given for them.
    """

    counted: str
    worth_name: str
    best: str
    read: Callable[[Any], Any]
    build: Callable[[Any, bool, int], models.Model]
    shown: Callable[[Any, list[int]], Any]
    worth: Callable[[Any, Any], Fraction | int | None]
    products: Callable[[Any, Any], list[Pair]] | None = None


def _chosen_vertices(graph: Graph, values: list[int]) -> list[Any]:
    return [vertex for vertex, value in zip(graph.vertices, values, strict=True) if value]


def _chosen_edges(graph: Graph, values: list[int]) -> list[Any]:
    return [graph.edge(number) for number, value in enumerate(values) if value]


def _colours(graph: Graph, values: list[int]) -> dict[Any, int]:
    return dict(zip(graph.vertices, values, strict=True))


def _spins(graph: Graph, values: list[int]) -> dict[Any, int]:
    return {vertex: 1 - 2 * value for vertex, value in zip(graph.vertices, values, strict=True)}


def _literals(formula: Formula, values: list[int]) -> list[int]:
    return [number if value else -number for number, value in enumerate(values, 1)]


def _worth_of_set(graph: Graph, chosen: list[Any]) -> Fraction | int | None:
    inside = set(chosen)
    if any(inside.issuperset(graph.edge(number)) for number in range(len(graph.edges))):
        return None
    weights = graph.vertex_weights
    return sum(weights.get(number, 1) for number, vertex in enumerate(graph.vertices) if vertex in inside)


def _worth_of_matching(graph: Graph, chosen: list[Any]) -> Fraction | int | None:
    ends = [vertex for edge in chosen for vertex in edge]
    if len(set(ends)) < len(ends):
        return None
    inside = set(chosen)
    return sum(graph.edge_weights.get(k, 1) for k in range(len(graph.edges)) if graph.edge(k) in inside)


def _worth_of_dimers(graph: Graph, chosen: list[Any]) -> Fraction | int | None:
    return _worth_of_matching(graph, chosen) if 2 * len(chosen) == len(graph.vertices) else None


def _conflicts(graph: Graph, colour: dict[Any, int]) -> int:
    return sum(colour[first] == colour[second] for first, second in map(graph.edge, range(len(graph.edges))))


def _energy(graph: Graph, spin: dict[Any, int]) -> Fraction | int:
    energy: Fraction | int = 0
    for number in range(len(graph.edges)):
        first, second = graph.edge(number)
        energy -= graph.edge_weights.get(number, 1) * spin[first] * spin[second]
    for number, strength in graph.vertex_weights.items():
        energy -= strength * spin[graph.vertices[number]]
    return energy


def _satisfied(formula: Formula, literals: list[int]) -> int | None:
    holding = set(literals)
    weights = [weight for clause, weight in formula.weighed if holding.isdisjoint(clause)]
    return None if None in weights else formula.most_satisfied - sum(filter(None, weights))


def _vertex_products(graph: Graph, given: Any) -> list[Pair]:
    numbers = {vertex: number for number, vertex in enumerate(graph.vertices)}
    weights = weights_by_number(given, numbers, graph.vertex_weights)
    return [(UNIT, weights.get(number, UNIT)) for number in range(len(graph.vertices))]


def _edge_products(graph: Graph, given: Any) -> list[Pair]:
    edges = [graph.edge(number) for number in range(len(graph.edges))]
    numbers = {ends: number for number, edge in enumerate(edges) for ends in (edge, edge[::-1])}
    weights = weights_by_number(given, numbers, graph.edge_weights)
    return [(UNIT, weights.get(number, UNIT)) for number in range(len(graph.edges))]


def _literal_products(formula: Formula, given: Any) -> list[Pair]:
    variables = range(1, 1 + formula.n_variables)
    literals = {literal: literal for number in variables for literal in (number, -number)}
    weights = weights_by_number(given, literals, formula.literal_weights)
    for literal in weights:
        if -literal not in weights:
            remedy = "give both weights: programs differ in what a missing weight means"
            raise InputError("weights", f"has {literal} without {-literal}", remedy)
    return [(weights.get(-number, UNIT), weights.get(number, UNIT)) for number in variables]


PROBLEMS = {
    "independent-sets": Problem(
        "independent sets", "weight", "largest", read_graph, models.independent_sets, _chosen_vertices,
        _worth_of_set, _vertex_products,
    ),
    "matchings": Problem(
        "matchings", "weight", "largest", read_graph, models.matchings, _chosen_edges, _worth_of_matching,
        _edge_products,
    ),
    "dimers": Problem(
        "perfect matchings", "weight", "largest", read_graph, models.dimers, _chosen_edges, _worth_of_dimers,
        _edge_products,
    ),
    "colourings": Problem(
        "colourings", "number of edges in conflict", "least", read_graph, models.colourings, _colours,
        _conflicts,
    ),
    "ising": Problem(
        "configurations of spins", "energy", "least", read_graph, models.ising, _spins, _energy
    ),
    "sat": Problem(
        "satisfying assignments", "number of satisfied clauses", "largest", read_formula,
        models.satisfiability, _literals, _satisfied, _literal_products,
    ),
}  # fmt: skip
"""By the name that a user gives."""
