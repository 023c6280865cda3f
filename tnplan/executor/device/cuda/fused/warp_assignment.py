"""Which bits of a fused chain's tile tell its warps apart at each stage, and where all warps must meet.

Warps that are told apart by the same bits, stage after stage, touch parts of the tile of their own and need
not wait for each other. Pure arithmetic on bits; knows no places, nor any order but that of the walks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tnplan.executor.device.cuda.fused.bank_layout import LANE_BITS, TENSOR_ROWS, Bit, Kind, bits_of
from tnplan.planner.hardware.fusion_tile import FusedStage, FusedTile


@dataclass(frozen=True)
class Warps:
    """`load`, `stages` and `store`: the bits that tell warps apart, least significant first; none where warps
    are dealt otherwise. `meets`: whether all meet after the load, after each stage and after the store."""

    load: tuple[Bit, ...]
    stages: tuple[tuple[Bit, ...], ...]
    store: tuple[Bit, ...]
    meets: tuple[bool, ...]


def deal_warps(
    tile: FusedTile, kinds: Sequence[Kind], extents: Mapping[int, int], load_bits: Sequence[Bit],
    store_bits: Sequence[Bit], n_bits: int,
) -> Warps:  # fmt: skip
    """The bits of 2^n_bits warps, kept as long as possible, and by the walks too where lanes leave them."""
    n_stages = len(tile.stages)
    chosen: list[tuple[Bit, ...]] = []
    meets = [True] * (n_stages + 2)
    held = list(load_bits)
    while len(chosen) < n_stages:
        begin = len(chosen)
        kept, end = _run(tile, kinds, held, begin, n_bits)
        walks = (load_bits, begin == 0), (store_bits, end == n_stages)
        lanes = [set(bits[:LANE_BITS]) for bits, joins in walks if joins]
        kept.sort(key=lambda bit: -sum(bit in taken for taken in lanes))
        chosen += [tuple(kept[len(kept) - n_bits :])] * (end - begin) if end > begin else [()]
        meets[begin + 1 : end] = [False] * (end - begin - 1)
        for stage in tile.stages[begin : len(chosen)]:
            held = _after(held, stage, extents)
    load = _of_walk(load_bits, chosen[0], n_bits)
    store = _of_walk(store_bits, chosen[-1], n_bits)
    apart = [bits is not None for bits in (load, store)]
    meets[0], meets[-2] = not apart[0], not apart[1]
    meets[-1] = not (all(apart) and load == store and not any(meets[:-1]))
    return Warps(load or (), tuple(chosen), store or (), tuple(meets))


def _run(
    tile: FusedTile, kinds: Sequence[Kind], held: Sequence[Bit], begin: int, n_bits: int
) -> tuple[list[Bit], int]:
    """The stage that ends a run from stage `begin` on, and what is held through all of it, n_bits or more."""
    kept, end = list(held), begin
    while end < len(kinds):
        stage = tile.stages[end]
        left = [bit for bit in kept if bit[0] not in stage.k_modes]
        if len(left) < n_bits or not _by_rows(stage, kinds[end], n_bits):
            break
        kept, end = left, end + 1
    return kept, end


def _by_rows(stage: FusedStage, kind: Kind, n_bits: int) -> bool:
    """Whether every warp has rows of its own, and all of their columns."""
    unit, first, second = kind
    if unit == "TENSOR":
        return stage.elements_in // stage.k == TENSOR_ROWS * first * second << n_bits
    return second == stage.n and stage.elements_in // stage.k == first << LANE_BITS + n_bits


def _after(held: Sequence[Bit], stage: FusedStage, extents: Mapping[int, int]) -> list[Bit]:
    """The bits held behind a stage."""
    return [*(bit for bit in held if bit[0] not in stage.k_modes), *bits_of(stage.n_modes, extents)]


def _of_walk(bits: Sequence[Bit], warps: tuple[Bit, ...], n_bits: int) -> tuple[Bit, ...] | None:
    """The bits of warps in a walk, where a stage's can be: its lanes take others, and all have elements."""
    apart = len(warps) == n_bits and len(bits) >= LANE_BITS + n_bits
    return warps if apart and not set(warps) & set(bits[:LANE_BITS]) else None
