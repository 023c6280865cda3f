"""Light cones of the kicked Ising circuit on 127 qubits: the exact values of the Pauli engine."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.support.contraction.light_cones import expectations
from tests.support.engines.pauli import eagle_edges, kicked_ising
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.pauli_sum import parse
from tnplan.executor.pauli.propagate import propagate
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.networks.of_circuits.wires import light_cone
from tnplan.questions.tensor_networks.networks import LARGEST_BATCH

CPU = ContractionOptions(device="cpu", threads=1)
WEIGHT_10 = "X13 X29 X31 Y9 Y30 Z8 Z12 Z17 Z28 Z32"
"""A stabilizer of the final state at an angle of pi / 2 and depth 5 (Kim et al., Nature 618, 500 (2023))."""


def circuit(theta: float, steps: int) -> GateSequence:
    """RX(theta) on every qubit and RZZ(-pi/2) on every edge, `steps` times."""
    turn = np.diag(np.exp(0.25j * math.pi * np.array([1, -1, -1, 1]))).astype(np.complex128)
    layer = [gate("rx", (qubit,), (theta,)) for qubit in range(127)]
    layer += [Gate("rzz", edge, turn) for edge in eagle_edges()]
    return GateSequence(127, tuple(layer * steps))


def by_pauli(theta: float, steps: int, word: str) -> float:
    result = propagate(kicked_ising(127, eagle_edges(), theta, steps), parse(word, 127)).result
    return sum(value for x, _, value in result.masks() if x == 0)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("theta", "steps", "word"),
    [
        (0.7, 1, "Z62"), (0.7, 4, "Z62"), (0.3, 2, "X60 Y62"), (0.7, 2, WEIGHT_10),
        (0.3, 1, "Z8 Z12 Z17 Z28 Z32 Z40 Z52 Z62 Z72 Z90"),
    ],
)  # fmt: skip
def test_values_are_those_of_the_pauli_engine(theta: float, steps: int, word: str) -> None:
    found = expectations(circuit(theta, steps), [parse(word, 127)], CPU)[0]
    wanted = by_pauli(theta, steps, word)
    assert abs(found - wanted) < 1e-10
    assert abs(wanted) > 1e-4 or steps == 2


def test_the_weight_10_stabilizer_at_depth_5() -> None:
    found = expectations(circuit(math.pi / 2, 5), [parse(WEIGHT_10, 127)], CPU)[0]
    wanted = by_pauli(math.pi / 2, 5, WEIGHT_10)
    assert abs(wanted) == pytest.approx(1, abs=1e-12)
    assert abs(found - wanted) < 1e-10


def test_the_light_cone_leaves_out_what_is_diagonal_at_the_end() -> None:
    steps = circuit(0.7, 1).gates
    assert light_cone(steps, [62], [62]) == [62]
    seen = light_cone(steps, [62])
    edges = [number for number in seen if number >= 127]
    assert {steps[number].qubits for number in edges} == {edge for edge in eagle_edges() if 62 in edge}


def test_more_words_than_a_batch_holds_share_a_contraction() -> None:
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("XY"), 12)) for _ in range(LARGEST_BATCH + 100)]
    turned = [gate("ry", (qubit,), (0.3 + 0.1 * qubit,)) for qubit in range(12)]
    links = [gate("cz", (qubit, qubit + 1)) for qubit in range(11)]
    tilted = [gate("rx", (qubit,), (0.2,)) for qubit in range(12)]
    sequence = GateSequence(12, (*turned, *links, *tilted))
    sums = [parse(word, 12) for word in words]
    together = expectations(sequence, sums, CPU)
    alone = [expectations(sequence, [sums[number]], CPU)[0] for number in (0, 500, len(words) - 1)]
    np.testing.assert_allclose(together[[0, 500, -1]], alone, rtol=0, atol=1e-12)
