"""Many bit strings in one contraction on a GPU, or on a CPU with its kernels, beside dense states."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tests.support.circuit_families import GRAPHS, brickwork, graph
from tests.support.circuits import state_vector
from tests.support.kernels import row_emulator
from tests.support.kernels.emulator import needs_compiler
from tests.support.kernels.gpus import count_gpus, needs_gpus
from tests.support.slow import slow_after
from tnplan.circuits.circuit import GateSequence
from tnplan.common.errors import InputError
from tnplan.executor.contraction.run.sparse_state import RowReplay
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.protocols.device import ContractShape, RowShape
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.hardware.cost import CostModel
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.passes.lowering.batch_rows import is_plain, lower_rows
from tnplan.planner.search.sparse_state import distinct_strings, with_slices
from tnplan.planner.workloads.lattice import lattice_circuit
from tnplan.questions.tensor_networks import amplitudes as module
from tnplan.questions.tensor_networks import sparse_state
from tnplan.questions.tensor_networks.amplitudes import amplitudes
from tnplan.questions.tensor_networks.sample import SampleOptions, sample
from tnplan.questions.tensor_networks.sparse_state import SparseState

pytest.importorskip("cupy")

RUNNERS = [pytest.param("emulated", marks=needs_compiler), pytest.param("gpu", marks=needs_gpus(1))]
ROUNDING = {"fp64": 1e-10, "fp32": 1e-5, "tf32": 2e-2, "fp16x3": 1e-4}
MEMORY = 1 << 28
MODEL = CostModel(load_profile("h200-nvlink"), "complex128", "fp64")


def circuit_of(seed: int) -> GateSequence:
    random = np.random.default_rng(seed)
    n_qubits, edges = graph(list(GRAPHS)[seed % len(GRAPHS)], int(random.integers(4, 13)), random)
    return GateSequence(n_qubits, tuple(brickwork(n_qubits, edges, int(random.integers(3, 9)), random)))


def strings(count: int, n_qubits: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, (count, n_qubits), dtype=np.uint8)


@pytest.fixture(params=RUNNERS)
def opened(request: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of GPUs that were opened; greedy paths are not the end of planning."""
    numbers: list[int] = []
    real = sparse_state.open_lone_gpu

    @contextmanager
    def emulated(number: int) -> Iterator[Any]:
        numbers.append(number)
        yield row_emulator.EmulatedRowDevice()

    @contextmanager
    def noted(number: int) -> Iterator[Any]:
        numbers.append(number)
        with real(number) as device:
            yield device

    if request.param == "emulated":
        row_emulator.emulate(monkeypatch)
        monkeypatch.setattr(sparse_state, "gpu_profile", lambda _: "h200-nvlink")
    monkeypatch.setattr(sparse_state, "open_lone_gpu", emulated if request.param == "emulated" else noted)
    monkeypatch.setattr(module, "CLEARLY", np.inf)  # together, whatever is predicted
    return numbers


def use(precision: str, **others: Any) -> ContractionOptions:
    return ContractionOptions(
        device="gpu", precision=precision, memory=MEMORY, search_s=0.2, hardware="h200-nvlink", **others
    )


