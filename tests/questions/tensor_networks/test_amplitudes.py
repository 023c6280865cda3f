"""Amplitudes of many bit strings, and of open qubits, against dense states and single amplitudes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.circuit_families import GRAPHS, brickwork, graph
from tests.support.circuits import random_circuit, state_vector
from tests.support.robustness.refusals import Refusal, Row, table
from tests.support.slow import slow_unless
from tnplan.circuits.circuit import GateSequence
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.progress import Progress
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.search.sparse_state import BatchSearch, batch_plan, distinct_strings, search_batch
from tnplan.planner.workloads.lattice import lattice_circuit
from tnplan.questions.tensor_networks import amplitudes as module
from tnplan.questions.tensor_networks import sparse_state
from tnplan.questions.tensor_networks.amplitudes import amplitudes, open_amplitudes
from tnplan.questions.tensor_networks.networks import RunRows, amplitudes_by_calls
from tnplan.questions.tensor_networks.sparse_state import SparseState

PRECISIONS = {"fp64": 1e-10, "fp32": 1e-5}
CPU = ContractionOptions(device="cpu", threads=1, search_s=0.3)


def options(precision: str, **others: object) -> ContractionOptions:
    return ContractionOptions(precision=precision, device="cpu", threads=1, **others)  # type: ignore[arg-type]


def strings(n_qubits: int, count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, (count, n_qubits), dtype=np.uint8)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("n_qubits", [2, 3, 5, 8, 10])
def test_amplitudes_of_strings_equal_dense_ones(n_qubits: int, precision: str) -> None:
    circuit = random_circuit(n_qubits, 60, n_qubits)
    state = state_vector(circuit)
    for count in (1, 2, 7, 60):
        bits = strings(n_qubits, count, count)
        found = amplitudes(circuit, bits, options(precision))
        np.testing.assert_allclose(found, state[tuple(bits.T)], rtol=0, atol=PRECISIONS[precision])


def shared_strings(kind: str, n_qubits: int) -> np.ndarray:
    """Strings that differ everywhere, on the last qubits, or in one bit each."""
    bits = strings(n_qubits, n_qubits, 5)
    if kind == "last qubits":
        bits[:, : n_qubits - 4] = bits[0, : n_qubits - 4]
    elif kind == "one bit":
        bits = bits[0] ^ np.eye(n_qubits, dtype=np.uint8)
    return distinct_strings(bits)[0]


@pytest.mark.parametrize(
    ("shape", "kind"), slow_unless(lambda k, j: k % 3 == j, GRAPHS, ["everywhere", "last qubits", "one bit"])
)
def test_all_ways_to_contract_strings_equal_dense_ones(
    monkeypatch: pytest.MonkeyPatch, shape: str, kind: str
) -> None:
    monkeypatch.setattr(sparse_state, "GREEDY_S", 0.0)
    random = np.random.default_rng(len(shape))
    n_qubits, edges = graph(shape, 10, random)
    circuit = GateSequence(n_qubits, tuple(brickwork(n_qubits, edges, 7, random)))
    bits = shared_strings(kind, n_qubits)
    wanted = state_vector(circuit)[tuple(bits.T)]
    state = SparseState(circuit, bits, options("fp64"), along_one=True)
    np.testing.assert_allclose(state.amplitudes(), wanted, rtol=0, atol=1e-10)
    np.testing.assert_allclose(state.plan_calls()(), wanted, rtol=0, atol=1e-10)
    path = state.path_of_one
    first = batch_plan(ContractionPath(state.network, path.ssa_path, path.sliced_inds), state.bitstrings[:1])
    assert state.plan.products <= len(bits) * first.products
    before_s = state.predicted_s
    monkeypatch.setattr(sparse_state, "FIRST_SHARE", 1e9)
    state.search_longer()
    assert state.predicted_s <= before_s
    np.testing.assert_allclose(state.amplitudes(), wanted, rtol=0, atol=1e-10)


def test_strings_come_one_by_one_where_that_is_less_work(monkeypatch: pytest.MonkeyPatch) -> None:
    circuit, bits = lattice_circuit("rectangular", 3, 4, 10, 1), strings(12, 20, 0)
    wanted = state_vector(circuit)[tuple(bits.T)]
    monkeypatch.setattr(sparse_state, "GREEDY_S", 0.0)
    monkeypatch.setattr(module, "CLEARLY", 0.0)
    seen: list[int] = []
    predicted_s, plan_calls = 0.0, SparseState.plan_calls

    def planned(state: SparseState) -> RunRows:
        calls = plan_calls(state)

        def run(rows: slice) -> np.ndarray:
            seen.append(len(state.bitstrings))
            return calls(rows)

        return RunRows(run, predicted_s)

    monkeypatch.setattr(SparseState, "plan_calls", planned)
    for predicted_s, taken in ((0.0, [20]), (1e9, [])):  # noqa: B007
        seen.clear()
        found = amplitudes(circuit, bits, options("fp64"))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)
        assert seen == taken
    seen.clear()
    np.testing.assert_allclose(amplitudes(circuit, bits[:1], options("fp64")), wanted[:1], rtol=0, atol=1e-10)
    assert not seen


def test_the_path_of_all_strings_is_searched_in_a_share_of_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    circuit, bits = lattice_circuit("rectangular", 3, 4, 10, 1), distinct_strings(strings(12, 20, 0))[0]
    monkeypatch.setattr(sparse_state, "GREEDY_S", 0.0)
    state = SparseState(circuit, bits, options("fp64"), along_one=True)
    before_s, searched = state.predicted_s, []

    def search(network: Network, n_strings: int, given: BatchSearch, start: ContractionPath) -> object:
        searched.append((given.time_s, start.ssa_path))
        return search_batch(network, n_strings, replace(given, time_s=0.1), start)

    monkeypatch.setattr(sparse_state, "search_batch", search)
    monkeypatch.setattr(sparse_state, "are_compiled", lambda: True)
    state.search_longer()  # milliseconds
    assert not searched
    first_s = sparse_state.FIRST_SEARCH_S
    monkeypatch.setattr(sparse_state, "FIRST_SHARE", first_s / before_s)
    state.search_longer()
    ((time_s, path),) = searched
    assert time_s == pytest.approx(first_s)
    assert path == state.path_of_one.ssa_path
    assert state.predicted_s <= before_s


def test_a_search_begins_with_the_path_of_one_where_its_rows_do_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It did from nothing, and ended far above the strings one by one."""
    from tnplan.planner.search import sparse_state as planning

    circuit, bits = lattice_circuit("rectangular", 3, 4, 12, 1), distinct_strings(strings(12, 200, 0))[0]
    begun: list[ContractionPath | None] = []
    search_batch = planning.search_batch

    def search(network: Network, n: int, given: BatchSearch, start: ContractionPath | None = None) -> object:
        begun.append(start)
        return search_batch(network, n, replace(given, time_s=0.2), start)

    monkeypatch.setattr(sparse_state, "GREEDY_S", 0.0)
    monkeypatch.setattr(planning, "SEARCH_FROM_S", 0.0)
    monkeypatch.setattr(planning, "search_batch", search)
    state = SparseState(circuit, bits, options("fp64", memory=4e5), along_one=True)
    assert state.fits
    first = begun[0]
    assert first is not None
    assert first.ssa_path == state.path_of_one.ssa_path
    wanted = state_vector(circuit)[tuple(bits.T)]
    np.testing.assert_allclose(state.amplitudes(), wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("devices", "memory"), [(1, None), (1, 2e6), (2, None)])
