"""Terms on a GPU under limits: of memory, of their number, by resampling, and after a start on the CPU.

Where there is no GPU, its kernels run on the CPU (tests/support/kernels/pauli_emulator.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.engines.pauli import (
    amplitude_damping,
    chain_edges,
    eagle_edges,
    ising_trotter,
    kicked_ising,
)
from tests.support.kernels.emulator import has_compiler
from tests.support.kernels.gpus import needs_gpus
from tests.support.kernels.pauli_emulator import emulate, stand_in
from tnplan.circuits.pauli_sum import PauliSum, pack, parse
from tnplan.common.errors import InputError
from tnplan.executor.pauli import propagate as propagate_module
from tnplan.executor.pauli.algebra.expectation import adjoint, value_in
from tnplan.executor.pauli.algebra.gates import PauliStep, depolarizing, rotation
from tnplan.executor.pauli.algebra.states import OverlapWith
from tnplan.executor.pauli.cuda.terms import GpuTerms
from tnplan.executor.pauli.estimate import echo_parts, estimate_of
from tnplan.executor.pauli.propagate import Propagation, propagate
from tnplan.executor.pauli.repetitions import (
    MonteCarlo,
    StratifiedResampler,
    echo_task,
    linear_task,
    repetition,
)
from tnplan.executor.pauli.resources import Resources, term_bytes
from tnplan.executor.pauli.terms.ledger import Record
from tnplan.executor.pauli.terms.truncation import Truncation

pytest.importorskip("cupy")

N_QUBITS = 70
START = parse("Z34 + 0.5*X3 - Y40 Z41", N_QUBITS)
NOISY: list[PauliStep] = [
    *kicked_ising(N_QUBITS, chain_edges(N_QUBITS), 0.7, 4),
    rotation("XYZ", (1, 33, 65), 0.3), depolarizing((32, 33), 0.1), amplitude_damping(34, 0.2),
    *kicked_ising(N_QUBITS, chain_edges(N_QUBITS), 0.3, 1),
]  # fmt: skip
PLAIN = kicked_ising(N_QUBITS, chain_edges(N_QUBITS), 0.7, 4)
CASES = {
    "cuts": (PLAIN, Truncation(branch_cut=1e-3, merged_cut=1e-3)),
    "letters": (NOISY, Truncation(branch_cut=1e-4, merged_cut=1e-3, max_weight=5, max_frequency=30)),
    "largest": (PLAIN, Truncation(max_terms=200, every=5)),
    "largest of cut ones": (NOISY, Truncation(merged_cut=1e-3, max_frequency=30, max_terms=250, every=7)),
}


@pytest.fixture(
    params=[
        pytest.param("emulated", marks=pytest.mark.skipif(not has_compiler(), reason="needs g++")),
        pytest.param("gpu", marks=needs_gpus(1)),
    ]
)
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A GPU, or kernels on the CPU, with arrays that begin small; gives what patches constants."""
    from tnplan.executor.pauli.cuda import table

    if request.param == "emulated":
        emulate(monkeypatch)
    monkeypatch.setattr(table, "SMALLEST_CAPACITY", 64)
    return monkeypatch


def run(name: str, **resources: object) -> Propagation:
    steps, limits = CASES[name]
    return propagate(steps, START, limits, Resources(**resources))  # type: ignore[arg-type]


def check_same(found: Propagation, expected: Propagation) -> None:
    """The same terms, numbers and losses; on a GPU steps grow before terms are dropped."""
    assert found.n_terms > 100
    assert np.array_equal(found.result.keys, expected.result.keys)
    np.testing.assert_allclose(found.result.coefficients, expected.result.coefficients, rtol=0, atol=1e-14)
    assert replace(found.record, grown=()) == replace(expected.record, grown=())
    assert all(np.greater_equal(found.record.grown, expected.record.grown))
    assert found.value == pytest.approx(value_in(expected.result), abs=1e-13)
    assert found.dropped.terms == expected.dropped.terms > 0
    assert found.dropped.l1 == pytest.approx(expected.dropped.l1, rel=1e-12)
    assert found.dropped.l2 == pytest.approx(expected.dropped.l2, rel=1e-12)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("by_passes_below", "rows_of_host"), [(0, 1 << 13), (40, 0), (1 << 20, 0)])
