"""Coupling maps, generated: heavy-hexagon chips of 127 and 156 qubits, and a line. Knows no gate.

Rows of qubits are joined by four bridges, of one qubit each, between every two rows, in alternate columns. On
the chip of 127 the first row lacks its last qubit and the last row its first. Qubits are numbered row by row,
the bridges below a row after it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tnplan.common.checks import check_count
from tnplan.common.errors import InputError

Edge = tuple[int, int]

CHIPS = {127: (7, 15, (0, 2)), 156: (8, 16, (3, 1))}
"""Of a number of qubits: rows, columns, and the first column of bridges below even and odd rows."""
BRIDGES = 4
"""Bridges between two rows."""
COLUMNS_APART = 4
"""Columns from a bridge to the next."""


def coupling_map(lattice: str, n_qubits: int) -> list[Edge]:
    """The edges of a lattice, "heavy-hex" or "line"; each pair ascending."""
    if lattice == "line":
        check_count("--qubits", n_qubits, 2)
        return [(q, q + 1) for q in range(n_qubits - 1)]
    if n_qubits not in CHIPS:
        known = " or ".join(map(str, CHIPS))
        raise InputError("--qubits", f"is {n_qubits}, of heavy-hex", f"give {known}, or --lattice line")
    return heavy_hex(*CHIPS[n_qubits], is_cut=n_qubits == 127)


def heavy_hex(n_rows: int, columns: int, firsts: Sequence[int], *, is_cut: bool) -> list[Edge]:
    """The edges of `n_rows` rows of `columns` qubits; `is_cut`: two corners are missing."""
    rows: list[dict[int, int]] = []
    edges: list[Edge] = []
    bridges: list[tuple[int, int]] = []
    number = 0
    for r in range(n_rows):
        missing = {columns - 1} if is_cut and r == 0 else {0} if is_cut and r == n_rows - 1 else set()
        row = {c: number + k for k, c in enumerate(c for c in range(columns) if c not in missing)}
        number += len(row)
        edges += [(row[c], row[c + 1]) for c in row if c + 1 in row]
        edges += [(bridge, row[c]) for c, bridge in bridges]
        rows.append(row)
        bridges = []
        if r < n_rows - 1:
            for k in range(BRIDGES):
                column = firsts[r % 2] + COLUMNS_APART * k
                edges.append((row[column], number))
                bridges.append((column, number))
                number += 1
    return sorted(edges)


def edge_layers(edges: Sequence[Edge]) -> list[list[Edge]]:
    """The edges in layers in which no two share a qubit: each in the first layer that has room."""
    layers: list[list[Edge]] = []
    used: list[set[int]] = []
    for edge in edges:
        for layer, busy in zip(layers, used, strict=True):
            if not busy & set(edge):
                layer.append(edge)
                busy.update(edge)
                break
        else:
            layers.append([edge])
            used.append(set(edge))
    return layers
