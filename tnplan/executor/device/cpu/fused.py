"""Fused chains on the CPU, and backwards: the readable twins of the GPU's kernels.

A tile of the operand is read into a scratch buffer, contracted with every branch in turn between two scratch
buffers, and written to its place in the result, so that nothing in between is ever stored.

Backwards, for a tile of the operand and of the cotangent of the result: the values between the steps are made
again; for each step, the last one first, the gradient of its branch is added up and the cotangent taken
through it. Knows shapes and
flat arrays; not schedules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.protocols.copy import Axis, mode_strides, offsets
from tnplan.executor.device.protocols.device import AdjointShape, Call, FusedShape
from tnplan.planner.hardware.fusion_tile import fused_tile

Array = NDArray[Any]
Modes = Sequence[tuple[int, int]]
Labels = tuple[int, ...]
Tensor = tuple[Array, Labels]


class TileTables(NamedTuple):
    """The index tables of a chain, in elements.

    Tile t begins at `tile_source[t]` of the operand and `tile_target[t]` of the result. Its elements lie at
    `gather` from there, and those that it ends with go to `scatter`. Stage s forms, for each m, n and k of
    `sizes[s]`, next[m, n] = the sum over k of held[tables of m + tables of k] times branch[n, k]; `tables`
    holds for every stage first m, then k entries.
    """

    tile_source: Array
    tile_target: Array
    gather: Array
    scatter: Array
    tables: Array
    sizes: Array


@dataclass(frozen=True)
class ChainTables:
    """A chain in tiles of so many elements.

    `turned[s]` are the axes of branch s in the order [n | k] and `shapes[s]` its extents as stored.
    """

    tiles: TileTables
    shapes: tuple[tuple[int, ...], ...]
    turned: tuple[tuple[int, ...], ...]
    elements: int


def bind_chain(
    shape: FusedShape, operand: Array, branches: Sequence[Array], out: Array, capacity_bytes: int,
    closing: Array | None = None,
) -> Call:  # fmt: skip
    """`out` = `operand` contracted with each of `branches` in turn, or added to it; flat arrays of one dtype.
    With `closing` the sum of its products with that is added to the number `out`.

    Raises ValueError where the chain has no tile of `capacity_bytes` or less.
    """
    from tnplan.executor.device.cpu.copy_kernel import fused_tiles

    plan = make_plan(shape, capacity_bytes // out.itemsize)
    scratch = np.empty((2, plan.elements), out.dtype)
    turned = np.empty(sum(len(branch) for branch in branches), out.dtype)
    moves = []
    first = 0
    for branch, extents, axes in zip(branches, plan.shapes, plan.turned, strict=True):
        source = branch.reshape(extents).transpose(axes)
        moves.append((turned[first : first + len(branch)].reshape(source.shape), source))
        first += len(branch)
    closes_with = out if closing is None else closing
    # A chain that closes sums over all tiles: in double precision, and rounded once.
    total = np.zeros(1, np.result_type(out.dtype, np.float64))
    end = shape.adds, shape.closes, total
    multiply = fused_tiles.bound(operand, turned, closes_with, scratch, plan.tiles, end)

    def run() -> None:
        for target, source in moves:
            np.copyto(target, source)
        total[0] = 0
        multiply()
        if shape.closes:
            np.add(out, total.astype(out.dtype), out=out)

    return run


def make_plan(shape: FusedShape, capacity: int) -> ChainTables:
    """The tables of a chain in tiles of at most `capacity` elements."""
    tile = fused_tile(shape.operand, shape.branches, shape.out, capacity)
    if tile is None:
        raise ValueError(
            f"a chain of {len(shape.branches)} steps cannot be fused: no tile of {capacity} elements holds it"
        )
    source, target = mode_strides(shape.operand), mode_strides(shape.out)
    loops = [(mode, extent) for mode, extent in shape.operand if mode not in tile.modes]
    modes = [(mode, extent) for mode, extent in shape.operand if mode in tile.modes]
    gather = _table(modes, source)
    # After each stage the tile is [m | n], row-major: its modes in `held`, from which the next stage's places
    # come.
    tables: list[Array] = []
    sizes, turned = [], []
    for stage, branch in zip(tile.stages, shape.branches, strict=True):
        strides, extents = mode_strides(modes), dict(branch)
        m = [(mode, extent) for mode, extent in modes if mode not in stage.k_modes]
        k, n = ([(mode, extents[mode]) for mode in names] for names in (stage.k_modes, stage.n_modes))
        tables.extend((_table(m, strides), _table(k, strides)))
        sizes.append([prod(extent for _, extent in names) for names in (m, n, k)])
        axes = {mode: axis for axis, (mode, _) in enumerate(branch)}
        turned.append(tuple(axes[mode] for mode, _ in (*n, *k)))
        modes = m + n
    tiles = TileTables(
        _table(loops, source), _table(loops, target), gather, _table(modes, target),
        np.concatenate(tables), np.array(sizes, np.int64),
    )  # fmt: skip
    shapes = tuple(tuple(extent for _, extent in branch) for branch in shape.branches)
    return ChainTables(tiles, shapes, tuple(turned), tile.elements)


def _table(modes: Modes, strides: dict[int, int]) -> Array:
    """The offsets of all values of some modes, the last mode fastest."""
    axes: list[Axis] = [(extent, strides[mode], 0) for mode, extent in modes]
    return offsets(axes, 1).astype(np.int64)


def bind_adjoint(
    shape: AdjointShape, operand: Array, branches: Sequence[Array], cotangent: Array,
    outputs: Sequence[Array | None], capacity_bytes: int,
) -> Call:  # fmt: skip
    """From the cotangent of a chain's result to those of its branches and of its operand.

    Arrays are flat, of one dtype. Raises ValueError where the chain has no tile of `capacity_bytes` or less.
    """
    chain = shape.chain
    tile = fused_tile(chain.operand, chain.branches, chain.out, capacity_bytes // operand.itemsize)
    if tile is None:
        raise ValueError(f"a chain of {len(branches)} steps cannot be fused: no tile holds it")
    loops = [entry for entry in chain.operand if entry[0] not in tile.modes]
    *gradients, last = outputs
    back = None if last is None or shape.back is None else (_shaped(last, shape.back), _labels(shape.back))
    ends = (
        (_shaped(operand, chain.operand), _labels(chain.operand)),
        (_shaped(cotangent, chain.out), _labels(chain.out)),
    )
    shaped = [
        (_shaped(array, modes), _labels(modes)) for array, modes in zip(branches, chain.branches, strict=True)
    ]
    wanted = [modes is not None for modes in shape.gradients]

    def run() -> None:
        # With y = x b, summed over k: the gradient of b is x times the cotangent of y, summed over rows, and
        # the cotangent of x is that of y times b, summed over n. Added up over tiles in double precision.
        totals = [np.zeros(array.shape, np.result_type(array.dtype, np.float64)) for array, _ in shaped]
        for fixed in _values(loops):
            first, last = (_part(*end, fixed) for end in ends)
            for number, term in _terms(first, last, shaped, wanted):
                totals[number] += term
            if back is not None:
                taken_back, order = _back(last, shaped)
                view, labels = _part(*back, fixed)
                view[...] = taken_back.transpose([order.index(mode) for mode in labels])
        for total, (_, labels), modes, out in zip(totals, shaped, shape.gradients, gradients, strict=True):
            if out is not None and modes is not None:
                axes = [labels.index(mode) for mode in _labels(modes)]
                out[...] = total.transpose(axes).ravel()

    return run


def _terms(
    value: Tensor, cotangent: Tensor, branches: Sequence[Tensor], has_gradient: Sequence[bool]
) -> Iterator[tuple[int, Array]]:
    """What a tile adds to the gradient of each branch that is wanted, as the branch is stored."""
    values = [value]
    # Values are made again rather than kept: the tile fits on chip, all values of all tiles do not.
    for branch in branches[:-1]:
        values.append(_product(values[-1], branch))
    # Invariant: `cotangent` is that of the result of step `number` when its gradient is taken.
    for number in reversed(range(len(branches))):
        _, labels = branches[number]
        if has_gradient[number]:
            term, order = _product(values[number], cotangent)
            yield number, term.transpose([order.index(mode) for mode in labels])
        cotangent = _product(cotangent, branches[number])


def _back(cotangent: Tensor, branches: Sequence[Tensor]) -> Tensor:
    """The cotangent of a tile of the operand."""
    for branch in reversed(branches):
        cotangent = _product(cotangent, branch)
    return cotangent


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Summed over the modes that both have."""
    (a, a_labels), (b, b_labels) = left, right
    shared = [mode for mode in a_labels if mode in b_labels]
    axes = [a_labels.index(mode) for mode in shared], [b_labels.index(mode) for mode in shared]
    return np.tensordot(a, b, axes), tuple(mode for mode in (*a_labels, *b_labels) if mode not in shared)


def _part(array: Array, labels: Labels, fixed: dict[int, int]) -> Tensor:
    """The part of a tensor with some modes fixed: a view."""
    index = tuple(fixed.get(mode, slice(None)) for mode in labels)
    return array[index], tuple(mode for mode in labels if mode not in fixed)


def _values(loops: Modes) -> Iterator[dict[int, int]]:
    for values in product(*(range(extent) for _, extent in loops)):
        yield dict(zip(_labels(loops), values, strict=True))


def _shaped(array: Array, modes: Modes) -> Array:
    return array.reshape([extent for _, extent in modes])


def _labels(modes: Modes) -> Labels:
    return tuple(mode for mode, _ in modes)
