"""The walk through a schedule that finds what is wrong with it.

It trusts nothing that the passes worked out: buffers and their lifetimes, layouts, the modes of every
instruction and the bytes of the arena are checked from the schedule alone.
"""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import NoReturn

from tnplan.common.arrays import ITEM_BYTES
from tnplan.common.errors import InputError
from tnplan.planner.hardware.chunked_overlap import cut_modes, hazards
from tnplan.planner.hardware.compression_options import is_lossless
from tnplan.planner.hardware.fusion_tile import fused_tile
from tnplan.planner.hardware.process_grid import Layout, grid_size, largest_part, largest_shard
from tnplan.planner.hardware.profile import Profile, profile_from_document
from tnplan.planner.networks.network import Network
from tnplan.planner.passes.chain_checks import chain_cut, chain_problems, keeps_off
from tnplan.planner.schedule.data_flow import end_of, exchange_spans, others, overlapped_rows
from tnplan.planner.schedule.schedule import (
    ENGINES,
    STATES,
    Accumulate,
    AddSlice,
    Buffer,
    Contract,
    Decode,
    Encode,
    FixSlice,
    Free,
    Fused,
    FusedAdjoint,
    Gather,
    Instruction,
    Load,
    LoopLevel,
    Redistribute,
    ReduceScatter,
    Schedule,
    SumModes,
    Zero,
)

OPERANDS = {
    "load": (),
    "zero": (),
    "free": (),
    "contract": ("a", "b"),
    "fused": ("operand", "branches", "closing"),
    "fused_adjoint": ("operand", "branches", "cotangent"),
    "fix_slice": ("source",),
    "add_slice": ("source",),
    "sum_modes": ("source",),
    "accumulate": ("source",),
    "encode": ("source",),
    "decode": ("source",),
    "redistribute": ("source",),
    "gather": ("source",),
    "reduce_scatter": ("source",),
}
"""The fields that name buffers which are read, by opcode; workspaces are not. The verifier's own account."""
REMEDY = "plan it again with 'tnplan plan'"


def operands(instruction: Instruction) -> list[int]:
    """The numbers of the buffers whose values an instruction needs."""
    numbers: list[int] = []
    for name in OPERANDS[instruction.op]:
        value = getattr(instruction, name)
        if value is not None:
            numbers += value if isinstance(value, tuple) else (value,)
    return numbers


