"""Compiled passes: programs do what the twin does, on a GPU or emulated; equal structures share a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.oracles.statevector import apply_pass
from tests.support.circuits import random_circuit
from tests.support.effort import repeats
from tests.support.engines.statevector import TOLERANCE, hadamards, many_kinds, plan_of, qft, random_unitary
from tests.support.kernels.emulator import needs_compiler
from tests.support.kernels.gpus import needs_gpus
from tests.support.kernels.statevector_emulator import emulate, emulate_swap, program_text
from tests.support.slow import slow_unless
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.executor.statevector.codegen.pass_program import PassProgram, make_program
from tnplan.executor.statevector.cuda import kernel_defines
from tnplan.executor.statevector.cuda.kernel_defines import neighbours
from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate, from_gate
from tnplan.executor.statevector.gates.phase_polynomial import PhasePolynomial, phases_of_diagonal
from tnplan.executor.statevector.scheduling.qubit_cover import index_of
from tnplan.executor.statevector.scheduling.tiled_passes import Pass, Tile

N_BITS = 12
Run = Callable[..., None]
"""Does a pass on a state in place: its program, its tile, bits whose values are done in turn."""


def emulated(state: np.ndarray, item: Pass, made: PassProgram, tile: Tile, bits: Sequence[int] = ()) -> None:
    emulate(state, made, item.held_bits, program_text(made, item, tile, state), 0, bits)


def on_gpu(state: np.ndarray, item: Pass, made: PassProgram, tile: Tile, bits: Sequence[int] = ()) -> None:
    from tnplan.executor.statevector.cuda.state import CupyState

    there = CupyState(_bits_of(state), state.dtype.name, tile=tile, programs_from=0)
    there.load(state)
    (prepared,) = there.prepare([item])
    assert there.is_divisible(prepared)
    for part in range(1 << len(bits)):
        there.bind_part(prepared, bits, part)() if bits else there.apply(prepared)
    state[:] = there.to_host()


def _bits_of(state: np.ndarray) -> int:
    return state.size.bit_length() - 1


RUNS = [
    pytest.param(emulated, id="emulated", marks=needs_compiler),
    pytest.param(on_gpu, id="gpu", marks=needs_gpus(1)),
]
WALK = GateSequence(N_BITS, tuple(
    item for layer in range(4) for item in (
        *(gate(("x_1_2", "y_1_2", "hz_1_2")[(q + layer) % 3], (q,)) for q in range(N_BITS)),
        *(gate("cz" if layer % 2 else "fs", (q, q + 1), () if layer % 2 else (0.9, 0.4))
          for q in range(layer % 2, N_BITS - 1, 2)),
    )
))  # fmt: skip
GENERATOR = np.random.default_rng(5)
LAYERS = GateSequence(N_BITS, tuple(
    item for layer in range(5) for item in (
        *(Gate("u", (q,), random_unitary(1, GENERATOR)) for q in range(N_BITS)),
        *(gate("cz", tuple(map(int, pair))) for pair in GENERATOR.permutation(N_BITS).reshape(-1, 2)),
        gate("cnot", tuple(map(int, GENERATOR.permutation(N_BITS)[:2]))),
        gate("fs", tuple(map(int, GENERATOR.permutation(N_BITS)[:2])), (0.3, 0.2)),
    )
))  # fmt: skip
CIRCUITS = {
    "h": hadamards(N_BITS), "qft": qft(N_BITS), "walk": WALK, "layers": LAYERS,
    "every": random_circuit(N_BITS, 40, 1), "unitaries": many_kinds(N_BITS, 12, 3),
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(
    ("name", "real"),
    slow_unless(
        lambda name, real: (name + real) % 2 == 0,
        list(CIRCUITS),
        [
            ("complex64", Tile(10, 3, 1, 4)),
            ("complex64", Tile(10, 3, 1, 5, True)),
            ("complex128", Tile(9, 2, 1, 4, True)),
        ],
    ),
)
def test_programs_equal_the_twin(run: Run, real: tuple[str, Tile], name: str) -> None:
    dtype, tile = real
    generator = np.random.default_rng(3)
    state = generator.normal(size=2**N_BITS) + 1j * generator.normal(size=2**N_BITS)
    state = (state / np.linalg.norm(state)).astype(dtype)
    done = 0
    for item in plan_of(CIRCUITS[name], tile).passes:
        made = make_program(item, N_BITS, tile.register_bits, state.itemsize)
        expected = state.astype(np.complex128)
        apply_pass(expected, item)
        if made is None or len(item.steps) < 3 or done == repeats(1, 3):
            state[:] = expected
            continue
        run(state, item, made, tile)
        np.testing.assert_allclose(state, expected, rtol=0, atol=TOLERANCE[dtype] / 10)
        done += 1
    assert done or name == "unitaries"


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("bits", [(9,), (6, 10), (3, 9, 10)])
def test_parts_of_a_pass_are_the_whole(run: Run, bits: tuple[int, ...]) -> None:
    """Bit for bit, whichever bits number the parts."""
    generator = np.random.default_rng(4)
    held = tuple(bit for bit in range(N_BITS) if bit not in (3, 6, 9, 10))
    pairs = np.triu(generator.uniform(-3, 3, (N_BITS, N_BITS)), 1)
    phases = PhasePolynomial(0.2, generator.uniform(-3, 3, N_BITS), pairs + pairs.T)
    steps = [from_gate(gate("y_1_2", (bit,))) for bit in held]
    item = Pass(held, (*steps[:4], phases, *steps[4:], from_gate(gate("cz", (3, 10)))))
    state = np.exp(1j * generator.uniform(-3, 3, 2**N_BITS)).astype(np.complex64)
    made = make_program(item, N_BITS, 3, 8)
    assert made is not None
    assert made.tile_phases
    whole = state.copy()
    run(whole, item, made, Tile(8, 2, 1, 3, True))
    assert not np.array_equal(whole, state)
    run(state, item, made, Tile(8, 2, 1, 3, True), bits)
    np.testing.assert_array_equal(state, whole)


@pytest.mark.parametrize("run", RUNS)
def test_diagonals_of_every_form(run: Run) -> None:
    """Phases of many pairs near and far, a table that is no sum of pairs, one that is not of modulus 1."""
    generator = np.random.default_rng(8)
    tile = Tile(9, 2, 1, 3)
    held = (0, 1, 2, 4, 5, 7, 8, 9, 11)
    pairs = np.triu(generator.uniform(-3, 3, (N_BITS, N_BITS)), 1)
    pairs += pairs.T
    far = ~np.isin(np.arange(N_BITS), held)
    pairs[np.ix_(~far, ~far)] = 0
    table = MultiplexedGate((), (9, 5, 4, 1), np.exp(1j * generator.uniform(-3, 3, (16, 1, 1))))
    scaled = MultiplexedGate((), (10, 8, 2), generator.uniform(0, 1, (8, 1, 1)) + 0j)
    near = PhasePolynomial(0.3, np.zeros(N_BITS), np.where(np.outer(~far, ~far), generator.uniform(1, 2), 0))
    np.fill_diagonal(near.pairs, 0)
    flip = MultiplexedGate((7,), (11, 3, 0), np.array([*[np.eye(2)] * 7, [[0, 1j], [1, 0]]]))
    item = Pass(
        held, (PhasePolynomial(0.2, generator.uniform(-3, 3, N_BITS), pairs), table, near, flip, scaled)
    )
    state = np.exp(1j * generator.uniform(-3, 3, 2**N_BITS))
    expected = state.copy()
    apply_pass(expected, item)
    made = make_program(item, N_BITS, 3, 16)
    assert made is not None
    assert len(made.tile_phases) == 1
    assert made.has_far_pairs
    assert all(word in made.steps for word in ("FACTORS", "TABLE", "FAR", "THREAD"))
    run(state, item, made, tile)
    np.testing.assert_allclose(state, expected, rtol=0, atol=1e-12)


def wide_pass(n_bits: int, tile: Tile, dtype: str) -> tuple[Pass, np.ndarray, np.ndarray]:
    """A pass in wide tiles, a state, and what the pass makes of it."""
    held = (*range(tile.run_bits + 1), *range(n_bits - tile.wide_bits + tile.run_bits + 1, n_bits))
    steps = tuple(from_gate(gate("ry", (bit,), (0.3 + bit,))) for bit in held)
    item = Pass(held, (*steps[::2], from_gate(gate("cp", (4, n_bits - 1), (0.7,))), *steps[1::2]))
    generator = np.random.default_rng(3)
    state = generator.normal(size=2**n_bits) + 1j * generator.normal(size=2**n_bits)
    state = (state / np.linalg.norm(state)).astype(dtype)
    expected = state.astype(np.complex128)
    apply_pass(expected, item)
    return item, state, expected


@needs_compiler
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_wide_tiles_equal_the_twin(dtype: str) -> None:
    tile = pytest.importorskip("tnplan.executor.statevector.cuda.state").PROGRAM_TILES[dtype]
    item, state, expected = wide_pass(16, tile, dtype)
    made = make_program(item, 16, tile.register_bits, state.itemsize)
    assert made is not None
    emulated(state, item, made, tile.wide)
    np.testing.assert_allclose(state, expected, rtol=0, atol=TOLERANCE[dtype] / 10)


@needs_gpus(1)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_wide_tiles_equal_the_twin_on_a_gpu(dtype: str) -> None:
    """Compiled and read from tables, whole and part by part."""
    from tnplan.executor.statevector.cuda import state as cupy_state

    n_bits, tile = 18, cupy_state.PROGRAM_TILES[dtype]
    item, state, expected = wide_pass(n_bits, tile, dtype)
    for programs_from, parts in ((0, 0), (0, 4), (n_bits + 1, 0)):
        there = cupy_state.CupyState(n_bits, dtype, tile=tile, programs_from=programs_from)
        there.load(state)
        (prepared,) = there.prepare([item])
        assert there.is_divisible(prepared) == (not programs_from)
        for part in range(parts):
            there.bind_part(prepared, (5, 6)[: parts // 2], part)()
        if not parts:
            there.apply(prepared)
        np.testing.assert_allclose(there.to_host(), expected, rtol=0, atol=TOLERANCE[dtype] / 10)


@needs_gpus(1)
def test_neighbouring_tiles_at_the_same_time_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole passes and parts of them."""
    from tnplan.executor.statevector.cuda import state as cupy_state

    n_bits, tile = 22, Tile(13, 3, 1, 5, True)
    steps = tuple(from_gate(gate("ry", (bit,), (0.3 + bit,))) for bit in (*range(3), *range(12, 22)))
    item = Pass((*range(3), *range(12, 22)), steps)
    values = np.random.default_rng(3).normal(size=2**n_bits).astype(np.complex64)
    found = []
    for near, count in ((64, 1), (128, 2)):
        monkeypatch.setattr(kernel_defines, "NEAR_BYTES", near)
        assert neighbours(8, item.held_bits, n_bits) == count
        state = cupy_state.CupyState(n_bits, "complex64", tile=tile, programs_from=0)
        (prepared,) = state.prepare([item])
        state.load(values)
        state.apply(prepared)
        for part in range(4):
            state.bind_part(prepared, (7, 11), part)()
        found.append(state.shard())
    assert not np.array_equal(found[0], values)
    np.testing.assert_array_equal(found[0], found[1])


