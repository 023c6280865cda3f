"""Compressed states of a GPU: bound, estimate and answers, on a GPU or by kernels that run on a CPU."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.oracles.statevector import apply_pass
from tests.support.circuits import random_circuit, state_vector
from tests.support.engines import compressed_states
from tests.support.engines.compressed_states import infidelity, whole
from tests.support.engines.statevector import many_kinds
from tests.support.engines.unseen_circuits import KINDS, unseen_circuit
from tests.support.kernels.emulator import has_compiler
from tests.support.kernels.gpus import count_gpus, needs_gpus
from tests.support.slow import slow_after
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.pauli_sum import given_sum
from tnplan.common.errors import InputError
from tnplan.executor.statevector import packed_error
from tnplan.executor.statevector.codegen.pass_program import make_program
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.cuda.kernel_defines import coded_bytes, coded_tile
from tnplan.executor.statevector.packed_error import (
    angle_error,
    bound_of,
    of_turn,
    rounding_of_program,
    rounding_of_tables,
)
from tnplan.executor.statevector.prepared_program import prepare_program
from tnplan.executor.statevector.scheduling.pass_tables import pass_tables
from tnplan.executor.statevector.scheduling.tiled_passes import Tile, compile_gates
from tnplan.executor.statevector.simulator import Simulator

pytestmark = pytest.mark.skipif(
    find_spec("cupy") is None or not (has_compiler() or count_gpus()), reason="needs CuPy, and g++ or a GPU"
)

NO_BITS = np.zeros(0, np.uint8)
UNIT = {"complex64": 2.0**-24, "complex128": 2.0**-53}
TABLED, COMPILED = Tile(9, 5, 1, 4), Tile(9, 5, 1, 4, True)


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU, or what stands for one."""
    if not count_gpus():
        from tests.support.kernels.emulated_gpu import put_in_place

        put_in_place(monkeypatch)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """All passes have kernels of their own."""
    for name, value in (("PROGRAMS_FROM", 0), ("PROGRAM_S", 0.0), ("COMPILING_S", 0.0), ("LEAST_STEPS", 0)):
        monkeypatch.setattr(f"tnplan.executor.statevector.cuda.state.{name}", value)


def simulated(
    circuit: GateSequence, dtype: str, bits: int, seed: int = 0, tile: Tile = TABLED, mode: str = "compiled"
) -> Simulator:
    """A compressed state after a circuit."""
    from tnplan.executor.statevector.cuda.packed_state import CodedState

    state = CodedState(circuit.n_qubits, dtype, bits, seed, tile=tile)
    simulator = Simulator(state, circuit.n_qubits, mode, seed)
    simulator.run(prepare_program(circuit.gates), NO_BITS)
    return simulator


def check_coverage(seeds: range, qubits: range, tile: Tile) -> None:
    """The same by tiles of this size; no code is rounded to one more than the largest."""

    def run(circuit: GateSequence, dtype: str, bits: int, seed: int, _: np.random.Generator) -> Simulator:
        simulator = simulated(circuit, dtype, bits, seed, tile)
        codes = simulator.state.amplitudes.get()  # type: ignore[attr-defined]
        assert codes.min() > -(1 << bits - 1)
        return simulator

    compressed_states.check_coverage(seeds, qubits, run)


def test_the_bound_and_the_estimate_hold() -> None:
    check_coverage(range(21_000, 21_002), range(8, 12), TABLED)


@pytest.mark.slow
def test_the_bound_and_the_estimate_hold_in_many_circuits() -> None:
    check_coverage(range(22_000, 22_060), range(8, 14), TABLED)


@pytest.mark.usefixtures("programs")
def test_the_bound_and_the_estimate_hold_of_compiled_passes() -> None:
    check_coverage(range(23_000, 23_001), range(10, 11), COMPILED)


@pytest.mark.slow
@pytest.mark.usefixtures("programs")
def test_the_bound_and_the_estimate_hold_of_many_compiled_passes() -> None:
    check_coverage(range(24_000, 24_003), range(9, 12), COMPILED)
    check_coverage(range(24_003, 24_006), range(10, 12), replace(COMPILED, bits=10, register_bits=5))


@pytest.mark.usefixtures("programs")
def test_compiled_passes_are_compiled() -> None:
    """So that the tests of these are of them."""
    simulator = simulated(unseen_circuit("random", 10, 1), "complex64", 8, tile=COMPILED)
    (segment,) = prepare_program(unseen_circuit("random", 10, 1).gates)
    plan, prepared = simulator.prepare(segment)  # type: ignore[arg-type]
    made = [make_program(item, 10, 4, 8, coded=True) for item in plan.passes]
    assert all(program is not None for program in made)
    assert [one.rounding for one in prepared] == [rounding_of_program(p, 4) for p in made if p is not None]


