"""The Zuchongzhi circuits: couplers and layers against the published files, choices, amplitudes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.load import load_circuit
from tnplan.cli.main import cli
from tnplan.common.errors import InputError
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network
from tnplan.planner.networks.path_file import load_network, load_path
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.networks.tensors import load_tensors
from tnplan.planner.workloads.sycamore import ROOTS
from tnplan.planner.workloads.zuchongzhi import CHIPS, ORDER, couplers, zuchongzhi_circuit

PUBLISHED = {"zuchongzhi_n60_m24": (60, 24), "zuchongzhi_n56_m20": (56, 20)}
SIZES = {60: {"A": 25, "B": 24, "C": 27, "D": 23}, 56: {"A": 23, "B": 24, "C": 23, "D": 24}}
SIZES[83] = {"A": 35, "B": 36, "C": 36, "D": 35}


def two_qubit_layers(circuit: GateSequence) -> list[list[tuple[int, ...]]]:
    """The pairs of the layers of fs, told apart by the single-qubit gates between them; all ascending."""
    layers: list[list[tuple[int, ...]]] = [[]]
    for item in circuit.gates:
        if item.name == "fs":
            layers[-1].append(tuple(sorted(item.qubits)))
        elif layers[-1]:
            layers.append([])
    return [sorted(layer) for layer in layers if layer]


@pytest.mark.parametrize("n_qubits", CHIPS)
def test_couplers_of_the_chips(n_qubits: int) -> None:
    layers = {pattern: couplers(n_qubits, pattern) for pattern in "ABCD"}
    assert {pattern: len(pairs) for pattern, pairs in layers.items()} == SIZES[n_qubits]
    for pairs in layers.values():
        used = [qubit for pair in pairs for qubit in pair]
        assert len(set(used)) == len(used)
        assert pairs == sorted(pairs)
    everything = [pair for pairs in layers.values() for pair in pairs]
    assert len(set(everything)) == len(everything)
    assert {qubit for pair in everything for qubit in pair} == set(range(n_qubits))


@pytest.mark.parametrize("name", PUBLISHED)
def test_layers_are_those_of_the_published_circuit(shared: Any, name: str) -> None:
    n_qubits, cycles = PUBLISHED[name]
    published = load_circuit(shared / f"circuits/{name}.qsim")
    layers = two_qubit_layers(published)
    assert layers == [couplers(n_qubits, ORDER[cycle % 8]) for cycle in range(cycles)]
    ours = zuchongzhi_circuit(n_qubits, cycles, 0)
    assert two_qubit_layers(ours) == layers

    def shape(circuit: GateSequence) -> list[tuple[str, tuple[int, ...]]]:
        return sorted(("root" if g.name in ROOTS else g.name, tuple(sorted(g.qubits))) for g in circuit.gates)

    assert shape(ours) == shape(published)


@pytest.mark.parametrize("name", ["zuchongzhi_n60_m24_b42_flops", "zuchongzhi_n60_m24_b32_fused"])
def test_the_network_is_the_one_of_the_shipped_paths(root: Path, name: str) -> None:
    """Paths of the published circuit serve the generator's: as many tensors, of the same shapes."""
    network, _ = simplify(*circuit_network(zuchongzhi_circuit(60, 24, 0)))
    other = load_path(root / f"paths/{name}.json").network
    assert len(network.inputs) == len(other.inputs) == 539
    assert len(network.size_dict) == len(other.size_dict) == 1068
    assert sorted(map(len, network.inputs)) == sorted(map(len, other.inputs))


def test_random_choices() -> None:
    circuit = zuchongzhi_circuit(56, 20, 3)
    last: dict[int, str] = {}
    angles: dict[tuple[int, ...], set[tuple[float, ...]]] = {}
    for item in circuit.gates:
        if item.name == "fs":
            angles.setdefault(item.qubits, set()).add(item.params)
        else:
            assert item.name in ROOTS
            assert last.get(item.qubits[0]) != item.name
            last[item.qubits[0]] = item.name
    assert {len(values) for values in angles.values()} == {1}
    theta, phi = np.array([next(iter(values)) for values in angles.values()]).T
    assert abs(theta.mean() - np.pi / 2) < 0.02
    assert 0.02 < theta.std() < 0.06
    assert 1.4 < phi.std() < 2.2


def test_same_seed_same_circuit() -> None:
    first, again, other = (
        [g.name + str(g.params) for g in zuchongzhi_circuit(60, 3, s).gates] for s in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((61, 2, 0), "qubits: is 61: no chip has that many; give 56, 60 or 83"),
        ((60, 0, 0), "cycles: is 0"),
        ((60, 2, -1), "seed: is -1"),
    ],
)
def test_bad_input_is_named(arguments: tuple[int, int, int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        zuchongzhi_circuit(*arguments)


def test_command_writes_network_tensors_and_circuit(tmp_path: Path) -> None:
    target = tmp_path / "net.json"
    line = f"workload zuchongzhi --qubits 56 --cycles 3 --seed 2 --qsim {tmp_path / 'c.qsim'} -o {target}"
    done = CliRunner().invoke(cli, line.split())
    assert done.exit_code == 0, done.output
    network, dtype, tensors = load_network(target)
    assert (dtype, tensors) == ("complex64", "net.npz")
    expected, arrays = simplify(*circuit_network(load_circuit(tmp_path / "c.qsim")))
    assert network == expected
    stored = load_tensors(tmp_path / "net.npz", network, "complex128")
    assert all(np.allclose(x, y, rtol=0, atol=1e-12) for x, y in zip(stored, arrays, strict=True))
