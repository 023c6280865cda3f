"""A state in the memory of this host whose amplitudes are whole numbers of 8 or 16 bits with a scale a block.

It takes 2.125 or 4.125 bytes an amplitude. A pass decodes a tile, does its steps and encodes it again, in one
kernel; answers decode chunks. `packed_error` says what that costs. Knows tables, not circuits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.kernels.vector_operations import VECTOR_BYTES, WORD_VECTORS
from tnplan.executor.statevector.cpu.state import (
    LEAST_WORD_BITS,
    LOW,
    PARTS,
    TABLE_PARTS,
    WORD_PART,
    over_chunks,
)
from tnplan.executor.statevector.cpu.tile_scratch import aligned, tile_scratch
from tnplan.executor.statevector.cpu.vector_tables import VectorPass, vector_pass
from tnplan.executor.statevector.gates.multiplexed_gate import mask_of
from tnplan.executor.statevector.packed_error import (
    BLOCK_BITS,
    ONE,
    EncodingErrors,
    angle_error,
    arithmetic_bound,
    check_room,
    codes_bytes,
    exchanged,
    largest_number,
    refuse_load,
)
from tnplan.executor.statevector.scheduling.qubit_cover import QubitExchange, index_of
from tnplan.executor.statevector.scheduling.tiled_passes import TILES, Pass, Tile

CHUNK_BITS = 14
"""Answers decode so many amplitudes at a time (256 KiB)."""
DITHER = 1 << 12
"""Different numbers of the rounding; see `packed_kernel`."""
MOST_PARTIAL = 1 << 20
"""Partial values of words at most, 16 MiB."""


def packed_tile(dtype: str) -> Tile:
    """The tile of passes in this precision, whose runs are whole blocks."""
    return replace(TILES[dtype], run_bits=BLOCK_BITS, block_bits=BLOCK_BITS)


def packed_bytes(n_bits: int, bits: int, dtype: str) -> int:
    """The bytes of 2^n_bits amplitudes and of the sums of a pass."""
    n_tiles = 1 << max(0, n_bits - packed_tile(dtype).bits)
    return codes_bytes(n_bits, bits) + 16 * n_tiles


class PackedState:
    """2^n_bits amplitudes in numbers of `bits` bits, in |0...0>; passes compute with amplitudes of `dtype`.

    Parameters
    ----------
    n_bits
        Bits of the index.
    dtype
        complex64 or complex128: the precision inside of a pass.
    bits
        8 or 16, of the real and of the imaginary part each.
    threads
        So many at once.
    seed
        Of the rounding.
    departure
        How far the gates are from unitary ones, as `packed_error.departure` sums it.
    rank
        Whose amplitudes they are, among several ranks.
    """

    name = "cpu"

    def __init__(
        self, n_bits: int, dtype: str, bits: int, threads: int = 1, seed: int = 0, departure: float = 0.0,
        rank: int = 0,
    ) -> None:  # fmt: skip
        self.n_bits, self.dtype, self.bits, self.threads, self.rank = n_bits, dtype, bits, threads, rank
        self.tile, self._departure = packed_tile(dtype), departure
        self._real = np.empty(0, dtype).real.dtype
        self.unit = float(np.finfo(self._real).eps) / 2
        self._block = 1 << min(n_bits, BLOCK_BITS)
        self._codes = aligned((2 << n_bits,), np.dtype(f"int{bits}"))
        self._scales = aligned(((1 << n_bits) // self._block,), np.dtype(np.float32))
        self._random = np.random.default_rng([seed, bits, rank])
        middles = (self._random.permutation(DITHER) + 0.5) / DITHER
        self._dither = np.concatenate([middles, middles[: self._block]]).astype(self._real)
        self._begin()

    def restart(self) -> None:
        """Back to |0...0>."""
        self._codes.fill(0)
        self._scales.fill(0)
        self._begin()

    def _begin(self) -> None:
        if self.rank == 0:
            self._codes[0], self._scales[0] = ONE
        self.errors, self._varying = EncodingErrors(self._departure), 0

    @property
    def numbers(self) -> tuple[Array, Array]:
        """The whole numbers and the scales."""
        return self._codes, self._scales

    def arrays(self) -> list[tuple[Array, int]]:
        """The same to be changed: see `DistributedState.arrays`."""
        self._varying = -1
        return exchanged(*self.numbers)

    def document(self) -> dict[str, Any]:
        """What stands beside them: the errors, which bits vary, and where the random numbers are."""
        random = self._random.bit_generator.state
        return {"errors": asdict(self.errors), "varying": self._varying, "random": random}

    def continue_from(self, document: dict[str, Any]) -> None:
        """Go on with what a document says of the numbers; ValueError where the errors are none."""
        self.errors, self._varying = EncodingErrors.restored(document["errors"]), int(document["varying"])
        self._random.bit_generator.state = document["random"]

    def prepare(
        self, steps: Sequence[Pass | QubitExchange], again: bool = True
    ) -> list[tuple[VectorPass, float]]:  # fmt: skip
        """The tables of passes, and bounds of what their arithmetic rounds."""
        passes = [step for step in steps if isinstance(step, Pass)]
        tables = [vector_pass(item, self.n_bits, self._real, LOW, self.rank) for item in passes]
        angles = [angle_error(item.steps) for item in passes]
        bounds = [arithmetic_bound(made, self.unit, error) for made, error in
                  zip(tables, angles, strict=True)]  # fmt: skip
        return list(zip(tables, bounds, strict=True))

    def is_divisible(self, prepared: tuple[VectorPass, float]) -> bool:
        """No pass is done in parts."""
        return False

    def apply(self, prepared: tuple[VectorPass, float]) -> None:
        """Do a pass, and add its errors."""
        self.errors.add_pass([self.do(prepared)], self.unit)

    def do(self, prepared: tuple[VectorPass, float]) -> tuple[Array, float]:
        """Do a pass; what `EncodingErrors.add_pass` takes of a rank. Tiles of zeros stay as they are."""
        from tnplan.executor.statevector.cpu.packed_kernel import run_packed

        tables, arithmetic = prepared
        # As in `HostState.apply`: bits of a tile's number that no amplitude other than 0 has.
        far = tables.far[self._varying >> tables.far & 1 == 1]
        passed, out = tables.flat._replace(far=far), np.empty((1 << len(far), 2))
        largest = np.array([largest_number(self.bits)], self._real)
        rounding = int(self._random.integers(1 << 62)), largest, self._dither
        rank_bits = self.rank << self.n_bits

        def work(first: int, last: int) -> None:
            scratch = tile_scratch(tables, self._real)
            pass_tables = passed, tables.numbers
            span = first, last, rank_bits
            run_packed((self._codes, self._scales), rounding, pass_tables, scratch, span, out)

        over_chunks(len(out), self.threads, work)
        self._varying |= mask_of(tables.flat.tile_bits.tolist())
        return out.sum(axis=0), arithmetic

    # Answers are those of the state divided by its norm.

    def _decoded(self, chunk: int, chunk_bits: int, numbers: tuple[Array, Array] | None = None) -> Array:
        """The amplitudes of a chunk of 2^chunk_bits, complex128: of this state, or of others' numbers."""
        from tnplan.executor.statevector.cpu.packed_kernel import unpack

        out = np.empty(1 << chunk_bits, np.complex128)
        unpack(numbers or self.numbers, (chunk << chunk_bits) // self._block, 1 / self.errors.norm, out)
        return out

    def _summed(self, add: Callable[[int, Array, Array], None], parts: Array) -> Array:
        """The sum of what add(chunk, amplitudes, part) adds for all chunks, each to one of so many parts."""
        # Invariant: the parts do not depend on threads, and each takes its chunks in turn.
        size = -(-(1 << self.n_bits - self._chunk_bits) // len(parts))

        def work(first: int, last: int) -> None:
            for chunk in range(first * size, min(last * size, 1 << self.n_bits - self._chunk_bits)):
                add(chunk, self._decoded(chunk, self._chunk_bits), parts[chunk // size])

        over_chunks(len(parts), self.threads, work)
        return np.asarray(parts.sum(axis=0))

    def _over_chunks(self, work: Callable[[int, Array], None]) -> None:
        """Call work(chunk, amplitudes) for all chunks."""

        def decode(first: int, last: int) -> None:
            for chunk in range(first, last):
                work(chunk, self._decoded(chunk, self._chunk_bits))

        over_chunks(1 << self.n_bits - self._chunk_bits, self.threads, decode)

    @property
    def _chunk_bits(self) -> int:
        return min(self.n_bits, CHUNK_BITS)

    def sums(self, chunk_bits: int) -> Array:
        """The probability of each chunk of 2^chunk_bits amplitudes, at most 2^14, float64."""
        from tnplan.executor.statevector.cpu.measure_kernel import chunk_sums

        rows = np.empty((1 << self.n_bits - self._chunk_bits, 1 << self._chunk_bits - chunk_bits))
        self._over_chunks(lambda chunk, own: chunk_sums(own, chunk_bits, 0, rows.shape[1], rows[chunk]))
        return rows.reshape(-1)

    def draw(self, chunk_bits: int, chunks: Array, rests: Array) -> Array:
        """The indices, int64, where the sums over chunks[k] reach rests[k]; chunks rise, rests in a chunk."""
        from tnplan.executor.statevector.cpu.measure_kernel import draw

        out = np.empty(len(chunks), np.int64)
        chosen, starts = np.unique(chunks, return_index=True)
        ends = np.append(starts[1:], len(chunks))

        def work(first: int, last: int) -> None:
            for chunk, begin, end in zip(
                chosen[first:last], starts[first:last], ends[first:last], strict=True
            ):
                own, zeros = self._decoded(int(chunk), chunk_bits), np.zeros(end - begin, np.int64)
                draw(own, chunk_bits, (zeros, rests[begin:end]), 0, len(zeros), out[begin:end])
                out[begin:end] += int(chunk) << chunk_bits

        over_chunks(len(chosen), self.threads, work)
        return out

    def marginal(self, bits: Sequence[int]) -> Array:
        """The probability, float64 [2^m], of each value of some bits, the first least significant."""
        from tnplan.executor.statevector.cpu.measure_kernel import marginal

        size = self._chunk_bits
        places = [k for k, bit in enumerate(bits) if bit < size]
        low = np.array([bits[k] for k in places], np.int64)
        inside = index_of(np.arange(1 << len(places)), places)

        def add(chunk: int, own: Array, out: Array) -> None:
            table = np.zeros(len(inside))
            marginal(own, low, 0, len(own), table)
            outside = sum((chunk << size >> bit & 1) << k for k, bit in enumerate(bits) if bit >= size)
            out[inside | outside] += table

        return self._summed(add, np.zeros((max(1, TABLE_PARTS >> len(bits)), 1 << len(bits))))

    def pauli(self, x: int, z: int) -> complex:
        """The sum over i of (-1)^|z & i| conj(a[i ^ x]) a[i], for masks of bits."""
        return self.pauli_sum([(x, z, 1.0)])

    def pauli_sum(self, words: Sequence[tuple[int, int, complex]]) -> complex:
        """The sum over words, masks x and z and factors, of factors times `pauli`."""
        size = self._chunk_bits
        masks = np.array([word[:2] for word in words], np.int64).reshape(-1, 2)
        factors = np.array([word[2] for word in words], np.complex128)
        groups = [(int(far), np.flatnonzero(masks[:, 0] >> size == far)) for far in set(masks[:, 0] >> size)]

        def add(chunk: int, own: Array, out: Array) -> None:
            # Words whose x has the same bits outside of a chunk read the same two chunks.
            for far, chosen in groups:
                others = self._decoded(chunk ^ far, size) if far else own
                odd = np.bitwise_count(masks[chosen, 1] >> size & chunk) & 1
                inside = masks[chosen] & (1 << size) - 1
                out[chosen] += (1 - 2.0 * odd) * words_between(others, own, inside)

        n_parts = max(1, min(PARTS, MOST_PARTIAL // max(1, len(masks))))
        return complex(self._summed(add, np.zeros((n_parts, len(masks)), np.complex128)) @ factors)

    def pauli_with(self, others: tuple[Array, Array], first: int, x: int, z: int) -> complex:
        """The sum over i of (-1)^|z & i| conj(b[i ^ x]) a[first + i], b in numbers of another rank."""
        size = self._chunk_bits
        masks = np.array([[x, z]]) & (1 << size) - 1
        sums = np.zeros((len(others[1]) << BLOCK_BITS) >> size, np.complex128)

        def work(begin: int, end: int) -> None:
            for chunk in range(begin, end):
                own = self._decoded((first >> size) + chunk, size)
                theirs = self._decoded(chunk ^ x >> size, size, others)
                sign = 1 - 2 * ((z >> size & chunk).bit_count() & 1)
                sums[chunk] = sign * words_between(theirs, own, masks)[0]

        over_chunks(len(sums), self.threads, work)
        return complex(sums.sum())

    def take(self, indices: Array) -> Array:
        """The amplitudes at some indices, complex128."""
        block, place = np.divmod(indices, self._block)
        first = 2 * self._block * block + place
        parts = self._codes[first] + 1j * self._codes[first + self._block].astype(np.float64)
        return np.asarray(parts * (self._scales[block].astype(np.float64) / self.errors.norm))

    def to_host(self) -> Array:
        """All amplitudes, decoded; refused where there is no room for them."""
        check_room(self.n_bits, self.dtype)
        out = np.empty((1 << self.n_bits - self._chunk_bits, 1 << self._chunk_bits), self.dtype)
        self._over_chunks(lambda chunk, own: out.__setitem__(chunk, own))
        return out.reshape(-1)

    shard = to_host

    def load(self, amplitudes: Array) -> None:
        """Refused: the error of what is loaded is not known."""
        refuse_load()


def words_between(others: Array, own: Array, masks: Array) -> Array:
    """For each row x, z the sum over i of (-1)^|z & i| conj(others[i ^ x]) own[i], complex128 states."""
    from tnplan.executor.statevector.cpu.measure_kernel import add_words, pauli

    if len(own) < 1 << LEAST_WORD_BITS:
        rows = [complex(*pauli(others, own, x, z, 0, len(own))) for x, z in masks.tolist()]
        return np.array(rows, np.complex128)
    lanes = VECTOR_BYTES // 8
    # Words with the same low bits of x follow each other, as `add_words` wants them.
    order = np.argsort(masks[:, 0] & (lanes // 2 - 1), kind="stable")
    sums = np.zeros((1, len(masks), 2))
    size = min(len(own), WORD_PART)
    scratch = np.empty((2, 2 * size)), np.empty(2 * lanes), np.empty(WORD_VECTORS)
    add_words((others.view(np.float64), own.view(np.float64)), masks[order], 0, 1, scratch, sums)
    values = np.empty(len(masks), np.complex128)
    values[order] = sums[0] @ [1, 1j]
    return values