def test_a_gpu_gives_the_terms_of_a_thread(
    gpu: pytest.MonkeyPatch, name: str, by_passes_below: int, rows_of_host: int
) -> None:  # fmt: skip
    from tnplan.executor.pauli.cuda import selection, table

    gpu.setattr(selection, "ROWS_OF_HOST", rows_of_host)
    gpu.setattr(table, "BY_PASSES_BELOW", by_passes_below)
    gpu.setattr(table, "LOG_EVENTS", 50)
    gpu.setattr(table, "SMALLEST_CAPACITY", 8)
    check_same(run(name, device="gpu"), run(name))


def test_a_gpu_closes_gaps_between_rotations(gpu: pytest.MonkeyPatch) -> None:
    from tnplan.executor.pauli.cuda import table as cupy_pauli

    packed, read_all = [], cupy_pauli.GpuTable.read_all
    at_ends, close_gaps = [], cupy_pauli.GpuTable.close_gaps

    def closed(table: cupy_pauli.GpuTable, n: int) -> int:
        at_ends.append(n - close_gaps(table, n))
        return n - at_ends[-1]

    def spied(table: cupy_pauli.GpuTable, last: int = 0) -> object:
        stalled, log = read_all(table, last)
        packed.append(int(log["packed"].sum()))
        return stalled, log

    gpu.setattr(cupy_pauli, "GAPS_KEPT_BELOW", 0)
    gpu.setattr(cupy_pauli, "SMALLEST_CAPACITY", 8)
    gpu.setattr(cupy_pauli.GpuTable, "read_all", spied)
    gpu.setattr(cupy_pauli.GpuTable, "close_gaps", closed)
    start = parse("Z34 + 0.5*X3 - Y40 Z41", 70)
    both, frequencies = Truncation(1e-2, 1e-2), Truncation(merged_cut=1e-2, max_frequency=14)
    for layers, limits, is_packed in (6, both, False), (8, both, True), (6, frequencies, True):
        steps = kicked_ising(70, chain_edges(70), 0.7, layers)
        expected = propagate(steps, start, limits)
        for many in 0, 100, 1 << 20:
            gpu.setattr(cupy_pauli, "BY_PASSES_BELOW", many)
            packed.clear()
            check_same(propagate(steps, start, limits, Resources(device="gpu")), expected)
            assert sum(packed) > (100 if is_packed else -1)
    assert sum(at_ends) > 100


def test_a_gpu_without_room_for_a_row_turns_no_pair_twice(gpu: pytest.MonkeyPatch) -> None:
    start, rotations = (
        parse("Z0 + 0.5*Y0 + X1 + Z0 X2", 3),
        [rotation("X", (0,), 0.6), rotation("X", (0,), 0.3)],
    )
    terms = GpuTerms(start)
    terms.table.grow(start.n_terms, start.n_terms)
    for turn in reversed(rotations):
        terms.rotate(pack(turn.x, turn.z, 3), np.cos(turn.angle), np.sin(turn.angle), 0.0)
    found, expected = terms.local_terms(), propagate(rotations, start).result
    terms.close()
    assert found.n_terms == start.n_terms + 1
    assert np.array_equal(found.keys, expected.keys)
    np.testing.assert_allclose(found.coefficients, expected.coefficients, rtol=0, atol=1e-15)


def launches(gpu: pytest.MonkeyPatch) -> list[int]:
    """How many rotations every launch was given, entered while it runs."""
    from tnplan.executor.pauli.cuda import table

    given: list[int] = []
    rotate_all = table.GpuTable.rotate_all

    def counted(self: table.GpuTable, structs: np.ndarray, *arguments: object) -> None:
        given.append(len(structs))
        rotate_all(self, structs, *arguments)  # type: ignore[arg-type]

    gpu.setattr(table.GpuTable, "rotate_all", counted)
    return given


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("times", [2.05, 30.0])
def test_rotations_go_many_at_once_in_a_bounded_memory(
    gpu: pytest.MonkeyPatch, name: str, times: float
) -> None:
    expected = run(name)
    room = int(times * expected.largest)
    given = launches(gpu)
    memory_bytes = float(room * term_bytes(N_QUBITS, 8))
    found = run(name, device="gpu", memory_bytes=memory_bytes)
    check_same(found, run(name, memory_bytes=memory_bytes))
    assert found.largest <= room
    assert len(given) < expected.steps / 2