@pytest.mark.parametrize("n", slow_after(2, [5, 9, 6]))
@pytest.mark.parametrize("mode", ["compiled", "gates"])
def test_every_gate_and_every_size(n: int, mode: str) -> None:
    for circuit in (many_kinds(n, 8, n), random_circuit(n, 20, n)):
        exact = state_vector(circuit).reshape(-1)
        for dtype in UNIT:
            simulator = simulated(circuit, dtype, 16, 3, replace(TABLED, bits=min(n + 4, 9)), mode)
            errors: Any = simulator.state.errors  # type: ignore[attr-defined]
            assert infidelity(whole(simulator), exact) <= 1 - errors.fidelity_bound + 1e-15
            assert errors.fidelity_bound > 1 - 1e-5


@pytest.mark.usefixtures("programs")
def test_the_bound_is_the_error_of_one_pass() -> None:
    """So that a bound which left out part of an error would be found."""
    circuit = unseen_circuit("vqe", 9, 31)
    exact = state_vector(circuit).reshape(-1)
    for tile in (TABLED, COMPILED):
        simulator = simulated(circuit, "complex128", 8, 5, tile)
        errors: Any = simulator.state.errors  # type: ignore[attr-defined]
        assert simulator.passes == 1
        error = infidelity(whole(simulator), exact)
        assert 0.9 * (1 - errors.fidelity_bound) < error <= 1 - errors.fidelity_bound


@pytest.mark.parametrize("compiled", [False, True])
def test_arithmetic_stays_within_its_bound(compiled: bool, request: pytest.FixtureRequest) -> None:
    """Passes in single precision beside the exact ones: what rounding does is at most what is said."""
    from tnplan.executor.statevector.cuda.state import CupyState

    if compiled:
        request.getfixturevalue("programs")
    dtype, n, tile = "complex64", 10, Tile(9, 3, 1, 4, compiled)
    for seed in range(2 if compiled else 6):
        circuit = [*many_kinds(n, 4, seed).gates] if not compiled else []
        circuit += unseen_circuit(KINDS[(seed + 3) % 5], n, seed).gates
        (segment,) = prepare_program(circuit)
        state = CupyState(n, dtype, tile=tile)
        for item in compile_gates(segment.gates, range(n)[::-1], tile).passes:  # type: ignore[union-attr]
            exact = state.shard().astype(np.complex128)
            (prepared,) = state.prepare([item])
            state.apply(prepared)
            apply_pass(exact, item)
            program = make_program(item, n, 4, 8) if compiled else None
            rounding = rounding_of_tables(pass_tables(item, n, 0))
            if program is not None:
                rounding = rounding_of_program(program, 4)
            bound = bound_of(*rounding, UNIT[dtype], angle_error(item.steps))
            distance = np.linalg.norm(state.shard() - exact)
            assert distance <= bound
            assert bound < 1e5 * UNIT[dtype] * len(item.steps)


def test_shears_round_as_said() -> None:
    """Turns by shears in single precision, steep ones too."""
    random = np.random.default_rng(5)
    for angle in random.uniform(-3.1, 3.1, 300):
        t, s = np.float32(np.tan(angle / 2)), np.float32(np.sin(angle))
        x, y = random.normal(size=(2, 200)).astype(np.float32)
        turned = (x + 1j * y).astype(np.complex128) * np.exp(1j * angle)
        x = x - t * y
        y = y + s * x
        x = x - t * y
        error = np.max(np.abs(x + 1j * y - turned) / np.abs(turned))
        assert error <= of_turn(np.array([np.tan(angle / 2) + 1j * np.sin(angle)])) * 2.0**-24


def test_seeds_decide_and_blocks_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    circuit = unseen_circuit("random", 11, 3)
    first, second, other = (simulated(circuit, "complex64", 8, seed) for seed in (1, 1, 2))
    assert np.array_equal(whole(first), whole(second))
    assert not np.array_equal(whole(first), whole(other))
    before = whole(first)
    first.restart()
    first.run(prepare_program(circuit.gates), NO_BITS)
    assert np.array_equal(whole(first), before)
    if not count_gpus():
        monkeypatch.setattr("cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor", lambda *_: 2)
        assert np.array_equal(whole(simulated(circuit, "complex64", 8, 1)), before)


@pytest.mark.parametrize("bits", [8, 16])
def test_blocks_lie_as_those_of_a_cpu(bits: int) -> None:
    from tnplan.executor.statevector.cpu.packed_kernel import unpack

    simulator = simulated(unseen_circuit("qft", 9, 4), "complex64", bits)
    state: Any = simulator.state
    out = np.empty(1 << 9, np.complex128)
    unpack((state.amplitudes.get(), state.scales.get()), 0, 1 / state.errors.norm, out)
    assert np.allclose(out, state.take(np.arange(1 << 9)), rtol=1e-12)
    assert np.allclose(out, state.to_host(), rtol=1e-6)
    assert np.abs(state.amplitudes.get().astype(int)).max() == (1 << bits - 1) - 1


