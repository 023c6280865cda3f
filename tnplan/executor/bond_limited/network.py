"""Contraction with a bond limit: pairs are contracted, and bonds beyond the limit are cut by singular values.

One code for arrays of NumPy and of CuPy, whose `linalg` have the same names. The order comes as flat steps.
Of A and B, as matrices with their bond last, A P_a and B P_b come about by the oblique projectors of their
reduced factors, R_a^H R_a = A^H A, as in Gray and Chan, arXiv 2206.07044, with a tree gauge of distance 1:
the other bonds of A are weighted with the reduced factors of the tensors there, each tensor once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import frexp, prod
from typing import Any, NamedTuple

import numpy as np

from tnplan.common.arrays import times_along
from tnplan.executor.bond_limited.backward import (
    absorb_back,
    contract_back,
    move_back,
    project_back,
    scale_back,
    split_back,
)
from tnplan.planner.networks.pair_network import largest_component

Array = Any
"""Of NumPy or CuPy."""
GRAM_FROM = 1e-7
"""Gram matrices in double precision, whose eigenvalues are squares, tell singular values apart down to this
share of the largest."""
SHIFT = 4.0
"""Roundings of the trace by which the diagonal of a Gram matrix is raised: it then has a Cholesky factor."""
OVERSAMPLING, ITERATIONS = 16, 2
"""Vectors of a subspace iteration beyond the limit, and its iterations."""
FEW_OF_MANY = 2
"""Columns for each of these vectors from which on they are fewer operations than all singular values."""


class ContractPair(NamedTuple):
    """Two tensors become tensor `new`."""

    left: int
    right: int
    new: int


class CompressBond(NamedTuple):
    """The bond of two tensors is cut to the limit, where it is larger; its rank is known to be no more."""

    left: int
    right: int
    rank: int


class CompressRow(NamedTuple):
    """The bonds of a row of tensors are cut in turn, as those of a matrix product state: each by the singular
    values that it has in the whole row. The ranks are known to be no more."""

    tensors: tuple[int, ...]
    ranks: tuple[int, ...]


BondLimitedStep = ContractPair | CompressBond | CompressRow


@dataclass
class BondLimitedValue:
    """The value of a connected network, mantissa times 2^exponent, and what was cut on the way.

    Of a network with open indices the mantissa is an array [those of `output`], or 0.
    """

    mantissa: Any = 0.0
    exponent: int = 0
    discarded: list[float] = field(default_factory=list)
    """Of each bond that lost singular values: their squares over those of all."""
    output: tuple[int, ...] = ()
    gradients: list[Array] = field(default_factory=list)
    """Of the mantissa, by each tensor, where they are asked for."""


def contract_with_bond_limit(
    arrays: Sequence[Array],
    neighbours: Sequence[Sequence[int]],
    steps: Sequence[BondLimitedStep],
    max_bond: int,
    cutoff: float,
    xp: Any = np,
    has_gradients: bool = False,
) -> BondLimitedValue:
    """Contract a connected network whose tensors share one bond a pair at most.

    Parameters
    ----------
    arrays
        Of float32, float64, complex64 or complex128, with no value much larger than 1.
    neighbours
        The tensor at the other end of each axis; a negative number, different for each, for an open index.
    steps
        What is done in turn; the tensors of pairs are numbered on from those given.
    max_bond, cutoff
        Of a bond beyond `max_bond` so many singular values stay, and of those the ones above `cutoff` times
        the largest.
    xp
        The library of the arrays.
    has_gradients
        Of a closed network: give the environment of each tensor, too. The steps are taken back with the
        projectors as they are, so that each tensor times its environment is the value (as in the second
        renormalization of Xie, Jiang, Chen, Weng and Xiang, PRL 103, 160601, 2009). How projectors change
        with the tensors is left out: it is of the order of what is cut.
    """
    network = BondLimitedNetwork(arrays, neighbours, max_bond, cutoff, xp)
    if has_gradients:
        network.tape = []
    for network.step, step in enumerate(steps):
        if not network.take(step):
            return BondLimitedValue(discarded=[share for _, share in network.discarded()])
    ((number, last),) = network.tensors.items()
    output = tuple(network.neighbours[number])
    gradients = network.taken_back(number) if has_gradients else []
    mantissa = last if output else last.item()
    discarded = [share for _, share in network.discarded()]
    return BondLimitedValue(mantissa, network.exponent, discarded, output, gradients)


class BondLimitedNetwork:
    """The tensors that are there at one time.

    Invariant: axis k of tensor i is its bond with neighbours[i][k], the only one of the two, or open where
    that is negative.
    """

    def __init__(
        self, arrays: Sequence[Array], neighbours: Sequence[Sequence[int]], max_bond: int, cutoff: float,
        xp: Any, dtype: Any = None,
    ) -> None:  # fmt: skip
        self.tensors = {number: array for number, array in enumerate(arrays) if array is not None}
        self.exponent = self.step = 0
        self._notes: list[tuple[int, Array, Array]] = []
        """Of each bond that lost singular values: its step, the sums of their squares and of all, on the
        device."""
        self.tape: list[Callable[[dict[int, Array]], None]] | None = None
        """What takes the derivatives by the tensors that are there back through each change."""
        self.neighbours = {number: list(others) for number, others in enumerate(neighbours)}
        self._n_inputs, self._max_bond, self._xp = len(arrays), max_bond, xp
        self._dtype = np.dtype(arrays[0].dtype if dtype is None else dtype)
        self._cutoff = max(cutoff, float(np.finfo(self._dtype).eps))
        self._wide = np.result_type(self._dtype, np.float64)
        self._needs_qr: set[int] = set()
        """Tensors whose Gram matrices told too little: as long as that lasts, QR takes their place. A tensor
        knows it of its own cuts and of what it is made of alone, so that ranks take the same way as one."""
        self._starts: dict[int, Array] = {}
        """Random starts of subspace iterations, by their rows."""
        self._factors: dict[tuple[int, int, bool], Array] = {}
        """Reduced factors of a tensor towards a neighbour, by Gram matrices or not."""
        self._row: tuple[int, ...] = ()
        """The row whose bonds are cut."""

    def take(self, step: BondLimitedStep) -> bool:
        """Take a step; False where nothing is left but zeros."""
        if isinstance(step, ContractPair):
            return self.contract(*step)
        (self.compress if isinstance(step, CompressBond) else self.compress_row)(*step)
        return True

    def contract(self, left: int, right: int, new: int) -> bool:
        """Contract two tensors, or multiply them where they have no bond, and join the bonds that both have
        with a third; False where nothing is left but zeros."""
        names = self.neighbours.pop(left), self.neighbours.pop(right)
        a, b = self.tensors.pop(left), self.tensors.pop(right)
        axes: Any = (names[0].index(right), names[1].index(left)) if right in names[0] else 0
        result = self._xp.tensordot(a, b, axes)
        if self.tape is not None:
            self.tape.append(partial(contract_back, left, right, new, (a, b), axes, self._xp))
        del a, b
        if not self._needs_qr.isdisjoint((left, right)):
            self._needs_qr.add(new)
        ends = [other for other in [*names[0], *names[1]] if other not in (left, right)]
        others = list(dict.fromkeys(ends))
        if len(others) < len(ends):
            result = self._joined(
                new, result, [[axis for axis, end in enumerate(ends) if end == o] for o in others]
            )
        for other in others:
            if other >= 0:
                self._rename(other, left, right, new)
        self.tensors[new], self.neighbours[new] = result, others
        for number in (left, right):
            self._forget(number)
        return self._scale(new)

    def _rename(self, number: int, left: int, right: int, new: int) -> None:
        """Put `new` for one or both of two neighbours of a tensor, whose bonds with both are joined."""
        names = self.neighbours[number]
        if left in names and right in names:
            rest = [[axis] for axis, name in enumerate(names) if name not in (left, right)]
            pair = [names.index(left), names.index(right)]
            self.tensors[number] = self._joined(number, self.tensors[number], [*rest, pair])
            self.neighbours[number] = [names[axis] for (axis,) in rest] + [new]
        else:
            names[names.index(left if left in names else right)] = new

    def _forget(self, number: int) -> None:
        """Drop the reduced factors of a tensor that changed, and those towards one that is gone."""
        gone = number not in self.tensors
        for key in [key for key in self._factors if key[0] == number or (gone and key[1] == number)]:
            del self._factors[key]

    def _scale(self, number: int) -> bool:
        """Bring a tensor's largest part below 1 by a power of 2, without rounding; False where it is 0."""
        array = self.tensors[number]
        largest = largest_component(array)
        power = frexp(largest)[1]
        if power:
            if self.tape is not None:
                self.tape.append(partial(scale_back, number, 2.0**-power))
            array *= 2.0**-power
            self.exponent += power
        return largest > 0

    def _bond_last(self, number: int, other: int) -> Array:
        """A tensor with its bond with another one as the last axis, contiguous."""
        names = self.neighbours[number]
        axis = names.index(other)
        names.append(names.pop(axis))
        if self.tape is not None and axis < len(names) - 1:
            self.tape.append(partial(move_back, number, axis, self._xp))
        moved = self._xp.moveaxis(self.tensors[number], axis, -1)
        self.tensors[number] = self._xp.ascontiguousarray(moved)
        return self.tensors[number]

    def compress(self, left: int, right: int, rank: int) -> None:
        """Cut the bond of two tensors to `max_bond`, where it is larger."""
        if self.tensors[left].shape[self.neighbours[left].index(right)] <= self._max_bond:
            return
        self._bond_last(left, right)
        self._bond_last(right, left)
        self._cut(left, right, rank)

    def compress_row(self, tensors: tuple[int, ...], ranks: tuple[int, ...]) -> None:
        """Cut the bonds of a row from its first tensor to its last."""
        self._row = tensors
        for left, right, rank in zip(tensors, tensors[1:], ranks, strict=False):
            BondLimitedNetwork.compress(self, left, right, rank)
        self._row = ()
        self._factors.clear()

    def _cut(self, left: int, right: int, rank: int) -> None:
        """Cut a bond that is the last axis of both tensors."""
        counts = [
            prod(self._extents(number).values()) // self._extents(number)[other]
            for number, other in ((left, right), (right, left))
        ]
        if min(counts) <= self._max_bond:
            self._absorb(*((left, right) if counts[0] <= counts[1] else (right, left)))
            return
        # Gram matrices do not tell the singular values of a small rank from none.
        needs_qr = not self._needs_qr.isdisjoint((left, right))
        needs_qr |= rank <= self._max_bond and self._cutoff < GRAM_FROM
        by_gram = None if needs_qr else self._by_gram(left, right)
        if self._row and by_gram is None:  # nor will the rest of the row need factors of Gram matrices
            self._factors = {key: one for key, one in self._factors.items() if not key[2]}
        pair = by_gram or self._by_qr(left, right, rank)
        for number, projector in zip((left, right), pair, strict=True):
            self._project(number, projector)

    def _extents(self, number: int) -> dict[int, int]:
        """The extents of a tensor's bonds, by the neighbour."""
        return dict(zip(self.neighbours[number], self.tensors[number].shape, strict=True))

    def _matrix(self, number: int) -> Array:
        """A tensor whose last axis are the columns: libraries multiply arrays of more axes piece by piece."""
        array = self.tensors[number]
        return array.reshape(-1, array.shape[-1])

    def _absorb(self, small: int, large: int) -> None:
        """Give all of one tensor to the other: nothing is lost."""
        if self.tape is not None:
            shapes = self.tensors[small].shape, self.tensors[large].shape
            operands = self._matrix(small), self._matrix(large), *shapes
            self.tape.append(partial(absorb_back, small, large, operands))
        self._multiply(large, self._given_away(small).T)

    def _given_away(self, number: int) -> Array:
        """A tensor as a matrix; a unit matrix takes its place."""
        matrix = self._matrix(number)
        self._replace(number, self._xp.eye(len(matrix), dtype=self._dtype))
        return matrix

    def _project(self, number: int, projector: Array) -> None:
        """Multiply the last axis of a tensor by a projector."""
        if self.tape is not None:
            self.tape.append(partial(project_back, number, projector.T, self.tensors[number].shape))
        self._multiply(number, projector)

    def _multiply(self, number: int, matrix: Array) -> None:
        """Multiply the last axis of a tensor by a matrix."""
        self._replace(number, self._matrix(number) @ matrix)

    def _replace(self, number: int, matrix: Array) -> None:
        """Put a matrix in the place of a tensor whose last axis changes."""
        self.tensors[number] = matrix.reshape(*self.tensors[number].shape[:-1], -1)
        self._scale(number)
        self._forget(number)

    def _joined(self, number: int, array: Array, groups: Sequence[Sequence[int]]) -> Array:
        """An array with each group of axes, in this order, as one."""
        order = [axis for group in groups for axis in group]
        if self.tape is not None:
            self.tape.append(partial(split_back, number, [array.shape[axis] for axis in order], order))
        shape = [prod(array.shape[axis] for axis in group) for group in groups]
        return array.transpose(order).reshape(shape)

    def taken_back(self, last: int) -> list[Array]:
        """The derivatives of the last tensor, a number, by those that were given."""
        assert self.tape is not None
        found = {last: self._xp.ones((), self._dtype)}
        while self.tape:
            self.tape.pop()(found)
        return [found[number] for number in range(self._n_inputs)]

    def _by_gram(self, left: int, right: int) -> tuple[Array, Array] | None:
        """The projectors by Gram matrices; None where these tell too few singular values apart, or where none
        is to be left out and the value stays exact."""
        xp = self._xp
        try:
            factors = self._both_weighted(left, right, self._gram_factor)
        except np.linalg.LinAlgError:  # not positive by rounding
            return None
        product = factors[0] @ factors[1].T
        is_tall = product.shape[0] >= product.shape[1]
        tall = product if is_tall else product.conj().T
        if tall.shape[1] <= self._max_bond:
            return None
        squares, vectors = self._leading(tall)
        least = max(self._cutoff, GRAM_FROM) ** 2 * squares[:1]
        kept = int((squares[: self._max_bond] > least).sum())
        needs_qr = kept < self._max_bond and self._cutoff < GRAM_FROM
        self._mark((left, right), needs_qr)
        if needs_qr or not kept:
            return None
        singular, vectors = xp.sqrt(squares[:kept]), vectors[:, :kept]
        images = tall @ vectors
        # What is left out, from its own elements: as a difference of sums it would be rounding.
        self._note(tall - images @ vectors.conj().T, product)
        images /= singular
        u, v = (images, vectors) if is_tall else (vectors, images)
        return self._projectors(factors, u, singular, v)

    def _leading(self, tall: Array) -> tuple[Array, Array]:
        """Squares of the largest singular values, the largest first, and their right singular vectors.

        Where the limit leaves few of many, by subspace iteration from a random start (Halko, Martinsson and
        Tropp, arXiv 0909.4061, algorithm 4.4): matrices of the limit's size are decomposed instead.
        """
        xp, n_columns, width = self._xp, tall.shape[1], self._max_bond + OVERSAMPLING
        basis = None
        if n_columns > FEW_OF_MANY * width:
            if n_columns not in self._starts:
                start = np.random.default_rng(n_columns).standard_normal((n_columns, width))
                self._starts[n_columns] = xp.asarray(start)
            basis = self._starts[n_columns]
            for _ in range(ITERATIONS):
                basis = xp.linalg.qr(tall.conj().T @ (tall @ basis))[0]
        images = tall if basis is None else tall @ basis
        squares, vectors = xp.linalg.eigh(images.conj().T @ images)
        squares, vectors = squares[::-1], vectors[:, ::-1]
        return squares, vectors if basis is None else basis @ vectors

    def _by_qr(self, left: int, right: int, rank: int) -> tuple[Array, Array]:
        """The projectors by QR and singular values, to the precision of the dtype."""
        xp = self._xp
        factors = self._both_weighted(left, right, self._qr_factor)
        u, singular, vh = xp.linalg.svd(factors[0] @ factors[1].T, full_matrices=False)
        largest = float(singular[0])
        kept = max(1, int((singular[: min(rank, self._max_bond)] > self._cutoff * largest).sum()))
        self._mark((left, right), not float(singular[kept - 1]) > 10 * GRAM_FROM * largest)
        scaled = singular / (largest or 1.0)
        self._note(scaled[kept:], scaled)
        return self._projectors(factors, u[:, :kept], singular[:kept], vh[:kept].conj().T)

    def _mark(self, numbers: Collection[int], needs_qr: bool) -> None:
        (self._needs_qr.update if needs_qr else self._needs_qr.difference_update)(numbers)

    def _note(self, left_out: Array, all_values: Array) -> None:
        """Note the squares that a bond loses; a GPU is not waited for."""
        if left_out.size:
            lost, total = (self._xp.vdot(values, values).real for values in (left_out, all_values))
            self._notes.append((self.step, lost, total))

    def discarded(self) -> list[tuple[int, float]]:
        """The share of the squares that each bond has lost, with its step."""
        return [(step, float(lost) / (float(total) or 1.0)) for step, lost, total in self._notes]

    def _projectors(
        self, factors: tuple[Array, Array], u: Array, singular: Array, v: Array
    ) -> tuple[Array, Array]:
        """P_a = R_b^T V S^(-1/2) and P_b = R_a^T conj(U) S^(-1/2): sqrt(S) goes to both sides."""
        inverse = self._xp.where(singular > 0, singular, 1) ** -0.5 * (singular > 0)
        pair = factors[1].T @ (v * inverse), factors[0].T @ (u.conj() * inverse)
        return pair[0].astype(self._dtype, copy=False), pair[1].astype(self._dtype, copy=False)

    def _both_weighted(self, left: int, right: int, factor: Callable[[Array], Array]) -> tuple[Array, Array]:
        """The reduced factors of both ends of a bond."""
        return (
            self._weighted(left, self._weights(left, right), factor),
            self._weighted(right, self._weights(right, left), factor),
        )

    def _weighted(self, number: int, weights: Collection[int], factor: Callable[[Array], Array]) -> Array:
        """The reduced factor of a tensor towards its last axis, its other bonds weighted with those of the
        tensors there. Tensors that were given give no weights: they are small and know little of the rest."""
        array, names = self.tensors[number], self.neighbours[number]
        for axis, other in enumerate(names[:-1]):
            if other in weights:
                array = times_along(array, axis, self._towards(other, number, factor))
        return factor(array.reshape(-1, array.shape[-1]))

    def _weights(self, number: int, opposite: int) -> list[int]:
        """The neighbours of a tensor that are its weights where its bond with another one is cut."""
        if self._row:
            at = 2 * self._row.index(number) - self._row.index(opposite)
            return [self._row[at]] if 0 <= at < len(self._row) else []
        # Invariant: a neighbour of both ends is a weight of one, at its larger bond. As a weight of both
        # its singular values would count twice, and the cutoff would leave out what matters.
        extents = self._extents(opposite)
        return [
            other for other, extent in self._extents(number).items()
            if other >= self._n_inputs and other != opposite
            and (extent, -number) > (extents.get(other, 0), -opposite)
        ]  # fmt: skip

    def _towards(self, number: int, other: int, factor: Callable[[Array], Array]) -> Array:
        """The reduced factor of a tensor towards a neighbour; in a row that of all behind it."""
        is_gram = factor == self._gram_factor
        way = [(number, other)]
        while self._row and (*way[-1], is_gram) not in self._factors:
            behind = self._weights(*way[-1])
            if not behind:
                break
            way.append((behind[0], way[-1][0]))
        for one, end in reversed(way):
            if (one, end, is_gram) in self._factors:
                continue
            array, names = self.tensors[one], self.neighbours[one]
            for mate in self._weights(one, end) if self._row else ():
                array = times_along(array, names.index(mate), self._factors[mate, one, is_gram])
            array = self._xp.moveaxis(array, names.index(end), -1)
            found = factor(array.reshape(-1, array.shape[-1]))
            self._factors[one, end, is_gram] = found.astype(array.dtype, copy=False)
        return self._factors[number, other, is_gram]

    def _gram_factor(self, matrix: Array) -> Array:
        """R of R^H R = M^H M, in double precision: the Cholesky factor, or M itself where it is wide."""
        matrix = matrix.astype(self._wide, copy=False)
        if matrix.shape[0] <= matrix.shape[1]:
            return matrix
        gram = matrix.conj().T @ matrix
        # Invariant: a product of matrices is contiguous, so that this is a view.
        diagonal = gram.reshape(-1)[:: len(gram) + 1]
        diagonal += SHIFT * np.finfo(np.float64).eps * diagonal.real.sum()
        return self._xp.linalg.cholesky(gram).conj().T

    def _qr_factor(self, matrix: Array) -> Array:
        return matrix if matrix.shape[0] <= matrix.shape[1] else self._xp.linalg.qr(matrix, mode="r")
