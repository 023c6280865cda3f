"""A pass, or a sum of Pauli words, as the flat tables that kernels of a CPU read. Knows numbers; no state.

A row of `steps` is one of `PassTables`, or a round: ROUND, its number, its first row of `actions`, the row
after its last one, and three zeros. A row of `actions` is one step of a round, its places among the round's
bits:

    kind, first place, second place, number of its turn, first of its numbers

The turn of an action is the product of four factors: of the lowest bits of a round (`low`), of its others
(`high`), of the other bits of the tile (`inside`), and of those outside (`outside`, a phase for each bit).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.kernels.vector_operations import LANE_BITS
from tnplan.executor.statevector.cpu.vector_rounds import (
    Multiplication,
    RoundStep,
    Turn,
    VectorRound,
    VectorSteps,
    vector_steps,
)
from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate
from tnplan.executor.statevector.gates.phase_polynomial import PhasePolynomial
from tnplan.executor.statevector.scheduling.pass_tables import FIELDS, pass_tables
from tnplan.executor.statevector.scheduling.qubit_cover import index_of, tile_runs
from tnplan.executor.statevector.scheduling.tiled_passes import Pass

ROUND = 3
"""The kind of a step; see `pass_tables` for the others."""
ROTATE, TURN_ROTATE, TURNS_ROTATE, LANE_ROTATE, LANE_EXCHANGE, MULTIPLY, TURN_ALL = range(7)
"""Kinds of an action."""
ROUND_BYTES = 1 << 14
"""Both parts of a round, half of the nearest cache."""
LOW_VECTOR_BITS = 3
"""Turns of so many bits above those of a lane are read as vectors."""
ACTION_FIELDS = 5
STARTS_KEPT = 1024
"""Choices of places in a tile of which it is remembered where vectors lie: 8 bytes for each vector."""


class FlatPass(NamedTuple):
    """Tables without numbers of the state's precision.

    `far` are the bits of a tile's number. `numbered` are those that say which of the `factors` is a tile's:
    the same, or more where not all tiles are done. `starts` are where the runs of a tile begin.

    `round_starts` [round, vector] are where the vectors of a round lie in a tile, `round_others` [round, bit]
    the tile's other bits. `beyond` are the bits of the index outside of the tile, with those of the rank.
    """

    tile_bits: Array
    far: Array
    numbered: Array
    starts: Array
    steps: Array
    places: Array
    idle: Array
    actions: Array
    round_starts: Array
    round_others: Array
    beyond: Array


class FlatNumbers(NamedTuple):
    """Numbers in the precision of the state; real and imaginary parts of `values` and of turns.

    `low` [turn, value of the low bits], `high`, `inside` and `outside` [turn, bit] as in the head of this
    file; `low_bits` are how many those are. `factors` has one of all tiles, or one of each.
    """

    values_re: Array
    values_im: Array
    matrices: Array
    low_re: Array
    low_im: Array
    high_re: Array
    high_im: Array
    inside_re: Array
    inside_im: Array
    outside_re: Array
    outside_im: Array
    factors_re: Array
    factors_im: Array
    low_bits: Array


@dataclass(frozen=True, eq=False)
class VectorPass:
    """The tables of a pass; `far` are the bits of a tile's number."""

    flat: FlatPass
    numbers: FlatNumbers
    most_targets: int

    @property
    def far(self) -> Array:
        """The bits of a tile's number, rising."""
        return self.flat.far

    @cached_property
    def is_of_rounds(self) -> bool:
        """Whether all steps are rounds."""
        return bool(np.all(self.flat.steps[:, 0] == ROUND))


def vector_pass(item: Pass, n_bits: int, real: np.dtype[np.floating], low: int, rank: int = 0) -> VectorPass:
    """The tables of a pass over the 2^n_bits amplitudes of a rank, of parts of this type; `low` as in
    `pass_tables`.
    """
    lane_bits = LANE_BITS[real.itemsize]
    most = round_bits(real)
    sizes = [s.mask.bit_length() if isinstance(s, MultiplexedGate) else len(s.linear) for s in item.steps]
    n_all = max([n_bits, *sizes])
    steps = vector_steps(item, n_all, lane_bits, most)
    actions = Actions(item.held_bits, lane_bits, min(most, len(item.held_bits)))
    return pass_of_steps(steps, actions, n_bits, real, low, rank)


