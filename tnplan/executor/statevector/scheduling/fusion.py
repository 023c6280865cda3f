"""Fusion inside a pass: many gates become fewer, which do the same. Knows bits; no state and no device.

Gates go into clusters of at most `width` held bits, as early as they commute. Diagonals that fit into no
cluster wait, since nothing but a target on one of their bits keeps them in place; what waits when such a
target comes, or at the end, is one table on held bits and one phase polynomial for all the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from tnplan.executor.statevector.gates.multiplexed_gate import (
    LARGEST_TARGETS,
    MultiplexedGate,
    WordSum,
    commute,
    expanded,
    merged,
)
from tnplan.executor.statevector.gates.phase_polynomial import (
    PhasePolynomial,
    is_phase_gate,
    phases_of,
    split,
)
from tnplan.executor.statevector.scheduling.qubit_cover import rounds

FAR_SELECTORS = 2
"""A cluster has at most so many selectors outside the tile."""

PassStep = MultiplexedGate | PhasePolynomial


def fuse(gates: Sequence[MultiplexedGate], held_mask: int, n_bits: int, width: int) -> tuple[PassStep, ...]:
    """The steps of a pass that holds the bits of `held_mask`, targets of all gates among them."""
    steps, pending = _in_turn(*_clustered(gates, held_mask, width), held_mask, n_bits)
    return (*steps, *_diagonals(pending, held_mask, n_bits))


def fuse_in_rounds(
    gates: Sequence[MultiplexedGate], held_mask: int, n_bits: int, width: int, register_bits: int,
    early: bool = False,
) -> tuple[PassStep, ...]:  # fmt: skip
    """Like `fuse` for a device that does a pass in rounds, each with the targets of few bits in registers.

    No gate has more targets than a round. Diagonals on targets of a round are done together before it, those
    between its own targets inside; with `early` all that can be done come before it.
    """
    steps: list[PassStep] = []
    pending: list[MultiplexedGate] = []
    for _, round_gates in rounds(gates, 0, register_bits):
        clusters, waiting = _clustered(round_gates, held_mask, width, widen=False)
        targets = 0
        for cluster in clusters:
            targets |= cluster.target_mask
        due, pending = (pending, []) if early else _divided(pending, targets)
        steps += _diagonals(due, held_mask, n_bits)
        inside, later = _in_turn(clusters, waiting, held_mask, n_bits)
        steps += inside
        pending += later
    return (*steps, *_diagonals(pending, held_mask, n_bits))


def _clustered(
    gates: Sequence[MultiplexedGate], held_mask: int, width: int, widen: bool = True
) -> tuple[list[MultiplexedGate], list[list[MultiplexedGate]]]:
    """Clusters of gates, and the diagonals that wait before the first and after each of them."""
    clusters: list[MultiplexedGate] = []
    waiting: list[list[MultiplexedGate]] = [[]]
    for gate in gates:
        _merge_or_append(gate, clusters, waiting, held_mask, width, widen)
    return clusters, waiting


def _in_turn(
    clusters: list[MultiplexedGate], waiting: list[list[MultiplexedGate]], held_mask: int, n_bits: int
) -> tuple[list[PassStep], list[MultiplexedGate]]:
    """Clusters with the diagonals that each waits for before it, and those that none waits for."""
    steps: list[PassStep] = []
    pending = list(waiting[0])
    for cluster, later in zip(clusters, waiting[1:], strict=True):
        due, pending = _divided(pending, cluster.target_mask)
        steps += _diagonals(due, held_mask, n_bits)
        if not cluster.is_identity:
            steps.append(cluster)
        pending += later
    return steps, pending


def _divided(gates: list[MultiplexedGate], mask: int) -> tuple[list[MultiplexedGate], list[MultiplexedGate]]:
    """Those on any bit of a mask, and the others."""
    return [gate for gate in gates if gate.mask & mask], [gate for gate in gates if not gate.mask & mask]


def _merge_or_append(
    gate: MultiplexedGate, clusters: list[MultiplexedGate], waiting: list[list[MultiplexedGate]],
    held_mask: int, width: int, widen: bool = True,
) -> None:  # fmt: skip
    """Merge a gate into the latest cluster that takes it, or append it.

    Clusters `widen` by far selectors, and by gates that have more bits than `width` themselves, up to
    LARGEST_TARGETS; others take no diagonals, with which their matrices would cost more.
    """
    at = len(clusters)
    while at:
        # From the end backwards, as far as the gate commutes. Diagonals that wait behind a cluster
        # came before this gate: those that share a bit with its targets stop it.
        if gate.targets and any(other.mask & gate.target_mask for other in waiting[at]):
            break
        cluster = clusters[at - 1]
        # Sums of words read the state and are no gates that could be merged: a gate passes them
        # where it commutes, or stops.
        if isinstance(cluster, WordSum) or isinstance(gate, WordSum):
            if not commute(cluster, gate):
                break
            at -= 1
            continue
        narrow = (cluster.mask | gate.mask).bit_count() <= width and (widen or bool(gate.targets))
        if narrow or (widen and _fits(cluster, gate, held_mask, width)):
            clusters[at - 1] = merged(cluster, gate, held_mask)
            return
        if not commute(cluster, gate):
            break
        at -= 1
    if gate.targets:
        clusters.append(gate)
        waiting.append([])
    else:
        # A diagonal merges with no cluster here: it waits behind the last one that it could not pass.
        waiting[at].append(gate)


def _fits(cluster: MultiplexedGate, gate: MultiplexedGate, held_mask: int, width: int) -> bool:
    """Whether both have no more held bits than `width`, or than one of them has already, and few far ones.

    All held bits become targets, so that they are LARGEST_TARGETS at most.
    """
    both = cluster.mask | gate.mask
    least = max((gates.mask & held_mask).bit_count() for gates in (cluster, gate))
    most = min(max(width, least), LARGEST_TARGETS)
    return (both & held_mask).bit_count() <= most and (both & ~held_mask).bit_count() <= FAR_SELECTORS


def _diagonals(gates: list[MultiplexedGate], held_mask: int, n_bits: int) -> list[PassStep]:
    """Diagonal gates, which all commute, as few steps."""
    if len(gates) < 2:
        return list(gates)
    smooth = [gate for gate in gates if is_phase_gate(gate)]
    steps: list[PassStep] = [gate for gate in gates if not is_phase_gate(gate)]
    if smooth:
        steps += [step for step in split(phases_of(smooth, n_bits), held_mask) if step is not None]
    return steps


def with_low_bits(gate: MultiplexedGate, held_bits: Sequence[int], low: int) -> MultiplexedGate:
    """A diagonal gate that selects by any of the first `low` bits held selects by all of them."""
    first = list(held_bits[:low])
    if gate.targets or not any(bit in gate.selectors for bit in first):
        return gate
    selectors = tuple(sorted({*gate.selectors, *first}, reverse=True))
    return MultiplexedGate((), selectors, expanded(gate, (), selectors))
