"""Gradients of Pauli sums on threads, ranks and a GPU, in both precisions, and within a memory limit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.support.engines.pauli import amplitude_damping, chain_edges, kicked_ising
from tests.support.kernels.exponent_emulator import HAS_EMULATOR
from tests.support.kernels.gpus import needs_gpus
from tests.support.kernels.pauli_emulator import emulate
from tests.support.slow import slow_unless
from tnplan.circuits.gates import gate
from tnplan.circuits.pauli_sum import PauliSum, parse
from tnplan.common.errors import InputError
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.pauli.algebra.gates import PauliStep, depolarizing, gate_steps, rotation
from tnplan.executor.pauli.gradient import Gradient, gradient, value_of_terms
from tnplan.executor.pauli.propagate import propagate
from tnplan.executor.pauli.resources import Resources
from tnplan.executor.pauli.terms import sharded, tape
from tnplan.executor.pauli.terms.truncation import Truncation

N = 8
START = parse("Z2 + 0.5*X0 Y3 - 0.25*Z1 Z4 + 0.1*X2 + 0.7*Y6 Z7", N)
USES = [(1, 2), (1, 4), (2, 1), (4, 1), (2, 2)]
"""Ranks, and threads of each."""
LIMITS = (
    Truncation(), Truncation(max_weight=3), Truncation(branch_cut=1e-3, merged_cut=1e-3),
    Truncation(max_terms=150), Truncation(max_frequency=5, every=4),
)  # fmt: skip


def mixed_steps(channels: bool) -> list[PauliStep]:
    """Rotations, Cliffords and a gate that is neither, with channels or not."""
    steps: list[PauliStep] = []
    for layer in range(2):
        steps += [rotation("ZZ", (q, q + 1), 0.5 + 0.1 * q) for q in range(N - 1)]
        steps += [*gate_steps(gate("cnot", (1, 3))), *gate_steps(gate("h", (5,)))]
        steps += [rotation("X" if q % 2 else "Y", (q,), 0.2 + q + layer) for q in range(N)]
        if channels:
            steps += [amplitude_damping(2, 0.2), depolarizing((0, 4), 0.1)]
            steps += gate_steps(gate("fs", (1, 2), (0.3, 0.7)))
    return [*steps, rotation("XYZ", (2, 3, 4), -0.6), rotation("ZZ", (2, 3), math.pi / 2)]


def on(n_ranks: int, threads: int, *asked: Any, **options: Any) -> list[Gradient]:
    """The gradient that each rank has."""
    return run_ranks(
        n_ranks,
        lambda world: gradient(
            *asked,
            Resources(threads=threads, ranks=world if n_ranks > 1 else None, **options),
            state="01101010",
        ),
    )


@pytest.fixture(autouse=True)
def _spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few terms are spread over shards and threads too."""
    for module in (sharded, tape):
        monkeypatch.setattr(module, "SINGLE_SHARD_BELOW", 8)
    monkeypatch.setattr(sharded, "SERIAL_BELOW", 16)


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize(
    ("limits", "use"), slow_unless(lambda k, j: k % len(USES) == j, LIMITS, USES)
)
def test_threads_and_ranks_give_the_gradient_of_one(
    limits: Truncation, use: tuple[int, int], channels: bool
) -> None:
    steps = mixed_steps(channels)
    (alone,) = on(1, 1, steps, START, limits)
    assert np.count_nonzero(np.abs(alone.derivatives) > 1e-4) > 10
    for found in on(*use, steps, START, limits):
        assert found.value == pytest.approx(alone.value, abs=1e-13)
        assert found.n_terms == alone.n_terms
        assert found.dropped.terms == alone.dropped.terms
        assert found.dropped.l1 == pytest.approx(alone.dropped.l1, abs=1e-12)
        np.testing.assert_allclose(found.derivatives, alone.derivatives, rtol=0, atol=1e-12)


@pytest.mark.parametrize("limits", [Truncation(), Truncation(max_terms=150)], ids=str)
def test_the_value_and_what_was_dropped_are_those_of_a_propagation(limits: Truncation) -> None:
    steps = mixed_steps(True)
    done = propagate(steps, START, limits, Resources(threads=2), state="01101010")
    (found,) = on(1, 2, steps, START, limits)
    assert found.value == pytest.approx(done.value, abs=1e-13)
    assert found.dropped.l1 == pytest.approx(done.dropped.l1, abs=1e-12)
    assert (found.dropped.terms > 0) == (limits.max_terms is not None)


@pytest.mark.parametrize(("n_ranks", "threads"), [(1, 1), (2, 2)])
def test_single_precision_is_near(n_ranks: int, threads: int) -> None:
    steps = mixed_steps(True)
    (exact,) = on(1, 1, steps, START, Truncation())
    for found in on(n_ranks, threads, steps, START, Truncation(), precision="fp32"):
        np.testing.assert_allclose(found.derivatives, exact.derivatives, rtol=0, atol=1e-6)
        assert np.any(found.derivatives != exact.derivatives)
        assert found.tape_bytes < exact.tape_bytes


@pytest.mark.parametrize(("n_ranks", "threads"), [(1, 2), (2, 1)])
def test_values_of_terms_on_threads_and_ranks(n_ranks: int, threads: int) -> None:
    steps = mixed_steps(False)
    expected = value_of_terms(steps, START)

    def found(world: Any) -> np.ndarray:
        ranks = world if n_ranks > 1 else None
        return value_of_terms(steps, START, None, Resources(threads=threads, ranks=ranks))

    for values in run_ranks(n_ranks, found):
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-13)


