"""A state in the memory of this host: passes by numba on several threads. Knows tables, not circuits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.kernels.vector_operations import VECTOR_BYTES, WORD_VECTORS
from tnplan.executor.device.cpu.parallel_rows import over_spans
from tnplan.executor.statevector.cpu.joint_sum_tables import SumPass, sum_pass
from tnplan.executor.statevector.cpu.tile_scratch import aligned, tile_scratch
from tnplan.executor.statevector.cpu.vector_rounds import LARGEST_MATRIX
from tnplan.executor.statevector.cpu.vector_tables import (
    BLOCK,
    VectorPass,
    round_bits,
    vector_pass,
    word_scratch,
    word_table,
)
from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate, WordSum, mask_of
from tnplan.executor.statevector.scheduling.fusion import PassStep
from tnplan.executor.statevector.scheduling.qubit_cover import QubitExchange, index_of
from tnplan.executor.statevector.scheduling.tiled_passes import TILES, Pass, Tile

Work = Callable[[int, int], None]

LOW = 4
"""Diagonals select by all of the lowest bits of a tile, so that their tables are read in runs."""
CHUNKS_A_THREAD = 8
"""Chunks into which work is cut for each thread, so that threads end together."""
PARTS = 1024
LEAST_PART_BITS = 10
"""A sum over all amplitudes is made of so many, whatever the threads, so that its bits stay the same."""
WORD_PART = 1 << 11
"""Amplitudes that stay in the cache while the sums of many Pauli words run over them."""
LEAST_WORD_BITS = 6
"""Words are summed over 64 amplitudes at a time."""
TABLE_PARTS = 1024
"""The same for tables of probabilities, divided by their length."""


class HostState:
    """2^n_bits amplitudes, those of rank `rank` among several; starts in |0...0>."""

    name = "cpu"

    def __init__(self, n_bits: int, dtype: str, threads: int = 1, rank: int = 0) -> None:
        self.n_bits, self.rank, self.threads = n_bits, rank, threads
        self.tile, self.dtype = TILES[dtype], dtype
        self._amplitudes = aligned((1 << n_bits,), np.dtype(dtype))
        self._begin()

    @property
    def amplitudes(self) -> Array:
        """The memory itself, which may be changed."""
        self._varying = -1
        return self._amplitudes

    def restart(self) -> None:
        """Back to |0...0>."""
        self._amplitudes.fill(0)
        self._begin()

    def _begin(self) -> None:
        """|0...0> from amplitudes that are all 0."""
        if self.rank == 0:
            self._amplitudes[0] = 1
        self._varying = 0
        """The bits that are not 0 in the index of some amplitude that is not 0, and perhaps others."""

    def prepare(self, steps: Sequence[Pass | QubitExchange], again: bool = True) -> list[VectorPass]:
        """The tables of passes; a host alone has no exchanges."""
        real = self._amplitudes.real.dtype
        return [
            vector_pass(step, self.n_bits, real, LOW, self.rank) for step in steps if isinstance(step, Pass)
        ]

    def is_divisible(self, tables: VectorPass) -> bool:
        """Whether `bind_part` can divide a pass."""
        return True

    def bind_part(
        self, tables: VectorPass, bits: Sequence[int], value: int, share: int = 0
    ) -> Callable[[], None]:  # fmt: skip
        """The call that does a pass on the amplitudes whose `bits`, which it does not hold, have a value.

        Exchanges come in turn with it, so that their `share` makes no difference.
        """
        far = tables.far[~np.isin(tables.far, bits)]
        return lambda: self._run(tables, far, index_of(value, bits))

    def apply(self, tables: VectorPass) -> None:
        """Do a pass. Tiles of zeros stay as they are."""
        # Tiles whose far bits are 1 where no amplitude has them are all zeros: they stay so under
        # any gate, and are skipped. At the beginning of a circuit these are nearly all.
        varying = self._varying
        self._run(tables, tables.far[varying >> tables.far & 1 == 1], 0)
        self._varying = varying | mask_of(tables.flat.tile_bits.tolist())

    def run_on(self, tables: VectorPass, far: Array) -> None:
        """Do a pass on the tiles in which no bits outside are 1 but `far` ones."""
        self._run(tables, far, 0)

    def _run(self, tables: VectorPass, far: Array, start: int) -> None:
        """Do a pass on the tiles whose bits are `far` ones or those of `start`."""
        run_pass = _kernel_of(tables)
        real = self._amplitudes.real.dtype
        flat = self._amplitudes[start:].view(real)
        base = self.rank << self.n_bits | start
        passed, n_tiles = tables.flat._replace(far=far), 1 << len(far)
        self._varying = -1

        def work(first: int, last: int) -> None:
            run_pass(flat, base, (passed, tables.numbers), tile_scratch(tables, real), first, last)

        over_chunks(n_tiles, self.threads, work)

    def sums(self, chunk_bits: int) -> Array:
        """The probability of each chunk of 2^chunk_bits amplitudes, float64."""
        from tnplan.executor.statevector.cpu.measure_kernel import chunk_sums

        out = np.empty(1 << (self.n_bits - chunk_bits))
        over_chunks(
            len(out), self.threads,
            lambda first, last: chunk_sums(self._amplitudes, chunk_bits, first, last, out),
        )  # fmt: skip
        return out

    def draw(self, chunk_bits: int, chunks: Array, rests: Array) -> Array:
        """The indices, int64, where the sums over chunks[k] reach rests[k]; chunks rise, rests in a chunk."""
        from tnplan.executor.statevector.cpu.measure_kernel import draw

        out = np.empty(len(chunks), np.int64)
        cuts = np.searchsorted(chunks, np.linspace(0, 1 << (self.n_bits - chunk_bits), self.threads + 1))
        over_chunks(
            self.threads, self.threads,
            lambda first, last: draw(
                self._amplitudes, chunk_bits, (chunks, rests), cuts[first], cuts[last], out
            ), 1,
        )  # fmt: skip
        return out

    def marginal(self, bits: Sequence[int]) -> Array:
        """The probability, float64 [2^m], of each value of some bits, the first least significant."""
        from tnplan.executor.statevector.cpu.measure_kernel import marginal

        # Invariant: the number of parts depends on the state and the question alone, not on threads.
        n_parts = min(_most_parts(self._amplitudes), max(1, TABLE_PARTS >> len(bits)))
        parts = np.zeros((n_parts, 1 << len(bits)))
        places = np.array(bits, np.int64)
        size = len(self._amplitudes) // n_parts

        def work(first: int, last: int) -> None:
            for piece in range(first, last):
                marginal(self._amplitudes, places, piece * size, (piece + 1) * size, parts[piece])

        over_chunks(n_parts, self.threads, work)
        return np.asarray(parts.sum(axis=0))

    def pauli(self, x: int, z: int) -> complex:
        """The sum over i of (-1)^|z & i| conj(a[i ^ x]) a[i], for masks of bits."""
        return self.pauli_with(self._amplitudes, 0, x, z)

    def pauli_with(self, others: Array, first: int, x: int, z: int) -> complex:
        """The sum over i of (-1)^|z & i| conj(others[i ^ x]) a[first + i]."""
        from tnplan.executor.statevector.cpu.measure_kernel import pauli

        local = self._amplitudes[first : first + len(others)]
        n_parts = min(PARTS, _most_parts(local))
        parts = np.zeros(n_parts, np.complex128)
        size = len(local) // n_parts

        def work(first: int, last: int) -> None:
            for piece in range(first, last):
                parts[piece] = complex(*pauli(others, local, x, z, piece * size, (piece + 1) * size))

        over_chunks(n_parts, self.threads, work)
        return complex(parts.sum())

    def pauli_sum(self, words: Sequence[tuple[int, int, complex]]) -> complex:
        """The sum over words, masks x and z and factors, of factors times `pauli`."""
        from tnplan.executor.statevector.cpu.measure_kernel import word_sum_value

        own = self._amplitudes
        table = word_table(words, len(own))
        parts = np.zeros((max(1, min(PARTS, len(own) // BLOCK)), 2))

        def work(first: int, last: int) -> None:
            word_sum_value(own, table, word_scratch(len(own)), first, last, parts)

        over_chunks(len(parts), self.threads, work)
        return complex(*parts.sum(axis=0))

    def write_pauli_sum(self, words: Sequence[tuple[int, int, complex]], out: Array) -> None:
        """Write the sum of words times this state."""
        from tnplan.executor.statevector.cpu.measure_kernel import write_word_sum

        own = self._amplitudes
        table = word_table(words, len(own))

        def work(first: int, last: int) -> None:
            write_word_sum(out, own, table, word_scratch(len(own)), first, last)

        over_chunks(max(1, len(own) // BLOCK), self.threads, work)

    def joint(self) -> HostJointState | None:
        """See `AdjointState`."""

        return HostJointState(self) if self.n_bits >= JOINT_FROM else None

    def twin(self) -> HostState:
        """Another state of the same size, all of whose amplitudes are zero."""
        other = HostState(self.n_bits, self._amplitudes.dtype.name, self.threads, self.rank)
        other.amplitudes.fill(0)
        return other

    def assign(self, source: HostState) -> None:
        """Take the amplitudes of another state."""
        self.amplitudes[:] = source._amplitudes

    def compile_repeated(self, passes: Sequence[Pass], times: int) -> None:
        """Nothing is compiled for a pass."""

    def rebound(
        self, steps: Sequence[Pass | QubitExchange], prepared: Sequence[VectorPass]
    ) -> Sequence[VectorPass]:
        """What another state of the same size has prepared for steps, for this one."""
        return prepared

    def add_word(self, source: HostState, x: int, z: int, factor: complex) -> None:
        """Add `factor` (-1)^|z & i| a[i] of another state at i ^ x, for all i."""
        self.add_word_of(source._amplitudes, 0, x, z, factor)

    def add_word_of(self, others: Array, first: int, x: int, z: int, factor: complex) -> None:
        """The same for others[i] at first + (i ^ x)."""
        from tnplan.executor.statevector.cpu.measure_kernel import add_word

        local = self.amplitudes[first : first + len(others)]

        def work(first: int, last: int) -> None:
            add_word(local, others, (x, z), (factor.real, factor.imag), first, last)

        over_chunks(len(local), self.threads, work)

    def between(self, other: HostState, words: Sequence[tuple[int, int]]) -> Callable[[], Array]:
        """For each pair of masks the sum over i of (-1)^|z & i| conj(b[i ^ x]) a[i], b of the other state.

        Part by part, so that a part is in the cache for all words.
        """
        values = self._between(other, words)
        return lambda: values

    def _between(self, other: HostState, words: Sequence[tuple[int, int]]) -> Array:
        if self.n_bits < LEAST_WORD_BITS:
            return np.array([self.pauli_with(other._amplitudes, 0, x, z) for x, z in words], np.complex128)
        from tnplan.executor.statevector.cpu.measure_kernel import add_words

        real = self._amplitudes.real.dtype
        lanes = VECTOR_BYTES // real.itemsize
        masks = np.array(words, np.int64).reshape(-1, 2)
        # Words with the same low bits of x follow each other, so that `turn` is made once for them.
        order = np.argsort(masks[:, 0] & (lanes // 2 - 1), kind="stable")
        masks = masks[order]
        size = min(WORD_PART, len(self._amplitudes))
        sums = np.zeros((min(PARTS, len(self._amplitudes) // size), len(words), 2))
        states = other._amplitudes.view(real), self._amplitudes.view(real)

        def work(first: int, last: int) -> None:
            scratch = tuple(np.empty(shape, real) for shape in ((2, 2 * size), 2 * lanes, WORD_VECTORS))
            add_words(states, masks, first, last, scratch, sums)

        over_chunks(len(sums), self.threads, work)
        values = np.empty(len(words), np.complex128)
        values[order] = sums.sum(axis=0) @ [1, 1j]
        return values

    def take(self, indices: Array) -> Array:
        """The amplitudes at some indices, on the host."""
        return np.asarray(self._amplitudes[indices])

    def shard(self) -> Array:
        """The amplitudes of this rank, the memory itself."""
        return self.amplitudes

    to_host = shard

    def load(self, amplitudes: Array) -> None:
        """Set the amplitudes of this rank."""
        self.amplitudes[:] = amplitudes


def prepare_passes(passes: Sequence[Pass], n_bits: int, dtype: str) -> list[VectorPass]:
    """What `apply_to_rows` needs of passes over states of so many bits."""
    return [vector_pass(item, n_bits, np.empty(0, dtype).real.dtype, LOW) for item in passes]


def apply_to_rows(rows: Array, tables: VectorPass, threads: int) -> None:
    """Do a pass on every row of an array, complex [rows, 2^n], contiguous."""
    run_pass = _kernel_of(tables)
    real = rows.real.dtype
    flat = rows.reshape(-1).view(real)
    n_bits = len(tables.flat.tile_bits) + len(tables.far)
    far = np.concatenate([tables.far, np.arange(n_bits, n_bits + len(rows).bit_length())])
    passed = tables.flat._replace(far=far)

    def work(first: int, last: int) -> None:
        run_pass(flat, 0, (passed, tables.numbers), tile_scratch(tables, real), first, last)

    over_chunks(len(rows) << len(tables.far), threads, work)


def _kernel_of(tables: VectorPass) -> Callable[..., None]:
    """What does a pass on tiles."""
    from tnplan.executor.statevector.cpu.tiled_pass_kernel import run_rounds, run_tiles

    return run_rounds if tables.is_of_rounds else run_tiles


def _most_parts(amplitudes: Array) -> int:
    """The parts of which each has so many amplitudes that its sum takes longer than the call."""
    return max(1, len(amplitudes) >> LEAST_PART_BITS)


def over_chunks(count: int, threads: int, work: Work, length: int | None = None) -> None:
    """Call work(first, last) for chunks of 0 .. count-1 on so many threads; an error in one is raised."""
    length = length or -(-count // (threads * CHUNKS_A_THREAD if threads > 1 else 1))
    over_spans(count, max(1, length), threads, work)


# Both states of a sweep back in the memory of this host: see `adjoint.mirrored_sweep`.
#
# Psi is the first half of an array, lambda the second, so that the last bit of the index selects one.
# Knows passes and tables, no circuit.


JOINT_FROM = 8
"""The fewest bits of a state whose rounds can do all steps."""
PIECES = 256
"""The sums of a pass are made of so many at most, whatever the threads, so that their bits stay the same."""


class SumScratch(NamedTuple):
    """Arrays of one thread: `totals` of four vectors and `products` of a round in the states' precision, and
    float64 `lanes` of one vector."""

    totals: Array
    products: Array
    lanes: Array


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A pass, its sums, if any, and the bits of its tiles where psi is not zero."""

    tables: VectorPass
    sums: SumPass | None
    far: Array