def round_bits(real: np.dtype[np.floating]) -> int:
    """The bits of a round."""
    return (ROUND_BYTES // (2 * real.itemsize)).bit_length() - 1


def pass_of_steps(
    compiled: VectorSteps, actions: Actions, n_bits: int, real: np.dtype[np.floating], low: int, rank: int = 0
) -> VectorPass:  # fmt: skip
    """The tables of a pass that is in steps already; `actions` has none yet."""
    # Two kinds of tables: whole numbers that tell which bits and which actions (`FlatPass`), and numbers in
    # the state's precision (`FlatNumbers`). Kernels allocate nothing and see arrays alone.
    steps, outside, held_bits = compiled.steps, compiled.outside, actions.held_bits
    n_all = len(outside.linear)
    rounds = [step for step in steps if isinstance(step, VectorRound)]
    others = [step for step in steps if not isinstance(step, VectorRound)]
    tables = pass_tables(Pass(tuple(held_bits), tuple(others)), n_bits, low)
    # Invariant: steps stand in the order of the pass; rounds and other steps are numbered each by themselves.
    rows, other = [], iter(tables.steps.tolist())
    for step in steps:
        if isinstance(step, VectorRound):
            first = len(actions.rows)
            for action in step.steps:
                actions.add(action, step.bits)
            rows.append([ROUND, rounds.index(step), first, len(actions.rows), 0, 0, 0])
        else:
            rows.append(next(other))
    inside = set(held_bits)
    beyond = [bit for bit in range(n_all) if bit not in inside]
    flat = FlatPass(
        tables.held_bits, tables.far, tables.far,
        tile_runs(tables.held_bits)[1],
        np.array(rows, np.int64).reshape(-1, FIELDS), tables.places, tables.idle,
        np.array(actions.rows, np.int64).reshape(-1, ACTION_FIELDS),
        actions.starts(rounds), actions.others(rounds), np.array(beyond, np.int64),
    )  # fmt: skip
    wide = (tables.values, *actions.turns(beyond))
    numbers = [np.ascontiguousarray(half, real) for table in wide for half in (table.real, table.imag)]
    # Bits of the rank are constant here: they go into the factors of tiles.
    rank_bits = {bit: rank >> bit - n_bits & 1 for bit in range(n_bits, n_all)}
    factors = _factors(outside, tables.far.tolist(), rank_bits)
    # Four zeros behind the last: a kernel reads a 2 x 2 matrix for any action, also for one that has none.
    matrices = np.array([*actions.numbers, *4 * [0.0]], real)
    return VectorPass(
        flat,
        FlatNumbers._make(
            [
                *numbers[:2],
                matrices,
                *numbers[2:],
                factors.real.astype(real),
                factors.imag.astype(real),
                np.array([max(actions.low_bits, actions.lane_bits)]),
            ]
        ),
        max((len(step.targets) for step in others), default=0),
    )


def _factors(outside: PhasePolynomial, far: Sequence[int], rank_bits: Mapping[int, int]) -> Array:
    """The phases of all tiles, complex128 [2^far], or [1] where they are the same."""
    if not np.any(outside.linear) and not np.any(outside.pairs):
        return np.exp(1j * np.array([outside.constant]))
    numbers = np.arange(1 << len(far))
    values: dict[int, Any] = {bit: numbers >> k & 1 for k, bit in enumerate(far)}
    return np.exp(1j * outside.phase({**values, **rank_bits}, np.full(len(numbers), outside.constant)))


class Actions:
    """The rows of actions and their numbers so far."""

    def __init__(self, held_bits: Sequence[int], lane_bits: int, size: int) -> None:
        self.held_bits, self.lane_bits, self.size = held_bits, lane_bits, size
        self.low_bits = min(size, lane_bits + LOW_VECTOR_BITS)
        self.rows: list[tuple[int, ...]] = []
        self.numbers: list[float] = []
        self.turned: list[tuple[Turn, tuple[int, ...]]] = []

    def add(self, step: RoundStep, bits: tuple[int, ...]) -> None:
        """A step of a round on these bits."""
        if isinstance(step, Turn):
            self._turn(step, bits)
            return
        assert isinstance(step, Multiplication)
        # A matrix on a bit of the lane number would mix lanes: the bit is exchanged for one outside
        # the lane first, and back afterwards.
        positions, exchanges = self._out_of_lanes([bits.index(bit) for bit in reversed(step.bits)], self.size)
        matrix = step.matrix
        if len(positions) == 1:
            positions.append(next(p for p in range(self.lane_bits, self.size) if p not in positions))
            # A matrix on one bit becomes one on two, the second being any other: one kind of step less.
            matrix = np.kron(np.eye(2), matrix)
        row = MULTIPLY, *positions, 0, len(self.numbers)
        self.rows += [*exchanges, row, *reversed(exchanges)]
        for value in matrix.ravel().tolist():
            self.numbers += [value.real, value.imag, -value.imag]

    def _out_of_lanes(self, positions: list[int], end: int) -> tuple[list[int], list[tuple[int, ...]]]:
        """Positions outside of the lane number and below `end`, and the exchanges that bring bits there.

        Invariant: `end` leaves as many positions outside as there are bits.
        """
        moved, exchanges = list(positions), list[tuple[int, ...]]()
        for number, position in enumerate(positions):
            if position < self.lane_bits:
                moved[number] = next(p for p in range(self.lane_bits, end) if p not in moved)
                exchanges.append((LANE_EXCHANGE, position, moved[number], 0, 0))
        return moved, exchanges

    def _turn(self, step: Turn, bits: tuple[int, ...]) -> None:
        position = 0 if step.bit is None else bits.index(step.bit)
        kind = ROTATE
        if step.bit is None:
            kind = TURN_ALL
        elif position < self.lane_bits:
            kind = LANE_ROTATE
        elif any(map(step.weights.get, bits[: self.low_bits])):
            kind = TURNS_ROTATE
        elif step.constant or any(step.weights.values()):
            kind = TURN_ROTATE
        number = len(self.turned)
        if kind == ROTATE:
            number = 0
        else:
            self.turned.append((step, bits))
        self.rows.append((kind, position, 0, number, len(self.numbers)))
        self.numbers += step.matrix

    def turns(self, beyond: Sequence[int]) -> tuple[Array, ...]:
        """The factors `low`, `high`, `inside` and `outside` of all turns, complex128 [turn, value or bit]."""
        if not self.turned:
            sizes = 1 << self.lane_bits, 1, 1, len(beyond)
            return tuple(np.ones((1, size), np.complex128) for size in sizes)
        # exp(i (constant + sum_j weights[j] b_j)) is a product over bits. It is divided by where a
        # bit is, and each part is tabulated for all values of its bits; `outside` stays a factor
        # for each bit, as there may be many.
        weights = np.zeros((len(self.turned), len(self.held_bits) + len(beyond)))
        at = [(row, bit) for row, (step, _) in enumerate(self.turned) for bit in step.weights]
        rows, columns = np.array(at, np.int64).reshape(-1, 2).T
        weights[rows, columns] = [value for step, _ in self.turned for value in step.weights.values()]
        others = {bits: self.others_of(bits) for _, bits in self.turned}
        near = np.array([bits for _, bits in self.turned], np.int64).reshape(-1, self.size)
        outer = np.array([others[bits] for _, bits in self.turned], np.int64).reshape(len(near), -1)
        constants = np.array([step.constant for step, _ in self.turned])[:, None]
        low = np.zeros((len(near), max(1 << self.low_bits, 1 << self.lane_bits)), np.complex128)
        factors = np.exp(1j * weights)
        low[:, : 1 << self.low_bits] = _products(factors, near[:, : self.low_bits])
        high = np.exp(1j * constants) * _products(factors, near[:, self.low_bits :])
        return low, high, _products(factors, outer), factors[:, list(beyond)]

    def others_of(self, bits: Sequence[int]) -> list[int]:
        """The bits of a tile that a round leaves out."""
        return [bit for bit in self.held_bits if bit not in bits]

    def starts(self, rounds: Sequence[VectorRound]) -> Array:
        """Where the vectors of each round lie, int64 [round, vector]."""
        lane_bits = min(self.lane_bits, self.size)
        position_of = {bit: number for number, bit in enumerate(self.held_bits)}
        rows = [_vector_starts(tuple([position_of[bit] for bit in item.bits]), lane_bits) for item in rounds]
        return np.array(rows, np.int64).reshape(len(rounds), 1 << self.size - lane_bits)

    def others(self, rounds: Sequence[VectorRound]) -> Array:
        """The places in a tile of the bits that each round leaves out, int64 [round, bit]."""
        position_of = {bit: number for number, bit in enumerate(self.held_bits)}
        rows = [[position_of[bit] for bit in self.others_of(item.bits)] for item in rounds]
        return np.array(rows, np.int64).reshape(len(rounds), len(self.held_bits) - self.size)


@lru_cache(STARTS_KEPT)
def _vector_starts(places: tuple[int, ...], lane_bits: int) -> Array:
    """Where the vectors of a round on bits at these places of a tile lie."""
    numbers = np.arange(1 << len(places) - lane_bits, dtype=np.int64) << lane_bits
    starts: Array = index_of(numbers, places)
    return starts


def _products(factors: Array, bits: Array) -> Array:
    """For each row the products of the factors of its bits that are 1, of all values of these bits."""
    products = np.ones((len(factors), 1), np.complex128)
    for factor in np.take_along_axis(factors, bits, axis=1).T:
        products = np.concatenate([products, products * factor[:, None]], axis=1)
    return products


BLOCK = 64
"""Neighbouring indices for which a diagonal is made at once."""


class WordTable(NamedTuple):
    """The words of group g have the mask x[g]; its runs are ends[g] .. ends[g + 1] - 1.

    The words of run r, run_ends[r] .. run_ends[r + 1] - 1, have the bits near[r] of z inside of a block.
    `signs`, float64 [mask, i], are those of bits by index in a block.
    """

    x: Array
    ends: Array
    near: Array
    run_ends: Array
    z: Array
    factor_re: Array
    factor_im: Array
    signs: Array


class WordScratch(NamedTuple):
    """float64 numbers of a block: the sum times the state, and the diagonal of a group."""

    re: Array
    im: Array
    diagonal_re: Array
    diagonal_im: Array


def word_table(words: Sequence[tuple[int, int, complex]], n_amplitudes: int) -> WordTable:
    """The tables of words, masks x and z and factors, of a state of so many amplitudes."""
    # Sorted by x, then by the bits of z within a block, then by z: groups and runs are neighbours
    # in the table.
    block = min(BLOCK, n_amplitudes)
    ordered = sorted(words, key=lambda word: (word[0], word[1] & (block - 1), word[1]))
    x, z = (np.array([word[mask] for word in ordered], np.int64) for mask in (0, 1))
    keys, run_starts = np.unique(x * block | z & (block - 1), return_index=True)
    groups, starts = np.unique(keys // block, return_index=True)
    factors = np.array([word[2] for word in ordered], np.complex128)
    indices = np.arange(block)
    odd = np.bitwise_count(indices[:, None] & indices) & 1
    return WordTable(
        groups, np.append(starts, len(keys)), keys % block, np.append(run_starts, len(ordered)), z,
        factors.real.copy(), factors.imag.copy(), 1.0 - 2.0 * odd,
    )  # fmt: skip


def word_scratch(n_amplitudes: int) -> WordScratch:
    """Scratch memory for blocks of a state of so many amplitudes."""
    return WordScratch(*np.empty((4, min(BLOCK, n_amplitudes))))
