"""Graphs of combinatorial questions, as a user gives them, and what their files share with formulas."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from os.path import exists
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.common.errors import InputError
from tnplan.common.files import read_text
from tnplan.common.shown_text import shown_text
from tnplan.common.units import plural

LATTICES = re.compile(r"(grid|king|torus) ([1-9][0-9]*(?:x[1-9][0-9]*)*)")
NUMBER = re.compile(r"[-+]?([0-9]+(/[0-9]+)?|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?)")
MOST_VERTICES = 10**6
"""Of a graph, and variables of a formula: what is beyond was mistyped."""
REMEDY = "give a NetworkX graph, a list of edges, a file, or a lattice such as 'grid 8x8' or 'king 10x10'"


@dataclass(frozen=True)
class Graph:
    """A graph without loops and parallel edges.

    Edges are pairs of numbers of vertices. Weights are there where they were given, exactly as written.
    """

    name: str
    vertices: tuple[Any, ...]
    edges: tuple[tuple[int, int], ...]
    vertex_weights: dict[int, Fraction] = field(default_factory=dict)
    edge_weights: dict[int, Fraction] = field(default_factory=dict)

    def edge(self, number: int) -> tuple[Any, Any]:
        """The vertices of an edge."""
        first, second = self.edges[number]
        return self.vertices[first], self.vertices[second]

    @property
    def grid(self) -> tuple[int, int] | None:
        """The sides of a grid whose vertices are numbered row by row, the shorter first; None of others."""
        n, edges = len(self.vertices), {(min(edge), max(edge)) for edge in self.edges}
        width = max((last for first, last in edges if first == 0), default=0)
        if not width or n % width:
            return None
        across = {(k, k + 1) for k in range(n - 1) if (k + 1) % width}
        if edges != across | {(k, k + width) for k in range(n - width)}:
            return None
        return min(width, n // width), max(width, n // width)

    @property
    def text(self) -> str:
        """Name and sizes."""
        vertices = plural(len(self.vertices), "vertex", "vertices")
        return f"{self.name} of {vertices} and {plural(len(self.edges), 'edge', 'edges')}"


def read_graph(given: Any) -> Graph:
    """The graph that a user gives: an object of NetworkX, edges, a file, or the name of a lattice.

    Raises InputError where there is none, it has a loop or parallel edges, or a weight is no number.
    """
    if isinstance(given, Graph):
        return given
    if isinstance(given, str) and (lattice := LATTICES.fullmatch(given.strip())):
        return _lattice(lattice[1], [int(extent) for extent in lattice[2].split("x")])
    if isinstance(given, str | Path):
        if not exists(given):
            raise InputError("graph", f"{shown_text(str(given))!r} is neither a file nor a lattice", REMEDY)
        return _graph_of_file(Path(given))
    if hasattr(given, "nodes") and hasattr(given, "edges"):
        vertices = [(vertex, data.get("weight")) for vertex, data in given.nodes(data=True)]
        edges = [(*ends, data.get("weight")) for *ends, data in given.edges(data=True)]
        return _graph("graph", vertices, edges)
    if not isinstance(given, Iterable):
        raise InputError("graph", f"is of type {type(given).__name__}", REMEDY)
    listed = given.tolist() if isinstance(given, np.ndarray) else given
    edges = [tuple(edge) if isinstance(edge, Sequence) else (edge,) for edge in listed]
    for number, edge in enumerate(edges):
        if len(edge) not in (2, 3):
            remedy = "give two vertices, and a weight if it has one"
            raise InputError(f"edge {number}", f"is {shown_text(repr(edge))}", remedy)
    return _graph("list of edges", (), [(*edge[:2], *(edge[2:] or (None,))) for edge in edges])


def weight_of(value: Any, place: str) -> Fraction:
    """A weight as it is written: 0.1 is a tenth, although no number of floating point is.

    Raises InputError where it is no finite number.
    """
    try:
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, float):
            value = repr(value)
        if isinstance(value, str) and not NUMBER.fullmatch(value):
            raise ValueError(value)
        return Fraction(value)
    except (TypeError, ValueError, ZeroDivisionError):
        raise InputError(place, f"has weight {shown_text(repr(value))}", "give a finite number") from None


def weights_by_number(
    given: Any, numbers: Mapping[Any, int], own: dict[int, Fraction]
) -> dict[int, Fraction]:
    """The weights that a user gives for what has these numbers; True stands for its own.

    Raises InputError where they are none, or are for something else.
    """
    if given is True:
        return own
    if not isinstance(given, Mapping):
        remedy = "give True for those of the instance, or a dict with a weight for each"
        raise InputError("weights", f"is {shown_text(repr(given))}", remedy)
    weights: dict[int, Fraction] = {}
    for key, value in given.items():
        shown = shown_text(repr(key))
        if key not in numbers:
            remedy = "give vertices of independent sets, edges of matchings, or literals of a formula"
            raise InputError("weights", f"has {shown}, which is not in the instance", remedy)
        if numbers[key] in weights:
            raise InputError("weights", f"has {shown} twice", f"give {shown} once")
        weights[numbers[key]] = weight_of(value, f"weights, {shown}")
    return weights


def _graph(name: str, vertices: Iterable[tuple[Any, Any]], edges: Iterable[tuple[Any, ...]]) -> Graph:
    """The graph of vertices and edges, each with its weight or None; vertices of edges need not be listed."""
    weights = dict(vertices)
    listed = [(first, second, weight) for first, second, weight in edges]
    for first, second, _ in listed:
        for vertex in (first, second):
            try:
                weights.setdefault(vertex, None)
            except TypeError:
                problem = f"has the vertex {shown_text(repr(vertex))}"
                raise InputError(name, problem, "give numbers, names or tuples of these") from None
    numbers = {vertex: number for number, vertex in enumerate(weights)}
    if not numbers:
        raise InputError(name, "has no vertex", "give at least one")
    pairs, known = [], set()
    for first, second, _ in listed:
        pair = numbers[first], numbers[second]
        if first == second:
            raise InputError(name, f"has a loop at {first!r}", "leave it out")
        if frozenset(pair) in known:
            raise InputError(name, f"has the edge {first!r} to {second!r} twice", "give each edge once")
        known.add(frozenset(pair))
        pairs.append(pair)
    return Graph(
        name, tuple(numbers), tuple(pairs),
        {numbers[vertex]: weight_of(weight, f"vertex {vertex!r}") for vertex, weight in weights.items()
         if weight is not None},
        {number: weight_of(weight, f"edge {number}") for number, (_, _, weight) in enumerate(listed)
         if weight is not None},
    )  # fmt: skip


def _lattice(kind: str, extents: list[int]) -> Graph:
    """Points with coordinates, joined to the next in each direction; a king's also across."""
    if int(np.prod(extents, dtype=float)) > MOST_VERTICES:
        raise InputError("lattice", f"has more than {MOST_VERTICES:,} vertices", "give a smaller lattice")
    if kind == "king" and len(extents) != 2:
        raise InputError("lattice", f"king has {len(extents)} extents", "give two, such as 'king 10x10'")
    axes = range(len(extents))
    steps = [tuple(int(axis == other) for other in axes) for axis in axes]
    if kind == "king":
        steps += [(1, 1), (1, -1)]
    edges = []
    for point in product(*map(range, extents)):
        for step in steps:
            other = [place + move for place, move in zip(point, step, strict=True)]
            if kind == "torus":
                # With two points in a direction both ways lead to the same one: that edge is there already.
                wraps = zip(other, extents, strict=True)
                other = [place % extent if extent > 2 else place for place, extent in wraps]
            if all(0 <= place < extent for place, extent in zip(other, extents, strict=True)):
                edges.append((point, tuple(other), None))
    vertices = [(point, None) for point in product(*map(range, extents))]
    return _graph(f"{kind} {'x'.join(map(str, extents))}", vertices, edges)