class Verifier:
    """The buffers that hold something, instruction after instruction; `run` raises an InputError that names
    the first instruction, value or buffer that is wrong."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.buffers = schedule.buffers
        self.where = "schedule"
        self.live: set[int] = set()
        self.part: Sequence[Instruction] = ()
        self.number = 0
        self.all_loops = frozenset((*schedule.sliced, *schedule.summed))
        self.loops: tuple[str, ...] = ()  # those that the part is inside of
        self.sums: tuple[int, ...] = ()  # where the part may add
        self.begins_sum = False
        self.early_sum: tuple[int, ...] = ()
        self.overlapped: set[Fused] = set()
        self.stored: dict[int, int] = {}
        self.occupied: list[tuple[int, int, int]] = []  # start, end, buffer; sorted, none overlapping

    def run(self) -> None:
        """Check everything."""
        schedule = self.schedule
        self._check_header()
        for number, buffer in enumerate(self.buffers):
            self.where = f"buffers[{number}]"
            self._check_buffer(buffer)
        # A symbolic run of the schedule: `live` are the buffers that hold something, `occupied` their bytes.
        # Parts are walked once; what makes a replay different is checked by what is live at their ends.
        self._check_loops(*schedule.parts[:1], *schedule.parts[1:2])
        self._check_part("once", schedule.once)
        if schedule.body:
            self.where = "result"
            self._define(schedule.result)
            self._check_replayed()
            self._require(self._accumulates(), "the body does not end by accumulating its result")
        self.where = "result"
        self._require(
            schedule.result in self.live, f"buffer {schedule.result} does not hold the result at the end"
        )
        leading = schedule.sliced_output
        order = (*leading, *(index for index in schedule.output if index not in leading))
        wanted = tuple(mode for index in order for mode in schedule.indices[index])
        self._require(self.buffers[schedule.result].modes == wanted, "its modes are not those of the output")
        self._require(not self.buffers[schedule.result].partial, "its shards are still partial")

    def _accumulates(self) -> bool:
        """Whether the body adds to the result at its end."""
        adds = AddSlice if self.schedule.sliced_output else Accumulate
        return len(self.schedule.body) > 1 and isinstance(self.schedule.body[-2], adds)

    def _check_replayed(self) -> None:
        """What is replayed frees nothing that was there before it. What the parts of an early sum make is
        gone after it, and the part that goes on with the sum is replayed with the one before."""
        schedule, parts = self.schedule, self.schedule.parts
        names = [*(f"outer[{number}]" for number in range(len(schedule.outer))), "body"]
        for number, problem in loop_problems(schedule):
            self.where = names[number - 1]
            self._require(False, problem)
        unit = outside = {schedule.result}
        for before, level, name, after in zip(parts, parts[1:], names, (*parts[2:], None), strict=False):
            self.where = name
            # Invariant: a part may be replayed if all that was live before it is live behind it.
            at_start = set(self.live)
            if level.inner and not before.inner:
                outside = at_start
            # Behind an early sum only the sum is left of what its levels made.
            if before.inner and not level.inner:
                self._forget(at_start - outside)
                at_start = unit
            elif not level.inner:
                unit = at_start
            self._check_loops(level, after)
            self._check_part(name, level.instructions)
            self.where = name
            self._require(at_start <= self.live, "it frees what it needs when it is replayed")
        self._require(at_start == self.live, "a slice leaves buffers behind")

    def _check_loops(self, level: LoopLevel, after: LoopLevel | None = None) -> None:
        """What the part is inside of, and where it may add."""
        schedule = self.schedule
        self.loops = (*schedule.sliced[: level.depth], *schedule.summed[: level.inner])
        self.begins_sum = after is not None and after.inner > level.inner == 0
        adds = after is None or (level.inner > 0 and level.inner == len(schedule.summed))
        self.sums = ((schedule.result,) if after is None else self.early_sum) if adds else ()

    def _forget(self, buffers: set[int]) -> None:
        for buffer in buffers:
            self.live.remove(buffer)
            del self.occupied[bisect_left(self.occupied, self._extent(buffer))]

    def _require(self, condition: bool, problem: str) -> None:
        if not condition:
            self._fail(problem)

    def _fail(self, problem: str) -> NoReturn:
        raise InputError(self.where, problem, REMEDY)

    def _refuse(self, problems: Iterable[str]) -> None:
        for problem in problems:
            self._require(False, problem)

    def _check_header(self) -> None:
        schedule = self.schedule
        ranks = grid_size(schedule.grid)
        self._require(
            ranks == schedule.ranks_per_group, f"the grid has {ranks} ranks, not {schedule.ranks_per_group}"
        )
        self._require(schedule.dtype in ITEM_BYTES, f"dtype {schedule.dtype!r} is unknown")
        self._require(0 <= schedule.result < len(self.buffers), f"result {schedule.result} is not a buffer")
        profile = profile_from_document(schedule.profile, "schedule: profile")
        profile.rate(schedule.dtype, schedule.precision)
        self.fused_precisions = profile.fused_flop_per_s.get(schedule.dtype, {})
        known = bool(self.fused_precisions)
        self.fused_elements = profile.fused_bytes // ITEM_BYTES[schedule.dtype] if known else 0
        if schedule.algebra is not None:
            chains = any(isinstance(item, Fused) for item in schedule.instructions)
            self._require(not chains, f"its chains sum in numbers, and not as {schedule.algebra} does")
            self._require(is_lossless(schedule.compression), f"a bound changes values of {schedule.algebra}")
        threshold_bytes = schedule.threshold_bytes
        self._require(threshold_bytes > 0, f"its threshold is {threshold_bytes} bytes")
        peak_bytes, limit_bytes = schedule.predicted.peak_bytes, schedule.memory_bytes
        self._require(
            limit_bytes is None or peak_bytes <= limit_bytes,
            f"its peak of {peak_bytes} bytes is over its limit of {limit_bytes}",
        )
        self._refuse(memory_problems(schedule, profile))
        self._refuse(index_problems(schedule))
        for number, step in enumerate(schedule.steps):
            self.where = f"steps[{number}]"
            if step.state not in STATES:
                self._fail(f"state {step.state!r} is unknown")
            self._require(len(step.layout) == len(schedule.grid), "its layout is not one of the grid")
            self._require(
                len(step.moved_bytes_by_tier) == len(profile.tiers), "its bytes are not those of the tiers"
            )
            extents = step.batch, step.m, step.n, step.k
            if min(extents) < 1:
                self._fail(f"its product is {' x '.join(map(str, extents))}")
            for modes in (step.a_modes, step.b_modes, step.c_modes, step.layout):
                self._check_modes(modes)

    def _check_modes(self, modes: Layout) -> None:
        known = self.schedule.extents
        unknown = [mode for mode in modes if mode is not None and mode not in known]
        if unknown:
            self._fail(f"mode {min(unknown)} does not exist")

    def _check_buffer(self, buffer: Buffer) -> None:
        schedule = self.schedule
        end = buffer.offset_bytes + buffer.size_bytes
        self._require(
            buffer.offset_bytes >= 0 and end <= schedule.predicted.peak_bytes, "it lies outside the arena"
        )
        self._require(
            len(buffer.layout) == len(schedule.grid), "its layout has another number of digits than the grid"
        )
        if buffer.workspace:
            if buffer.size_bytes < ITEM_BYTES[schedule.dtype]:
                self._fail(f"a workspace of {buffer.size_bytes} bytes holds no element")
            return
        self._check_modes(buffer.modes)
        self._require(len(set(buffer.modes)) == len(buffer.modes), "a mode appears twice")
        spread = [mode for mode in buffer.layout if mode is not None]
        self._require(len(set(spread)) == len(spread), "a mode is spread over two digits")
        for digit, mode in zip(schedule.grid, buffer.layout, strict=True):
            if mode is not None:
                self._require(mode in buffer.modes, f"mode {mode} of its layout is not one of its modes")
                extent = schedule.extents[mode]
                self._require(
                    extent >= digit.radix,
                    f"mode {mode} of extent {extent} has fewer parts than {digit.radix}",
                )
        for position in buffer.partial:
            self._require(0 <= position < len(buffer.layout), f"digit {position} does not exist")
            self._require(buffer.layout[position] is None, f"digit {position} is spread and partial at once")
        elements = largest_shard(buffer.modes, buffer.layout, schedule.extents, schedule.grid)
        self._require(
            elements * ITEM_BYTES[schedule.dtype] == buffer.size_bytes, "its size is not that of its shard"
        )

    def _check_part(self, name: str, instructions: Sequence[Instruction]) -> None:
        self.part, self.overlapped = instructions, set()
        for self.number, instruction in enumerate(instructions):
            self.where = f"{name}[{self.number}] {instruction.op}"
            self._check_instruction(instruction)

    def _check_instruction(self, item: Instruction) -> None:
        """What is read is there, what is written is free, and the result follows from what is read."""
        if isinstance(item, Free):
            self._read(item.buffer)
            self.stored.pop(item.buffer, None)
            self._forget({item.buffer})
            return
        if isinstance(item, Zero):
            self._begin_sum(item.out)
        for buffer in operands(item):
            self._read(buffer)
        self._workspace(getattr(item, "workspace", None))
        if isinstance(item, Fused) and self._takes_place(item):
            self._forget({item.operand})
        assert not isinstance(item, FusedAdjoint)  # see `GradientVerifier`
        adds = isinstance(item, (Accumulate, AddSlice)) or (isinstance(item, Fused) and item.adds)
        (self._check_sum if adds else self._define)(item.c if isinstance(item, Contract) else item.out)
        match item:
            case Load():
                self._check_load(item)
            case FixSlice() | SumModes():
                self._check_part_of(item, self.buffers[item.source], self.buffers[item.out])
            case AddSlice():
                self._check_part_of(item, self.buffers[item.out], self.buffers[item.source])
            case Contract():
                self._check_contract(item)
            case Fused():
                self._check_fused(item)
            case Encode() | Decode():
                self._check_codec(item)
            case Accumulate():
                self._check_accumulate(item)
            case Redistribute() | ReduceScatter():
                self._check_exchange(item)

    def _begin_sum(self, out: int) -> None:
        self._require(self.begins_sum, "no early sum begins here")
        self.early_sum = (out,)

    def _check_sum(self, out: int) -> None:
        self._require(out in self.sums, f"buffer {out} is not the sum of this part")
        self._read(out)

    def _read(self, buffer: int) -> None:
        if buffer not in self.live:
            self._fail(f"buffer {buffer} holds nothing")

    def _define(self, buffer: int) -> None:
        if not 0 <= buffer < len(self.buffers):
            self._fail(f"buffer {buffer} does not exist")
        if buffer in self.live:
            self._fail(f"buffer {buffer} is written while it is in use")
        # Invariant: `occupied` is sorted and without overlaps, so that a new range can only meet its two
        # neighbours.
        span = self._extent(buffer)
        position = bisect(self.occupied, span)
        for start, end, other in self.occupied[max(position - 1, 0) : position + 1]:
            if start < span[1] and span[0] < end:
                self._fail(f"buffer {buffer} overlaps buffer {other} in use")
        self.live.add(buffer)
        self.occupied.insert(position, span)

    def _check_accumulate(self, item: Accumulate) -> None:
        source, out = self.buffers[item.source], self.buffers[item.out]
        same = (source.modes, source.layout, source.partial) == (out.modes, out.layout, out.partial)
        self._require(same, "source and out differ in modes or layout")

    def _check_codec(self, item: Encode | Decode) -> None:
        self._check_step(item.step)
        self._refuse(stored_problems(self.schedule, item, self.stored))
        if isinstance(item, Encode):
            self.stored[item.out] = item.source

    def _extent(self, buffer: int) -> tuple[int, int, int]:
        start = self.buffers[buffer].offset_bytes
        return start, start + self.buffers[buffer].size_bytes, buffer

    def _workspace(self, buffer: int | None) -> None:
        if buffer is not None:
            self._define(buffer)
            self._require(self.buffers[buffer].workspace, f"buffer {buffer} is not a workspace")

    def _check_load(self, item: Load) -> None:
        schedule, out = self.schedule, self.buffers[item.out]
        if not 0 <= item.tensor < len(schedule.leaves):
            self._fail(f"tensor {item.tensor} does not exist")
        wanted = {mode for index in schedule.leaves[item.tensor] for mode in schedule.indices[index]}
        if set(out.modes) != wanted:
            self._fail(f"its modes are not those of tensor {item.tensor}")
        sliced = [schedule.modes[mode].index in self.all_loops for mode in out.modes]
        self._require(sliced == sorted(sliced, reverse=True), "sliced modes do not lead")

    def _check_part_of(self, item: FixSlice | AddSlice | SumModes, whole: Buffer, smaller: Buffer) -> None:
        common = tuple(mode for mode in whole.modes if mode in smaller.modes)
        fits = common == smaller.modes and whole.layout == smaller.layout
        self._require(fits, "neither of source and out is a part of the other")
        if not isinstance(item, SumModes):
            fixed = whole.modes[: len(whole.modes) - len(common)]
            sliced = all(self.schedule.modes[mode].index in self.loops for mode in fixed)
            self._require(
                sliced and whole.modes[len(fixed) :] == common,
                "the fixed modes are not leading sliced ones of its loops",
            )

    def _check_contract(self, item: Contract) -> None:
        a, b, c = (self.buffers[buffer] for buffer in (item.a, item.b, item.c))
        in_a, in_b, in_c = set(a.modes), set(b.modes), set(c.modes)
        # Told from the modes alone: what all three have, and what c lacks.
        batch = tuple([mode for mode in a.modes if mode in in_b and mode in in_c])
        reduced = tuple([mode for mode in a.modes if mode not in in_c])
        not_retained = {*batch, *reduced}
        for operand in (a, b):
            retained = tuple([mode for mode in operand.modes if mode not in not_retained])
            self._require(
                operand.modes in ((*batch, *retained, *reduced), (*batch, *reduced, *retained)),
                "an operand is not stored as [batch | kept | reduced] or [batch | reduced | kept]",
            )
        self._require(set(reduced) <= in_b, "a reduced mode is on one operand only")
        self._require(
            in_c == (in_a | in_b) - set(reduced), "the modes of c do not follow from those of a and b"
        )
        for position, (x, y, z) in enumerate(zip(a.layout, b.layout, c.layout, strict=True)):
            # A digit spreads one mode in all tensors that have it; a summed one leaves terms, so that c is
            # partial there.
            mode = x if x is not None else y
            clash = x is not None and y is not None and x != y
            want = tuple(mode if mode in modes else None for modes in (in_a, in_b))
            self._require(
                not clash and (x, y) == want, f"digit {position} spreads a and b over different modes"
            )
            kept_mode = mode if mode in in_c else None
            self._require(z == kept_mode, f"digit {position} spreads c over another mode than its operands")
            self._require(
                (mode in reduced) == (position in c.partial),
                f"digit {position}: c is partial where it should not be",
            )
        self._check_step(item.step)
        if item.engine not in ENGINES:
            self._fail(f"engine {item.engine!r} is unknown")
        if item.precision not in self.schedule.profile["flop_per_s"][self.schedule.dtype]:
            self._fail(f"precision {item.precision!r} does not exist for its dtype")

    def _takes_place(self, item: Fused) -> bool:
        """Whether the result lies where the operand did, so that no tile is written over what is yet to be
        read."""
        operand, out = self.buffers[item.operand], self.buffers[item.out]
        span, new = self._extent(item.operand), self._extent(item.out)
        if item.out == item.operand or new[1] <= span[0] or span[1] <= new[0]:
            return False
        if item.parts > 1:
            cut = chain_cut(self.schedule, item)
            return cut is not None and keeps_off(span[:2], new[:2], item.parts)
        # In place without parts: mode by mode the same, or of one extent, the old one summed and the new one
        # brought; what the result has more is in front, where nothing of the operand lies.
        before, after = self._local(operand), self._local(out)
        more = len(after) - len(before)
        if span[0] != new[0] or more < 0 or any(mode in operand.modes for mode, _ in after[:more]):
            return False
        return all(
            old == new or (old[1] == new[1] and old[0] not in out.modes and new[0] not in operand.modes)
            for old, new in zip(before, after[more:], strict=True)
        )

    def _check_fused(self, item: Fused) -> None:
        one_each = len(others(item)) == len(item.steps)
        self._require(bool(item.branches) and one_each, "it does not have one step per branch")
        known = item.precision in self.fused_precisions
        self._require(known, f"precision {item.precision!r} does not exist for chains of its dtype")
        for number in item.steps:
            self._check_step(number)
        numbers = {self.schedule.steps[number].fused for number in item.steps}
        self._require(len(numbers) == 1 and None not in numbers, "its steps are not annotated as one chain")
        self._refuse(chain_problems(self.schedule, item))
        has_tile = self._has_tile(item, chain_cut(self.schedule, item) or ())
        self._require(has_tile, f"it has no tile of {self.fused_elements} elements or less")

    def _has_tile(self, chain: Fused, cut: Sequence[int]) -> bool:
        """Whether a chain has a tile in a chunk that some modes cut."""
        tensors = (self.buffers[buffer] for buffer in (chain.operand, *chain.branches, end_of(chain)))
        modes = [tuple(entry for entry in self._local(tensor) if entry[0] not in cut) for tensor in tensors]
        return fused_tile(modes[0], modes[1:-1], modes[-1], self.fused_elements) is not None

    def _local(self, buffer: Buffer) -> tuple[tuple[int, int], ...]:
        """The modes of a buffer with their extents on a rank."""
        radix = {mode: digit.radix for digit, mode in zip(self.schedule.grid, buffer.layout, strict=True)}
        extents = self.schedule.extents
        return tuple((mode, largest_part(extents[mode], radix.get(mode, 1))) for mode in buffer.modes)

    def _check_step(self, number: int) -> None:
        if not 0 <= number < len(self.schedule.steps):
            self._fail(f"step {number} does not exist")

    def _check_exchange(self, item: Redistribute | ReduceScatter) -> None:
        source, out = self.buffers[item.source], self.buffers[item.out]
        same = source.modes == out.modes
        if isinstance(item, Redistribute):
            same = set(source.modes) == set(out.modes)
            self._check_parts(item)
        self._require(same, "source and out have different modes")
        self._check_step(item.step)
        if isinstance(item, ReduceScatter):
            self._require(bool(source.partial) and not out.partial, "source is not partial or out still is")
            self._check_kept(source.layout, out.layout, source.partial)
        else:
            self._require(source.partial == out.partial, "partial digits change")
            self._refuse(exchange_problems(self.schedule, item))
        if isinstance(item, Gather):
            self._require(not any(mode is not None for mode in out.layout), "out is not whole on every rank")

    def _check_parts(self, item: Redistribute) -> None:
        """Whether the parts of an exchange may go beside its neighbours."""
        self._require(item.parts == 1 or not item.compressed, "parts are not compressed")
        if item.parts == 1:
            self._require(not (item.before or item.after), "a whole exchange goes beside nothing")
            return
        some = item.parts > 1 and min(item.before, item.after) >= 0 and (item.before or item.after)
        self._require(bool(some), f"{item.parts} parts beside {item.before} and {item.after} chains")
        cuts = [self._cut(item.source, item.parts), self._cut(item.out, item.parts)]
        before, after = overlapped_rows(self.part, self.number)
        there = (len(before), len(after)) == (item.before, item.after)
        self._require(there, "it goes beside a chain that is not there")
        for chain in (*before, *after):
            self._require(chain not in self.overlapped, "another exchange goes beside the same chain")
            self.overlapped.add(chain)
            cuts += [self._cut(chain.operand, item.parts), self._cut(end_of(chain), item.parts)]
            has_tile = self._has_tile(chain, cuts[0] or ())
            self._require(has_tile, f"a part of the chain of step {chain.steps[-1]} has no tile")
        same = cuts[0] is not None and len(set(cuts)) == 1
        self._require(same, f"its tensors are not cut into {item.parts} parts by the same first modes")
        spans = exchange_spans(item, before, after, self.buffers)
        hazard = next(hazards(spans, item.parts, item.falling), None)
        self._require(hazard is None, hazard or "")

    def _cut(self, number: int, parts: int) -> tuple[int, ...] | None:
        buffer = self.buffers[number]
        return cut_modes(buffer.modes, buffer.layout, self.schedule.extents, self.schedule.grid, parts)

    def _check_kept(self, before: Layout, after: Layout, partial: tuple[int, ...]) -> None:
        for position, (old, new) in enumerate(zip(before, after, strict=True)):
            self._require(
                position in partial or old == new, f"digit {position} changes though it is not summed over"
            )


def index_problems(schedule: Schedule) -> Iterator[str]:
    """Whether all indices have sizes and modes, and those of the loops are summed ones of the network.

    Raises InputError where the network itself is none.
    """
    network = Network(schedule.leaves, schedule.output, schedule.size_dict)
    present = {index for leaf in network.inputs for index in leaf}
    for index in sorted(present - schedule.indices.keys()):
        yield f"index {index!r} has no modes"
    loops = (*schedule.sliced, *schedule.summed)
    if len(set(loops)) != len(loops):
        yield "an index is sliced twice"
    for index in loops:
        if index not in present or (index in schedule.summed and index in network.output):
            yield f"sliced index {index!r} is not an index of the network that this loop may have"
    for number, extent in schedule.extents.items():
        if extent <= 0:
            yield f"mode {number} has extent {extent}"
    for index, modes in schedule.indices.items():
        if index not in schedule.size_dict:
            yield f"index {index!r} has no size"
        for mode in modes:
            if mode not in schedule.extents:
                yield f"mode {mode} does not exist"
        if prod(schedule.extents[mode] for mode in modes) != schedule.size_dict[index]:
            yield f"the modes of index {index!r} do not make up its size"
    for number, described in enumerate(schedule.modes):
        if number not in schedule.indices.get(described.index, ()):
            yield f"mode {number} does not belong to index {described.index!r}"


def loop_problems(schedule: Schedule) -> Iterator[tuple[int, str]]:
    """The number of a part among all, and what is wrong with its loops."""
    parts, n_sliced, n_summed = schedule.parts, len(schedule.sliced), len(schedule.summed)
    rows = 0
    for number, (before, level) in enumerate(pairwise(parts), 1):
        begins_sum = number + 1 < len(parts) and parts[number + 1].inner > 0
        deepest = n_sliced if begins_sum or number + 1 == len(parts) else n_sliced - 1
        if level.inner:
            rows += not before.inner
            if level.depth != before.depth:
                yield number, f"depth {level.depth} is not that of the part before, {before.depth}"
            if not before.inner < level.inner <= n_summed:
                yield number, f"{level.inner} inner loops do not follow {before.inner} of {n_summed}"
        elif before.inner:
            if level.depth != before.depth:
                yield number, f"depth {level.depth} is not that of the sum before, {before.depth}"
            if before.inner != n_summed:
                yield number, f"the sum before is inside {before.inner} of {n_summed} inner loops"
        elif not before.depth < level.depth <= deepest:
            yield number, f"depth {level.depth} is not between those of its neighbours"
    if rows != bool(n_summed):
        yield len(parts) - 1, f"{rows} rows of parts are inside the loops of {n_summed} summed indices"


def memory_problems(schedule: Schedule, profile: Profile) -> Iterator[str]:
    """Whether the codec fits besides the arena. Raises InputError where the profile has no such codec."""
    if schedule.compression is None or not any(schedule.compressed_counts):
        return
    peak_bytes, limit_bytes = schedule.predicted.peak_bytes, schedule.memory_bytes
    workspace_bytes = profile.codec(schedule.compression.setting).workspace_bytes
    if limit_bytes is not None and peak_bytes + workspace_bytes > limit_bytes:
        yield (
            f"its peak of {peak_bytes} bytes and {workspace_bytes} for the codec are over its limit of "
            f"{limit_bytes}"
        )


def exchange_problems(schedule: Schedule, item: Redistribute) -> Iterator[str]:
    """Whether an exchange can be compressed on its tiers."""
    if not item.compressed:
        return
    if schedule.compression is None or schedule.compression.exchange is None:
        yield "the schedule has no bound for tensors that are exchanged"
    if not all(0 <= tier < len(schedule.profile["tiers"]) for tier in item.compressed):
        yield "a compressed tier does not exist"
    if item.workspace is None:
        yield "it is compressed without a workspace"


def stored_problems(schedule: Schedule, item: Encode | Decode, stored: Mapping[int, int]) -> Iterator[str]:
    """Whether a tensor can be compressed, or is restored as it was; `stored`: compressed buffers now, and the
    tensors that they hold."""
    source, out = schedule.buffers[item.source], schedule.buffers[item.out]
    if schedule.compression is None or schedule.compression.store is None:
        yield "the schedule has no bound for tensors that are stored"
    if isinstance(item, Encode):
        if source.workspace or not out.workspace:
            yield "it does not compress a tensor into bytes"
    elif item.source not in stored:
        yield f"buffer {item.source} holds no compressed tensor"
    else:
        tensor = schedule.buffers[stored[item.source]]
        same = (tensor.modes, tensor.layout, tensor.partial) == (out.modes, out.layout, out.partial)
        if not same or out.workspace:
            yield "out is not the tensor that was compressed"
