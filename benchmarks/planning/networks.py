"""Twenty-four networks that are not circuits, by name, each with its seed.

Structure only: independent sets of King's subgraphs, n queens, random graphs, counts of 3-SAT, surface codes,
lattices, Bayesian networks. `NETWORKS` has the calls that make them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tnplan.planner.networks.network import Network
from tnplan.planner.workloads.kings import independent_set_network, kings_edges, kings_sites
from tnplan.planner.workloads.mixed import regular_graph

Place = tuple[int, ...]


def kings_subgraph(side: int, density: float, seed: int) -> Network:
    """Independent sets: a tensor for each vertex and one for each edge."""
    sites = kings_sites(side, side, density, seed)
    return independent_set_network(len(sites), kings_edges(sites))[0]


def n_queens(side: int) -> Network:
    """Placements of queens: a hyper-index for each square, and a chain of small tensors for each line.

    Along a row, a column or a diagonal the bonds of a chain carry whether a queen was met; both its ends have
    a tensor, and every square one of its own.
    """
    lines: dict[tuple[str, int], list[Place]] = {}
    inputs: list[tuple[str, ...]] = []
    for row in range(side):
        for column in range(side):
            inputs.append((f"x{row},{column}",))
            for line in (("r", row), ("c", column), ("d", row - column), ("a", row + column)):
                lines.setdefault(line, []).append((row, column))
    for (kind, number), squares in lines.items():
        bonds = [f"{kind}{number}:{place}" for place in range(len(squares) + 1)]
        inputs += [(bonds[0],), (bonds[-1],)]
        for place, (row, column) in enumerate(squares):
            inputs.append((bonds[place], f"x{row},{column}", bonds[place + 1]))
    return _binary(inputs)


def graph_network(edges: Iterable[tuple[int, int]]) -> Network:
    """A tensor for each vertex, an index for each edge; parts that hang together with nothing stay in."""
    terms: dict[int, list[str]] = {}
    for number, pair in enumerate(edges):
        for vertex in pair:
            terms.setdefault(vertex, []).append(f"e{number}")
    return _binary(terms[vertex] for vertex in sorted(terms))


def regular(n_vertices: int, seed: int) -> Network:
    """A random 3-regular graph."""
    return graph_network(regular_graph(n_vertices, 3, np.random.default_rng(seed)))


def erdos_renyi(n_vertices: int, degree: float, seed: int) -> Network:
    """A random graph with this mean degree: so many edges, all equally likely."""
    generator = np.random.default_rng(seed)
    edges: dict[tuple[int, int], None] = {}
    while len(edges) < round(degree * n_vertices / 2):
        a, b = sorted(int(vertex) for vertex in generator.integers(n_vertices, size=2))
        if a < b:
            edges[a, b] = None
    return graph_network(edges)


def three_sat(n_variables: int, ratio: float, seed: int) -> Network:
    """Solutions of a random formula: a hyper-index for each variable, a tensor for each clause."""
    generator = np.random.default_rng(seed)
    clauses = [
        generator.choice(n_variables, size=3, replace=False) for _ in range(round(ratio * n_variables))
    ]
    return _binary(tuple(f"x{variable}" for variable in clause) for clause in clauses)


def surface_code(distance: int) -> Network:
    """Maximum-likelihood decoding of a rotated surface code with perfect measurements.

    Checks of both kinds: a tensor for each qubit, a hyper-index for each check.
    """
    terms: list[tuple[str, ...]] = []
    for row in range(distance):
        for column in range(distance):
            around = [(row + down, column + right) for down in (0, 1) for right in (0, 1)]
            terms.append(tuple(f"s{a},{b}" for a, b in around if _is_check(distance, a, b)))
    return _binary(terms)


def _is_check(distance: int, row: int, column: int) -> bool:
    """Whether a corner of the qubits' squares has a check: all inside, every second one on the edges."""
    inside_rows, inside_columns = 0 < row < distance, 0 < column < distance
    odd = (row + column) % 2 == 1
    return (inside_rows and inside_columns) or (inside_columns and odd) or (inside_rows and not odd)


def lattice(*sides: int) -> Network:
    """A lattice with open ends of any dimension, bonds of extent 2."""
    strides = np.cumprod([1, *sides[:-1]])
    edges = []
    for site in np.ndindex(*sides):
        number = int(np.dot(site, strides))
        for axis, side in enumerate(sides):
            if site[axis] + 1 < side:
                edges.append((number, number + int(strides[axis])))
    return graph_network(edges)


def bayesian(n_nodes: int, window: int, seed: int) -> Network:
    """A random Bayesian network: up to three parents among the last `window` nodes, two to four states.

    Each node has its conditional table, and one in five is observed.
    """
    generator = np.random.default_rng(seed)
    inputs: list[tuple[str, ...]] = []
    for node in range(n_nodes):
        before = np.arange(max(0, node - window), node)
        count = min(int(generator.integers(1, 4)), len(before))
        parents = generator.choice(before, size=count, replace=False) if count else []
        inputs.append((f"n{node}", *(f"n{parent}" for parent in parents)))
        if generator.random() < 0.2:
            inputs.append((f"n{node}",))
    states = generator.integers(2, 5, size=n_nodes)
    return Network(tuple(inputs), (), {f"n{node}": int(states[node]) for node in range(n_nodes)})


def _binary(inputs: Iterable[Sequence[str]]) -> Network:
    terms = tuple(map(tuple, inputs))
    return Network(terms, (), {index: 2 for term in terms for index in term})


NETWORKS: dict[str, Callable[[], Network]] = {
    "kings_32_d0.7": lambda: kings_subgraph(32, 0.7, 1),
    "kings_40_d0.8": lambda: kings_subgraph(40, 0.8, 0),
    "kings_48_d0.8": lambda: kings_subgraph(48, 0.8, 2),
    "kings_64_d0.9": lambda: kings_subgraph(64, 0.9, 3),
    "queens_8": lambda: n_queens(8),
    "queens_12": lambda: n_queens(12),
    "queens_20": lambda: n_queens(20),
    "queens_28": lambda: n_queens(28),
    "regular_200": lambda: regular(200, 0),
    "regular_1000": lambda: regular(1000, 1),
    "regular_5000": lambda: regular(5000, 2),
    "erdos_renyi_200": lambda: erdos_renyi(200, 4.0, 0),
    "erdos_renyi_1000": lambda: erdos_renyi(1000, 3.0, 1),
    "erdos_renyi_5000": lambda: erdos_renyi(5000, 2.2, 2),
    "sat_100_r4.2": lambda: three_sat(100, 4.2, 0),
    "sat_300_r3.6": lambda: three_sat(300, 3.6, 1),
    "sat_1000_r3.0": lambda: three_sat(1000, 3.0, 2),
    "surface_9": lambda: surface_code(9),
    "surface_21": lambda: surface_code(21),
    "square_10x1200": lambda: lattice(10, 1200),
    "square_40x40": lambda: lattice(40, 40),
    "cubic_8x8x8": lambda: lattice(8, 8, 8),
    "bayesian_500": lambda: bayesian(500, 60, 0),
    "bayesian_2000": lambda: bayesian(2000, 40, 1),
}