def test_a_tape_beyond_the_memory_stops_on_all_ranks() -> None:
    steps, start = kicked_ising(16, chain_edges(16), 0.7, 5), parse("Z8", 16)
    enough = gradient(steps, start, None, Resources(memory_bytes=64e6))
    assert np.array_equal(enough.derivatives, gradient(steps, start).derivatives)
    assert 3e5 < enough.tape_bytes < 64e6

    def short(world: Any) -> None:
        gradient(steps, start, None, Resources(memory_bytes=3e5, ranks=world))

    for n_ranks in (1, 2):
        with pytest.raises(InputError, match=r"^(memory|step \d+): .*; give more"):
            run_ranks(n_ranks, short)
    with pytest.raises(InputError, match=r"step \d+: brings terms and the tape .* to .* drop terms"):
        gradient(8 * steps, start, Truncation(max_terms=200), Resources(memory_bytes=1e6))


def test_terms_beyond_their_share_of_the_memory_are_truncated_where_that_is_asked() -> None:
    steps, start = kicked_ising(16, chain_edges(16), 0.7, 5), parse("Z8", 16)
    found = gradient(steps, start, None, Resources(memory_bytes=1.5e6, when_full="truncate"))
    exact = gradient(steps, start)
    assert found.dropped.terms > 0
    assert 0 < np.abs(found.derivatives - exact.derivatives).max() < 0.2


@pytest.fixture(
    params=[
        pytest.param("emulated", marks=pytest.mark.skipif(not HAS_EMULATOR, reason="needs g++ and CuPy")),
        pytest.param("gpu", marks=needs_gpus(1)),
    ]
)
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A GPU, or kernels on the CPU; gives what patches constants."""
    if request.param == "emulated":
        emulate(monkeypatch)
    return monkeypatch


@pytest.mark.parametrize("state", ["01101010", np.array([[0.6, 0.0, 0.8]] * N)], ids=["bits", "product"])
@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_a_gpu_gives_the_gradient_of_a_cpu(gpu: pytest.MonkeyPatch, limits: Truncation, state: Any) -> None:
    steps = mixed_steps(False)
    alone, found = (
        gradient(steps, START, limits, Resources(device=device), state=state) for device in ("cpu", "gpu")
    )
    assert_same(found, alone, 1e-12)
    single = gradient(steps, START, limits, Resources(device="gpu", precision="fp32"), state=state)
    np.testing.assert_allclose(single.derivatives, alone.derivatives, rtol=0, atol=1e-4)
    np.testing.assert_allclose(
        value_of_terms(steps, START, limits, Resources(device="gpu"), state=state),
        value_of_terms(steps, START, limits, state=state),
        atol=1e-13,
    )


@pytest.mark.parametrize("limits", [Truncation(merged_cut=1e-3), Truncation(branch_cut=1e-3, max_terms=3000)])
def test_a_tape_with_gaps_partly_on_the_host(gpu: pytest.MonkeyPatch, limits: Truncation) -> None:
    """Rows outgrow their room, gaps are closed, and blocks of the tape have no room on the GPU."""
    from tnplan.executor.pauli.cuda import table, taped_terms

    gpu.setattr(table, "SMALLEST_CAPACITY", 64)
    gpu.setattr(taped_terms, "LEAST_GAPS", 8)
    gpu.setattr(taped_terms, "LOG_EVENTS", 16)
    gpu.setattr(taped_terms, "FIRST_ENTRIES", 50)
    gpu.setattr(taped_terms, "BLOCK_ENTRIES", 3000)
    gpu.setattr(taped_terms.TapeStore, "_free", lambda self: 0.0)
    steps, start = kicked_ising(16, chain_edges(16), 0.7, 6), parse("Z8", 16)
    alone, found = (gradient(steps, start, limits, Resources(device=device)) for device in ("cpu", "gpu"))
    assert alone.dropped.terms > 100
    assert_same(found, alone, 1e-12)


def assert_same(found: Gradient, alone: Gradient, rounding: float) -> None:
    """Values, derivatives and what was dropped."""
    assert found.value == pytest.approx(alone.value, abs=rounding)
    assert found.n_terms == alone.n_terms
    assert found.dropped.terms == alone.dropped.terms
    assert found.dropped.l1 == pytest.approx(alone.dropped.l1, abs=rounding)
    assert np.count_nonzero(np.abs(alone.derivatives) > 1e-4) > 10
    np.testing.assert_allclose(found.derivatives, alone.derivatives, rtol=0, atol=rounding)


def test_what_a_gpu_cannot_do_is_refused() -> None:
    gpu = Resources(device="gpu")
    with pytest.raises(InputError, match=r"gradients through channels, .* run only on a CPU; choose"):
        gradient(mixed_steps(True), START, None, gpu)
    imaginary = PauliSum(N, START.keys, START.coefficients * 1j)
    with pytest.raises(InputError, match="complex coefficients run only on a CPU"):
        gradient(mixed_steps(False), imaginary, None, gpu)
    with pytest.raises(InputError, match="several ranks run only on a CPU"):
        on(2, 1, mixed_steps(False), START, None, device="gpu")
