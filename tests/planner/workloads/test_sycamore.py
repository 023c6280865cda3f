"""The Sycamore generator against the couplers of the published circuit, and the networks of mixed extents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cotengra
import numpy as np
import pytest

from tnplan.circuits.load import load_circuit
from tnplan.circuits.qsim import save_qsim
from tnplan.common.errors import InputError
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.networks.tensors import load_tensors
from tnplan.planner.workloads.mixed import peps_network, regular_network
from tnplan.planner.workloads.sycamore import ORDER, couplers, patch, sycamore_circuit


def test_couplers_of_the_chip() -> None:
    layers = {pattern: couplers(pattern) for pattern in "ABCD"}
    assert {pattern: len(pairs) for pattern, pairs in layers.items()} == {"A": 24, "B": 19, "C": 23, "D": 20}
    for pairs in layers.values():
        used = [qubit for pair in pairs for qubit in pair]
        assert len(set(used)) == len(used)
    assert len({pair for pairs in layers.values() for pair in pairs}) == 86
    assert {qubit for pairs in layers.values() for pair in pairs for qubit in pair} == set(range(53))


def test_a_patch_has_the_couplers_inside_of_it() -> None:
    kept = patch(30)
    whole = {pair for pattern in "ABCD" for pair in couplers(pattern)}
    inside = {(kept.index(a), kept.index(b)) for a, b in whole if a in kept and b in kept}
    assert {pair for pattern in "ABCD" for pair in couplers(pattern, kept)} == inside
    circuit = sycamore_circuit(14, 0, 30)
    assert circuit.n_qubits == 30
    assert {item.qubits for item in circuit.gates if len(item.qubits) == 2} == inside
    assert patch(53) == list(range(53))
    with pytest.raises(InputError, match="qubits"):
        sycamore_circuit(2, 0, 54)


@pytest.mark.parametrize("cycles", [10, 12, 14, 20])
def test_couplers_of_the_published_circuit(shared: Any, cycles: int) -> None:
    """Layer by layer: cycle c has its two-qubit gates at time 4 c + 2 in the file."""
    layers: dict[int, list[tuple[int, int]]] = {}
    for line in (shared / f"circuits/sycamore_n53_m{cycles}.qsim").read_text().splitlines()[1:]:
        words = line.split()
        if words and words[1] == "fs":
            layers.setdefault(int(words[0]), []).append((int(words[2]), int(words[3])))
    assert list(layers) == [4 * cycle + 2 for cycle in range(cycles)]
    for cycle, pairs in enumerate(layers.values()):
        assert sorted(pairs) == couplers(ORDER[cycle % len(ORDER)]), f"cycle {cycle}"


def test_circuit_has_the_layers_of_the_published_one(shared: Any) -> None:
    published = load_circuit(shared / "circuits/sycamore_n53_m10.qsim")
    ours = sycamore_circuit(10, 0)
    single = {"x_1_2", "y_1_2", "hz_1_2"}

    def shape(circuit: Any) -> list[tuple[str, tuple[int, ...]]]:
        return sorted(("single" if g.name in single else g.name, g.qubits) for g in circuit.gates)

    assert shape(ours) == shape(published)


def test_random_choices() -> None:
    circuit = sycamore_circuit(12, 3)
    last: dict[int, str] = {}
    for item in circuit.gates:
        if item.name in ("x_1_2", "y_1_2", "hz_1_2"):
            assert last.get(item.qubits[0]) != item.name
            last[item.qubits[0]] = item.name
    angles = np.array([item.params for item in circuit.gates if item.name == "fs"])
    assert np.allclose(angles.mean(axis=0), [np.pi / 2, np.pi / 6], atol=0.02)
    assert np.all((angles.std(axis=0) > 0.02) & (angles.std(axis=0) < 0.1))


def test_same_seed_same_circuit(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        save_qsim(sycamore_circuit(5, seed), tmp_path / name)
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text()
    assert (tmp_path / "a").read_text() != (tmp_path / "c").read_text()
    with pytest.raises(InputError, match="cycles: is 0"):
        sycamore_circuit(0, 0)


def test_shipped_network_is_the_generator_s(root: Path) -> None:
    """Our paths/ must be reproducible: the same network and the same tensors come out of the generator."""
    network, arrays = simplify(*circuit_network(sycamore_circuit(10, 0)))
    shipped = sorted((root / "paths").glob("sycamore_n53_m10_*.json"))
    assert shipped
    for file in shipped:
        path = load_path(file)
        assert path.network == network
        assert path.tensors == "sycamore_n53_m10.npz"
    stored = load_tensors(root / "paths/sycamore_n53_m10.npz", network, "complex128")
    assert all(np.allclose(x, y, rtol=0, atol=1e-15) for x, y in zip(stored, arrays, strict=True))


def test_small_amplitudes_sum_to_one() -> None:
    """Two cycles light cones: the probabilities of two open qubits, the others summed, are normalised."""
    circuit = sycamore_circuit(2, 0)
    network, arrays = circuit_network(circuit, open_qubits=range(circuit.n_qubits))
    doubled = [
        tuple(f"{index}*" if index not in network.output[2:] else index for index in t)
        for t in network.inputs
    ]
    total = cotengra.array_contract(
        [*arrays, *(array.conj() for array in arrays)],
        [*network.inputs, *doubled],
        (*network.output[:2], *(f"{index}*" for index in network.output[:2])),
        optimize="greedy",
    )
    density = np.asarray(total).reshape(4, 4)
    assert np.allclose(np.trace(density), 1, atol=1e-12)
    assert np.allclose(density, density.conj().T, atol=1e-12)
    assert np.linalg.eigvalsh(density).min() > -1e-12


@pytest.mark.parametrize("seed", range(5))
def test_mixed_networks(seed: int) -> None:
    lattice = peps_network(4, 5, seed)
    assert len(lattice.inputs) == 20
    assert sum(name.startswith("b") for name in lattice.size_dict) == 4 * 4 + 3 * 5
    regular = regular_network(20, seed)
    for term in regular.inputs:
        bonds = [index for index in term if index.startswith("b")]
        assert len(set(bonds)) == 3
    for network, low in ((lattice, 3), (regular, 2)):
        counts = {name: sum(term.count(name) for term in network.inputs) for name in network.size_dict}
        assert all(counts[name] == {"b": 2, "h": 3, "o": 1}[name[0]] for name in counts)
        assert {size for name, size in network.size_dict.items() if name[0] == "b"} <= set(range(low, 6))
        assert len(network.output) == 3
    assert peps_network(4, 5, seed) == lattice
    assert regular_network(20, seed) == regular


def test_impossible_graphs_are_named() -> None:
    with pytest.raises(InputError, match="degree: 3 on 5 tensors makes no graph"):
        regular_network(5, 0)
    with pytest.raises(InputError, match="rows: is 1"):
        peps_network(1, 5, 0)
    with pytest.raises(InputError, match="hyper: is 5"):
        peps_network(2, 3, 0, n_hyper=5)