@pytest.mark.parametrize("name", ["cuts", "letters"])
def test_a_memory_that_is_full_stops_a_gpu_where_it_stops_a_thread(
    gpu: pytest.MonkeyPatch, name: str
) -> None:
    memory_bytes = float(run(name).largest * term_bytes(N_QUBITS, 8) - 1)
    with pytest.raises(InputError) as expected:
        run(name, memory_bytes=memory_bytes)
    with pytest.raises(InputError, match=r"step .* may make .* terms, and the memory holds") as found:
        run(name, device="gpu", memory_bytes=memory_bytes)
    assert str(found.value) == str(expected.value)
    kept = run(name, device="gpu", memory_bytes=memory_bytes, when_full="truncate")
    assert kept.full > 0
    assert kept.largest * term_bytes(N_QUBITS, 8) <= memory_bytes


def test_terms_stay_under_their_cap_after_every_step(gpu: pytest.MonkeyPatch) -> None:
    given = launches(gpu)
    found = run("largest", device="gpu")
    assert max(found.record.terms) == 200
    assert max(found.record.grown) <= 400
    assert len(given) < found.steps


def echo(n_qubits: int, layers: int, angle: float) -> list[PauliStep]:
    """A kicked Ising circuit, a rotation of some qubits, and the circuit back."""
    there = kicked_ising(n_qubits, chain_edges(n_qubits), 0.6, layers)
    middle = [rotation("Z", (q,), angle) for q in range(0, n_qubits, 2)]
    return [*there, *middle, *(adjoint(step) for step in reversed(there))]


def test_resampling_on_a_gpu_is_without_bias(gpu: pytest.MonkeyPatch) -> None:
    steps, terms = ising_trotter(8, 0.4, 3), parse("Z0 Z2 + 0.5*X1 - Y4 Z5", 8)
    exact = propagate(steps, terms).value
    task, plan = linear_task(steps, terms, None, "gpu"), MonteCarlo(40, 7)
    done = [repetition(task, plan, 400, r) for r in range(plan.repetitions)]
    assert all(one.resampled and one.largest <= 800 for one in done)
    estimate = estimate_of([one.value for one in done], "unbiased")
    assert 0 < estimate.standard_error < 0.5
    assert abs(estimate.value - exact) < 4 * estimate.standard_error


def test_resampling_by_letters_on_a_gpu_is_without_bias(gpu: pytest.MonkeyPatch) -> None:
    steps, terms = kicked_ising(20, chain_edges(20), 0.3, 6), parse("Z10", 20)
    exact = propagate(steps, terms, Truncation(merged_cut=1e-9)).value
    task = linear_task(steps, terms, None, "gpu", keep_cliffords=True)
    done = [repetition(task, MonteCarlo(16, 7, "letters"), 60, r) for r in range(16)]
    assert all(one.resampled for one in done)
    estimate = estimate_of([one.value for one in done], "unbiased")
    assert 0 < estimate.standard_error < 0.05
    assert abs(estimate.value - exact) < 4 * estimate.standard_error


def test_terms_on_a_gpu_have_the_value_in_a_product_state(gpu: pytest.MonkeyPatch) -> None:
    from tnplan.executor.pauli.cuda import selection

    gpu.setattr(selection, "ROWS_AT_ONCE", 64)
    found = run("cuts").result
    bloch = np.random.default_rng(4).uniform(-0.57, 0.57, (N_QUBITS, 3))
    terms = GpuTerms(found)
    assert found.n_terms > 100
    assert terms.in_product(bloch) == pytest.approx(value_in(found, bloch), rel=1e-12)
    terms.close()