def _graph_of_file(path: Path) -> Graph:
    """DIMACS, where there is a line p, and else lines of two vertices and perhaps a weight."""
    lines = list(lines_of(path))
    if not any(words[0] == "p" and len(words) == 4 for _, words in lines):
        return _graph_of_edges(path, (line for line in lines if line[1][0][0] not in "#%"))
    vertices: dict[Any, Any] = {}
    edges = []
    for place, words in lines:
        match words:
            case ["c", *_]:
                continue
            case ["p", _, n_vertices, _]:
                vertices = dict.fromkeys(range(1, 1 + count_of(n_vertices, place)))
            case ["n", vertex, weight] if count_of(vertex, place) in vertices:
                vertices[int(vertex)] = weight
            case ["e" | "a", first, second, *weight] if len(weight) < 2 and (
                {count_of(first, place), count_of(second, place)} <= vertices.keys()
            ):
                edges.append((int(first), int(second), weight[0] if weight else None))
            case _:
                remedy = "give 'e U V' with vertices of the line 'p edge N M' before it"
                raise InputError(place, f"is {shown_text(' '.join(words))!r}", remedy)
    return _graph(path.name, vertices.items(), edges)


def _graph_of_edges(path: Path, lines: Iterable[tuple[str, list[str]]]) -> Graph:
    edges = []
    for place, words in lines:
        if len(words) not in (2, 3):
            problem = f"is {shown_text(' '.join(words))!r}"
            raise InputError(place, problem, "give two vertices, and a weight if the edge has one")
        edges.append((words[0], words[1], words[2] if len(words) == 3 else None))
    return _graph(path.name, (), edges)


def lines_of(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Place and words of each line that is not empty."""
    for number, line in enumerate(read_text(path, "a text file").splitlines(), 1):
        words = line.split()
        if words:
            yield f"{path}:{number}", words


def count_of(word: str, place: str) -> int:
    """A number of vertices or variables, or of one of these."""
    if not re.fullmatch("[0-9]{1,7}", word) or int(word) > MOST_VERTICES:
        raise InputError(place, f"has {shown_text(word)!r}", f"give a number up to {MOST_VERTICES:,}")
    return int(word)
