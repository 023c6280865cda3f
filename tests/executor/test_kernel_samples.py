"""What is compiled ahead is what jobs call: the types of samples are those of calls, and none is missing."""

from __future__ import annotations

import numpy as np
import pytest

import tnplan
from tests.support.engines.sbd import every_string, random_integrals
from tests.support.kernels.samples import check_called, forget
from tnplan.circuits.gates import gate
from tnplan.executor.pauli.terms import kernel_samples as terms
from tnplan.executor.sbd.sigma.opposite_spin import pair_tiles
from tnplan.executor.sbd.solver.kernel_samples import PRODUCT_KERNELS, TILE_KERNELS
from tnplan.executor.statevector.cpu import kernel_samples as states
from tnplan.executor.statevector.scheduling.qubit_cover import COVERS
from tnplan.planner.workloads.lattice import lattice_circuit, trotter_circuit


@pytest.mark.parametrize(("precision", "dtype"), [("fp64", "complex128"), ("fp32", "complex64")])
def test_simulations_call_what_samples_say(precision: str, dtype: str) -> None:
    kinds = [COVERS, *states.state_kernels(dtype, 20, 2)]
    samples = [one for kind in kinds for one in kind.all()]
    forget(samples)
    tnplan.simulate(
        lattice_circuit("rectangular", 4, 5, 9, 0), shots=9, observable="Z0 X1", marginal=[0, 1],
        precision=precision, device="cpu", seed=0,
    )  # fmt: skip
    choose_called = [sample for sample in samples if sample[0].function.__name__ != "n_done"]
    check_called(choose_called)


@pytest.mark.parametrize(("precision", "dtype"), [("fp64", "complex128"), ("fp32", "complex64")])
@pytest.mark.parametrize(("fidelity", "bits"), [(0.99, 8), (0.999999, 16)])
def test_compressed_states_call_what_samples_say(
    precision: str, dtype: str, fidelity: float, bits: int
) -> None:
    samples = states.of_packed(dtype, f"int{bits}")
    forget(samples)
    circuit = lattice_circuit("rectangular", 3, 3, 4, 0)
    tnplan.simulate(
        circuit, shots=9, observable="Z0 X1", fidelity=fidelity, precision=precision, device="cpu"
    )
    check_called(samples)


@pytest.mark.parametrize(("precision", "dtype"), [("fp64", "complex128"), ("fp32", "complex64")])
def test_wide_gates_call_what_samples_say(precision: str, dtype: str) -> None:
    """A pass with a gate on three qubits, and one without."""
    names = [one.function for one in states.state_kernels(dtype, 8, 3)]
    assert names == ["of_rounds", "of_measures", "of_passes"]
    assert [one.function for one in states.state_kernels(dtype, 4, 2)] == names  # no rounds of two bits
    samples = [*states.of_rounds(dtype), *states.of_passes(dtype)]
    forget(samples)
    toffoli = np.eye(8, dtype=np.complex128)[[0, 1, 2, 3, 4, 5, 7, 6]]
    for wide in ((), (tnplan.Gate("ccx", (0, 2, 5), toffoli),)):
        circuit = tnplan.GateSequence(8, (gate("h", (0,)), *wide, gate("h", (2,))))
        tnplan.simulate(circuit, observable="Z0", precision=precision, device="cpu")
    check_called(samples)


@pytest.mark.parametrize(("n_qubits", "ranks"), [(6, 1), (9, 2), (9, 1)])
@pytest.mark.parametrize(("precision", "dtype"), [("fp64", "complex128"), ("fp32", "complex64")])
def test_gradients_call_what_samples_say(precision: str, dtype: str, n_qubits: int, ranks: int) -> None:
    n_bits = n_qubits + 1 - ranks
    samples = [one for kind in states.gradient_kernels(dtype, n_bits, ranks) for one in kind.all()]
    forget(samples)
    circuit = tnplan.GateSequence(n_qubits, (gate("rx", (0,), (0.3,)), gate("rz", (3,), (0.2,))))
    tnplan.simulate(
        circuit, observable="Z0 X1", gradient=True, precision=precision, device="cpu", ranks=ranks
    )
    check_called(samples)


@pytest.mark.parametrize(("precision", "dtype"), [("fp64", "float64"), ("fp32", "float32")])
def test_propagations_call_what_samples_say(precision: str, dtype: str) -> None:
    samples = [one for kind in terms.rotation_kernels(dtype) for one in kind.all()]
    forget(samples)
    circuit = trotter_circuit("rectangular", 2, 3, 2, 0, 0.25)
    limits = tnplan.Truncation(branch_cut=1e-3)
    tnplan.propagate(circuit, "Z0", limits, precision=precision, device="cpu", threads=2)
    check_called(samples)


def test_solves_among_products_call_what_samples_say() -> None:
    samples = [one for kind in PRODUCT_KERNELS for one in kind.all()]
    forget(samples)
    tnplan.diagonalize(random_integrals(6, 3, 3, 4), every_string(6, 3), device="cpu")
    check_called(samples)


def test_tiles_call_what_samples_say() -> None:
    samples = [one for kind in TILE_KERNELS for one in kind.all()]
    forget(samples)
    pair_tiles(np.array([0, 1, 1, 1, 2]), np.array([[0, 1], [0, 0]], np.int32), 1, 4)
    check_called(samples)
