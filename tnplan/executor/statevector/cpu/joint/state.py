"""Both states of a sweep back in the memory of this host: see `adjoint.mirrored_sweep`.

Psi is the first half of an array, lambda the second, so that the last bit of the index tells them apart.
Knows passes and tables, no circuit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.kernels.vector_operations import VECTOR_BYTES
from tnplan.executor.statevector.cpu.joint.sum_tables import SumPass, sum_pass
from tnplan.executor.statevector.cpu.state import HostState, over_chunks
from tnplan.executor.statevector.cpu.tile_room import tile_room
from tnplan.executor.statevector.cpu.vector_rounds import LARGEST_MATRIX
from tnplan.executor.statevector.cpu.vector_tables import VectorPass, round_bits
from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate, mask_of
from tnplan.executor.statevector.gates.word_sum import WordSum
from tnplan.executor.statevector.scheduling.cpu_tiles import TILES
from tnplan.executor.statevector.scheduling.fusion import PassStep
from tnplan.executor.statevector.scheduling.tiled_passes import Pass, Tile

JOINT_FROM = 8
"""Bits of a state whose rounds have room for all steps."""
PIECES = 256
"""The sums of a pass are made of so many at most, whatever the threads, so that their bits stay the same."""


class SumRoom(NamedTuple):
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
            reached |= mask_of(item.held)
            for part in reversed(_divided(Pass((*item.held, n_bits - 1), item.steps))):
                sums = tables = None
                if part.has_sums:
                    sums = sum_pass(part, n_bits, self._real)
                    tables = sums.tables
                else:
                    (tables,) = self._both.prepare([part])
                far = tables.far[reached >> tables.far & 1 == 1]
                self._prepared.append(_Prepared(tables, sums, far))
        self._prepared.reverse()
        return True

    def begin(self, psi: HostState, words: Sequence[tuple[int, int, complex]]) -> None:
        """Take the final state, and lambda as the sum of words of it: masks x and z of bits, and factors."""
        size = 1 << psi.n_bits
        both = self._both.amplitudes

        def work(first: int, last: int) -> None:
            both[first:last] = psi.part()[first:last]

        over_chunks(size, psi.threads, work)
        psi.write_pauli_sum(words, both[size:])

    def run(self) -> Callable[[], Array]:
        """Do all passes; what is returned gives the sums, float64 [number]."""
        found: dict[int, float] = {}
        for item in self._prepared:
            if item.sums is None:
                self._both.run_on(item.tables, item.far)
                continue
            for terms, value in zip(item.sums.terms, self._sums(item.sums, item.far).tolist(), strict=True):
                for number, factor in terms:
                    found[number] = found.get(number, 0.0) + factor * value
        return lambda: np.array([found[number] for number in range(len(found))])

    def _sums(self, item: SumPass, far: Array) -> Array:
        """Do a pass; gives its sums, float64 [column]."""
        from tnplan.executor.statevector.cpu.joint.sum_kernel import run_sums

        tables = item.tables
        passed = tables.flat._replace(far=far)
        out = np.zeros((min(PIECES, 1 << len(far)), len(item.terms)))
        flat = self._both.amplitudes.view(self._real)

        def work(first: int, last: int) -> None:
            scratch, sum_scratch = tile_room(tables, self._real), sum_room(self._real)
            run_sums(flat, passed, tables.numbers, item.sums, scratch, sum_scratch, first, last, out)

        over_chunks(len(out), self._both.threads, work)
        return np.asarray(out.sum(axis=0))


def sum_room(real: np.dtype[np.floating]) -> SumRoom:
    """Room for sums of numbers of this type."""
    lanes = VECTOR_BYTES // real.itemsize
    return SumRoom(np.empty(4 * lanes, real), np.empty(1 << round_bits(real) - 1, real), np.empty(lanes))


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
    return [Pass(item.held, tuple(steps)) for _, steps in parts]


def _is_wide(gate: MultiplexedGate) -> bool:
    """Whether a gate is done on whole tiles."""
    if isinstance(gate, WordSum):
        return False
    diagonal = not gate.targets and len(gate.selectors) <= LARGEST_MATRIX
    return not diagonal and bool(gate.selectors or len(gate.targets) > LARGEST_MATRIX)