def test_tiles_with_short_runs_have_neighbours() -> None:
    short, long = (0, 1, 2, *range(11, 21)), (*range(4), *range(12, 21))
    assert [neighbours(8, held, 30) for held in (short, long)] == [2, 1]
    assert [neighbours(16, held, 30) for held in ((0, 1, *range(9, 19)), short)] == [2, 1]
    assert neighbours(8, short, 14) == 1
    assert [neighbours(2, (*range(run_bits), *range(12, 20)), 30) for run_bits in (5, 6)] == [2, 1]


@pytest.mark.parametrize("run", RUNS)
def test_a_cz_signs_the_gates_after_it(run: Run) -> None:
    """No CZ is done but by signs: of gates on its bits after it, and of all amplitudes at the end."""
    generator = np.random.default_rng(9)
    held = (0, 1, 2, 3, 5, 6, 7, 9, 11)
    steps = []
    for turn in range(40):
        bit, first, second = (int(k) for k in generator.permutation(N_BITS)[:3])
        steps.append(from_gate(gate("cz", (first, second))))
        kind = ("h", (), "ry", (0.3 + turn,), "y_1_2", ())[2 * (turn % 3) :]
        steps.append(from_gate(gate(kind[0], (bit if bit in held else held[turn % 9],), kind[1])))
    steps += [from_gate(gate("cz", (j, j + 1))) for j in range(N_BITS - 1)]
    item = Pass(held, tuple(steps))
    state = np.exp(1j * generator.uniform(-3, 3, 2**N_BITS))
    expected = state.copy()
    apply_pass(expected, item)
    made = make_program(item, N_BITS, 3, 16)
    assert made is not None
    assert {"SIGNED", "PARITY", "SIGNS"} <= set(re.findall(r"\w+(?=\()", made.steps))
    run(state, item, made, Tile(9, 2, 1, 3, True))
    np.testing.assert_allclose(state, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("pairs", [((0, 9),), ((1, 8), (11, 2)), ((0, 4), (1, 9))])
def test_exchanges_at_the_end_are_a_way_to_store(run: Run, pairs: tuple[tuple[int, int], ...]) -> None:
    held = (0, 1, 2, 3, 4, 6, 8, 9, 11)
    steps = [from_gate(gate("ry", (bit,), (0.3 + bit,))) for bit in held]
    item = Pass(held, (*steps, *(from_gate(gate("sw", pair)) for pair in pairs)))
    state = np.exp(1j * np.random.default_rng(2).uniform(-3, 3, 2**N_BITS))
    expected = state.copy()
    apply_pass(expected, item)
    made = make_program(item, N_BITS, 3, 16)
    assert made is not None
    assert "TWO(" not in made.steps
    run(state, item, made, Tile(9, 2, 1, 3, True))
    np.testing.assert_allclose(state, expected, rtol=0, atol=1e-12)


def _bits(code: str, count: int) -> list[int]:
    return [int(code, 16) >> 4 * k & 15 for k in range(count)]


def _writers(registers: list[int], threads: list[int]) -> np.ndarray:
    """The thread that has each element of a tile."""
    owner = np.empty(1 << (len(registers) + len(threads)), np.int64)
    for thread in range(1 << len(threads)):
        base = sum((thread >> k & 1) << bit for k, bit in enumerate(threads))
        for own in range(1 << len(registers)):
            owner[base + sum((own >> k & 1) << bit for k, bit in enumerate(registers))] = thread
    return owner


@pytest.mark.parametrize("seed", [2, 4])
@pytest.mark.parametrize("tile", [Tile(13, 3, 1, 4), Tile(14, 4, 1, 5, True)], ids=str)
def test_threads_meet_all_whose_amplitudes_they_take(tile: Tile, seed: int) -> None:
    """In a group of warps; and no barrier is used by two sets of groups before all threads have met."""
    generator = np.random.default_rng(seed)
    gates = [gate("x_1_2", (int(q),)) if k % 3 else gate("cz", (int(q), (int(q) + 5) % 16))
             for k, q in enumerate(generator.integers(0, 16, 300))]  # fmt: skip
    kinds = set()
    for item in plan_of(GateSequence(16, tuple(gates)), tile).passes:
        made = make_program(item, 16, tile.register_bits, 8)
        assert made is not None
        used: set[int] = set()
        for move in re.findall(r"MOVE\(([^)]*)\)", made.steps):
            *codes, number = move.replace("ull", "").split(", ")
            barrier = int(number)
            old, new = _bits(codes[1], 9), _bits(codes[3], 9)
            same = [k for k in range(5, 9) if old[k] == new[k]]
            kinds.add(min(barrier, 1))
            if barrier == 0:
                used = set()
                continue
            if barrier == -1:
                same = [5, 6, 7, 8]
            else:
                numbers = set(range(barrier, barrier + (1 << len(same))))
                assert not numbers & used
                assert max(numbers) < 16
                used |= numbers
            mask = sum(1 << k for k in same)
            was, now = (
                _writers(_bits(codes[k], tile.register_bits), threads) for k, threads in ((0, old), (2, new))
            )
            np.testing.assert_array_equal(was & mask, now & mask)
    assert kinds == {-1, 0, 1}


@needs_compiler
@pytest.mark.parametrize(
    ("dtype", "inside"), [("complex64", (4,)), ("complex64", (0, 3)), ("complex128", (2, 5))]
)
def test_swaps_in_mapped_memory_are_exchanges(dtype: str, inside: tuple[int, ...]) -> None:
    """Every pair of ranks swaps a half of its places each; a rank has its peers one after the other."""
    swap = pytest.importorskip("tnplan.executor.statevector.cuda.bit_swap")
    n, k = 7, len(inside)
    parts = np.arange(1 << (n + k), dtype=dtype).reshape(1 << k, 1 << n)
    index = np.arange(1 << (n + k))
    moved = index.copy()
    for place, bit in enumerate(inside):
        differ = (index >> bit ^ index >> (n + place)) & 1
        moved ^= differ << bit | differ << (n + place)
    expected = parts.reshape(-1)[moved].reshape(parts.shape)
    defines = swap.swap_defines(parts.itemsize, inside, n_peers=(1 << k) - 1)
    count = (parts[0].nbytes // (8 if defines["UNIT"] == "float2" else 16)) >> k
    for rank in range(1 << k):
        peers = [rank ^ turn for turn in range(1, 1 << k)]
        own, theirs = (
            [parts[r].ctypes.data + parts.itemsize * index_of(value, inside) for r, value in pairs]
            for pairs in ([(rank, peer) for peer in peers], [(peer, rank) for peer in peers])
        )
        sides = swap.swap_sides(own, theirs, [rank < peer for peer in peers], count)
        emulate_swap(sides, defines)
    np.testing.assert_array_equal(parts, expected)


def test_the_same_structure_is_the_same_text() -> None:
    def texts(shift: float) -> list[str]:
        gates = [gate("rx", (q,), (0.4 + shift,)) for q in range(N_BITS)]
        gates += [gate("fs", (q, q + 1), (0.3 + shift, 0.2)) for q in range(0, N_BITS, 2)]
        passes = plan_of(GateSequence(N_BITS, tuple(gates)), Tile(10, 3, 1, 4)).passes
        made = [make_program(item, N_BITS, 4, 8) for item in passes]
        return [one.steps for one in made if one is not None]

    assert texts(0) == texts(0.1)
    assert texts(0)


def test_steps_that_no_program_takes() -> None:
    wide = MultiplexedGate(
        (3, 2, 1), (), np.linalg.qr(np.random.default_rng(1).normal(size=(8, 8)))[0][None] + 0j
    )
    chosen = MultiplexedGate(
        (3,), (11, 10, 9, 8), np.broadcast_to(np.array([[0, 1], [1, 0]]) + 0j, (16, 2, 2))
    )
    chosen = MultiplexedGate((3,), chosen.selectors, chosen.matrices * np.arange(16)[:, None, None])
    for step in (wide, chosen):
        assert make_program(Pass(tuple(range(8)), (step,)), N_BITS, 4, 8) is None


def test_phases_are_found_in_a_table() -> None:
    values = np.exp(1j * np.array([0.1, 0.5, 1.1, -2.9]))
    form = phases_of_diagonal(MultiplexedGate((), (4, 2), values.reshape(-1, 1, 1)), 6)
    assert form is not None
    assert form.n_terms == 3
    found = form.factor({2: np.array([0, 1, 0, 1]), 4: np.array([0, 0, 1, 1])}) * np.exp(1j * form.constant)
    np.testing.assert_allclose(found, values, atol=1e-14)
    assert phases_of_diagonal(MultiplexedGate((), (0,), np.array([1, 0.5]).reshape(-1, 1, 1) + 0j), 6) is None
    odd = np.ones((8, 1, 1), np.complex128)
    odd[7] = -1
    assert phases_of_diagonal(MultiplexedGate((), (2, 1, 0), odd), 6) is None
