"""The steps of a circuit that an operator at its end, or at its beginning, can see. Knows no network."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tnplan.planner.networks.of_circuits.steps import (
    Step,
    diagonal_qubits,
    keeps_diagonals,
    keeps_trace,
)


def light_cone(steps: Sequence[Step], qubits: Collection[int], diagonal: Collection[int] = ()) -> list[int]:
    """The numbers of the steps that do not cancel around an operator on `qubits` after the last one, rising.

    In U^dagger A U a gate cancels where A, and what is left of U after the gate, act on none of its qubits.
    It cancels too where all of them leave the values of the qubits that they share as they are, in the Z
    basis; `diagonal` names the qubits on which A does so. The same holds for channels, which keep the trace.
    A gate that is not unitary never cancels.
    """
    region, plain = set(qubits), set(diagonal)
    kept: list[int] = []
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        seen = region.intersection(step.qubits)
        diagonal_on = dict(zip(step.qubits, diagonal_qubits(step), strict=True))
        if keeps_trace(step) and seen <= plain and all(diagonal_on[qubit] for qubit in seen):
            continue
        kept.append(number)
        permutes = seen <= plain and keeps_diagonals(step)
        for qubit, keeps in diagonal_on.items():
            if permutes or (keeps and (qubit in plain or qubit not in region)):
                plain.add(qubit)
            else:
                plain.discard(qubit)
        region.update(step.qubits)
    return kept[::-1]


def forward_cone(steps: Sequence[Step], qubits: Collection[int], diagonal: Collection[int] = ()) -> list[int]:
    """The numbers of the steps that do not cancel around an operator before the first: in U A U^dagger."""
    kept = light_cone(steps[::-1], qubits, diagonal)
    return [len(steps) - 1 - number for number in reversed(kept)]


def qubits_of(steps: Sequence[Step]) -> set[int]:
    """All qubits that some steps act on."""
    return {qubit for step in steps for qubit in step.qubits}