def test_answers_are_those_of_the_decoded_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tnplan.executor.statevector.simulator.CHUNK_BITS", 6)
    for n in (6, 10):
        simulator = simulated(unseen_circuit("random", n, n), "complex64", 8, 2)
        plain = Simulator(HostState(n, "complex128"), n, seed=1)
        plain.load(whole(simulator), tuple(range(n))[::-1])
        for text in ("Z0 - 0.5*X1 + Y0 X3 + 2*Z1 Z2", f"X0 X{n - 1} + Y0 Y{n - 1} + Z0 Z{n - 1}"):
            observable = given_sum(text, n)
            exact = plain.expectation(observable)
            assert simulator.expectation(observable) == pytest.approx(exact, abs=1e-7)
        for qubits in ([0], [2, 0], [1, n - 1, 2, 3, 4]):
            assert np.allclose(simulator.probabilities(qubits), plain.probabilities(qubits), atol=1e-7)
        assert simulator.norm() == pytest.approx(1, abs=1e-6)
        assert np.allclose(simulator.array(), whole(simulator), atol=1e-7)
        simulator.random, plain.random = np.random.default_rng(4), np.random.default_rng(4)  # type: ignore[misc]
        assert np.mean(np.sort(simulator.sample(500)) == np.sort(plain.sample(500))) > 0.99


def test_zeros_stay_and_tiny_blocks_are_counted() -> None:
    """A block below the smallest scale becomes zeros, and what is lost is in the error."""
    circuit = GateSequence(9, tuple(gate("ry", (q,), (2e-11 if q < 3 else 1.0,)) for q in range(9)))
    simulator = simulated(circuit, "complex128", 16)
    exact, state = state_vector(circuit).reshape(-1), simulator.state
    sizes = np.abs(exact).reshape(8, 64).max(axis=1)
    own = whole(simulator).reshape(8, 64)
    for block, size in zip(own, sizes, strict=True):
        assert np.any(block) == (size > 1e-30)
    assert infidelity(own.reshape(-1), exact) <= 1 - state.errors.fidelity_bound  # type: ignore[attr-defined]
    state.restart()
    assert state.take(np.arange(3)).tolist() == [1, 0, 0]


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from tnplan.executor.statevector.cuda.packed_state import CodedState

    with pytest.raises(InputError, match="choose device cpu"):
        CodedState(4, "complex64", 8)
    state = CodedState(6, "complex64", 8)
    with pytest.raises(InputError, match="leave out the fidelity"):
        state.load(np.zeros(64))
    monkeypatch.setattr(packed_error, "host_memory", lambda: (64, 64))
    with pytest.raises(InputError, match="ask for single amplitudes"):
        state.to_host()


def test_thirty_six_qubits_fit_an_h200() -> None:
    """Of 139.8 GiB the driver takes less than one."""
    assert coded_bytes(36, 8, "complex64") < 138.5 * 2**30
    assert coded_bytes(35, 16, "complex64") < 138.5 * 2**30
    assert coded_tile("complex64", 36).bits == 14
    assert coded_tile("complex64", 36, 99 << 10).bits == 13
    assert coded_tile("complex128", 20).run_bits == 5


@needs_gpus(1)
@pytest.mark.parametrize(
    ("n", "dtype", "kinds"),
    [(18, "complex64", KINDS), (19, "complex128", ("random", "qft")), (27, "complex64", ("qft",))],
)
def test_larger_states_on_a_gpu(n: int, dtype: str, kinds: tuple[str, ...]) -> None:
    """A circuit and then its inverse, so that the exact state is |0...0>; 27 qubits have wide tiles."""
    from tnplan.executor.statevector.cuda.packed_state import CodedState

    for kind, bits in product(kinds, (8, 16)):
        circuit = unseen_circuit(kind, n, 31)
        both = [*circuit.gates, *(replace(g, matrix=g.matrix.conj().T) for g in circuit.gates[::-1])]
        state = CodedState(n, dtype, bits, 1)
        simulator = Simulator(state, n)
        simulator.run(prepare_program(both), NO_BITS)
        rest = state.to_host()
        whole_norm = np.linalg.norm(rest)
        rest[0] = 0  # what is left of all but |0...0>, as 1 - F may be less than the rounding of 1
        error = (np.linalg.norm(rest) / whole_norm) ** 2
        assert error <= 1 - state.errors.fidelity_bound
        assert 0.5 <= error / (1 - state.errors.fidelity_estimate) <= 2
        assert simulator.norm() == pytest.approx(1, abs=1e-6)


@needs_gpus(1)
def test_simulate_takes_a_fidelity_on_a_gpu() -> None:
    circuit = unseen_circuit("qaoa", 20, 6)
    asked = {"precision": "fp32", "observable": "Z0 Z5", "shots": 10, "seed": 1, "fidelity": 0.99}
    reports = [tnplan.simulate(circuit, device=device, **asked).report for device in ("cpu", "gpu", "auto")]
    assert [report["device"] for report in reports] == ["cpu", "gpu", "gpu"]
    assert reports[1]["bits"] == 8
    assert reports[1]["fidelity_estimate"] > 0.99
    assert reports[0]["expectation"] == pytest.approx(reports[1]["expectation"], abs=0.2)
    assert reports[1]["expectation"] == reports[2]["expectation"]
