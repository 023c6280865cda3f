"""The engine's CUDA kernels: they compile without a GPU, their tables are right, they equal their twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.oracles.statevector import apply_pass
from tests.support.circuits import random_circuit
from tests.support.engines.statevector import TOLERANCE, hadamards, many_kinds, plan_of, qft
from tests.support.kernels.gpus import count_gpus, needs_gpus
from tnplan.common.errors import InputError
from tnplan.executor.statevector.codegen.register_layout import IN_REGISTERS, register_rounds
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.scheduling.pass_tables import GATE, PHASES, pass_tables
from tnplan.executor.statevector.scheduling.tiled_passes import Tile

N_BITS = 13


def host_state(dtype: str, tile: Tile) -> Any:
    state = HostState(N_BITS, dtype, 2)
    state.tile = tile
    return state


def gpu_state(dtype: str, tile: Tile) -> Any:
    from tnplan.executor.statevector.cuda.state import CupyState

    return CupyState(N_BITS, dtype, tile=tile)


DEVICES = [pytest.param(host_state, id="cpu"), pytest.param(gpu_state, id="gpu", marks=needs_gpus(1))]


def filled(make: Callable[[str, Tile], Any], dtype: str, tile: Tile) -> tuple[Any, np.ndarray]:
    """A state of random amplitudes, and the same on the host in double precision."""
    generator = np.random.default_rng(17)
    values = generator.normal(size=2**N_BITS) + 1j * generator.normal(size=2**N_BITS)
    values[100:5000] = 0
    values = (values / np.linalg.norm(values)).astype(dtype)
    state = make(dtype, tile)
    state.load(values)
    return state, values.astype(np.complex128)


@pytest.mark.parametrize("make", DEVICES)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("tile", [Tile(12, 2, 2), Tile(9, 3, 5), Tile(7, 0, 3)], ids=str)
def test_passes(make: Callable[[str, Tile], Any], dtype: str, tile: Tile) -> None:
    for circuit in (random_circuit(N_BITS, 200, 1), many_kinds(N_BITS, 30, 2), qft(N_BITS)):
        state, expected = filled(make, dtype, tile)
        plan = plan_of(circuit, tile)
        for item, prepared in zip(plan.passes, state.prepare(plan.steps), strict=True):
            state.apply(prepared)
            apply_pass(expected, item)
        np.testing.assert_allclose(state.to_host(), expected, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("make", DEVICES)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_measuring(make: Callable[[str, Tile], Any], dtype: str) -> None:
    state, values = filled(make, dtype, Tile(9, 3, 2))
    weights = np.abs(values) ** 2
    for chunk_bits in (0, 5, 10):
        sums = weights.reshape(-1, 1 << chunk_bits).sum(axis=1)
        np.testing.assert_allclose(state.sums(chunk_bits), sums, rtol=0, atol=1e-15)
        wanted = np.sort(np.random.default_rng(1).random(3000)) * sums.sum()
        reached = np.cumsum(sums)
        chunks = np.searchsorted(reached, wanted, side="right")
        rests = wanted - np.concatenate([[0], reached])[chunks]
        drawn = state.draw(chunk_bits, chunks, rests)
        assert np.array_equal(drawn >> chunk_bits, chunks)
        assert np.all(weights[drawn] > 0)
        upper = np.cumsum(weights)[drawn]
        assert np.all(wanted <= upper + 1e-14)
        assert np.all(wanted >= upper - weights[drawn] - 1e-14)
    numbers = np.arange(2**N_BITS)
    for bits in ((3,), (12, 0, 5), (1, 2, 3, 4, 5, 6)):
        value = sum((numbers >> bit & 1) << k for k, bit in enumerate(bits))
        expected = np.bincount(value, weights, 1 << len(bits))
        np.testing.assert_allclose(state.marginal(bits), expected, rtol=0, atol=1e-13)
    for x, z in ((0, 0), (5, 0), (0, 4097), (8191, 77)):
        sign = 1 - 2.0 * (np.bitwise_count(numbers & z) & 1)
        value = np.sum(sign * values[numbers ^ x].conj() * values)
        assert state.pauli(x, z) == pytest.approx(value, abs=1e-13)
    assert np.array_equal(state.take(np.array([7, 6000])), state.to_host()[[7, 6000]])


@needs_gpus(1)
def test_a_gpu_gives_what_a_cpu_gives() -> None:
    circuit = random_circuit(N_BITS, 150, 6)
    asked = {"precision": "fp64", "observable": "X0 Z5", "shots": 10, "seed": 1}
    reports = [tnplan.simulate(circuit, device=device, **asked).report for device in ("cpu", "gpu")]
    assert reports[0]["expectation"] == pytest.approx(reports[1]["expectation"], abs=1e-12)
    assert reports[0]["counts"] == reports[1]["counts"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_gpu_is_refused_where_there_are_too_few(ranks: int) -> None:
    if count_gpus() >= ranks:
        pytest.skip(f"has a GPU for each of {ranks} ranks")
    with pytest.raises(InputError, match="device gpu"):
        tnplan.simulate(qft(8), device="gpu", ranks=ranks)


@pytest.mark.parametrize("register_bits", [2, 3, 4])
def test_rounds_hold_the_targets_of_their_steps_in_order(register_bits: int) -> None:
    for circuit in (random_circuit(N_BITS, 200, 4), many_kinds(N_BITS, 30, 5), qft(N_BITS)):
        for item in plan_of(circuit, Tile(9, 2, 2)).passes:
            tables = pass_tables(item, N_BITS, 0)
            made = register_rounds(tables, register_bits)
            done = [step for row in made.rounds.tolist() for step in range(row[1], row[2])]
            assert done == list(range(len(item.steps)))
            for wide, begin, end, phases, *bits in made.rounds.tolist():
                assert sorted(set(bits)) == bits
                steps = made.steps[begin:end].tolist()
                assert [begin + k for k, step in enumerate(steps) if step[0] == PHASES] in ([], [phases])
                for step in steps:
                    targets = tables.places[step[4] : step[4] + step[1]].tolist() if step[0] == GATE else []
                    assert (len(targets) > IN_REGISTERS) == bool(wide)
                    if targets and not wide:
                        assert targets == [bits[step[7 + k]] for k in range(len(targets))]
    with pytest.raises(ValueError, match="a tile of 1 bits"):
        register_rounds(pass_tables(plan_of(hadamards(1), Tile(4, 1, 1)).passes[0], 1, 0), 2)
