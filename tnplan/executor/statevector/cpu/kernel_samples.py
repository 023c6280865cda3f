"""The kernels of a state on a CPU, each with arguments of the types that it is called with."""

from __future__ import annotations

import numpy as np

from tnplan.common.kernels.ahead import Sample, Samples
from tnplan.common.kernels.vector_operations import LANE_BITS
from tnplan.executor.statevector.cpu import joint_sum_kernel as sum_kernel
from tnplan.executor.statevector.cpu import measure_kernel, packed_kernel, tiled_pass_kernel
from tnplan.executor.statevector.cpu.joint_sum_tables import sum_pass
from tnplan.executor.statevector.cpu.state import JOINT_FROM, sum_scratch
from tnplan.executor.statevector.cpu.tile_scratch import tile_scratch
from tnplan.executor.statevector.cpu.vector_rounds import LARGEST_MATRIX
from tnplan.executor.statevector.cpu.vector_tables import vector_pass, word_scratch, word_table
from tnplan.executor.statevector.gates.multiplexed_gate import from_matrix, word_sum
from tnplan.executor.statevector.scheduling.tiled_passes import Pass


def state_kernels(dtype: str, n_bits: int, largest: int) -> list[Samples]:
    """What is done with 2^n_bits amplitudes of this dtype, by gates on at most `largest` qubits."""
    lane_bits = LANE_BITS[np.empty(0, dtype).real.itemsize]
    has_others = largest > LARGEST_MATRIX or n_bits < lane_bits + LARGEST_MATRIX
    names = ["of_rounds", "of_measures", *(["of_passes"] if has_others else [])]
    return [Samples(__name__, name, (dtype,)) for name in names]


def gradient_kernels(dtype: str, n_bits: int, n_ranks: int) -> list[Samples]:
    """What a gradient does besides, with 2^n_bits amplitudes a rank."""
    name = "of_joint_gradients" if n_ranks == 1 and n_bits >= JOINT_FROM else "of_gradients"
    return [Samples(__name__, name, (dtype,))]


def packed_kernels(dtype: str, bits: int) -> list[Samples]:
    """What is done with numbers of so many bits in passes of this dtype."""
    return [
        Samples(__name__, "of_packed", (dtype, f"int{bits}")),
        Samples(__name__, "of_measures", ("complex128",)),
    ]


def of_packed(dtype: str, numbers: str) -> list[Sample]:
    """The kernels of a compressed state."""
    real = np.empty(0, dtype).real.dtype
    tables = vector_pass(Pass((0, 1), (from_matrix((0,), np.eye(2)[::-1]),)), 2, real, 0)
    packed = np.zeros(8, numbers), np.zeros(1, np.float32)
    rounding = 0, np.ones(1, real), np.zeros(8, real)
    pass_tables = tables.flat, tables.numbers
    scratch = tile_scratch(tables, real)
    return [
        (packed_kernel.run_packed, (packed, rounding, pass_tables, scratch, (0, 0, 0), np.zeros((1, 2)))),
        (packed_kernel.unpack, (packed, 0, 1.0, np.zeros(0, np.complex128))),
    ]


def of_rounds(dtype: str) -> list[Sample]:
    """The kernel of a pass of rounds alone."""
    return [(tiled_pass_kernel.run_rounds, arguments) for _, arguments in of_passes(dtype)]


def of_passes(dtype: str) -> list[Sample]:
    """The kernel of any pass."""
    real = np.empty(0, dtype).real.dtype
    tables = vector_pass(Pass((0, 1), (from_matrix((0,), np.eye(2)[::-1]),)), 2, real, 0)
    return [(
        tiled_pass_kernel.run_tiles,
        (np.zeros(8, real), 0, (tables.flat, tables.numbers), tile_scratch(tables, real), 0, 0),
    )]  # fmt: skip


def of_measures(dtype: str) -> list[Sample]:
    """The kernels of answers."""
    state, places, sums = np.zeros(4, dtype), np.zeros(1, np.int64), np.zeros(1)
    return [
        (measure_kernel.draw, (state, 2, (places, sums), 0, 0, places)),
        (measure_kernel.chunk_sums, (state, 2, 0, 0, sums)),
        (measure_kernel.marginal, (state, places, 0, 0, sums)),
        (
            measure_kernel.word_sum_value,
            (state, word_table([(0, 0, 1.0)], 4), word_scratch(4), 0, 0, np.zeros((1, 2))),
        ),
    ]  # fmt: skip


def of_gradients(dtype: str) -> list[Sample]:
    """The kernels of the sweep back over one state after the other."""
    state, masks, sums = np.zeros(64, dtype), np.zeros((1, 2), np.int64), np.zeros((1, 1, 2))
    real = state.view(state.real.dtype)
    return [
        (measure_kernel.add_words, ((real, real), masks, 0, 0, (real.reshape(2, -1), real, real), sums)),
        (measure_kernel.add_word, (state, state, (0, 0), (0.0, 0.0), 0, 0)),
    ]


def of_joint_gradients(dtype: str) -> list[Sample]:
    """The kernels of the sweep back over both states at once."""
    state, words = np.zeros(64, dtype), word_table([(0, 0, 1.0)], 64)
    real = state.real.dtype
    held_bits = tuple(range(JOINT_FROM + 1))
    item = sum_pass(Pass(held_bits, (word_sum(1, 1, 0, False),)), len(held_bits), real)
    tables = item.tables
    return [
        (
            sum_kernel.run_sums,
            (
                np.zeros(8, real), (tables.flat, tables.numbers, item.sums),
                (tile_scratch(tables, real), sum_scratch(real)), 0, 0, np.zeros((1, 1)),
            ),
        ),
        (measure_kernel.write_word_sum, (state, state, words, word_scratch(64), 0, 0)),
    ]  # fmt: skip
