"""Tensors and layouts of a schedule in the words of a library that contracts spread tensors. Pure arithmetic.

Knows modes, layouts and the grid; never a library, a device or a communicator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from executor.device.distributed import SpreadTensor, UnsupportedError
from planner.hardware.layout import Grid, Layout


def spread_tensors(
    modes: Sequence[tuple[int, ...]], layouts: Sequence[Layout], extents: Mapping[int, int], grid: Grid
) -> tuple[SpreadTensor, SpreadTensor, SpreadTensor]:
    """The tensors of a contraction by their modes in storage order and layouts.

    Modes that are neighbours in every tensor which holds one of them are fused; the label is that of the
    first. Raises UnsupportedError where shards are unequal, where a tensor is spread over some of the ranks
    and repeated over the others, or where its blocks lie on the ranks in another order than its modes.
    """
    spread = {mode for layout in layouts for mode in layout if mode is not None}
    groups = fuse(modes, spread)
    a, b, c = (
        _spread_tensor([groups[mode] for mode in stored if mode in groups], layout, extents, grid)
        for stored, layout in zip(modes, layouts, strict=True)
    )
    return a, b, c


def fuse(tensors: Sequence[tuple[int, ...]], fixed: set[int]) -> dict[int, tuple[int, ...]]:
    """Runs of modes that stand together, in the same order, in every tensor that holds one of them.

    By their first mode; modes in `fixed` stay alone.
    """
    after: dict[int, set[int | None]] = {}
    before: dict[int, set[int | None]] = {}
    for stored in tensors:
        for left, right in zip((None, *stored), (*stored, None), strict=True):
            if left is not None:
                after.setdefault(left, set()).add(right)
            if right is not None:
                before.setdefault(right, set()).add(left)
    joined = {
        left: right
        for left, followers in after.items()
        for right in followers
        if right is not None
        and followers == {right}
        and before[right] == {left}
        and not {left, right} & fixed
    }
    runs: dict[int, tuple[int, ...]] = {}
    for first in after.keys() - set(joined.values()):
        run = [first]
        while run[-1] in joined:
            run.append(joined[run[-1]])
        runs[first] = tuple(run)
    return runs


def _spread_tensor(
    groups: Sequence[tuple[int, ...]], layout: Layout, extents: Mapping[int, int], grid: Grid
) -> SpreadTensor:
    digit_of = {mode: place for place, mode in enumerate(layout) if mode is not None}
    modes = []
    for group in groups:
        parts = grid[digit_of[group[0]]].radix if group[0] in digit_of else 1
        extent = prod(extents[mode] for mode in group)
        if extent % parts:
            raise UnsupportedError(f"a mode of extent {extent} in {parts} parts has parts of unequal size")
        modes.append((group[0], extent, parts))
    n_ranks = prod(digit.radix for digit in grid)
    n_blocks = prod(parts for _, _, parts in modes)
    if n_blocks not in (1, n_ranks):
        raise UnsupportedError(f"a tensor in {n_blocks} parts is repeated over {n_ranks} ranks")
    places = [digit_of[label] for label, _, parts in modes if parts > 1]
    if places != sorted(places):
        raise UnsupportedError("the ranks of a tensor's parts are not in the order of its modes")
    return SpreadTensor(tuple(modes))
