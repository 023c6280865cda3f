"""The tile of a fused chain: which modes of a large tensor are held on chip while it meets several branches.

A chain contracts one large operand with small branches in turn. Every mode that it sums and every mode that a
branch brings must be in the tile; further modes make the runs that are read and written long. Pure
arithmetic on (mode, extent) lists; knows no device and no schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

Modes = Sequence[tuple[int, int]]
"""(mode, extent) in storage order, slowest first."""

STAGE_ROWS = 64
"""Fewest rows of a stage, products that share the branch's elements: two for every lane of a warp."""
MOST_STAGES = 8
"""Most branches of a chain."""
MOST_EXTENT = 64
"""Largest product of the modes that one branch sums, and of those that it brings."""
RUN_ELEMENTS = 8
"""Fewest elements that lie together where a tile is read or written: 64 bytes of complex64."""
ADJOINT_TILE_BYTES, ADJOINT_STAGES = 16384, 4
"""The largest tile of a chain that goes back too, and the most branches: all values between its steps are
held at once, and several blocks share a multiprocessor."""


@dataclass(frozen=True)
class FusedStage:
    """One contraction inside the tile: the modes summed and brought in, and the elements before and after."""

    k_modes: tuple[int, ...]
    n_modes: tuple[int, ...]
    k: int
    n: int
    elements_in: int
    elements_out: int


@dataclass(frozen=True)
class FusedTile:
    """`modes`: the operand's modes in the tile, in its storage order; `elements`: the most at any stage.

    `runs`: elements that lie together in a tile of the operand, and in one of the output.
    """

    modes: tuple[int, ...]
    stages: tuple[FusedStage, ...]
    elements: int
    runs: tuple[int, int]


def fused_tile(operand: Modes, branches: Sequence[Modes], out: Modes, capacity: int) -> FusedTile | None:
    """The tile of a chain within `capacity` elements at every stage, or None where there is none.

    The branches together hold at most `capacity` elements, and tile and branch modes have extents that are
    powers of two; stages keep to the limits above. Raises ValueError where `out` does not hold the modes
    that the chain leaves.
    """
    extents = dict(pair for tensor in (operand, *branches, out) for pair in tensor)
    links = _links(operand, branches, out)
    if len(branches) > MOST_STAGES:
        return None
    if sum(prod(extent for _, extent in branch) for branch in branches) > capacity:
        return None
    # All modes that any branch sums must be in the tile from the start, those brought join at their stage;
    # all others tell tiles apart.
    out_modes = {mode for mode, _ in out}
    tile = {mode for mode, _ in operand if mode not in out_modes}
    brought = {mode for _, n_modes in links for mode in n_modes}
    for tensor in (operand, out):
        tile |= _innermost(tensor) - brought
    # Powers of two: kernels deal the bits of modes to lanes, warps and rounds.
    if not all(_binary(extents[mode]) for mode in tile | brought):
        return None
    most = _most(tile, links, extents)
    if most > capacity:
        return None
    # What is left of the capacity lengthens the shorter of both runs, mode by mode.
    while True:
        mode = _next(operand, out, tile, brought)
        if mode is None or not _binary(extents[mode]) or most * extents[mode] > capacity:
            break
        tile.add(mode)
        most *= extents[mode]  # all stages have the mode: it is neither summed nor brought
    stages = tuple(_stages(tile, links, extents))
    if not all(_runs(stage) for stage in stages):
        return None
    modes = tuple(mode for mode, _ in operand if mode in tile)
    runs = (_run_end(operand, tile)[0], _run_end(out, tile | brought)[0])
    return FusedTile(modes, stages, most, runs)


def _runs(stage: FusedStage) -> bool:
    """Whether a stage is of a size that is worked on at once."""
    return max(stage.k, stage.n) <= MOST_EXTENT and stage.elements_in >= STAGE_ROWS * stage.k


def _links(
    operand: Modes, branches: Sequence[Modes], out: Modes
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The modes that each branch sums and brings, in the branch's storage order."""
    # Invariant: a branch's mode that the chain has at this stage is summed: chains have no batch modes.
    current = {mode for mode, _ in operand}
    links = []
    for branch in branches:
        k_modes = tuple(mode for mode, _ in branch if mode in current)
        n_modes = tuple(mode for mode, _ in branch if mode not in current)
        current = current.difference(k_modes).union(n_modes)
        links.append((k_modes, n_modes))
    if current != {mode for mode, _ in out}:
        raise ValueError("the output of a chain does not hold the modes that its branches leave")
    return links


def _binary(extent: int) -> bool:
    return extent > 0 and extent & (extent - 1) == 0


def _innermost(modes: Modes) -> set[int]:
    """The fastest modes that together hold RUN_ELEMENTS or more, or all."""
    taken: set[int] = set()
    size = 1
    for mode, extent in reversed(modes):
        if size >= RUN_ELEMENTS:
            break
        taken.add(mode)
        size *= extent
    return taken


def _next(operand: Modes, out: Modes, tile: set[int], brought: set[int]) -> int | None:
    """The operand mode that lengthens the shorter of the runs read and written, or None."""
    ends = [_run_end(modes, tile | brought) for modes in (operand, out)]
    ends = [end for end in ends if end[1] is not None]
    return min(ends, key=lambda end: end[0])[1] if ends else None


def _run_end(modes: Modes, inside: set[int]) -> tuple[int, int | None]:
    """The elements of the innermost run inside the tile, and the mode that ends it."""
    size = 1
    for mode, extent in reversed(modes):
        if mode not in inside and extent > 1:
            return size, mode
        size *= extent
    return size, None


def _stages(
    tile: Iterable[int], links: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], extents: dict[int, int]
) -> Iterable[FusedStage]:
    size = prod(extents[mode] for mode in tile)
    for k_modes, n_modes in links:
        k, n = (prod(extents[mode] for mode in modes) for modes in (k_modes, n_modes))
        yield FusedStage(k_modes, n_modes, k, n, size, size // k * n)
        size = size // k * n


def _most(
    tile: set[int], links: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], extents: dict[int, int]
) -> int:
    size = prod(extents[mode] for mode in tile)
    return max([size, *(stage.elements_out for stage in _stages(tile, links, extents))])
