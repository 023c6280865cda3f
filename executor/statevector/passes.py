"""Passes: which gates are done together while a tile of the state is in fast memory. Knows bits, no device.

A tile holds `tile_bits` bits of the index, the lowest `run_bits` always among them, so that it is read and
written in runs of 2^run_bits amplitudes. Targets of the gates of a pass are held; selectors may be anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from executor.statevector.blocks import Block, as_swap, is_identity, mask_of
from executor.statevector.fusion import Step, fuse, fuse_in_rounds
from executor.statevector.grouping import bits_of, choose, sweep
from executor.statevector.lighter import lighter
from executor.statevector.staging import Exchange, Stage, make_stages
from planner.errors import InputError

MODES = ("compiled", "stages", "gates")
SHORT_BITS = 5
"""An exchange of a bit below this one moves runs that are too short for the links between GPUs."""
MOST_LATER = 3
"""Diagonals a bit that the next pass may do; more of them, all at once, cost as much in any pass."""
SWAP = np.eye(4, dtype=np.complex128)[[0, 2, 1, 3]]


@dataclass(frozen=True)
class Tile:
    """How many `bits` of the index a tile holds, always the lowest `run_bits`, and a cluster (`width`).

    A device that does a pass in rounds has `register_bits`, the most bits of the targets of a round. There
    runs are made as long as they can be without more passes. Where passes become `programs`, phases of many
    bits at once cost little, so that gates are taken apart into them and rotations, and an exchange of two
    bits at the end of a pass costs nothing, so that exchanges between ranks move long runs.
    """

    bits: int
    run_bits: int
    width: int
    register_bits: int = 0
    programs: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.width <= self.bits - self.run_bits or self.run_bits < 0:
            raise InputError(
                "tile", f"of {self.bits} bits has runs of {self.run_bits} and clusters of {self.width}",
                "let runs and a cluster fit into it",
            )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Pass:
    """Steps that are done on every tile in turn; `held` are the bits of a tile, rising."""

    held: tuple[int, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, eq=False)
class Plan:
    """Passes and exchanges of bits in turn; qubit q is bit before[q] at the start, after[q] at the end."""

    steps: tuple[Pass | Exchange, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes alone."""
        return tuple(step for step in self.steps if isinstance(step, Pass))


def compile_blocks(
    blocks: Sequence[Block], before: Sequence[int], tile: Tile, mode: str = "compiled",
    n_inside: int | None = None,
) -> Plan:  # fmt: skip
    """Passes that apply blocks on qubits; qubit q is bit before[q] of the index.

    `compiled` reorders gates that commute, fuses them, and makes exchanges of two qubits a change of names.
    `stages` keeps the order and ends a pass where the target changes (the source's stages); `gates` makes
    every gate a pass. Bits from `n_inside` on (default: none) number the ranks.
    """
    if mode not in MODES:
        raise InputError("mode", f"is {mode!r}", f"use {', '.join(MODES)}")
    n_bits = len(before)
    n_inside = n_bits if n_inside is None else n_inside
    placed, after = rename(blocks, before) if mode == "compiled" else ([b.on(before) for b in blocks], before)
    if mode == "compiled" and tile.register_bits:
        placed = lighter(placed, n_bits, tile.programs)
    stages, moved = make_stages(placed, n_bits, n_inside)
    if mode == "compiled":
        stages = _put_off(stages, n_bits, n_inside, tile)
    steps: list[Pass | Exchange] = []
    now = list(range(n_bits))
    """Where each bit of the stages is, since passes exchanged some."""
    for stage, following in zip(stages, (*stages[1:], None), strict=True):
        if stage.exchange is not None:
            steps.append(stage.exchange.on(now))
        blocks = [block.on(now) for block in stage.blocks]
        if mode == "compiled":
            groups = _with_long_runs(blocks, n_inside, tile)
        else:
            groups = [(_held(part, n_inside, tile), part) for part in _in_order(blocks, mode)]
        made = [
            Pass(held, tuple(part) if mode == "gates" else _fused(part, held, n_bits, tile))
            for held, part in groups
        ]
        if made and tile.programs and mode == "compiled" and following and following.exchange:
            leaving = [now[inside] for inside, _ in following.exchange.pairs]
            made[-1] = _low_bits_kept(made[-1], leaving, now)
        steps += made
    return Plan(tuple(steps), tuple(before), tuple(now[moved[bit]] for bit in after))