class HostJointState:
    """Amplitude i of psi is element i, that of lambda element 2^n_bits + i."""

    mirrored = True

    def __init__(self, final: HostState) -> None:
        self._both = HostState(final.n_bits + 1, final.dtype, final.threads)
        self._real = self._both.amplitudes.real.dtype
        self._prepared: list[_Prepared] = []

    @property
    def tile(self) -> Tile:
        """That of one state."""
        return TILES[self._both.dtype]

    def prepare(self, passes: Sequence[Pass], from_zeros: bool) -> bool:
        """Have the tables of passes; all sums can be taken.

        Where the circuit began in |0...0>, psi has come back to it in the bits that no pass still to come
        holds: what is left of lambda elsewhere is part of no sum.
        """
        n_bits = self._both.n_bits
        reached = 0 if from_zeros else (1 << n_bits) - 1
        self._prepared = []
        for item in reversed(passes):
            reached |= mask_of(item.held_bits)
            for shorter in reversed(_divided(Pass((*item.held_bits, n_bits - 1), item.steps))):
                sums = tables = None
                if shorter.has_sums:
                    sums = sum_pass(shorter, n_bits, self._real)
                    tables = sums.tables
                else:
                    (tables,) = self._both.prepare([shorter])
                far = tables.far[reached >> tables.far & 1 == 1]
                self._prepared.append(_Prepared(tables, sums, far))
        self._prepared.reverse()
        return True

    def begin(self, psi: HostState, words: Sequence[tuple[int, int, complex]]) -> None:
        """Take the final state, and lambda as the sum of words of it: masks x and z of bits, and factors."""
        size = 1 << psi.n_bits
        both = self._both.amplitudes

        def work(first: int, last: int) -> None:
            both[first:last] = psi.shard()[first:last]

        over_chunks(size, psi.threads, work)
        psi.write_pauli_sum(words, both[size:])

    def run(self) -> Callable[[], Array]:
        """Do all passes; what is returned gives the sums, float64 [number]."""
        totals: dict[int, float] = {}
        for item in self._prepared:
            if item.sums is None:
                self._both.run_on(item.tables, item.far)
                continue
            for terms, value in zip(item.sums.terms, self._sums(item.sums, item.far).tolist(), strict=True):
                for number, factor in terms:
                    totals[number] = totals.get(number, 0.0) + factor * value
        return lambda: np.array([totals[number] for number in range(len(totals))])

    def _sums(self, item: SumPass, far: Array) -> Array:
        """Do a pass; gives its sums, float64 [column]."""
        from tnplan.executor.statevector.cpu.joint_sum_kernel import run_sums

        tables = item.tables
        passed = tables.flat._replace(far=far)
        out = np.zeros((min(PIECES, 1 << len(far)), len(item.terms)))
        flat = self._both.amplitudes.view(self._real)

        def work(first: int, last: int) -> None:
            scratch = tile_scratch(tables, self._real), sum_scratch(self._real)
            run_sums(flat, (passed, tables.numbers, item.sums), scratch, first, last, out)

        over_chunks(len(out), self._both.threads, work)
        return np.asarray(out.sum(axis=0))


def sum_scratch(real: np.dtype[np.floating]) -> SumScratch:
    """Scratch memory for sums of numbers of this type."""
    lanes = VECTOR_BYTES // real.itemsize
    return SumScratch(np.empty(4 * lanes, real), np.empty(1 << round_bits(real) - 1, real), np.empty(lanes))


def _divided(item: Pass) -> list[Pass]:
    """Passes in a row, those with sums of such gates alone as rounds take."""
    if not item.has_sums:
        return [item]
    parts: list[tuple[bool, list[PassStep]]] = []
    for step in item.steps:
        is_wide = isinstance(step, MultiplexedGate) and _is_wide(step)
        if not parts or parts[-1][0] != is_wide:
            parts.append((is_wide, []))
        parts[-1][1].append(step)
    return [Pass(item.held_bits, tuple(steps)) for _, steps in parts]


def _is_wide(gate: MultiplexedGate) -> bool:
    """Whether a gate is done on whole tiles."""
    if isinstance(gate, WordSum):
        return False
    diagonal = not gate.targets and len(gate.selectors) <= LARGEST_MATRIX
    return not diagonal and bool(gate.selectors or len(gate.targets) > LARGEST_MATRIX)
