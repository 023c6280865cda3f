"""Fusion inside a pass: many blocks become fewer, which do the same. Knows bits; no state and no device.

Blocks go into clusters of at most `width` held bits, as early as they commute. Diagonals that fit into no
cluster wait, since nothing but a target on one of their bits keeps them in place; what waits when such a
target comes, or at the end, is one table on held bits and one twist for all the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from tnplan.executor.statevector.gates.multiplexed_gate import (
    LARGEST_TARGETS,
    MultiplexedGate,
    commute,
    expanded,
    merged,
)
from tnplan.executor.statevector.gates.phase_polynomial import Twist, can_twist, gathered, split
from tnplan.executor.statevector.scheduling.qubit_cover import choose, sweep

FAR_SELECTORS = 2
"""A cluster has at most so many selectors outside the tile."""

PassStep = MultiplexedGate | Twist


def fuse(blocks: Sequence[MultiplexedGate], held_mask: int, n_bits: int, width: int) -> tuple[PassStep, ...]:
    """The steps of a pass that holds the bits of `held_mask`, targets of all blocks among them."""
    clusters: list[MultiplexedGate] = []
    waiting: list[list[MultiplexedGate]] = [[]]
    for block in blocks:
        _place(block, clusters, waiting, held_mask, width)
    steps: list[PassStep] = []
    pending = list(waiting[0])
    for cluster, later in zip(clusters, waiting[1:], strict=True):
        due = [block for block in pending if block.mask & cluster.target_mask]
        pending = [block for block in pending if not block.mask & cluster.target_mask]
        steps += _diagonals(due, held_mask, n_bits)
        if not cluster.is_identity:
            steps.append(cluster)
        pending += later
    return (*steps, *_diagonals(pending, held_mask, n_bits))


def fuse_in_rounds(
    blocks: Sequence[MultiplexedGate],
    held_mask: int,
    n_bits: int,
    width: int,
    register_bits: int,
    early: bool = False,
) -> tuple[PassStep, ...]:
    """Like `fuse` for a device that does a pass in rounds, each with the targets of few bits in registers.

    No block has more targets than a round. Diagonals on targets of a round are done together before it, those
    between its own targets inside; with `early` all that can be done come before it.
    """
    steps: list[PassStep] = []
    left = list(blocks)
    pending: list[MultiplexedGate] = []
    while left:
        part, left = sweep(left, choose(left, 0, register_bits))
        clusters: list[MultiplexedGate] = []
        waiting: list[list[MultiplexedGate]] = [[]]
        for block in part:
            _place(block, clusters, waiting, held_mask, width, widen=False)
        targets = 0
        for cluster in clusters:
            targets |= cluster.target_mask
        due = [block for block in pending if early or block.mask & targets]
        steps += _diagonals(due, held_mask, n_bits)
        pending = [] if early else [block for block in pending if not block.mask & targets]
        inside = list(waiting[0])
        for cluster, later in zip(clusters, waiting[1:], strict=True):
            steps += _diagonals(
                [block for block in inside if block.mask & cluster.target_mask], held_mask, n_bits
            )
            inside = [block for block in inside if not block.mask & cluster.target_mask]
            if not cluster.is_identity:
                steps.append(cluster)
            inside += later
        pending += inside
    return (*steps, *_diagonals(pending, held_mask, n_bits))


def _place(
    block: MultiplexedGate, clusters: list[MultiplexedGate], waiting: list[list[MultiplexedGate]], held_mask: int, width: int,
    widen: bool = True,
) -> None:  # fmt: skip
    """Merge a block into the latest cluster that takes it, or append it.

    Clusters `widen` by far selectors, and by blocks that have more bits than `width` themselves, up to
    LARGEST_TARGETS; others take no diagonals, with which their matrices would cost more.
    """
    at = len(clusters)
    while at:
        if block.targets and any(other.mask & block.target_mask for other in waiting[at]):
            break
        cluster = clusters[at - 1]
        narrow = (cluster.mask | block.mask).bit_count() <= width and (widen or bool(block.targets))
        if narrow or (widen and _fits(cluster, block, held_mask, width)):
            clusters[at - 1] = merged(cluster, block, held_mask)
            return
        if not commute(cluster, block):
            break
        at -= 1
    if block.targets:
        clusters.append(block)
        waiting.append([])
    else:
        waiting[at].append(block)


def _fits(cluster: MultiplexedGate, block: MultiplexedGate, held_mask: int, width: int) -> bool:
    """Whether both have no more held bits than `width`, or than one of them has already, and few far ones.

    All held bits become targets, so that they are LARGEST_TARGETS at most.
    """
    both = cluster.mask | block.mask
    least = max((part.mask & held_mask).bit_count() for part in (cluster, block))
    most = min(max(width, least), LARGEST_TARGETS)
    return (both & held_mask).bit_count() <= most and (both & ~held_mask).bit_count() <= FAR_SELECTORS


def _diagonals(blocks: list[MultiplexedGate], held_mask: int, n_bits: int) -> list[PassStep]:
    """Diagonal blocks, which all commute, as few steps."""
    if len(blocks) < 2:
        return list(blocks)
    smooth = [block for block in blocks if can_twist(block)]
    steps: list[PassStep] = [block for block in blocks if not can_twist(block)]
    if smooth:
        steps += [part for part in split(gathered(smooth, n_bits), held_mask) if part is not None]
    return steps


def with_low_bits(block: MultiplexedGate, held: Sequence[int], low: int) -> MultiplexedGate:
    """A diagonal block that selects by any of the first `low` bits held selects by all of them."""
    first = list(held[:low])
    if block.targets or not any(bit in block.selectors for bit in first):
        return block
    selectors = tuple(sorted({*block.selectors, *first}, reverse=True))
    return MultiplexedGate((), selectors, expanded(block, (), selectors))