@pytest.mark.slow
@pytest.mark.parametrize("by", ["magnitude", "square"])
def test_an_echo_on_a_gpu_is_near_its_value_and_keeps_its_seed(gpu: pytest.MonkeyPatch, by: str) -> None:
    from tnplan.executor.pauli.cuda import table

    steps, start = echo(20, 4, 0.3), parse("Z10 Z11", 20)
    exact = propagate(steps, start, state=OverlapWith(start)).value
    parts, plan = echo_parts(steps), MonteCarlo(12, 3, by)
    assert parts is not None
    task = echo_task(parts, start, "gpu")
    done = [repetition(task, plan, 50, r) for r in range(plan.repetitions)]
    assert all(one.resampled for one in done)
    estimate = estimate_of([one.value for one in done], "")
    assert estimate.standard_error < 0.05
    assert abs(estimate.value - exact) < 4 * estimate.standard_error
    gpu.setattr(table, "BY_PASSES_BELOW", 0)  # rows then lie in another order
    again = repetition(task, plan, 50, 0)
    assert again.value == pytest.approx(done[0].value, abs=1e-12)


@pytest.mark.parametrize("power", [1, 2])
def test_the_mean_of_the_draws_of_a_gpu_is_what_is_drawn_from(power: int) -> None:
    random, like_cupy = np.random.default_rng(3), stand_in()
    sizes, n, resampler = 0.1 + random.exponential(size=60), 3000, StratifiedResampler(random, power)
    total, squares = np.zeros(60), np.zeros(60)
    for _ in range(n):
        chosen, new = resampler.draw(sizes, 30, like_cupy)
        assert len(chosen) <= 30
        assert np.sum(new**power) == pytest.approx(np.sum(sizes**power), rel=1e-9)
        total[chosen] += new**power
        squares[chosen] += new ** (2 * power)
    mean = total / n
    error = np.sqrt(np.maximum(squares / n - mean**2, 0) / n)
    pulls = (mean - sizes**power)[error > 0] / error[error > 0]
    assert np.abs(pulls).max() < 4.5
    assert 0.5 < np.var(pulls) < 1.8


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("most", [20, 150])
def test_few_terms_begin_on_the_cpu_and_move(gpu: pytest.MonkeyPatch, name: str, most: int) -> None:
    gpu.setattr(propagate_module, "MOVED_ABOVE", most)
    moved: list[int] = []
    continued = GpuTerms.continue_from

    def counted(terms: GpuTerms, *arguments: object) -> None:
        moved.append(terms.event_ledger.live)
        continued(terms, *arguments)  # type: ignore[arg-type]

    gpu.setattr(GpuTerms, "continue_from", counted)
    expected = run(name)
    found = run(name, device="gpu", few_on_cpu=True)
    check_same(found, expected)
    assert len(moved) == 1
    assert most < moved[0] <= (2 * most if name in ("cuts", "letters") else 250)
    assert isinstance(found.record, Record)


def test_few_terms_stay_on_the_cpu() -> None:
    both = PauliSum(3, parse("Z0 + X1", 3).keys, np.array([0.5, 0.25j]))
    use = Resources(device="gpu", few_on_cpu=True)
    steps = [rotation("X", (q,), 0.3) for q in range(3)]
    for start in (parse("Z0 + X1", 3), both):
        found, expected = propagate(steps, start, None, use), propagate(steps, start)
        assert np.array_equal(found.result.coefficients, expected.result.coefficients)


@needs_gpus(1)
@pytest.mark.parametrize(
    "limits", [Truncation(), Truncation(max_terms=400_000, every=20), Truncation(2.0**-15)]
)
@pytest.mark.parametrize("memory_bytes", [6e8, 1.5e9])
def test_a_memory_of_a_gpu_is_exceeded_by_five_percent_at_most(
    limits: Truncation, memory_bytes: float
) -> None:
    """All that CuPy's pool has taken from the GPU counts, and terms are brought to the host at the end."""
    import cupy

    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    before, most = pool.total_bytes(), 0

    class Watch(cupy.cuda.MemoryHook):
        def malloc_postprocess(self, **given: Any) -> None:
            nonlocal most
            most = max(most, pool.total_bytes())

    use = Resources(device="gpu", memory_bytes=memory_bytes, when_full="truncate")
    with Watch():
        found = propagate(kicked_ising(127, eagle_edges(), 0.7, 20), parse("Z62", 127), limits, use)
    assert most - before <= 1.05 * memory_bytes
    assert found.size_bytes <= memory_bytes
    assert found.largest > 300_000
