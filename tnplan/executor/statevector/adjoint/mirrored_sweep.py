"""The sweep back over both states at once by the passes of the forward sweep, each undone in turn.

The passes are made for the circuit with its inner products between the gates, so that they are about those
of the forward sweep, and what the first of them did to |0...0> is undone by the last. Knows gates and bits,
no state and no device.
"""

from __future__ import annotations

from collections.abc import Sequence

from tnplan.circuits.circuit import Gate
from tnplan.executor.statevector.adjoint.joint_sweep import JointSweep, Term, sums_of_gate
from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate, from_gate, inverse
from tnplan.executor.statevector.gates.word_sum import WordSum
from tnplan.executor.statevector.scheduling.fusion import PassStep
from tnplan.executor.statevector.scheduling.tiled_passes import Pass, PassPlan, Tile, compile_gates, rename


def mirrored_sweep(gates: Sequence[Gate], where: Sequence[int], tile: Tile) -> JointSweep | None:
    """The sweep back through gates, from qubit q at bit where[q], in tiles of each state.

    None where a word has more bits of x than a compiled pass takes.

    Raises InputError for a gate with angles whose derivatives are not known.
    """
    there = [from_gate(gate) for gate in gates]
    steps: list[MultiplexedGate] = []
    angles: list[tuple[int, int]] = []
    terms: list[Term] = []
    for number, (gate, multiplexed) in enumerate(zip(gates, there, strict=True)):
        sums = sums_of_gate(gate, number, angles, terms)
        if sums is None or not all(map(_is_of_a_unitary, sums)):
            return None
        steps += [multiplexed, *sums]
    _, moved = rename([gate for gate in there if len(gate.targets) == 2], range(len(where)))  # swaps
    before = [0] * len(where)
    for bit, place in zip(where, moved, strict=True):
        before[place] = bit
    plan = compile_gates(steps if terms else [], before, tile)
    passes = tuple(Pass(one.held, tuple(map(_undone, reversed(one.steps)))) for one in reversed(plan.passes))
    return JointSweep(PassPlan(passes, tuple(where), tuple(before)), tuple(angles), tuple(terms))


def _undone(step: PassStep) -> PassStep:
    assert isinstance(step, MultiplexedGate)
    return step if isinstance(step, WordSum) else inverse(step)


def _is_of_a_unitary(word: WordSum) -> bool:
    """Whether a sum is the imaginary part of <lambda| P |psi> of a Hermitian word P, or about two bits."""
    ys = (word.target_mask & word.z).bit_count()
    return word.imaginary == (ys % 2 == 0) or len(word.targets) > 1
