"""Words that permutations of qubits take to each other: merged, they have the values of dense states."""

from __future__ import annotations

from functools import reduce
from itertools import permutations
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.circuits import unitary
from tests.support.effort import repeats
from tests.support.engines.pauli import dense
from tests.support.robustness.refusals import Refusal, Row, table
from tests.support.slow import slow_after
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.pauli_sum import PauliSum, pauli_sum
from tnplan.executor.pauli.algebra.gates import local_words, rotation_matrix
from tnplan.executor.pauli.algebra.symmetry import given_symmetry

CPU: Any = {"device": "cpu"}
WORDS = {"X": 1, "Z": 2, "Y": 3, "XX": 5, "ZZ": 10, "YY": 15}


def turn(letters: str, qubits: tuple[int, ...], angle: float) -> Gate:
    """A rotation about a word of letters."""
    return Gate(letters, qubits, rotation_matrix(local_words(len(qubits))[WORDS[letters]], angle))


def lattice(seed: int) -> tuple[int, list[list[int]], list[tuple[int, int]]]:
    """A ring with its translations, one with those by two sites, or a torus of 2 x 3 with both: bonds."""
    if seed % 3 == 2:
        site = [[3 * row + column for column in range(3)] for row in range(2)]
        across = [site[r][(c + 1) % 3] for r in range(2) for c in range(3)]
        down = [site[1 - r][c] for r in range(2) for c in range(3)]
        return 6, [across, down], [(q, across[q]) for q in range(6)] + [(q, q + 3) for q in range(3)]
    step = 1 + seed % 3
    return 6, [[(q + step) % 6 for q in range(6)]], [(q, (q + 1) % 6) for q in range(6)]


def symmetric(seed: int) -> tuple[GateSequence, list[list[int]]]:
    """A random circuit that the permutations leave as it is, its gates in a random order within layers."""
    random = np.random.default_rng(seed)
    n, group, bonds = lattice(seed)
    gates: list[Gate] = []
    for _ in range(3):
        angles = random.normal(size=4)
        own = turn("Z" if random.random() < 0.5 else "X", (0,), angles[0]).matrix
        layers = [[Gate("one", (q,), own) for q in range(n)]]
        if seed % 3 == 1:  # even bonds, then odd ones: gates of XXZ, which do not commute
            pair = turn("XX", (0, 1), angles[1]).matrix @ turn("YY", (0, 1), angles[1]).matrix
            pair = pair @ turn("ZZ", (0, 1), angles[2]).matrix
            layers += [[Gate("xxz", bond, pair) for bond in bonds[first::2]] for first in (0, 1)]
        else:
            layers += [[turn("ZZ", bond, angles[1]) for bond in bonds], [gate("cz", bond) for bond in bonds]]
        name = str(random.choice(["h", "s", "t"]))
        layers.append([gate(name, (q,)) for q in range(n)])
        gates += [layer[k] for layer in layers for k in random.permutation(len(layer))]
    return GateSequence(n, tuple(gates)), group


@pytest.mark.parametrize("seed", slow_after(3, range(repeats(6, 300))))
def test_merged_words_have_the_values_of_dense_states(seed: int) -> None:
    circuit, group = symmetric(seed)
    n, random = circuit.n_qubits, np.random.default_rng(seed)
    masks = [[int(mask) for mask in random.integers(2**n, size=2)] for _ in range(3)]
    terms = pauli_sum([(x, z, float(random.normal())) for x, z in masks], n)
    matrix = unitary(circuit.gates, n)
    taken = matrix.conj().T @ dense(terms) @ matrix
    x, z, y = local_words(1)[1:]
    states = {None: z, "1" * n: -z, "r" * n: y, "mixed": 0.5 * (x + y + z)}
    for state, bloch in states.items():
        rho = reduce(np.kron, [(np.eye(2) + bloch) / 2] * n)
        state = np.full((n, 3), 0.5) if state == "mixed" else state
        done = tnplan.propagate(circuit, terms, state=state, symmetry=group, threads=1 + seed % 2, **CPU)
        assert done.value == pytest.approx(np.trace(rho @ taken).real, abs=1e-10)
    symmetry, result = given_symmetry(group, n), done.propagation.result
    assert done.report["symmetry"] == len(symmetry.images)
    np.testing.assert_array_equal(symmetry.merged(result.keys, result.coefficients)[0], result.keys)


@pytest.mark.parametrize("seed", range(repeats(4, 60)))
def test_truncated_values_overlaps_and_noise(seed: int) -> None:
    circuit, group = symmetric(seed)
    n = circuit.n_qubits
    each = [f"Z{q}" for q in range(n)]
    cases: list[dict[str, Any]] = [
        {"state": [f"X{q}" for q in range(n)]},
        {"overlap": " + ".join(each)},
        {"depolarize": 0.05},
    ]
    for case in cases:
        plain = tnplan.propagate(circuit, "Z0", **case, **CPU)
        if "depolarize" in case and seed % 3 != 1:  # gates on the bonds of a ring share qubits
            with pytest.raises(tnplan.InputError, match="that is not in its layer"):
                tnplan.propagate(circuit, "Z0", symmetry=group, **case, **CPU)
            continue
        done = tnplan.propagate(circuit, "Z0", symmetry=group, **case, **CPU)
        assert done.value == pytest.approx(plain.value, abs=1e-12)
        limits = tnplan.Truncation(merged_cut=0.05)
        cut = tnplan.propagate(circuit, "Z0", limits, symmetry=group, **case, **CPU)
        assert abs(cut.value - plain.value) <= cut.report["error_bound"] + 1e-12


