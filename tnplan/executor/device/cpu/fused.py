"""Fused chains on the CPU, and the readable twin of the GPU's kernel: gather a tile, multiply, scatter.

A tile of the operand is read into a scratch buffer, contracted with every branch in turn between two scratch
buffers, and written to its place in the result, so that nothing in between is ever stored. Knows shapes and
flat arrays; not schedules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.protocols.copy import Axis, mode_strides, offsets
from tnplan.executor.device.protocols.device import Call, FusedShape
from tnplan.planner.hardware.fusion_tile import fused_tile

Array = NDArray[Any]
Modes = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class ChainTables:
    """The index tables of a chain, in elements.

    Tile t begins at `tile_source[t]` of the operand and `tile_target[t]` of the result. Its elements lie at
    `gather` from there, and those that it ends with go to `scatter`. Stage s forms, for each m, n and k of
    `sizes[s]`, next[m, n] = the sum over k of held[tables of m + tables of k] times branch[n, k]; `tables`
    holds for every stage first m, then k entries. `turned[s]` are the axes of branch s in the order
    [n | k] and `shapes[s]` its extents as stored.
    """

    tile_source: Array
    tile_target: Array
    gather: Array
    scatter: Array
    tables: Array
    sizes: Array
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
    arguments = (
        plan.tile_target, plan.gather, plan.scatter, plan.tables, plan.sizes, shape.adds, shape.closes, total
    )  # fmt: skip
    multiply = fused_tiles.bound(operand, turned, closes_with, scratch, plan.tile_source, *arguments)

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
    return ChainTables(
        _table(loops, source), _table(loops, target), gather, _table(modes, target),
        np.concatenate(tables), np.array(sizes, np.int64),
        tuple(tuple(extent for _, extent in branch) for branch in shape.branches), tuple(turned),
        tile.elements,
    )  # fmt: skip


def _table(modes: Modes, strides: dict[int, int]) -> Array:
    """The offsets of all values of some modes, the last mode fastest."""
    axes: list[Axis] = [(extent, strides[mode], 0) for mode, extent in modes]
    return offsets(axes, 1).astype(np.int64)
