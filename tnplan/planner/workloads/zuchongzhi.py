"""Random circuits on three chips of the Zuchongzhi family, patterns in the order ABCDCDAB.

Which qubits are in use and which couplers each pattern has are those of the published circuits (Zhu et al.,
arXiv 2109.03494, 60 qubits; Wu et al., arXiv 2106.14734, 56). No circuit with 83 qubits is published (Gao et
al., arXiv 2412.11924): its chip has 15 rows of 7 qubits and 182 couplers, of which twelve whole rows but for
one corner are taken, and chains in turn; both are assumed. Assumed for all: theta scattered about pi/2 and
any phi equally likely, one pair of angles a coupler, the same in every cycle. Knows no tensor network.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from math import pi

import numpy as np

from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.common.checks import check_count
from tnplan.common.errors import InputError
from tnplan.planner.workloads.sycamore import root_layers

ORDER = "ABCDCDAB"
THETA_SCATTER = 0.04
RISING, FALLING = -1, 1
"""The step in columns of a coupler from its upper to its lower qubit."""


@dataclass(frozen=True)
class Chip:
    """Qubits in use (`o`), numbered row by row; each is coupled to those one row off and one column aside.

    A and B share the couplers of direction `first`, C and D those of the other one. Couplers of one direction
    form chains, along which the two patterns take turns; `rising` and `falling` have a digit for each chain,
    from left to right: 0 where A or C has the chain's couplers that leave even rows, 1 where B or D has them.
    """

    rows: tuple[str, ...]
    first: int
    rising: str
    falling: str


CHIPS = {
    60: Chip(
        (
            ".o.o.o.o....",
            "o.o.o.o.o...",
            ".o.o.o.o.o..",
            "o.o.o.o...o.",
            ".o.o.o.o.o.o",
            "o.o.o.o.o.o.",
            ".o.o.o.o.o.o",
            "o.o.o.o.o.o.",
            ".o.o.o.o.o.o",
            "o.o.o.o.o.o.",
            ".o.o.o.o.o..",
        ),
        RISING,
        rising="0001000100",
        falling="111111011",
    ),
    56: Chip(
        (
            "..o.o.o.o..",
            ".o.o.o.o.o.",
            "o.o.o.o.o.o",
            ".o.o.o.o.o.",
            "..o.o.o.o.o",
            ".o.o.o.o.o.",
            "o.o.o.o.o.o",
            ".o.o.o.o.o.",
            "o.o.o.o.o.o",
            ".o.o.o.o.o.",
            "..o.o.o.o..",
        ),
        FALLING,
        rising="110001111",
        falling="000001100",
    ),
    83: Chip(
        ("..o.o.o.o.o.o.", ".o.o.o.o.o.o.o", *("o.o.o.o.o.o.o.", ".o.o.o.o.o.o.o") * 5),
        RISING,
        rising="01010101010",
        falling="010101010101",
    ),
}


def couplers(n_qubits: int, pattern: str) -> list[tuple[int, int]]:
    """The pairs of qubits that pattern A, B, C or D couples on a chip, ascending, each pair ascending."""
    chip = _chip(n_qubits)
    sites = [(y, x) for y, row in enumerate(chip.rows) for x, mark in enumerate(row) if mark == "o"]
    number = {site: qubit for qubit, site in enumerate(sites)}
    step = chip.first if pattern in "AB" else -chip.first
    coupled = [(y, x) for y, x in sites if (y + 1, x + step) in number]
    chains = {chain: i for i, chain in enumerate(sorted({x - step * y for y, x in coupled}))}
    turns = chip.rising if step == RISING else chip.falling
    return [
        (number[y, x], number[y + 1, x + step])
        for y, x in coupled
        if (y + int(turns[chains[x - step * y]])) % 2 == (pattern in "BD")
    ]


def zuchongzhi_circuit(n_qubits: int, cycles: int, seed: int) -> GateSequence:
    """A random circuit of `cycles` cycles and a last layer of single-qubit gates.

    A cycle is: on every qubit one of sqrt X, sqrt Y, sqrt W, never the one it had in the cycle before; then
    fs on every coupler of the cycle's pattern.
    """
    _chip(n_qubits)
    check_count("--cycles", cycles)
    check_count("--seed", seed, 0)
    generator = np.random.default_rng(seed)
    layers: dict[str, list[Gate]] = {}
    for pattern in "ABCD":
        pairs = couplers(n_qubits, pattern)
        theta = generator.normal(pi / 2, THETA_SCATTER, size=len(pairs))
        phi = generator.uniform(-pi, pi, size=len(pairs))
        layers[pattern] = [gate("fs", pair, (float(theta[i]), float(phi[i]))) for i, pair in enumerate(pairs)]
    roots = root_layers(n_qubits, generator)
    gates: list[Gate] = []
    for cycle, layer in enumerate(islice(roots, cycles)):
        gates += layer + layers[ORDER[cycle % len(ORDER)]]
    return GateSequence(n_qubits, (*gates, *next(roots)))


def _chip(n_qubits: int) -> Chip:
    if n_qubits not in CHIPS:
        *first, last = map(str, sorted(CHIPS))
        known = f"{', '.join(first)} or {last}"
        raise InputError("--qubits", f"is {n_qubits}: no chip has that many", f"give {known} qubits")
    return CHIPS[n_qubits]
