"""Belief propagation on a PEPS: what each side of an edge knows of the state, as a matrix.

In the Vidal gauge of a tree all messages are unit matrices; elsewhere they are a fixed point of the equations
of Tindall and Fishman, SciPost Phys. 15, 222 (2023), which is found by repetition. Ranks renew the messages
from their sites, and send each other those between them after every sweep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tnplan.executor.device.protocols.communicator import Communicator, messages
from tnplan.executor.peps.levels import Pair
from tnplan.executor.peps.state import PepsState

Array = Any
UNDAMPED = 20
"""Sweeps before messages are mixed with those before them."""
DAMPING = 0.3
"""The share of the messages before."""


@dataclass
class Messages:
    """Messages [bond, bond] from the first end of each edge to the second; of a rank, those from and to it.

    `residual` is the largest change of a message in the last sweep, as the weights of the edge see it; a
    message has the trace 1 there. They are converged where it is below the tolerance.
    """

    matrices: dict[Pair, Array]
    sweeps: int
    residual: float
    is_converged: bool


def iterated_messages(state: PepsState, tolerance: float, most_sweeps: int) -> Messages:
    """Messages from unit matrices on, until they change by less than the tolerance or for so many sweeps."""
    xp = state.xp
    matrices: dict[Pair, Array] = {}
    batches = list(state.directed())
    for a, b in state.weights:
        unit = xp.eye(len(state.weights[a, b]), dtype=state.dtype)
        matrices.update(dict.fromkeys(((a, b), (b, a)), unit))
    residual = 0.0 if not state.weights else 1.0
    sweeps = 0
    while residual > tolerance and sweeps < most_sweeps:
        sweeps += 1
        changes: list[Array] = []
        new: dict[Pair, Array] = {}
        share = DAMPING if sweeps > UNDAMPED else 0.0
        for edges in batches:
            before = xp.stack([matrices[edge] for edge in edges])
            after = _sent(state, edges, matrices)
            after = share * before + (1 - share) * after
            weights = xp.stack([state.weights_of(*edge) for edge in edges])
            change = (after - before) * weights[:, :, None] * weights[:, None, :]
            changes.append(xp.sqrt((abs(change) ** 2).sum(axis=(1, 2)).max()))
            new.update(zip(edges, after, strict=True))
        residual = float(xp.stack(changes).max()) if changes else 0.0
        if state.ranks is not None:
            new |= _received(state, state.ranks, new)
            residual = max(state.ranks.gather_objects(residual))
        matrices = new
    return Messages(matrices, sweeps, residual, residual <= tolerance)


def _received(state: PepsState, ranks: Communicator, new: Mapping[Pair, Array]) -> dict[Pair, Array]:
    """The messages from sites of other ranks to those of this one."""
    owners, sends, receives, found = state.owners, list[Any](), list[Any](), dict[Pair, Array]()
    for a, b in sorted({*state.weights, *(edge[::-1] for edge in state.weights)}):
        if owners[a] == owners[b] or state.rank not in (owners[a], owners[b]):
            continue
        if state.is_mine(a):
            sends += messages(owners[b], [new[a, b]])
        else:
            found[a, b] = state.xp.empty(2 * (len(state.weights_of(a, b)),), state.dtype)
            receives += messages(owners[a], [found[a, b]])
    ranks.exchange(sends, receives)
    return found


def _sent(state: PepsState, edges: list[Pair], matrices: Mapping[Pair, Array]) -> Array:
    """The messages along edges whose first tensors have equal shapes: sum T[k] m ... m T^*[k']."""
    xp = state.xp
    tensors, _ = state.stacked(edges, 2)
    n, _, _, bond, _ = tensors.shape
    orders = [state.axes(*edge) for edge in edges]
    acted, left = tensors, 2
    for place in range(len(orders[0]) - 2):
        others = [state.neighbours[a][order[place]] for (a, _), order in zip(edges, orders, strict=True)]
        coming = xp.stack([matrices[c, a].T for (a, _), c in zip(edges, others, strict=True)])
        extent = coming.shape[1]
        acted = coming[:, None] @ acted.reshape(n, left, extent, -1)
        left *= extent
    sent = acted.reshape(n, -1, bond).swapaxes(1, 2) @ tensors.reshape(n, -1, bond).conj()
    weights = xp.stack([state.weights_of(*edge) for edge in edges])
    trace = (xp.einsum("bii->bi", sent).real * weights**2).sum(axis=1)
    sent = sent / trace.astype(sent.real.dtype)[:, None, None]
    return (sent + sent.conj().swapaxes(1, 2)) / 2
