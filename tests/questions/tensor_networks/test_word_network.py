"""Which network words are contracted in, and that their values are the same in both."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.circuits import random_circuit
from tnplan.circuits.circuit import Gate
from tnplan.circuits.gates import gate
from tnplan.circuits.program import depolarizing
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.networks.of_circuits.sandwich import WordCone
from tnplan.planner.networks.of_circuits.steps import Step
from tnplan.planner.networks.of_circuits.wires import support_of
from tnplan.planner.workloads.lattice import edge_colours, lattice_circuit
from tnplan.questions.tensor_networks import expectation as choice
from tnplan.questions.tensor_networks.expectation import word_network
from tnplan.questions.tensor_networks.networks import ClosedNetwork, plan_closed

SHALLOW, DEEP = 8, 20
"""Layers on 4 x 4 sites. The deep network costs 10^12.5 multiply-adds where it is folded, else 10^7.6."""


def gates(layers: int, rows: int = 4) -> tuple[Gate, ...]:
    return lattice_circuit("rectangular", rows, 4, layers, 0).gates


@pytest.mark.parametrize(("layers", "dtype"), [(SHALLOW, "float32"), (DEEP, "complex64")])
def test_deep_circuits_have_ket_and_bra_apart(
    layers: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "COMPARED_FROM", 7.0)
    found = word_network(gates(layers), support_of(0b100000, 0b1000000), [(0b100000, 0b1000000)])
    assert found.dtype == dtype


@pytest.mark.parametrize(("layers", "most", "made"), [(DEEP, 20.0, 1), (SHALLOW, 0.0, 1), (DEEP, 0.0, 2)])
def test_networks_are_compared_where_that_may_pay(
    layers: int, most: float, made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[object]()
    of = ClosedNetwork.of
    monkeypatch.setattr(ClosedNetwork, "of", lambda *one: seen.append(one) or of(*one))
    monkeypatch.setattr(choice, "COMPARED_FROM", most)
    word_network(gates(layers), support_of(0b100000, 0b1000000), [(0b100000, 0b1000000)])
    assert len(seen) == made


def test_noise_on_pairs_is_folded_though_the_gates_are_not_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    colours = edge_colours("rectangular", 4, 4)
    steps: list[Step] = [gate("h", (qubit,)) for qubit in range(16)]
    for layer in range(8):
        steps += [gate(("t", "x_1_2", "y_1_2")[(layer + qubit) % 3], (qubit,)) for qubit in range(16)]
        for pair in colours[layer % len(colours)]:
            steps += [gate("cz", pair), depolarizing(pair, 0.01)]
    monkeypatch.setattr(choice, "COMPARED_FROM", 0.0)
    word = (3 << 5, 0)
    assert word_network(steps, support_of(*word), [word]).dtype == "float32"


@pytest.mark.parametrize("precision", ["fp64", "fp32"])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("is_dense", [True, False])
def test_values_are_the_same_in_both(count: int, precision: str, is_dense: bool) -> None:
    steps = gates(6, 2) if is_dense else random_circuit(5, 30, 3).gates
    masks = [(0b00111, 0b00101), (0b00111, 0), (0b00111, 0b00010)][:count]
    support = support_of(0b00111, 0)
    options = ContractionOptions(precision=precision, device="cpu", threads=1)
    cone = WordCone(steps, support)
    networks = [ClosedNetwork.of(*made(masks)) for made in (cone.folded, cone.unfolded)]
    assert [one.dtype for one in networks] == ["float32", "complex64"]
    first, second = (plan_closed(one, options)() for one in networks)
    assert first.shape == (count,)
    assert np.abs(first).max() > 1e-3
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-12 if precision == "fp64" else 1e-5)
