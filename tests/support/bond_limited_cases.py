"""Random closed networks by a seed: lattices, circuits and graphs, with a limit that cuts in every other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np

Arguments = list[Any]
"""What `tnplan.contract` takes: an array and its labels in turn, and an empty list."""


def case(seed: int) -> tuple[str, Arguments, int]:
    """The kind of a network, its arguments, and the bond limit."""
    random = np.random.default_rng(seed)
    kind = ("lattice", "circuit", "graph")[seed % 3]
    if kind == "circuit":
        arguments = circuit(random)
    elif kind == "lattice" and random.random() < 0.8:
        arguments = on_graph(nx.grid_2d_graph(*random.integers(4, 8, 2)), int(random.integers(2, 4)), random)
    elif kind == "lattice":
        arguments = on_graph(nx.grid_graph((3, 3, int(random.integers(2, 4)))), 2, random)
    elif random.random() < 0.6:
        graph = nx.random_regular_graph(3, 2 * int(random.integers(10, 17)), seed=seed)
        arguments = on_graph(graph, int(random.integers(2, 4)), random)
    else:
        arguments = on_graph(nx.random_regular_graph(4, int(random.integers(11, 16)), seed=seed), 2, random)
    return kind, arguments, int(random.choice([3, 4, 6, 8, 12, 16]))


def on_graph(
    graph: Any, extent: int, random: np.random.Generator, least: Sequence[float] = (-0.8, -0.5, -0.2)
) -> Arguments:
    """A tensor on each vertex, real or complex, normal or uniform from one of the `least` to 1."""
    graph = nx.convert_node_labels_to_integers(graph)
    is_complex, is_normal, low = random.random() < 0.3, random.random() < 0.25, random.choice(least)
    arguments: Arguments = []
    for vertex in graph:
        labels = [f"{min(vertex, other)}-{max(vertex, other)}" for other in graph.neighbors(vertex)]
        shape = (1 + is_complex, *(extent,) * len(labels))
        values = random.standard_normal(shape) if is_normal else random.uniform(low, 1, shape)
        arguments += [values[0] + 1j * values[1] if is_complex else values[0], labels]
    return [*arguments, []]


def circuit(random: np.random.Generator, graph: Any = None) -> Arguments:
    """An amplitude of random gates on the edges of a graph, or of a line or a ladder."""
    if graph is None:
        rows = int(random.integers(1, 4))
        graph = nx.grid_2d_graph(rows, int(random.integers(8, 13)) // rows)
    graph = nx.convert_node_labels_to_integers(graph)
    pairs, depth, angle = list(graph.edges), int(random.integers(8, 15)), random.choice([0.2, 0.5, 1.0])
    wires = [f"in{qubit}" for qubit in graph]
    arguments: Arguments = [part for wire in wires for part in (np.array([1.0, 0.0]), [wire])]
    for layer in range(depth):
        random.shuffle(pairs)
        used: set[int] = set()
        for pair in pairs:
            if used.isdisjoint(pair):
                used.update(pair)
                matrix = random.standard_normal((4, 4, 2)) @ [1, 1j]
                energies, states = np.linalg.eigh(matrix + matrix.conj().T)
                gate = (states * np.exp(1j * angle * energies)) @ states.conj().T
                after = [f"{layer}/{qubit}" for qubit in pair]
                arguments += [gate.reshape((2,) * 4), [*after, *(wires[qubit] for qubit in pair)]]
                for qubit, wire in zip(pair, after, strict=True):
                    wires[qubit] = wire
    return [*arguments, *(part for wire in wires for part in (np.array([1.0, 0.0]), [wire])), []]


def peps_norm(side: int, low: float, random: np.random.Generator) -> Arguments:
    """The norm of a PEPS with bonds of 2, whose entries are from `low` to 1 more."""
    graph = nx.grid_2d_graph(side, side)
    numbers = {frozenset(bond): number for number, bond in enumerate(graph.edges)}
    arguments: Arguments = []
    for site in graph.nodes:
        bonds = [numbers[frozenset((site, other))] for other in graph.neighbors(site)]
        tensor = low + random.random((2,) * (len(bonds) + 1))
        for layer in ("ket", "bra"):
            arguments += [tensor, [f"level {site}", *(f"{layer} {bond}" for bond in bonds)]]
    return [*arguments, []]
