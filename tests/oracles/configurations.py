"""Random instances of combinatorial questions, and their answers from all configurations, one by one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

PROBLEMS = ("independent-sets", "matchings", "dimers", "colourings", "ising", "sat")
MOST = 1 << 13
"""Configurations of an instance."""


@dataclass
class Instance:
    """What a call is given, and the same in plain terms: weights of vertices and edges, or clauses."""

    problem: str
    given: Any
    vertices: dict[Any, Fraction]
    edges: dict[tuple[Any, Any], Fraction]
    clauses: list[list[int]]
    n_variables: int
    colours: int


def random_instance(problem: str, seed: int) -> Instance:
    """Small graphs, some of stars or with vertices alone, and formulas with wide and empty clauses."""
    chance = random.Random(f"{problem} {seed}")
    if problem == "sat":
        n = chance.randint(1, 10)
        widths = [0, 1, 2, 2, 3, 3, 3, 4, 8, 12] if chance.random() < 0.3 else [2, 3, 3, 3, 4]
        clauses = [
            [chance.choice((1, -1)) * chance.randint(1, n) for _ in range(chance.choice(widths))]
            for _ in range(chance.randint(0, 14))
        ]
        used = max((abs(literal) for clause in clauses for literal in clause), default=0)
        if used == 0:
            return random_instance(problem, seed + 100_000)
        return Instance(problem, clauses, {}, {}, clauses, used, 1)
    colours = chance.randint(1, 4)
    while True:
        n = chance.randint(1, 10)
        shape = chance.random()
        pairs = [(a, b) for a in range(n) for b in range(a)]
        chance.shuffle(pairs)
        edges = pairs[: chance.randint(0, 13)]
        if shape < 0.15:
            edges = [(b, 0) for b in range(1, n)]
        n_binary = len(edges) if problem in ("matchings", "dimers") else n
        if (colours**n if problem == "colourings" else 2**n_binary) <= MOST:
            break
    if problem == "dimers" and chance.random() < 0.5 and n % 2 == 0:
        edges = list({*edges[:6], *((k + 1, k) for k in range(0, n, 2))})
    draw = chance.choice((None, None, "integers", "decimals", "signs"))

    def weight(default: int) -> Fraction | None:
        match draw:
            case "integers":
                return Fraction(chance.randint(-3, 5))
            case "decimals":
                return Fraction(chance.randint(-30, 30), 10)
            case "signs":
                return Fraction(chance.choice((1, -1)))
        return None

    names = chance.choice((list(range(n)), [f"v{k}" for k in range(n)], [(k, "x") for k in range(n)]))
    of_vertices = {name: weight(1) if chance.random() < 0.8 else None for name in names}
    of_edges = {(names[a], names[b]): weight(1) for a, b in edges}
    default = 0 if problem == "ising" else 1
    return Instance(
        problem, _given(chance, of_vertices, of_edges),
        {name: Fraction(default) if each is None else each for name, each in of_vertices.items()},
        {ends: Fraction(1) if each is None else each for ends, each in of_edges.items()}, [], 0, colours,
    )  # fmt: skip


def _given(chance: random.Random, vertices: dict[Any, Any], edges: dict[Any, Any]) -> Any:
    """An object as NetworkX's; weights are integers, decimals as numbers of floating point, or fractions."""
    import networkx

    def as_given(weight: Fraction | None) -> dict[str, Any]:
        if weight is None:
            return {}
        forms = [weight, float(weight)] + ([int(weight)] if weight.denominator == 1 else [])
        return {"weight": chance.choice(forms)}

    graph = networkx.Graph()
    graph.add_nodes_from((vertex, as_given(weight)) for vertex, weight in vertices.items())
    graph.add_edges_from((*ends, as_given(weight)) for ends, weight in edges.items())
    return graph


def solutions(instance: Instance) -> Iterator[tuple[Any, Fraction, bool]]:
    """Every configuration, its worth, and whether it keeps hard constraints."""
    vertices, edges = instance.vertices, instance.edges
    match instance.problem:
        case "independent-sets":
            for values in product((0, 1), repeat=len(vertices)):
                chosen = {vertex for vertex, value in zip(vertices, values, strict=True) if value}
                worth = sum((vertices[vertex] for vertex in chosen), Fraction(0))
                yield chosen, worth, not any(a in chosen and b in chosen for a, b in edges)
        case "matchings" | "dimers":
            for values in product((0, 1), repeat=len(edges)):
                chosen = [edge for edge, value in zip(edges, values, strict=True) if value]
                ends = Counter(end for edge in chosen for end in edge)
                is_perfect = len(ends) == len(vertices) or instance.problem == "matchings"
                worth = sum((edges[edge] for edge in chosen), Fraction(0))
                is_matching = is_perfect and max(ends.values(), default=0) < 2
                yield {frozenset(edge) for edge in chosen}, worth, is_matching
        case "colourings":
            for values in product(range(instance.colours), repeat=len(vertices)):
                colour = dict(zip(vertices, values, strict=True))
                broken = sum(colour[a] == colour[b] for a, b in edges)
                yield colour, Fraction(broken), broken == 0
        case "ising":
            for values in product((1, -1), repeat=len(vertices)):
                spin = dict(zip(vertices, values, strict=True))
                energy = -sum((weight * spin[a] * spin[b] for (a, b), weight in edges.items()), Fraction(0))
                yield spin, energy - sum(field * spin[vertex] for vertex, field in vertices.items()), True
        case "sat":
            for values in product((-1, 1), repeat=instance.n_variables):
                literals = {number * value for number, value in enumerate(values, 1)}
                held = sum(any(literal in literals for literal in clause) for clause in instance.clauses)
                yield literals, Fraction(held), held == len(instance.clauses)


@dataclass
class Answers:
    """From all configurations: the number, those of each worth, the optimum, and all that attain it."""

    count: int
    by_size: dict[Fraction, int]
    optimum: Fraction | None
    optima: list[Any]


def answers(instance: Instance) -> Answers:
    """The answers to all questions about an instance."""
    listed = list(solutions(instance))
    is_soft = instance.problem in ("colourings", "sat")
    kept = [(shown, worth) for shown, worth, is_kept in listed if is_kept or is_soft]
    worths = [worth for _, worth in kept]
    choose = min if instance.problem in ("colourings", "ising") else max
    best = choose(worths) if worths else None
    return Answers(
        sum(is_kept for *_, is_kept in listed), dict(sorted(Counter(worths).items())), best,
        [shown for shown, worth in kept if worth == best],
    )  # fmt: skip
