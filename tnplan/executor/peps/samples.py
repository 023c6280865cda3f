"""Bit strings from a PEPS, qubit by qubit: messages carry what was drawn to the qubits that are left.

p(x_q | x before) comes from the tensor of q between the messages to it. A qubit that is drawn is projected,
and messages change along the way to the next one, down and up a spanning tree: on a tree every string comes
with its probability |<x|psi>|^2. With loops messages take the neighbours of a tensor for independent, and the
probabilities are approximate; what was drawn then also reaches the sites around it, over all edges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tnplan.executor.peps.levels import Pair
from tnplan.executor.peps.state import PepsState, on_host

Array = Any
RADIUS = 4
"""How many edges what was drawn goes beyond the tree."""
SHOT_BYTES = 256 << 20
"""Memory of the strings that are drawn together."""


class MessageSampler:
    """Draws strings from a state with messages.

    Invariant: a message [shot, bond, bond] or [1, bond, bond] to a site has the weights of its edge on both
    sides, and the trace 1.
    """

    def __init__(self, state: PepsState, messages: Mapping[Pair, Array]) -> None:
        self._state, self._xp = state, state.xp
        self._first = {}
        for (a, b), matrix in messages.items():
            weights = state.weights_of(a, b)
            self._first[a, b] = (matrix * weights[:, None] * weights[None, :]).astype(state.dtype)[None]
        self._order = _walk(state.neighbours)
        self._waves = [_wave(state.neighbours, site) for site in range(len(state.neighbours))]

    @property
    def is_tree(self) -> bool:
        """Whether the graph has no loops, and messages are exact."""
        roots = sum(not path for _, path in self._order)
        return len(self._state.weights) == len(self._state.neighbours) - roots

    def draw(self, shots: int, generator: np.random.Generator, say: Callable[[int], None]) -> np.ndarray:
        """Independent strings, uint8 [shot, qubit]."""
        n, tensors = len(self._state.neighbours), self._state.tensors
        a_shot = 4 * max(tensor.nbytes for tensor in tensors) + sum(
            one.nbytes for one in self._first.values()
        )
        at_once, parts = max(1, SHOT_BYTES // a_shot), [np.zeros((0, n), np.uint8)]
        for first in range(0, shots, at_once):
            say(first)
            parts.append(self.strings(generator.random((min(at_once, shots - first), n)))[0])
        return np.concatenate(parts)

    def strings(self, uniform: np.ndarray, given: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Strings, uint8 [shot, qubit], by numbers from 0 to 1 [shot, qubit], or those given; and the natural
        logarithms of the probabilities with which they come, [shot]."""
        messages, bits = dict(self._first), np.zeros(uniform.shape, np.uint8)
        logarithms, drawn = np.zeros(len(uniform)), set[int]()
        for site, path in self._order:
            for a, b in path:
                self._send(a, b, messages, bits, drawn)
            tensor = self._state.tensors[site]
            acted = self._acted(site, tensor, None, messages, slice(None))
            weights = (acted * tensor.conj()).real.sum(axis=tuple(range(1, acted.ndim - 1)))
            shares = np.maximum(on_host(weights).astype(np.float64), 0)
            shares = np.broadcast_to(shares / shares.sum(axis=1, keepdims=True), (len(uniform), 2))
            bits[:, site] = uniform[:, site] >= shares[:, 0] if given is None else given[:, site]
            with np.errstate(divide="ignore"):
                logarithms += np.log(shares[np.arange(len(bits)), bits[:, site]])
            drawn.add(site)
            for a, b in self._waves[site]:
                self._send(a, b, messages, bits, drawn)
        return bits, logarithms

    def _send(self, a: int, b: int, messages: dict[Pair, Array], bits: np.ndarray, drawn: set[int]) -> None:
        """Renew the message from a to b."""
        xp, tensor = self._xp, self._state.tensors[a]
        if a not in drawn:
            sent = self._sent(a, b, tensor, messages, slice(None))
        else:
            bond = tensor.shape[self._state.neighbours[a].index(b)]
            sent = xp.empty((len(bits), bond, bond), self._state.dtype)
            for value in (0, 1):
                rows = np.flatnonzero(bits[:, a] == value)
                if len(rows):
                    some = xp.asarray(rows)
                    sent[some] = self._sent(a, b, tensor[..., value : value + 1], messages, some)
        trace = xp.einsum("bii->b", sent).real
        # Around loops strings may contradict themselves: the message before stays.
        is_possible = trace > xp.finfo(trace.dtype).tiny
        scale = xp.where(is_possible, trace, 1)[:, None, None]
        messages[a, b] = xp.where(is_possible[:, None, None], sent / scale, messages[a, b])

    def _sent(self, a: int, b: int, tensor: Array, messages: Mapping[Pair, Array], rows: Any) -> Array:
        """The message of a tensor [bonds, qubit] to a neighbour, for some shots, with any trace."""
        xp, axis = self._xp, self._state.neighbours[a].index(b)
        acted = xp.moveaxis(self._acted(a, tensor, b, messages, rows), axis + 1, 1)
        bond = acted.shape[1]
        bra = xp.moveaxis(tensor.conj(), axis, 0).reshape(bond, -1)
        weights = self._state.weights_of(a, b).astype(self._state.dtype)
        sent = acted.reshape(len(acted), bond, -1) @ bra.T * weights[:, None] * weights[None, :]
        return (sent + sent.conj().swapaxes(1, 2)) / 2

    def _acted(
        self, site: int, tensor: Array, without: int | None, messages: Mapping[Pair, Array], rows: Any
    ) -> Array:
        """sum_k m[k, k'] T[k] over all edges but that with `without`: [shot, bonds, qubit]."""
        xp, acted = self._xp, tensor[None]
        for axis, end in enumerate(self._state.neighbours[site], 1):
            if end == without:
                continue
            coming = messages[end, site]
            coming = (coming if len(coming) == 1 else coming[rows]).swapaxes(1, 2)
            moved = xp.moveaxis(acted, axis, 1)
            shape = moved.shape[1:]
            moved = coming @ moved.reshape(len(moved), shape[0], -1)
            acted = xp.moveaxis(moved.reshape(len(moved), *shape), 1, axis)
        return acted


def _walk(neighbours: Sequence[Sequence[int]]) -> list[tuple[int, list[Pair]]]:
    """All sites, depth first, each with the edges along which messages change on the way there."""
    order: list[tuple[int, list[Pair]]] = []
    seen: set[int] = set()
    for root in range(len(neighbours)):
        if root in seen:
            continue
        seen.add(root)
        order.append((root, []))
        branch, way = [root], list[Pair]()
        while branch:
            site = branch[-1]
            new = next((end for end in neighbours[site] if end not in seen), None)
            if new is None:
                branch.pop()
                way += [(site, branch[-1])] if branch else []
                continue
            order.append((new, [*way, (site, new)]))
            way = []
            seen.add(new)
            branch.append(new)
    return order


def _wave(neighbours: Sequence[Sequence[int]], site: int) -> list[Pair]:
    """The edges that lead away from a site, the nearest first."""
    distance, shell, edges = {site: 0}, [site], list[Pair]()
    for radius in range(1, RADIUS + 1):
        for a in shell:
            for b in neighbours[a]:
                if distance.setdefault(b, radius) == radius:
                    edges.append((a, b))
        shell = [one for one, far in distance.items() if far == radius]
    return edges