def _put_off(
    stages: Sequence[Stage], n_bits: int, n_inside: int, tile: Tile
) -> tuple[Stage, ...]:  # fmt: skip
    """The stages, with the last passes of one done after the next exchange where that makes them fewer.

    What comes after an exchange often fills no tile; passes that target no leaving bit may come there too.
    """
    made = list(stages)
    for at, following in enumerate(stages[1:]):
        if following.exchange is None:
            continue
        groups = [part for _, part in group(made[at].blocks, n_inside, tile)]
        least = len(groups) + len(group(following.blocks, n_inside, tile))
        leaving = mask_of([inside for inside, _ in following.exchange.pairs])
        where = list(range(n_bits))
        for inside, outside in following.exchange.pairs:
            where[inside], where[outside] = outside, inside
        later = list(following.blocks)
        for first in range(len(groups) - 1, 0, -1):
            if any(block.target_mask & leaving for block in groups[first]):
                break
            later = [*(block.on(where) for block in groups[first]), *later]
            count = first + len(group(later, n_inside, tile))
            if count < least:
                least = count
                kept = tuple(block for part in groups[:first] for block in part)
                made[at] = replace(made[at], blocks=kept)
                made[at + 1] = replace(following, blocks=tuple(later))
    return tuple(made)


def _low_bits_kept(item: Pass, leaving: Sequence[int], now: list[int]) -> Pass:
    """The pass with exchanges of low bits that leave the rank next with high ones; `now` is changed."""
    high = [bit for bit in item.held if bit >= SHORT_BITS and bit not in leaving]
    swaps = []
    for bit in leaving:
        if bit < SHORT_BITS and bit in item.held and high:
            other = high.pop()
            swaps.append(Block((other, bit), (), SWAP[None]))
            first, second = now.index(bit), now.index(other)
            now[first], now[second] = other, bit
    return replace(item, steps=(*item.steps, *swaps))


def rename(blocks: Sequence[Block], before: Sequence[int]) -> tuple[list[Block], tuple[int, ...]]:
    """Blocks on bits instead of qubits, without exchanges of qubits, and where the qubits are at the end."""
    where = list(before)
    placed = []
    for block in blocks:
        phases = as_swap(block)
        if phases is not None:
            i, j = block.targets
            placed.append(phases.on(where))
            where[i], where[j] = where[j], where[i]
        else:
            placed.append(block.on(where))
    return [block for block in placed if not is_identity(block)], tuple(where)


def group(blocks: Sequence[Block], n_bits: int, tile: Tile) -> list[tuple[tuple[int, ...], list[Block]]]:
    """The bits and the blocks of each pass, as few passes as are found."""
    left = list(blocks)
    groups = []
    size = min(n_bits, tile.bits)
    low = mask_of(range(min(n_bits, tile.run_bits)))
    while left:
        held = choose(left, low, size)
        part, left = sweep(left, held)
        if tile.programs and left:
            needed, later = _needed(part)
            if len(later) <= MOST_LATER * n_bits:
                part, left = needed, later + left
        groups.append((_fill(held, n_bits, size), part))
    return groups


def _needed(blocks: Sequence[Block]) -> tuple[list[Block], list[Block]]:
    """Blocks without the diagonals that none of them waits for, and these."""
    needed: list[Block] = []
    later: list[Block] = []
    targets = 0
    for block in reversed(blocks):
        (needed if block.targets or block.mask & targets else later).append(block)
        targets |= block.target_mask
    return needed[::-1], later[::-1]


def _with_long_runs(
    blocks: Sequence[Block], n_bits: int, tile: Tile
) -> list[tuple[tuple[int, ...], list[Block]]]:
    """Like `group`; where a device has rounds, with runs as long as they can be in as many passes."""
    groups = group(blocks, n_bits, tile)
    if not tile.register_bits:
        return groups
    widest = max([tile.width, *(len(block.targets) for block in blocks)])
    for run_bits in range(tile.run_bits + 1, min(n_bits, tile.bits) - widest + 1):
        longer = group(blocks, n_bits, replace(tile, run_bits=run_bits))
        if len(longer) > len(groups):
            break
        groups = longer
    return groups


def _fused(part: Sequence[Block], held: Sequence[int], n_bits: int, tile: Tile) -> tuple[Step, ...]:
    if tile.register_bits and all(len(block.targets) <= tile.register_bits for block in part):
        return fuse_in_rounds(
            part, mask_of(held), n_bits, tile.width, tile.register_bits, tile.programs
        )
    return fuse(part, mask_of(held), n_bits, tile.width)


def _fill(held: int, n_bits: int, size: int) -> tuple[int, ...]:
    """The held bits, with the lowest others up to the size of a tile, so that runs are long."""
    bits = bits_of(held)
    free = [bit for bit in range(n_bits) if not held >> bit & 1]
    return tuple(sorted(bits + free[: size - len(bits)]))


def _held(blocks: Sequence[Block], n_bits: int, tile: Tile) -> tuple[int, ...]:
    targets = 0
    for block in blocks:
        targets |= block.target_mask
    low = mask_of(range(min(n_bits, tile.run_bits)))
    return _fill(low | targets, n_bits, min(n_bits, tile.bits))


def _in_order(blocks: Sequence[Block], mode: str) -> list[list[Block]]:
    """Blocks in their order: one by one, or as long as the targets stay the same."""
    parts: list[list[Block]] = []
    targets = 0
    for block in blocks:
        new = block.target_mask & ~targets
        if not parts or mode == "gates" or (new and targets):
            parts.append([])
            targets = 0
        parts[-1].append(block)
        targets |= block.target_mask
    return parts
