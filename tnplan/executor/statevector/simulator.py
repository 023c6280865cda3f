"""A state and what can be done with it: run a prepared program, measure, sample.

Knows qubits; arrays are the device's. Qubit q is bit where[q] of the state's index; compiled circuits change
that instead of moving amplitudes. Bit strings and tables of probabilities are in the order of the qubits, the
first most significant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from tnplan.circuits.circuit import check_qubits
from tnplan.circuits.gates import X
from tnplan.circuits.pauli_sum import PauliSum
from tnplan.circuits.program import BitAssignment, Channel, Measurement, Reset
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate, from_matrix
from tnplan.executor.statevector.prepared_program import Mixture, PreparedStep, Rounds, Segment, cumulated
from tnplan.executor.statevector.scheduling.qubit_cover import QubitExchange, first_places
from tnplan.executor.statevector.scheduling.tiled_passes import Pass, PassPlan, Tile, compile_gates, rename

CHUNK_BITS = 12
"""A sample is looked for in a chunk of 2^12 amplitudes."""
LARGEST_MARGINAL = 26
"""Qubits of a table of probabilities."""
PLANS_KEPT = 64
"""Segments whose passes are kept."""
MOST_ROUNDS = 1_000_000
"""Rounds of one `while` in a run."""


class StateVector(Protocol):
    """The amplitudes of one rank, on one device."""

    n_bits: int
    tile: Tile

    def restart(self) -> None:
        """Back to |0...0>."""

    def prepare(self, steps: Sequence[Pass | QubitExchange], again: bool = True) -> list[Any]:
        """What `apply` needs of each step of a plan, made ahead; `again`: it may be done more than once."""

    def apply(self, prepared: Any) -> None:
        """Do a step."""

    def sums(self, chunk_bits: int) -> Array:
        """The probability of each chunk of 2^chunk_bits amplitudes, float64."""

    def draw(self, chunk_bits: int, chunks: Array, rests: Array) -> Array:
        """The indices, int64, where the sum over chunk chunks[k] reaches rests[k].

        `chunks` rises, and `rests` rises in a chunk.
        """

    def marginal(self, bits: Sequence[int]) -> Array:
        """The probability, float64 [2^m], of each value of some bits, the first least significant."""

    def pauli(self, x: int, z: int) -> complex:
        """The sum over i of (-1)^|z & i| conj(a[i ^ x]) a[i], for masks of bits."""

    def pauli_sum(self, words: Sequence[tuple[int, int, complex]]) -> complex:
        """The sum over words, masks x and z and factors, of factors times `pauli`."""

    def take(self, indices: Array) -> Array:
        """The amplitudes at some indices, on the host."""

    def to_host(self) -> Array:
        """All amplitudes in the order of the bits."""

    def shard(self) -> Array:
        """The amplitudes of this rank, on the host."""

    def load(self, amplitudes: Array) -> None:
        """Set the amplitudes of this rank."""


def check_bits(bit_strings: Sequence[str], n_qubits: int) -> None:
    """Refuse strings that are not 0 or 1 for each qubit."""
    for bits in bit_strings:
        if not isinstance(bits, str) or len(bits) != n_qubits or set(bits) - {"0", "1"}:
            raise InputError(
                "--amplitudes",
                f"{str(bits)[:40]!r} is not a bit string",
                f"give 0 or 1 for each of {n_qubits} qubits",
            )


def check_marginal(qubits: Sequence[int], n_qubits: int, place: str) -> None:
    """Refuse qubits of which no table of probabilities is made."""
    check_qubits(qubits, n_qubits, place)
    if len(qubits) > LARGEST_MARGINAL:
        raise InputError(place, f"has {len(qubits)} qubits", f"ask for {LARGEST_MARGINAL} qubits or fewer")


def _value(bits: Array, chosen: Sequence[int]) -> int:
    """The value of some classical bits, the first least significant."""
    return sum(int(bits[bit]) << k for k, bit in enumerate(chosen))


def _mask(value: int, bits: Sequence[int]) -> int:
    """The mask in which bit bits[k] is bit k of a value."""
    return sum(1 << bit for k, bit in enumerate(bits) if value >> k & 1)


def words_on_bits(observable: PauliSum, where: Sequence[int]) -> list[tuple[int, int, complex]]:
    """The words of a sum, as masks x and z of bits and factors; qubit q is bit where[q].

    A word is the sum over i of factor (-1)^|z & i| |i ^ x><i|.
    """
    return [
        (_mask(x, where), _mask(z, where), coefficient * 1j ** ((x & z).bit_count() & 3))
        for x, z, coefficient in observable.masks()
    ]


class Simulator:
    """Qubits whose amplitudes are in a state vector, and what can be done with them.

    - `state`: The amplitudes, in |0...0>: on a CPU, a GPU, or over ranks.
    - `n_qubits`: How many qubits there are.
    - `mode`: How gates become passes over the state: compiled, stages or gates.
    - `seed`: Decides measurements and samples; None draws one.

    Examples
    --------
    >>> from tnplan.executor.statevector.cpu.state import HostState
    >>> Simulator(HostState(3, "complex64"), 3).probabilities([0])
    array([1., 0.])
    """

    def __repr__(self) -> str:
        return f"Simulator({self.n_qubits} qubits, mode={self.mode!r})"

    def __init__(
        self, state: StateVector, n_qubits: int, mode: str = "compiled", seed: int | None = None
    ) -> None:
        self.state, self.n_qubits, self.mode = state, n_qubits, mode
        self.where = tuple(n_qubits - 1 - qubit for qubit in range(n_qubits))
        self._seed = seed
        self.passes = self.exchanges = 0
        """Passes, and exchanges of bits between ranks, done so far."""
        self._fresh = self.from_zeros = True
        self._prepared: dict[tuple[Segment, tuple[int, ...], bool], tuple[PassPlan, list[Any]]] = {}

    @cached_property
    def random(self) -> np.random.Generator:
        """What draws outcomes, made with the first of them: that takes as long as a small plan."""
        return np.random.default_rng(self._seed)

    def run(self, steps: Sequence[PreparedStep], bits: Array) -> None:
        """Run a prepared program; measurements write to the classical `bits`, uint8, conditions read them.

        Segments with nothing between them but unitary noise, which is drawn ahead, are compiled as one.
        """
        waiting: list[Segment] = []
        for item in steps:
            if isinstance(item, Segment):
                waiting.append(item)
                continue
            if isinstance(item, Mixture):
                drawn = item.drawn(self.random.random())
                waiting += [] if drawn is None else [drawn]
                continue
            self._apply_all(waiting)
            waiting = []
            if isinstance(item, Measurement):
                bits[item.bit] = self.measure(item.qubit)
            elif isinstance(item, Reset):
                if self.measure(item.qubit):
                    self._once([from_matrix((item.qubit,), X)])
            elif isinstance(item, Channel):
                self.disturb(item)
            elif isinstance(item, BitAssignment):
                bits[item.bit] = item.table[_value(bits, item.bits)]
            elif isinstance(item, Rounds):
                self._repeat(item, bits)
            else:
                self.run(item.body if _value(bits, item.bits) == item.value else item.otherwise, bits)
        self._apply_all(waiting)

    def _repeat(self, rounds: Rounds, bits: Array) -> None:
        for _ in range(MOST_ROUNDS):
            if _value(bits, rounds.bits) != rounds.value:
                return
            self.run(rounds.body, bits)
        raise InputError(
            "while", f"is still true after {MOST_ROUNDS} rounds", "let the body of the loop make it false"
        )

    def _apply_all(self, segments: Sequence[Segment]) -> None:
        if len(segments) == 1:
            self.apply(segments[0])
        elif segments:
            self._once([gate for segment in segments for gate in segment.gates])

    def prepare(self, segment: Segment) -> tuple[PassPlan, list[Any]]:
        """The passes that apply a segment now and their tables, which are kept."""
        key = (segment, self.where, self._fresh)
        if key not in self._prepared:
            if len(self._prepared) >= PLANS_KEPT:
                self._prepared.clear()
            self._prepared[key] = self._compiled(segment.gates)
        return self._prepared[key]

    def apply(self, segment: Segment) -> None:
        """Apply the gates of a segment."""
        self._do(*self.prepare(segment))

    def restart(self) -> None:
        """Back to |0...0>; what was prepared stays."""
        self.state.restart()
        self.where = tuple(self.n_qubits - 1 - qubit for qubit in range(self.n_qubits))
        self._fresh = self.from_zeros = True

    def load(self, amplitudes: Array, where: tuple[int, ...]) -> None:
        """Go on with this rank's amplitudes of a state in which qubit q is bit where[q]."""
        self.state.load(amplitudes)
        self.where, self._fresh, self.from_zeros = where, False, False

    def _once(self, gates: Sequence[MultiplexedGate]) -> None:
        """Apply gates whose passes are not worth keeping."""
        self._do(*self._compiled(gates, again=False))

    def _compiled(self, gates: Sequence[MultiplexedGate], again: bool = True) -> tuple[PassPlan, list[Any]]:
        n_inside = self.state.n_bits
        if self._fresh and n_inside < self.n_qubits:  # |0...0> is the same wherever the qubits are
            wires, _ = rename(gates, range(self.n_qubits))
            self.where = first_places(wires, self.n_qubits, n_inside)
        plan = compile_gates(gates, self.where, self.state.tile, self.mode, n_inside)
        return plan, self.state.prepare(plan.steps, again)

    def _do(self, plan: PassPlan, prepared: Sequence[Any]) -> None:
        for item in prepared:
            self.state.apply(item)
        self.passes += len(plan.passes)
        self.exchanges += len(plan.steps) - len(plan.passes)
        self.where, self._fresh = plan.after, False

    def measure(self, qubit: int) -> int:
        """Measure a qubit: its value is drawn, and the state becomes the normalized part that has it."""
        weights = self.probabilities([qubit])
        value = int(self._choose(weights))
        projector = np.zeros((2, 1, 1), np.complex128)
        projector[value] = 1 / np.sqrt(weights[value])
        self._once([MultiplexedGate((), (qubit,), projector)])
        return value

    def disturb(self, channel: Channel) -> int:
        """One operator of a channel acts, drawn by its probability; the state stays normalized."""
        density = self.reduced(channel.qubits)
        weights = np.array([np.trace(k @ density @ k.conj().T).real for k in channel.kraus])
        number = int(self._choose(weights))
        scale = np.sqrt(np.trace(density).real / weights[number])
        self._once([from_matrix(channel.qubits, channel.kraus[number] * scale, "channel")])
        return number

    def _choose(self, weights: Array) -> int:
        reached = cumulated(weights)
        return int(np.searchsorted(reached, self.random.random() * reached[-1], side="right"))

    def norm(self) -> float:
        """The sum of all probabilities."""
        return float(self.state.sums(min(CHUNK_BITS, self.state.n_bits)).sum())

    def probabilities(self, qubits: Sequence[int]) -> Array:
        """The probability, float64 [2^m], of every value of some qubits, the first most significant."""
        check_marginal(qubits, self.n_qubits, "marginal")
        return self.state.marginal([self.where[qubit] for qubit in reversed(qubits)])

    def reduced(self, qubits: Sequence[int]) -> Array:
        """The density matrix of some qubits, complex128 [2^m, 2^m], the first most significant."""
        m = len(qubits)
        density = np.zeros((2**m, 2**m), np.complex128)
        rows = np.arange(2**m)
        for x in range(2**m):
            for z in range(2**m):
                odd = np.bitwise_count(rows & z) & 1
                bits = [qubits[m - 1 - k] for k in range(m)]
                value = self.state.pauli(self._mask(x, bits), self._mask(z, bits))
                density[rows, rows ^ x] += value * (1 - 2.0 * odd) / 2**m
        return density

    def _mask(self, value: int, qubits: Sequence[int]) -> int:
        """The mask of bits for a mask over a list of qubits."""
        return _mask(value, [self.where[qubit] for qubit in qubits])

    def words_on_bits(self, observable: PauliSum) -> list[tuple[int, int, complex]]:
        """The words of a sum, as `words_on_bits` has them."""
        return words_on_bits(observable, self.where)

    def expectation(self, observable: PauliSum) -> float | complex:
        """The value of a sum of Pauli words; a float for real coefficients."""
        total = self.state.pauli_sum(self.words_on_bits(observable))
        return total if np.iscomplexobj(observable.coefficients) else total.real

    def sample(self, shots: int) -> Array:
        """Values of all qubits, int64 [shots], the first most significant, in random order.

        Sums over chunks choose the chunk, the device finds the index in it: no table of all probabilities is
        made. The state is not changed.
        """
        chunk_bits = min(CHUNK_BITS, self.state.n_bits)
        reached = np.cumsum(self.state.sums(chunk_bits))
        thresholds = np.sort(self.random.random(shots)) * reached[-1]
        chunks = np.minimum(np.searchsorted(reached, thresholds, side="right"), len(reached) - 1)
        rests = thresholds - np.concatenate([[0.0], reached])[chunks]
        drawn = self.state.draw(chunk_bits, chunks, rests)
        values = np.zeros(shots, np.int64)
        for qubit in range(self.n_qubits):
            values = 2 * values + (drawn >> self.where[qubit] & 1)
        return self.random.permutation(values)

    def amplitudes(self, bit_strings: Sequence[str]) -> Array:
        """The amplitudes of bit strings (character k is qubit k), complex128."""
        check_bits(bit_strings, self.n_qubits)
        rows = [[bit == "1" for bit in bits] for bits in bit_strings]
        return self.amplitudes_at(np.array(rows).reshape(-1, self.n_qubits))

    def amplitudes_at(self, bits: Array) -> Array:
        """The amplitudes of bit strings, 0 or 1 [string, qubit], complex128."""
        indices = np.zeros(len(bits), np.int64)
        for qubit, where in enumerate(self.where):
            indices |= bits[:, qubit].astype(np.int64) << where
        return self.state.take(indices).astype(np.complex128)

    def open_amplitudes(self, fixed: Mapping[int, int], open_qubits: Sequence[int]) -> Array:
        """The amplitudes of all values of m open qubits, complex128 [2^m], the first most significant."""
        values = np.arange(1 << len(open_qubits))
        indices = np.full(len(values), sum(bit << self.where[qubit] for qubit, bit in fixed.items()))
        for k, qubit in enumerate(reversed(open_qubits)):
            indices |= (values >> k & 1) << self.where[qubit]
        return self.state.take(indices).astype(np.complex128)

    def array(self) -> Array:
        """All amplitudes on the host, [2^n], the first qubit most significant."""
        n = self.n_qubits
        axes = [n - 1 - self.where[qubit] for qubit in range(n)]
        return np.ascontiguousarray(self.state.to_host().reshape((2,) * n).transpose(axes)).reshape(-1)