@pytest.mark.parametrize("seed", slow_after(4, range(12)))
def test_amplitudes_equal_dense_ones(opened: list[int], seed: int) -> None:
    """1 to thousands of strings, some of them several times."""
    circuit, random = circuit_of(seed), np.random.default_rng(seed)
    count = int(10 ** random.uniform(0, 3.3))
    bits = strings(count, circuit.n_qubits, seed)
    bits = np.concatenate([bits, bits[random.integers(0, count, count // 3)]])
    state = state_vector(circuit)
    for precision in ("fp64", "fp32"):
        found = amplitudes(circuit, bits, use(precision))
        np.testing.assert_allclose(found, state[tuple(bits.T)], rtol=0, atol=ROUNDING[precision])


@pytest.mark.parametrize("seed", range(20, 28))
def test_slices_add_up(opened: list[int], seed: int) -> None:
    """Of all slices, and of parts in any order of loops that stay; on one GPU and on three."""
    circuit = circuit_of(seed)
    bits = distinct_strings(strings(150, circuit.n_qubits, seed))[0]
    wanted = state_vector(circuit)[tuple(bits.T)]
    state = SparseState(circuit, bits, use("fp64"))
    state.slice_more(6)
    n_slices = state.plan.n_slices
    whole = state.amplitudes()
    np.testing.assert_allclose(whole, wanted, rtol=0, atol=1e-10)
    parts = sum(state.amplitudes(range(first, min(first + 3, n_slices))) for first in range(0, n_slices, 3))
    np.testing.assert_allclose(parts, whole, rtol=0, atol=1e-10)
    if count_gpus() in (0, 3, 4, 8):
        state.options = state.options.changed(devices=3)
        opened.clear()
        np.testing.assert_allclose(state.amplitudes(), whole, rtol=0, atol=1e-10)
        assert sorted(opened) == [0, 1, 2]


@needs_gpus(1)
@pytest.mark.parametrize("precision", ["tf32", "fp16x3"])
def test_lower_precision(opened: list[int], precision: str) -> None:
    circuit, bits = lattice_circuit("rectangular", 3, 5, 10, 1), strings(900, 15, 2)
    found = amplitudes(circuit, bits, use(precision))
    wanted = state_vector(circuit)[tuple(bits.T)]
    relative = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    assert relative < ROUNDING[precision]


def test_auto_takes_a_gpu_where_strings_take_long(opened: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    circuit, bits = lattice_circuit("rectangular", 3, 4, 8, 1), strings(300, 12, 2)
    monkeypatch.setattr(sparse_state, "sees_gpu", lambda: True)
    options = use("fp64").changed(device="auto")
    amplitudes(circuit, bits, options)
    assert not opened
    monkeypatch.setattr(sparse_state, "GPU_FROM_S", 0.0)
    found = amplitudes(circuit, bits, options)
    assert opened
    np.testing.assert_allclose(found, state_vector(circuit)[tuple(bits.T)], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "how",
    [SampleOptions("rejection"), SampleOptions("rejection", xeb=0.4), SampleOptions("rejection", xeb=1.0)],
)
def test_samples(opened: list[int], how: SampleOptions) -> None:
    """The cross-entropy of samples, by exact probabilities."""
    circuit = lattice_circuit("rectangular", 3, 4, 14, 3)
    chances = np.abs(state_vector(circuit)) ** 2
    drawn = sample(circuit, 400, 5, use("fp32").changed(search_s=None), how)
    assert opened
    values = chances[tuple(drawn.bitstrings.T)] * 2**12 - 1
    aim = 1.0 if how.xeb is None else drawn.predicted["predicted_xeb"]  # type: ignore[index]
    assert abs(values.mean() - aim) < 4 * values.std() / np.sqrt(len(values))


@pytest.mark.parametrize("seed", slow_after(8, range(40, 60)))
def test_every_kept_loop_gives_the_same(seed: int) -> None:
    """A schedule that keeps the results of all loops, of none, or of what no slice changes."""
    circuit = circuit_of(seed)
    bits = distinct_strings(strings(60, circuit.n_qubits, seed))[0]
    state = SparseState(circuit, bits, ContractionOptions(device="cpu", threads=1, search_s=0.1))
    if not state.plan.steps:
        return
    wanted = state_vector(circuit)[tuple(bits.T)]
    plan = with_slices(state.plan, 5)
    every = [lower_rows(plan, MODEL, limit) for limit in (np.inf, 0)]
    smaller = lower_rows(plan, MODEL, every[0].size_bytes + every[0].table_bytes - 1)
    for schedule in (*every, smaller):
        replay = RowReplay(schedule, state.arrays, "complex128", NumpyDevice())
        np.testing.assert_allclose(replay.run(range(plan.n_slices)), wanted, rtol=0, atol=1e-10)
        backwards = replay.run([*range(plan.n_slices)][::-1])
        np.testing.assert_allclose(backwards, wanted, rtol=0, atol=1e-10)


def test_each_step_has_its_precision() -> None:
    """The most exact one that costs no time; whether a result lies as it is formed, as devices see it."""
    circuit, seen, plain = lattice_circuit("rectangular", 4, 5, 12, 1), set(), set()
    for seed in range(3):
        bits = distinct_strings(strings(4000, 20, seed))[0]
        state = SparseState(circuit, bits, use("tf32").changed(search_s=0.3))
        state.slice_more(seed + 1)
        for step in state.schedule.steps:
            seen.add(step.precision)
            shape = ContractShape(step.batch, step.m, step.n, step.k)
            direct = shape.direct
            batch = step.batch
            if step.pairs is not None:
                direct = RowShape(shape, len(step.pairs), step.row_stride).plain_order
                batch = ((len(step.pairs), step.row_stride), *batch)
            plain.add(direct is not None)
            assert is_plain(batch, step.m, step.n) == (direct is not None)
    assert {"fp32"} < seen <= {"fp32", "fp16x3", "tf32"}
    assert plain == {False, True}


def test_memory_is_free_with_the_replay() -> None:
    """Without a collection of cycles, which may come late: it is most of a GPU's memory."""
    circuit, bits = circuit_of(1), strings(50, circuit_of(1).n_qubits, 1)
    state = SparseState(circuit, distinct_strings(bits)[0], ContractionOptions(device="cpu", search_s=0.1))
    plan, device = with_slices(state.plan, 8), NumpyDevice()
    schedule = lower_rows(plan, MODEL)
    gc.disable()
    try:
        replay = RowReplay(schedule, state.arrays, "complex128", device)
        replay.run(range(plan.n_slices))
        seen = weakref.ref(replay)
        del replay
        assert seen() is None
    finally:
        gc.enable()


def test_what_a_gpu_cannot_hold_is_refused(opened: list[int]) -> None:
    circuit, bits = lattice_circuit("rectangular", 3, 4, 8, 1), strings(300, 12, 2)
    with pytest.raises(InputError, match="memory"):
        SparseState(circuit, distinct_strings(bits)[0], use("fp64").changed(memory=1 << 12))
    with pytest.raises(InputError, match="precision: 'fp8' is unknown"):
        SparseState(circuit, distinct_strings(bits)[0], use("fp8"))