def test_calls_for_each_string_equal_dense_ones(devices: int, memory: float | None) -> None:
    circuit, bits = lattice_circuit("triangular", 3, 4, 6, 2), strings(12, 30, 1)
    bits[:, 3] = 1
    found = amplitudes_by_calls(circuit, bits, options("fp64", devices=devices, memory=memory))
    wanted = state_vector(circuit)[tuple(bits.T)]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("most", [2**12, 2**10, 2**9])
def test_slices_add_up_and_keep_what_they_share(most: int) -> None:
    circuit = lattice_circuit("rectangular", 3, 4, 10, 1)
    bits = distinct_strings(strings(12, 40, 0))[0]
    told: list[Progress] = []
    memory = 3 * 16.0 * most + 2**14  # tensors begin at multiples of 256 bytes
    state = SparseState(circuit, bits, options("fp64", memory=memory, search_s=0.1, progress=told.append))
    wanted = state_vector(circuit)[tuple(bits.T)]
    np.testing.assert_allclose(state.amplitudes(), wanted, rtol=0, atol=1e-10)
    n_slices = state.plan.n_slices
    assert [one.done for one in told] == list(range(n_slices + 1))
    assert [one.share for one in told] == [one.done / n_slices for one in told]
    if most < 2**12:
        assert n_slices > 1
        parts = [state.amplitudes([number]) for number in range(n_slices)]
        np.testing.assert_allclose(sum(parts), wanted, rtol=0, atol=1e-10)
        backwards = state.amplitudes(range(n_slices - 1, -1, -1))
        np.testing.assert_allclose(backwards, wanted, rtol=0, atol=1e-10)