@pytest.mark.parametrize("n", [5, 70])
def test_the_least_word_is_that_of_all_permutations(n: int) -> None:
    random = np.random.default_rng(n)
    ring = [(q + 1) % n for q in range(n)]
    mirror = [n - 1 - q for q in range(n)]
    symmetry = given_symmetry([ring, mirror], n)
    elements = {tuple((s * q + k) % n for q in range(n)) for s in (1, -1) for k in range(n)}
    assert {tuple(row) for row in symmetry.images.tolist()} == elements
    words = [[int.from_bytes(random.bytes(9), "little") & (1 << n) - 1 for _ in "xz"] for _ in range(20)]

    def moved(mask: int, images: tuple[int, ...]) -> int:
        return sum(1 << images[q] for q in range(n) if mask >> q & 1)

    def orbit(x: int, z: int) -> PauliSum:
        return pauli_sum([(moved(x, g), moved(z, g), 1.0) for g in elements], n)

    for x, z in words:
        terms = orbit(x, z)
        keys, coefficients = symmetry.merged(terms.keys, terms.coefficients)
        assert len(keys) == 1
        assert coefficients[0] == pytest.approx(len(elements), rel=1e-12)
        assert keys[0].tolist() == min(terms.keys.tolist())
    every = pauli_sum([(x, z, 1.0) for x, z in words], n)
    keys, _ = symmetry.merged(every.keys, every.coefficients)
    assert len(keys) == len({frozenset(orbit(x, z).masks()) for x, z in words})


def test_words_that_cancel_leave_an_exact_zero() -> None:
    circuit, group = symmetric(0)
    done = tnplan.propagate(circuit, "Z0 - Z1", symmetry=group, **CPU)
    assert (done.value, done.report["error_bound"], done.report["terms"]) == (0, 0, 0)


RING = GateSequence(3, tuple(turn("ZZ", (q, (q + 1) % 3), 0.3) for q in range(3)))
UNLIKE = GateSequence(3, (turn("X", (0,), 0.3), turn("X", (1,), 0.3), turn("X", (2,), 0.4)))
CHAIN = GateSequence(3, tuple(turn("XX", bond, 0.3) for bond in ((0, 1), (1, 2), (2, 0))) + RING.gates[:1])
SHIFT = [[1, 2, 0]]
# fmt: off
REFUSED: list[Row] = [
    ({"symmetry": [[0, 1, 1]]}, "--symmetry", "has no permutation at position 0", "give a list of perm"),
    ({"symmetry": [1, 2, 0]}, "--symmetry", "has no permutation at position 0", "give a list of perm"),
    ({"circuit": UNLIKE}, "gate 1 (X)", "becomes a gate that", "give a sym"),
    ({"circuit": CHAIN}, "gate 3 (ZZ)", "becomes a gate that", "give a sym"),
    ({"symmetry": [[0.0, 1.0, 2.0]]}, "--symmetry", "has no permutation at position 0",
    "give a list of perm"),
    ({"state": "010"}, "--symmetry", "has permutation 0, which changes the state", "leave it out"),
    ({"state": "0+0"}, "--symmetry", "has permutation 0, which changes the state", "leave it out"),
    ({"state": ["Z0 Z1"]}, "--symmetry", "has permutation 0, which changes the state", "leave it out"),
    ({"overlap": "Z0 + Z1"}, "--symmetry", "has permutation 0, which changes the state", "leave it out"),
    ({"gradient": True}, "--symmetry", "cannot be combined with any of schroedinger, gradient",
    "leave it or them out"),
    ({"picture": "schroedinger"}, "--symmetry", "cannot be combined with any of schroedinger",
    "leave it or them out"),
    ({"ranks": 2}, "ranks", "are 2, and --symmetry is for one rank", "start one"),
]
# fmt: on


@table(REFUSED)
def test_what_is_not_symmetric_is_refused(refusal: Refusal) -> None:
    options = {"circuit": RING, "observable": "Z0", "symmetry": SHIFT, **refusal.given, **CPU}
    refusal.raised_by(lambda: tnplan.propagate(**options))


@pytest.mark.parametrize("seed", range(repeats(4, 60)))
def test_no_permutation_that_changes_a_circuit_is_let_through(seed: int) -> None:
    """None of all permutations of four qubits; where all gates commute no other one is refused either."""
    random, n = np.random.default_rng(seed), 4
    matrix = turn("XX", (0, 1), 0.7).matrix
    if seed:  # gates that do not commute, some of them in an order that translations change
        matrix = matrix @ turn("ZZ", (0, 1), 0.4).matrix
    bonds = [((0, 1), (1, 2), (2, 3), (3, 0))[k] for k in random.permutation(4)]
    circuit = GateSequence(n, tuple(Gate("pair", bond, matrix) for bond in bonds))
    whole = unitary(circuit.gates, n).reshape([2] * (2 * n))
    for images in permutations(range(n)):
        axes = [images.index(q) for q in range(n)]
        keeps = np.allclose(whole.transpose(*axes, *(n + axis for axis in axes)), whole)
        try:
            tnplan.propagate(circuit, "Z0", symmetry=[images], **CPU)
        except tnplan.InputError:
            assert seed or not keeps
        else:
            assert keeps
