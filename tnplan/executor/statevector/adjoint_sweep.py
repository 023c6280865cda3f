"""The sweep back: the derivatives of an expectation value by all angles of a circuit (Jones and Gacon,
arXiv 2009.02823).

States go back through the circuit, psi and lambda = O psi for each observable O. After a gate U with
dU/dangle = G U the derivative is 2 Re <lambda| G |psi>. Knows a simulator's state and gates, no file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

from tnplan.circuits.circuit import Gate
from tnplan.circuits.pauli_sum import PauliSum
from tnplan.common.arrays import Array
from tnplan.executor.statevector.derivative_segments import (
    DerivativeSegment,
    derivative_segments,
    parameter_words,
)
from tnplan.executor.statevector.gates.multiplexed_gate import (
    MultiplexedGate,
    WordSum,
    from_gate,
    inverse,
    word_sum,
)
from tnplan.executor.statevector.scheduling.fusion import PassStep
from tnplan.executor.statevector.scheduling.qubit_cover import QubitExchange
from tnplan.executor.statevector.scheduling.tiled_passes import Pass, PassPlan, Tile, compile_gates, rename
from tnplan.executor.statevector.simulator import Simulator, StateVector

# The sweep back over both states at once by the passes of the forward sweep, each undone in turn.
#
# The passes are made for the circuit with its inner products between the gates, so that they are about those
# of the forward sweep, and what the first of them did to |0...0> is undone by the last. Knows gates and bits,
# no state and no device.


def mirrored_sweep(gates: Sequence[Gate], where: Sequence[int], tile: Tile) -> JointSweep | None:
    """The sweep back through gates, from qubit q at bit where[q], in tiles of each state.

    None where a word has more bits of x than a compiled pass takes.

    Raises InputError for a gate with angles whose derivatives are not known.
    """
    undoable = [from_gate(gate) for gate in gates]
    steps: list[MultiplexedGate] = []
    angles: list[tuple[int, int]] = []
    terms: list[Term] = []
    for number, (gate, multiplexed) in enumerate(zip(gates, undoable, strict=True)):
        sums = sums_of_gate(gate, number, angles, terms)
        if sums is None or not all(map(_is_of_a_unitary, sums)):
            return None
        steps += [multiplexed, *sums]
    _, moved = rename([gate for gate in undoable if len(gate.targets) == 2], range(len(where)))  # swaps
    before = [0] * len(where)
    for bit, qubit in zip(where, moved, strict=True):
        before[qubit] = bit
    plan = compile_gates(steps if terms else [], before, tile)
    passes = tuple(Pass(p.held_bits, tuple(map(_undone, reversed(p.steps)))) for p in reversed(plan.passes))
    return JointSweep(PassPlan(passes, tuple(where), tuple(before)), tuple(angles), tuple(terms))


def _undone(step: PassStep) -> PassStep:
    assert isinstance(step, MultiplexedGate)
    return step if isinstance(step, WordSum) else inverse(step)


def _is_of_a_unitary(word: WordSum) -> bool:
    """Whether a sum is the imaginary part of <lambda| P |psi> of a Hermitian word P, or about two bits."""
    ys = (word.target_mask & word.z).bit_count()
    return word.imaginary == (ys % 2 == 0) or len(word.targets) > 1


@dataclass(frozen=True)
class Derivative:
    """The derivative of the value by angle `parameter` of gate `gate`.

    - `gate`, `name`: The number of the gate in the circuit, and its name.
    - `parameter`, `angle`: Which of its angles, and that angle.
    - `derivative`: Of the expectation value, a real number.
    """

    gate: int
    name: str
    parameter: int
    angle: float
    derivative: float


class BothStates(Protocol):
    """psi and lambda in one array."""

    tile: Tile
    mirrored: bool
    """Whether passes are those of a `mirrored_sweep`, or of a `joint_sweep`."""

    def prepare(self, passes: Sequence[Pass], from_zeros: bool) -> bool:
        """Have the passes ready; whether the device takes the sums of all.

        `from_zeros`: they go back to |0...0>.
        """

    def begin(self, psi: Any, words: Sequence[tuple[int, int, complex]]) -> None:
        """Take the final state, and lambda as the sum of words of it: masks x and z of bits, and factors."""

    def run(self) -> Callable[[], Array]:
        """Do all passes; what is returned waits for the sums, float64 [number]."""


class AdjointState(StateVector, Protocol):
    """What a state has besides, to be differentiated."""

    def joint(self) -> BothStates | None:
        """Memory for both states of a sweep back; None where the device does not take them at once."""

    def twin(self) -> AdjointState:
        """Another state of the same size on the same ranks, all of whose amplitudes are zero."""

    def assign(self, source: Any) -> None:
        """Take the amplitudes of another state."""

    def compile_repeated(self, passes: Sequence[Pass], times: int) -> None:
        """See that `prepare` finds compiled kernels for passes that come, each so many times, where a device
        has such and they save time."""

    def rebound(self, steps: Sequence[Pass | QubitExchange], prepared: Sequence[Any]) -> Sequence[Any]:
        """What another state has prepared for steps, for this one; collective."""

    def add_word(self, source: Any, x: int, z: int, factor: complex) -> None:
        """Add `factor` (-1)^|z & i| a[i] of another state at i ^ x, for all i: bits of the index in masks."""

    def between(self, other: Any, words: Sequence[tuple[int, int]]) -> Callable[[], Array]:
        """For each pair of masks the sum over i of (-1)^|z & i| conj(b[i ^ x]) a[i], b those of the other
        state; a device goes on until what is returned asks for the sums."""


def adjoint_gradient(simulator: Simulator, gates: Sequence[Gate], observable: PauliSum) -> list[Derivative]:
    """The derivatives of one observable: see `adjoint_gradients`."""
    return adjoint_gradients(simulator, gates, [observable])[0]


def adjoint_gradients(
    simulator: Simulator, gates: Sequence[Gate], observables: Sequence[PauliSum]
) -> list[list[Derivative]]:
    """The derivatives of observables by all angles; collective over the ranks of the state.

    One sweep back takes the final state, and another state for each observable.

    - `simulator`: In the state after the gates, which stays.
    - `gates`: The circuit.
    - `observables`: With real coefficients.
    - returns: Of each observable one of each angle, in the order of the gates.
    - raises InputError: for a gate with angles whose derivatives are not known.
    """
    # Adjoint differentiation (Jones and Gacon, arXiv:2009.02823): d<O>/dt = 2 Re <lambda| dU/dt
    # |psi>, with |lambda> = O |psi> at the end; both go back gate by gate. dU/dt is a sum of Pauli
    # words times U, so each derivative is a sum of inner products about words.
    joint = prepare_joint(simulator, gates)
    if joint is not None:
        return [_rows(gates, joint.derivatives(simulator, observable)) for observable in observables]
    segments = derivative_segments(gates)
    sweep = _Sweep(simulator, observables)
    plans = sweep.plans(gates, segments)
    waiting = []
    # Values are read later, all at once: a GPU goes on without waiting.
    for segment, plan in zip(segments, plans, strict=True):
        sweep.undo(plan)
        waiting.append(sweep.values(words_of(segment)))
    derivatives: list[dict[tuple[int, int], float]] = [{} for _ in observables]
    for segment, reads in zip(segments, waiting, strict=True):
        for own, read in zip(derivatives, reads, strict=True):
            values = iter(read())
            for parameter in segment.parameters:
                total = sum(coefficient * next(values) for _, _, coefficient in parameter.words)
                own[parameter.gate, parameter.number] = 2.0 * complex(total).real
    return [_rows(gates, own) for own in derivatives]


def _rows(gates: Sequence[Gate], derivatives: dict[tuple[int, int], float]) -> list[Derivative]:
    return [
        Derivative(gate, gates[gate].name, number, float(gates[gate].params[number]), derivative)
        for (gate, number), derivative in sorted(derivatives.items())
    ]


class PreparedJoint:
    """A sweep back over both states at once, on a device that has it; it may be done again."""

    def __init__(self, state: BothStates, sweep: JointSweep) -> None:
        self._state, self._sweep = state, sweep

    def derivatives(self, simulator: Simulator, observable: PauliSum) -> dict[tuple[int, int], float]:
        """The derivatives of an observable by angle, in the final state of a simulator, which stays."""
        self._state.begin(simulator.state, simulator.words_on_bits(observable))
        return self._sweep.derivatives(self._state.run()().tolist())


def prepare_joint(simulator: Simulator, gates: Sequence[Gate]) -> PreparedJoint | None:
    """The sweep back through gates from where the qubits of a simulator are; None where its device does not
    take both states at once, or not all words."""
    final: Any = simulator.state
    state = final.joint() if simulator.mode == "compiled" else None
    if state is None:
        return None
    make = mirrored_sweep if state.mirrored else joint_sweep
    sweep = make(gates, simulator.where, state.tile)
    if sweep is None or not state.prepare(sweep.plan.passes, simulator.from_zeros):
        return None
    return PreparedJoint(state, sweep)


class _Sweep:
    """The final state and that of each observable, with the qubits at equal bits."""

    def __init__(self, simulator: Simulator, observables: Sequence[PauliSum]) -> None:
        self._where, self._mode, self._n_qubits = simulator.where, simulator.mode, simulator.n_qubits
        final: Any = simulator.state
        self._psi, self._lambdas = final.twin(), [final.twin() for _ in observables]
        self._psi.assign(final)
        for observable, state in zip(observables, self._lambdas, strict=True):
            for word in simulator.words_on_bits(observable):
                state.add_word(self._psi, *word)

    def _mask(self, qubits: int) -> int:
        """The mask of bits of the index for one of qubits."""
        return sum(1 << self._where[qubit] for qubit in range(self._n_qubits) if qubits >> qubit & 1)

    def plans(self, gates: Sequence[Gate], segments: Sequence[DerivativeSegment]) -> list[PassPlan]:
        """The passes that go back to the position of each segment from the one after it."""
        plans = plans_back(gates, segments, self._where, self._psi.tile, self._mode, self._psi.n_bits)
        passes = [item for plan in plans for item in plan.passes]
        self._psi.compile_repeated(passes, times=1 + len(self._lambdas))
        return plans

    def undo(self, plan: PassPlan) -> None:
        """Take all states back to before some gates."""
        prepared = self._psi.prepare(plan.steps, again=False)
        for step in prepared:
            self._psi.apply(step)
        for state in self._lambdas:
            for step in state.rebound(plan.steps, prepared):
                state.apply(step)
        self._where = plan.after

    def values(self, words: Sequence[tuple[int, int]]) -> list[Callable[[], list[complex]]]:
        """<lambda| P |psi> of Pauli words now for each lambda, from what is returned."""
        masks = [(self._mask(x), self._mask(z)) for x, z in words]
        powers = [1j ** ((x & z).bit_count() & 3) for x, z in words]
        return [_times(powers, self._psi.between(state, masks)) for state in self._lambdas]


def _times(powers: Sequence[complex], read: Callable[[], Array]) -> Callable[[], list[complex]]:
    """What gives the numbers that `read` gives, times powers."""
    return lambda: [power * value for power, value in zip(powers, read().tolist(), strict=True)]


def plans_back(
    gates: Sequence[Gate], segments: Sequence[DerivativeSegment], where: tuple[int, ...], tile: Tile,
    mode: str, n_inside: int,
) -> list[PassPlan]:  # fmt: skip
    """The passes that go back to the position of each segment from that after it, qubit q at bit where[q]."""
    positions = [len(gates), *(segment.position for segment in segments)]
    plans: list[PassPlan] = []
    for undone, position in pairwise(positions):
        undoing = [inverse(from_gate(gate)) for gate in reversed(gates[position:undone])]
        plans.append(compile_gates(undoing, where, tile, mode, n_inside))
        where = plans[-1].after
    return plans


def words_of(segment: DerivativeSegment) -> list[tuple[int, int]]:
    """The masks over qubits of all words of a segment, in order."""
    return [(x, z) for parameter in segment.parameters for x, z, _ in parameter.words]


MOST_X_BITS = 2
"""Bits of x of a word that a compiled pass takes."""
MOST_STEPS = 150
"""Of a pass. The instructions of more seem not to fit into the cache of a multiprocessor: passes of 157 and
188 steps, over layers of ry, rz and cz, took 25 and 60 ms (one H100)."""
ROUNDING = 1e-12
"""Parts of a factor below this, in parts of the factor, are the rounding of a generator."""


@dataclass(frozen=True)
class Term:
    """A sum of a word times `factor` is added to the derivative by angle `number` of gate `gate`."""

    gate: int
    number: int
    factor: float


@dataclass(frozen=True, eq=False)
class JointSweep:
    """Passes over both states; the `WordSum` of number k is the sum of terms[k]."""

    plan: PassPlan
    angles: tuple[tuple[int, int], ...]
    """The gate and the number of each angle."""
    terms: tuple[Term, ...]

    def derivatives(self, sums: Sequence[float]) -> dict[tuple[int, int], float]:
        """The derivative by each angle of each gate, for the sums of all terms."""
        derivatives = dict.fromkeys(self.angles, 0.0)
        for term, value in zip(self.terms, sums, strict=True):
            derivatives[term.gate, term.number] += term.factor * value
        return derivatives


def joint_sweep(gates: Sequence[Gate], where: Sequence[int], tile: Tile) -> JointSweep | None:
    """The sweep back through gates, from qubit q at bit where[q] + 1 of both states, in tiles of both.

    None where a word has more bits of x than a compiled pass takes.

    Raises InputError for a gate with angles whose derivatives are not known.
    """
    steps: list[MultiplexedGate] = []
    angles: list[tuple[int, int]] = []
    terms: list[Term] = []
    for number in range(len(gates) - 1, -1, -1):
        sums = sums_of_gate(gates[number], number, angles, terms)
        if sums is None:
            return None
        steps += [*sums, inverse(from_gate(gates[number]))]
    before = [*(bit + 1 for bit in where), 0]
    rounds = replace(tile, register_bits=tile.register_bits - 1)
    plan = compile_gates(steps, before, rounds)
    return JointSweep(replace(plan, steps=_divided(plan.passes)), tuple(angles), tuple(terms))


def takes_words(gates: Sequence[Gate]) -> bool:
    """Whether passes over both states take the words of the generators of all gates.

    Raises InputError for a gate with angles whose derivatives are not known.
    """
    return all(sums_of_gate(gate, number, [], []) is not None for number, gate in enumerate(gates))


def sums_of_gate(
    gate: Gate, number: int, angles: list[tuple[int, int]], terms: list[Term]
) -> list[WordSum] | None:  # fmt: skip
    """The sums right after gate `number`, about the words of its generators; None where one is too wide.

    Its angles, and a term for each sum, are appended to those so far.

    Raises InputError for a gate with angles whose derivatives are not known.
    """
    sums: list[WordSum] = []
    for parameter in parameter_words(gate, number):
        angles.append((parameter.gate, parameter.number))
        for x, z, coefficient in parameter.words:
            if x.bit_count() > MOST_X_BITS:
                return None
            factor = 2 * coefficient * 1j ** ((x & z).bit_count() & 3)
            for weight, imaginary in ((factor.real, False), (-factor.imag, True)):
                if abs(weight) > ROUNDING * abs(factor):
                    sums.append(word_sum(x, z, len(terms), imaginary))
                    terms.append(Term(parameter.gate, parameter.number, weight))
    return sums


def _divided(passes: Sequence[Pass]) -> tuple[Pass, ...]:
    """Passes of many steps as several in a row, of about as many steps each."""
    shorter = []
    for item in passes:
        count = -(-len(item.steps) // MOST_STEPS)
        ends = [number * len(item.steps) // count for number in range(count + 1)]
        shorter += [Pass(item.held_bits, item.steps[first:last]) for first, last in pairwise(ends)]
    return tuple(shorter)