def test_no_more_is_taken_than_the_host_has(monkeypatch: pytest.MonkeyPatch) -> None:
    circuit, bits = lattice_circuit("rectangular", 3, 4, 10, 1), distinct_strings(strings(12, 40, 0))[0]
    free_bytes = 3 * 16 * 2**10
    monkeypatch.setattr(sparse_state, "host_memory", lambda: (2 * free_bytes, free_bytes))
    state = SparseState(circuit, bits, options("fp64", memory=1e12, search_s=0.5))
    assert state.plan.n_slices > 1
    arenas: list[int] = []
    allocate = NumpyDevice.allocate

    def noted(self: NumpyDevice, size_bytes: int) -> None:
        arenas.append(size_bytes)
        allocate(self, size_bytes)

    monkeypatch.setattr(NumpyDevice, "allocate", noted)
    state.amplitudes()
    assert 0 < sum(arenas) <= free_bytes


def test_strings_that_stand_twice_and_none_at_all() -> None:
    circuit = random_circuit(4, 40, 0)
    bits = strings(4, 50, 3)
    found = amplitudes(circuit, bits, CPU)
    np.testing.assert_allclose(found, state_vector(circuit)[tuple(bits.T)], rtol=0, atol=1e-10)
    assert amplitudes(circuit, bits[:0], CPU).shape == (0,)
    assert amplitudes(GateSequence(2, ()), np.array([[0, 0], [0, 1]]), CPU).tolist() == [1, 0]


@pytest.mark.parametrize("n_qubits", [1, 2, 4, 7, 10])
def test_open_amplitudes_equal_dense_ones(n_qubits: int) -> None:
    circuit = random_circuit(n_qubits, 50, n_qubits) if n_qubits > 1 else GateSequence(1, ())
    state = state_vector(circuit)
    rng = np.random.default_rng(n_qubits)
    order = rng.permutation(n_qubits).tolist()
    for m in {0, 1, n_qubits // 2, n_qubits}:
        fixed = {qubit: int(rng.integers(2)) for qubit in order[m:]}
        found = open_amplitudes(circuit, fixed, order[:m], options("fp64"))
        wanted = state[tuple(fixed.get(qubit, slice(None)) for qubit in range(n_qubits))]
        rising = sorted(order[:m])
        wanted = wanted.transpose([rising.index(qubit) for qubit in order[:m]])
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)


def test_a_stated_time_of_search_and_seed_answer_the_same() -> None:
    circuit = lattice_circuit("rectangular", 3, 4, 8, 2)
    state = state_vector(circuit)
    for seed in (0, 1):
        how = options("fp64", search_s=0.3, seed=seed)
        found = open_amplitudes(circuit, dict.fromkeys(range(9), 0), [9, 11, 10], how)
        np.testing.assert_allclose(found, state[(0,) * 9].transpose(0, 2, 1), rtol=0, atol=1e-10)


SMALL = random_circuit(3, 20, 0)
# fmt: off
REFUSED: list[Row] = [
    (lambda: amplitudes(SMALL, np.zeros((2, 4), np.uint8)), "bit strings",
     "have shape (2, 4)", "give k rows of 3 values"),
    (lambda: amplitudes(SMALL, np.array([[0, 1, 0], [2, 0, 0]])), "bit string 1",
     "has 2 for qubit 0", "give 0 or 1"),
    (lambda: open_amplitudes(SMALL, {0: 1}, [2]), "amplitudes",
     "have no value for qubit 1", "give the value of this qubit"),
    (lambda: open_amplitudes(SMALL, {0: 1, 1: 0, 2: 0}, [2]), "amplitudes",
     "names qubit 2 twice", "name each qubit once"),
    (lambda: open_amplitudes(SMALL, {0: 1, 1: 3}, [2]), "amplitudes", "fix qubit 1 on 3", "give 0 or 1"),
    (lambda: SparseState(SMALL, strings(3, 2, 0), ContractionOptions(devices=2)), "devices",
     "are 2", "use one device, or ask"),
    (lambda: SparseState(SMALL, strings(3, 2, 0), ContractionOptions(device="gpu", precision="fp8")),
     "precision", "'fp8' is unknown", "choose from fp16x3, fp32"),
    (lambda: ContractionOptions(search_s=-1.0), "search time", "is -1", "give 0 or more"),
    (lambda: amplitudes(SMALL, np.zeros((2, 3)), ContractionOptions(precision="tf32")), "precision",
     "'tf32' is not for a CPU", "choose fp32 or fp64"),
    (lambda: amplitudes(SMALL, strings(3, 8, 0), ContractionOptions(memory=64.0)), "memory",
     "is 64 bytes, too little", "allow more memory, or ask"),
]
# fmt: on


@table(REFUSED)
def test_bad_strings_and_qubits_are_refused(refusal: Refusal) -> None:
    refusal.raised_by(refusal.given)
