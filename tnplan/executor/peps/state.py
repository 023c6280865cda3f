"""A PEPS in the Vidal gauge, and gates on it by the simple update.

The state of a graph is the product of a tensor for each qubit and of a vector of weights for each edge
(Jiang, Weng and Xiang, PRL 101, 090603, 2008). A gate on an edge takes the weights around it for the rest of
the state, which is exact on trees. What has equal shapes is done in one call, by NumPy or CuPy.

Over ranks each holds the tensors of its sites. Of an edge between two ranks one has the reduced factors of
both ends, cuts the bond, and sends the projector of the other end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from tnplan.executor.device.protocols.communicator import Communicator, messages
from tnplan.executor.peps.levels import DisjointGates, Pair
from tnplan.executor.peps.partition import parts_of_graph

Array = Any
"""Of NumPy or CuPy."""
SHIFT = 4.0
"""Roundings of the trace by which the diagonal of a Gram matrix is raised: it then has a Cholesky factor."""
LEAST_GRAM = 1e-6
"""Singular values above this share of the largest are told apart by Gram matrices in double precision."""
FLOOR = 1e-15
"""Singular values below this share of the largest are rounding errors."""
BATCH_BYTES = {"numpy": 8 << 20, "cupy": 1 << 30}
"""Tensors of one call."""


class _End(NamedTuple):
    """One end of pairs with equal shapes: edges from there, what `stacked` gives, operators of the gates."""

    edges: list[Pair]
    tensors: Array
    scale: Array
    matrices: Array


class PepsState:
    """The state |0...0> of the qubits of a graph, to which gates are applied; over ranks, collective.

    Attributes
    ----------
    neighbours : list of list of int
        Of each qubit. Axis k of its tensor is the bond with neighbour k; the last axis is the qubit.
    tensors : list of array
        One a qubit, without the weights. Those of other ranks have their shape and no memory, and are NaN.
    weights : dict
        Of each edge, its ends ascending: real and falling, of norm 1. All ranks have all of them.
    ranks : Communicator or None
        The ranks of which this one, `rank`, has the qubits that `owners` gives it.
    fidelity : float
        The product of what cuts left of the squared norm.
    largest_discarded : float
        The largest share of the squared norm that one cut left out.
    """

    def __init__(
        self, n_qubits: int, edges: Sequence[Pair], dtype: str, xp: Any = np,
        ranks: Communicator | None = None,
    ) -> None:  # fmt: skip
        self.xp, self.dtype, self.wide = xp, np.dtype(dtype), np.dtype(np.complex128)
        self.rounding = float(np.finfo(self.dtype).eps)
        self.neighbours: list[list[int]] = [[] for _ in range(n_qubits)]
        self.weights: dict[Pair, Array] = {}
        for a, b in edges:
            if b not in self.neighbours[a]:
                self.neighbours[a].append(b)
                self.neighbours[b].append(a)
                self.weights[min(a, b), max(a, b)] = xp.ones(1)
        zero = np.array([1, 0], self.dtype)
        self.tensors = [xp.asarray(zero.reshape((1,) * len(ends) + (2,))) for ends in self.neighbours]
        self.fidelity, self.largest_discarded = 1.0, 0.0
        self.ranks, self.rank = ranks, 0 if ranks is None else ranks.rank
        self.owners = parts_of_graph(self.neighbours, 1 if ranks is None else ranks.size)
        self.leave_to_owners()

    def is_mine(self, site: int) -> bool:
        """Whether this rank has the tensor of a qubit."""
        return self.owners[site] == self.rank

    def leave_to_owners(self) -> None:
        """Keep of the tensors of other ranks their shapes, by the weights; values would be out of date."""
        nothing = self.xp.full((), np.nan, self.dtype)
        for site in range(len(self.tensors)):
            if not self.is_mine(site):
                self.tensors[site] = self.xp.broadcast_to(nothing, self.shape_of(site))

    def shape_of(self, site: int) -> tuple[int, ...]:
        """The shape of a qubit's tensor, by the weights."""
        return *(len(self.weights_of(site, end)) for end in self.neighbours[site]), 2

    def sent(self, site: int, tensor: Array | None, source: int, target: int) -> Array | None:
        """The tensor of a qubit, which rank `source` gives, on rank `target`; collective."""
        sends, receives = list[Any](), list[Any]()
        if self.ranks is None or source == target:
            return tensor
        if self.rank == source:
            sends = messages(target, [tensor])
        elif self.rank == target:
            tensor = self.xp.empty(self.shape_of(site), self.dtype)
            receives = messages(source, [tensor])
        self.ranks.exchange(sends, receives)
        return tensor

    def fetched(
        self, incoming: Mapping[Pair, Array], wanted: Sequence[Collection[int]]
    ) -> tuple[PepsState, dict[Pair, Array]]:
        """The state and messages with the tensors that each rank wants, and the messages to them; they are of
        this rank alone."""
        state, matrices, sends, receives = copy(self), dict(incoming), [], []
        state.tensors = list(self.tensors)
        for rank, sites in enumerate(wanted):
            for site in sorted(sites):
                edges = [(end, site) for end in self.neighbours[site]] if incoming else []
                if self.rank not in (rank, self.owners[site]) or rank == self.owners[site]:
                    continue
                if self.is_mine(site):
                    sends += messages(rank, [self.tensors[site], *(incoming[edge] for edge in edges)])
                    continue
                state.tensors[site] = self.xp.empty(self.tensors[site].shape, self.dtype)
                for edge in edges:
                    matrices[edge] = self.xp.empty(2 * (len(self.weights_of(*edge)),), self.dtype)
                arrays = [state.tensors[site], *(matrices[edge] for edge in edges)]
                receives += messages(self.owners[site], arrays)
        if self.ranks is not None:
            self.ranks.exchange(sends, receives)
        state.ranks, state.owners = None, [self.rank] * len(self.owners)
        return state, matrices

    @property
    def max_bond(self) -> int:
        """The largest bond."""
        return max((len(weights) for weights in self.weights.values()), default=1)

    def cut(self, bond: int) -> tuple[PepsState, float]:
        """The state with the largest weights of each edge alone, and the largest share that an edge loses."""
        state = copy(self)
        state.weights = {edge: weights[:bond] for edge, weights in self.weights.items()}
        state.tensors = [tensor[(slice(bond),) * (tensor.ndim - 1)] for tensor in self.tensors]
        return state, max((1 - float((w**2).sum()) for w in state.weights.values()), default=0.0)

    def weights_of(self, a: int, b: int) -> Array:
        """The weights of an edge."""
        return self.weights[min(a, b), max(a, b)]

    def apply(self, level: DisjointGates, max_bond: int | None, cutoff: float) -> None:
        """Gates of a level; bonds keep `max_bond` weights, and lose a share `cutoff` of the squared norm."""
        for qubit, matrix in level.singles.items():
            if self.is_mine(qubit):
                self.tensors[qubit] = self.tensors[qubit] @ self.xp.asarray(matrix.T.astype(self.dtype))
        gates: dict[Pair, Any] = {}
        own: dict[Pair, Any] = {}
        between: dict[Pair, Any] = {}
        for (a, b), matrix in level.pairs.items():
            if not (self.is_mine(a) or self.is_mine(b)):
                continue
            left, values, right = _split(matrix)
            ends = [(a, b, left), (b, a, right)]
            ends.sort(key=lambda end: self._shape(end[0], end[1]))
            gates[a, b] = ends, values
            key = *(self._shape(end[0], end[1]) for end in ends), left.shape
            holders = [self.owners[end[0]] for end in ends]
            if holders[0] == holders[1]:
                own[a, b] = key
            else:  # the two ranks take turns in cutting
                between[a, b] = *key, *holders, holders[(a + b) % 2]
        cuts: dict[Pair, tuple[Array, float]] = {}
        for pairs in self._batches(own):
            batch = [gates[pair] for pair in pairs]
            sides = [self._end(batch, end) for end in range(2)]
            factors = [self._factor(side.tensors, side.matrices) for side in sides]
            projectors, cut = self._cut(batch, factors, max_bond, cutoff)
            cuts |= cut
            for side, projector in zip(sides, projectors, strict=True):
                self._absorb(side, projector, [len(weights) for weights, _ in cut.values()])
        if self.ranks is not None:
            batches = [
                ([gates[pair] for pair in pairs], between[pairs[0]]) for pairs in self._batches(between)
            ]
            cuts = self._apply_between(self.ranks, batches, cuts, (max_bond, cutoff))
        for edge, (weights, lost) in cuts.items():
            self.weights[edge] = self.xp.asarray(weights)
            self.fidelity *= 1 - lost
            self.largest_discarded = max(self.largest_discarded, lost)
        self.leave_to_owners()

    def _apply_between(
        self, ranks: Communicator, batches: Sequence[tuple[list[Any], Any]],
        own: Mapping[Pair, tuple[Array, float]], limits: tuple[int | None, float],
    ) -> dict[Pair, tuple[Array, float]]:  # fmt: skip
        """Gates on pairs of two ranks; the weights of all edges that any rank has cut, with what they lost.

        Invariant: batches come by keys that both ranks of a pair have, so that their messages agree.
        """
        xp, sides, sends, receives = self.xp, [], list[Any](), list[Any]()
        for batch, (*_, first, second, cutter) in batches:
            end, peer = (0, second) if first == self.rank else (1, first)
            side = self._end(batch, end)
            factor = xp.ascontiguousarray(self._factor(side.tensors, side.matrices))
            factors = [factor, factor]
            if cutter == self.rank:
                factors[1 - end] = xp.empty_like(factor)
                receives += messages(peer, [factors[1 - end]])
            else:
                sends += messages(peer, [factor])
            sides.append((end, peer, side, factors))
        ranks.exchange(sends, receives)
        cuts, projectors = dict(own), {}
        for number, ((batch, key), (*_, factors)) in enumerate(zip(batches, sides, strict=True)):
            if key[-1] == self.rank:
                projectors[number], cut = self._cut(batch, factors, *limits)
                cuts |= cut
        told = {edge: (on_host(weights), lost) for edge, (weights, lost) in cuts.items()}
        told = {edge: cut for part in ranks.gather_objects(told) for edge, cut in part.items()}
        sends, receives, ready = [], [], []
        for number, (end, peer, side, factors) in enumerate(sides):
            extents = [len(told[min(edge), max(edge)][0]) for edge in side.edges]
            if number in projectors:
                projector = projectors[number][end]
                sends += messages(peer, [projectors[number][1 - end]])
            else:
                projector = xp.empty((*factors[end].shape[:2], max(extents)), self.wide)
                receives += messages(peer, [projector])
            ready.append((side, projector, extents))
        ranks.exchange(sends, receives)
        for side, projector, extents in ready:
            self._absorb(side, projector, extents)
        return told

    def _end(self, gates: Sequence[Any], end: int) -> _End:
        """The first or the second end of gates on pairs with equal shapes."""
        edges = [ends[end][:2] for ends, _ in gates]
        matrices = self.xp.asarray(np.array([ends[end][2] for ends, _ in gates]))
        return _End(edges, *self.stacked(edges, matrices.shape[1]), matrices)

    def _cut(
        self, gates: Sequence[Any], factors: Sequence[Array], max_bond: int | None, cutoff: float
    ) -> tuple[tuple[Array, Array], dict[Pair, tuple[Array, float]]]:
        """The projectors of both ends of disjoint pairs, and of each edge the weights and the share lost."""
        xp, edges = self.xp, [ends[0][:2] for ends, _ in gates]
        of_edges = xp.stack([self.weights_of(*edge) for edge in edges])
        schmidt = xp.asarray(np.array([values for _, values in gates]))
        values = (of_edges[:, :, None] * schmidt[:, None, :]).reshape(len(gates), -1)
        left, right, weights, extents, lost = _cut(xp, factors[0], factors[1], values, max_bond, cutoff)
        return (left, right), {
            (min(edge), max(edge)): (weights[k][: extents[k]], lost[k]) for k, edge in enumerate(edges)
        }

    def _absorb(self, side: _End, projector: Array, extents: Sequence[int]) -> None:
        """Apply gates and projectors to the tensors of an end."""
        n, blocks, m, bond, _ = side.tensors.shape
        # [edge, block, r, s', s] and [edge, (bond, r), new] to [edge, block, (bond, s), (s', new)].
        both = self.xp.einsum(
            "bcrps,bdrk->bcdspk", side.matrices, projector.reshape(n, bond, -1, projector.shape[2])
        )
        both = both.reshape(n, blocks, 2 // blocks * bond, -1).astype(self.dtype)
        acted = side.tensors.reshape(n, blocks, m, -1) @ both
        self._put(side.edges, _scaled(acted, 1 / side.scale), extents)

    def _factor(self, tensors: Array, matrices: Array) -> Array:
        """R with R^H R = X^H X, [edge, n, n], of X[(block, m, s'), (bond, r)] =
        sum_s T[block, m, bond, s] A[block, r, s', s]."""
        xp, (n, blocks, m, bond, inner) = self.xp, tensors.shape
        rank = matrices.shape[2]
        flat = tensors.reshape(n, blocks, m, -1)
        gram = (flat.conj().swapaxes(2, 3) @ flat).astype(self.wide)
        gram = gram.reshape(n, blocks, bond, inner, bond, inner).transpose(0, 2, 4, 1, 3, 5)
        gates = xp.einsum("bcrps,bctpu->bcsurt", matrices.conj(), matrices).reshape(n, -1, rank**2)
        gram = gram.reshape(n, bond**2, -1) @ gates
        gram = gram.reshape(n, bond, bond, rank, rank).swapaxes(2, 3).reshape(n, bond * rank, -1)
        factor, flat = _cholesky(xp, gram, self.rounding)
        # Invariant: where a Gram matrix is nearly singular, its directions come from QR.
        if len(flat):
            some = xp.asarray(flat)
            acted = xp.einsum("bcmds,bcrps->bcmpdr", tensors[some].astype(self.wide), matrices[some])
            reduced = xp.linalg.qr(acted.reshape(len(flat), 2 * m, -1), mode="r")
            factor[some] = 0
            factor[some, : reduced.shape[1]] = reduced
        return factor

    def stacked(self, edges: Sequence[Pair], blocks: int) -> tuple[Array, Array]:
        """The tensors of the first ends, with the weights of their other edges, and these weights.

        They are [edge, 1, rest, bond, 2] or, in two blocks, [edge, 2, rest, bond, 1], the 2 for the qubit;
        and [edge, rest].
        """
        xp = self.xp
        orders = [self.axes(*edge) for edge in edges]
        scale = xp.ones((len(edges), 1))
        for place in range(len(orders[0]) - 2):
            others = [self.neighbours[a][order[place]] for (a, _), order in zip(edges, orders, strict=True)]
            of_axis = xp.stack([self.weights_of(a, c) for (a, _), c in zip(edges, others, strict=True)])
            scale = (scale[:, :, None] * of_axis[:, None, :]).reshape(len(edges), -1)
        if blocks == 2:
            orders = [[order[-1], *order[:-1]] for order in orders]
        tensors = xp.ascontiguousarray(xp.stack(
            [self.tensors[a].transpose(order) for (a, _), order in zip(edges, orders, strict=True)]
        ))  # fmt: skip
        tensors = _scaled(tensors.reshape(len(edges), blocks, scale.shape[1], -1), scale)
        return tensors.reshape(*tensors.shape[:3], -1, 2 // blocks), scale

    def _put(self, edges: Sequence[Pair], tensors: Array, extents: Sequence[int]) -> None:
        """Take tensors [edge, block, rest, (s, new bond)] back in the order of axes of their qubits."""
        blocks = tensors.shape[1]
        for k, (a, b) in enumerate(edges):
            *others, axis, qubit = self.axes(a, b)
            shape = [self.tensors[a].shape[other] for other in others]
            order = [qubit, *others, axis] if blocks == 2 else [*others, qubit, axis]
            shape = [2, *shape] if blocks == 2 else [*shape, 2]
            new = tensors[k].reshape(*shape, -1)[..., : extents[k]]
            self.tensors[a] = self.xp.ascontiguousarray(new.transpose(np.argsort(order).tolist()))

    def axes(self, a: int, b: int) -> list[int]:
        """The axes of a tensor: other bonds by their extents, that with b, the qubit."""
        shape, axis = self.tensors[a].shape, self.neighbours[a].index(b)
        others = [other for other in range(len(shape) - 1) if other != axis]
        return [*sorted(others, key=shape.__getitem__), axis, len(shape) - 1]

    def _shape(self, a: int, b: int) -> tuple[int, ...]:
        return tuple(self.tensors[a].shape[axis] for axis in self.axes(a, b))

    def _batches(self, keys: Mapping[Pair, Any]) -> Iterator[list[Pair]]:
        """Edges with equal keys, as many as one call takes."""
        for _, group in groupby(sorted(keys, key=keys.__getitem__), keys.__getitem__):
            edges = list(group)
            most = max(self.tensors[end].nbytes for edge in edges for end in edge)
            at_once = max(1, BATCH_BYTES[self.xp.__name__] // most)
            for first in range(0, len(edges), at_once):
                yield edges[first : first + at_once]

    def directed(self) -> Iterator[list[Pair]]:
        """The edges from the own qubits, in batches whose first tensors have equal shapes."""
        edges = [(a, b) for a, ends in enumerate(self.neighbours) if self.is_mine(a) for b in ends]
        yield from self._batches({edge: self._shape(*edge) for edge in edges})


def _cut(
    xp: Any, left: Array, right: Array, values: Array, max_bond: int | None, cutoff: float
) -> tuple[Array, Array, Array, list[int], list[float]]:
    """The projectors of bonds between X and Y whose singular values are those of R_x values R_y^T.

    X P_x and Y P_y are isometric where R_x and R_y are the reduced factors of X and Y. Without a cut
    X P_x S P_y^T Y^T is X values Y^T whatever these are.

    Returns
    -------
    tuple
        P_x and P_y [edge, n, new], S [edge, new] of norm 1, how many of them each edge has, and the shares of
        the squares that are left out.
    """
    product = (left * values[:, None, :]) @ right.swapaxes(1, 2)
    n = product.shape[1]
    most = n if max_bond is None else min(n, max_bond)
    squares, vectors = xp.linalg.eigh(product.conj().swapaxes(1, 2) @ product)
    vectors, host = vectors[:, :, ::-1], np.maximum(on_host(squares[:, ::-1]), 0)
    singular = xp.asarray(np.sqrt(host))
    kept, lost = _kept(host, most, cutoff)
    # Of small ones Gram matrices know nothing.
    poor = np.flatnonzero(host[np.arange(len(host)), kept - 1] < LEAST_GRAM**2 * host[:, 0])
    some = xp.asarray(poor)
    if len(poor):
        u, singular[some], vh = xp.linalg.svd(product[some])
        vectors[some] = vh.conj().swapaxes(1, 2)
        host[poor] = on_host(singular[some]) ** 2
        kept, lost = _kept(host, most, cutoff)
    new = int(kept.max())
    singular, vectors = singular[:, :new], vectors[:, :, :new]
    floor = FLOOR * singular[:, :1]
    inverse = xp.where(singular > floor, 1 / xp.maximum(singular, floor), 0)
    images = product @ (vectors * inverse[:, None, :])
    if len(poor):
        images[some] = u[:, :, :new]
    p_left = (values[:, :, None] * right.swapaxes(1, 2)) @ (vectors * inverse[:, None, :])
    p_right = (values[:, :, None] * left.swapaxes(1, 2)) @ (images.conj() * inverse[:, None, :])
    stays = xp.arange(new)[None, :] < xp.asarray(kept)[:, None]
    singular = singular / xp.sqrt((singular**2 * stays).sum(axis=1, keepdims=True))
    return p_left, p_right, singular, kept.tolist(), lost.tolist()


def _kept(squares: np.ndarray, most: int, cutoff: float) -> tuple[np.ndarray, np.ndarray]:
    """How many of falling squares stay of each row, and the share of what is left out."""
    tails = np.cumsum(squares[:, ::-1], axis=1)[:, ::-1] / squares.sum(axis=1, keepdims=True)
    tails = np.column_stack([tails, np.zeros(len(tails))])  # [edge, k]: the share beyond the first k
    is_above = (tails[:, :-1] > cutoff) & (squares > FLOOR**2 * squares[:, :1])
    kept = np.clip(is_above.sum(axis=1), 1, most)
    return kept, tails[np.arange(len(kept)), kept]


def _cholesky(xp: Any, gram: Array, rounding: float) -> tuple[Array, np.ndarray]:
    """R with R^H R equal to Gram matrices up to the rounding of their elements, and the numbers of those that
    are nearly singular."""
    trace = xp.einsum("bii->b", gram).real
    raised = gram + (SHIFT * rounding * trace)[:, None, None] * xp.eye(gram.shape[1])
    factor = xp.linalg.cholesky(raised).conj().swapaxes(1, 2)
    diagonal = xp.einsum("bii->bi", factor).real
    flat = diagonal.min(axis=1) < rounding**0.25 * diagonal.max(axis=1)
    return factor, np.flatnonzero(on_host(flat))


def on_host(array: Array) -> np.ndarray:
    """An array of NumPy."""
    return array.get() if hasattr(array, "get") else array


def _scaled(array: Array, scale: Array) -> Array:
    """An array [edge, block, rest, any] times real numbers [edge, rest], which do not become complex."""
    real = array.real.dtype
    scaled = array.view(real) * scale.astype(real)[:, None, :, None]
    return scaled.view(array.dtype)


def _split(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A_r, values and B_r of a gate sum_r values_r A_r x B_r, where Tr A_r^H A_s = 2 delta_rs.

    They are [1, r, 2, 2], or of a diagonal gate in two blocks [2, r, 1, 1]: the values of the qubit.
    """
    pairs = matrix.reshape(2, 2, 2, 2).transpose(0, 2, 1, 3).reshape(4, 4)
    is_diagonal = not (matrix - np.diag(np.diagonal(matrix))).any()
    if is_diagonal:
        pairs = pairs[::3, ::3]
    u, values, vh = np.linalg.svd(pairs)
    rank = int((values > FLOOR * values[0]).sum())
    shape = (2, rank, 1, 1) if is_diagonal else (1, rank, 2, 2)
    left, right = u[:, :rank], vh[:rank].T
    if not is_diagonal:
        left, right = left.T, right.T
    root = np.sqrt(2)
    return root * left.reshape(shape), values[:rank] / 2, root * right.reshape(shape)
