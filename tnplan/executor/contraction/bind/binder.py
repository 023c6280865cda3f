"""Instructions to callables: every view, shape and table of one rank made once, before the first slice.

Knows schedules and the device's interface; never how a device or a communicator works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod
from typing import Any

from numpy.typing import NDArray

from tnplan.common.arrays import ITEM_BYTES
from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.compress.format.errors import CodecError
from tnplan.compress.format.stream import Header
from tnplan.executor.contraction.bind.chains import bind_adjoint, chain_shape, prepare_adjoints
from tnplan.executor.contraction.bind.program import BoundInstruction, BoundProgram, arena_bytes
from tnplan.executor.contraction.redistribute.chunked import bind_chunks
from tnplan.executor.contraction.redistribute.compressed import (
    MessageCompression,
    MessageWorkspace,
    Tally,
    bind_compressed,
)
from tnplan.executor.contraction.redistribute.packed import bind_redistribution
from tnplan.executor.contraction.redistribute.plan import Redistribution, ShardBox, ShardedTensor
from tnplan.executor.device.protocols.codec import Codec, StreamTooLongError
from tnplan.executor.device.protocols.communicator import Communicator, PeerMemory
from tnplan.executor.device.protocols.copy import make_copy, row_major
from tnplan.executor.device.protocols.device import (
    Call,
    ContractShape,
    Device,
    FusedShape,
    View,
    call_in_turn,
    nothing,
)
from tnplan.planner.hardware.chunked_overlap import chunk_order
from tnplan.planner.hardware.compression_options import Lossy
from tnplan.planner.hardware.process_grid import box, box_shape, rank_digits
from tnplan.planner.schedule.data_flow import Row, overlapped_rows
from tnplan.planner.schedule.schedule import (
    Accumulate,
    AddSlice,
    Contract,
    Decode,
    Encode,
    FixSlice,
    Free,
    Fused,
    FusedAdjoint,
    GradientSchedule,
    Instruction,
    Load,
    Redistribute,
    ReduceScatter,
    Schedule,
    SumModes,
    Zero,
)

# Tensors that wait compressed: bound to be written into bytes of the arena and read again.
#
# Knows views and a codec's interface; never schedules.


@dataclass
class SpilledTensor:
    """A tensor of `step` that waits compressed in `data`: its stream's size and header, and some of its
    values."""

    data: View
    step: int
    tally: Tally = field(default_factory=Tally)
    size_bytes: int = 0
    header: Header | None = None
    sample: View | None = None


def bind_encode(values: View, stored: SpilledTensor, codec: Codec, lossy: Lossy, setting: str) -> Call:
    """The call that compresses `values`; it raises InputError where they take more bytes than was planned."""
    if not len(values):
        return nothing

    def run() -> None:
        try:
            packed = codec.encode(values, lossy, setting, stored.data)
        except StreamTooLongError:
            raise InputError(
                f"step {stored.step}",
                f"its result of {size_text(values.nbytes)}, which is to be stored compressed in "
                f"{size_text(len(stored.data))}, is larger at the bound {lossy.bound:g}",
                "plan with a smaller ratio in --compress store=BOUND:RATIO, or run with a larger bound",
                topic="compressed exchanges",
            ) from None
        except CodecError as error:
            raise InputError(
                f"step {stored.step}", f"its result cannot be compressed ({error.place} {error.problem})",
                "plan without store=... in --compress", topic="compressed exchanges",
            ) from None  # fmt: skip
        stored.sample = codec.sample(values, stored.sample)
        stored.size_bytes, stored.header = packed.size_bytes, packed.header
        stored.tally.packed(packed, values.nbytes)

    return run


def bind_decode(stored: SpilledTensor, values: View, codec: Codec) -> Call:
    """The call that restores the tensor into `values`."""
    if not len(values):
        return nothing
    overlaps = stored.tally.overlaps = stored.tally.overlaps or codec.overlaps()

    def run() -> None:
        codec.decode(stored.data[: stored.size_bytes], values, stored.header)
        assert stored.sample is not None
        overlaps.add(stored.sample, values)

    return run


def bind(
    schedule: Schedule, device: Device, communicator: Communicator, tensors: Sequence[NDArray[Any]] | None
) -> BoundProgram:
    """Allocate the arena and bind every instruction for this rank of the group.

    `tensors` are the inputs in the schedule's dtype, row-major and contiguous, with the axes of `leaves`;
    None only for a device that holds no values.
    """
    # docs/explanation/architecture.md#from-schedule-to-result
    return Binder(schedule, device, communicator, tensors).program()


class Binder:
    """Binds one rank; an engine of another kind overrides how single instructions are bound."""

    def __init__(
        self,
        schedule: Schedule,
        device: Device,
        communicator: Communicator,
        tensors: Sequence[NDArray[Any]] | None,
    ) -> None:
        self._schedule = schedule
        self._device = device
        self._communicator = communicator
        self._tensors = tensors
        self._digits = rank_digits(communicator.rank, schedule.grid)
        self._itemsize = ITEM_BYTES[schedule.dtype]
        self._memory: PeerMemory | None = None
        self._shards: dict[int, ShardBox] = {}
        self._program = BoundProgram(schedule)
        self._stored: dict[int, SpilledTensor] = {}
        self._together: dict[Instruction, Call] = {}

    @cached_property
    def _codec(self) -> Codec:
        return self._device.codec()

    def program(self) -> BoundProgram:
        schedule, program = self._schedule, self._program
        n_bytes = arena_bytes(schedule)
        self._device.allocate(n_bytes)
        if self._communicator.size > 1:
            # Invariant: every rank of the group has the same buffers at the same offsets, so that a peer's
            # shard is found by its offset alone.
            self._memory = self._communicator.open_memory(self._device.view(0, n_bytes, "uint8"))
        program.loop_values.update(dict.fromkeys((*schedule.sliced, *schedule.summed), 0))
        program.result = self._shard(schedule.result).view
        # Kernels are compiled at once, in parallel: first those of all chains, then those of other steps.
        self._prepare_products()
        self._prepare_chains()
        self._bind_together()
        program.once = self._bind_all(schedule.once)
        program.outer = [self._bind_all(level.instructions) for level in schedule.outer]
        program.body = self._bind_all(schedule.body)
        if isinstance(schedule, GradientSchedule):
            program.after = [self._bind_all(level.instructions) for level in schedule.after]
            program.gradients = [self._shard(gradient.buffer).view for gradient in schedule.gradients]
        return program

    def _bind_all(self, instructions: Sequence[Instruction]) -> list[BoundInstruction]:
        """The instructions in order; chunked exchanges and the chains that overlap with them as one group."""
        # An exchange in chunks and the chains around it become one interleaved list, which replaces the
        # exchange; the chains themselves are left out.
        groups: dict[Instruction, list[BoundInstruction]] = {}
        for number, instruction in enumerate(instructions):
            if isinstance(instruction, Redistribute) and instruction.parts > 1:
                group = self._chunked(instruction, *overlapped_rows(instructions, number))
                if group is not None:
                    groups |= {chain: [] for row in overlapped_rows(instructions, number) for chain in row}
                    groups[instruction] = group
        bound: list[BoundInstruction] = []
        for instruction in instructions:
            if instruction in groups:
                bound += groups[instruction]
            elif not isinstance(instruction, Free):
                call = self._together.get(instruction) or self._call(instruction)
                bound.append(BoundInstruction(instruction.op, _step(instruction), call))
        return bound

    def _chunked(self, exchange: Redistribute, before: Row, after: Row) -> list[BoundInstruction] | None:
        """A chunked exchange with the chains that overlap with it; None where it is to be made whole."""
        change, workspace = self._change(exchange), self._workspace(exchange.workspace)
        chunks = bind_chunks(
            change, exchange.parts, 0 if workspace is None else len(workspace), self._schedule.dtype,
            self._device, self._communicator, self._memory,
        )  # fmt: skip
        if chunks is None:
            return None
        order = chunk_order(exchange.parts, exchange.falling)
        bound: list[BoundInstruction] = []

        def chains(row: Row, number: int) -> None:
            for chain in row:
                call = self._fused(chain, (number, exchange.parts), number == order[0])
                bound.append(BoundInstruction(chain.op, _step(chain), call))

        for number in order:
            # Chunk by chunk: made, then on its way. The loop below ends each before it is read, so that later
            # chunks are made and earlier ones read while one moves.
            chains(before, number)
            chunk = chunks[number]
            bound.append(BoundInstruction(exchange.op, exchange.step, chunk.begin, True, chunk.time_s))
        for number in order:
            bound.append(BoundInstruction(exchange.op, exchange.step, chunks[number].end, True))
            chains(after, number)
        return bound

    def _call(self, instruction: Instruction) -> Call:
        match instruction:
            case Load():
                return self._load(instruction)
            case FixSlice() | AddSlice():
                return self._slice(instruction)
            case SumModes():
                return self._sum_modes(instruction)
            case Contract():
                return self._contract(instruction)
            case Fused():
                return call_in_turn([self._fused(instruction, which) for which in self._parts(instruction)])
            case FusedAdjoint():
                return bind_adjoint(self._schedule, instruction, self._device, self._shard)
            case Redistribute() | ReduceScatter():
                return self._exchange(instruction)
            case Encode():
                return self._encode(instruction)
            case Decode():
                return bind_decode(
                    self._stored[instruction.source], self._shard(instruction.out).view, self._codec
                )
            case Zero():
                return partial(self._device.zero, self._shard(instruction.out).view)
            case Accumulate():
                target, source = self._shard(instruction.out), self._shard(instruction.source)
                return self._device.bind_accumulate(target.view, source.view)
            case _:
                raise ValueError(f"no device carries out {instruction.op}")

    def _shard(self, number: int) -> ShardBox:
        if number not in self._shards:
            buffer = self._schedule.buffers[number]
            bounds = box(
                buffer.modes, buffer.layout, self._schedule.extents, self._digits, self._schedule.grid
            )
            shape = box_shape(bounds)
            view = self._device.view(buffer.offset_bytes, prod(shape), self._schedule.dtype)
            self._shards[number] = ShardBox(bounds, row_major(shape), view)
        return self._shards[number]

    def _workspace(self, number: int | None) -> View | None:
        if number is None:
            return None
        buffer = self._schedule.buffers[number]
        return self._device.view(
            buffer.offset_bytes, buffer.size_bytes // self._itemsize, self._schedule.dtype
        )

    def _load(self, instruction: Load) -> Call:
        schedule, out = self._schedule, self._shard(instruction.out)
        leaf = schedule.leaves[instruction.tensor]
        axis_strides = row_major([schedule.size_dict[index] for index in leaf])
        mode_strides: dict[int, int] = {}
        for index, stride in zip(leaf, axis_strides, strict=True):
            # On a diagonal the strides of the repeated index's axes add up.
            for mode in reversed(schedule.indices[index]):
                mode_strides[mode] = mode_strides.get(mode, 0) + stride
                stride *= schedule.modes[mode].extent
        modes = schedule.buffers[instruction.out].modes
        start = sum(first * mode_strides[mode] for mode, (first, _) in zip(modes, out.bounds, strict=True))
        copy = make_copy(
            [
                (extent, mode_strides[mode], stride)
                for mode, extent, stride in zip(modes, out.shape, out.strides, strict=True)
            ]
        )
        values = None if self._tensors is None else self._tensors[instruction.tensor].reshape(-1)
        return self._device.bind_load(out.view, values, copy, start)

    def _slice(self, instruction: FixSlice | AddSlice) -> Call:
        source, out = instruction.source, instruction.out
        views = self._shard(out).view, self._shard(source).view
        if isinstance(instruction, FixSlice):
            return self._device.bind_block(*views, self._block_start(source, out))
        return self._device.bind_add_block(*views, self._block_start(out, source))

    def _block_start(self, full: int, sliced: int) -> Callable[[], int]:
        """What gives the element of a whole tensor at which its part for the loops' values begins."""
        schedule, modes = self._schedule, self._schedule.buffers[full].modes
        # Invariant: sliced modes are the first of the buffer (pass 7), so that a slice is one range of
        # elements.
        n_fixed = len(modes) - len(schedule.buffers[sliced].modes)
        fixed = [
            (schedule.modes[mode].index, stride)
            for mode, stride in zip(modes[:n_fixed], self._shard(full).strides[:n_fixed], strict=True)
        ]
        # The dictionary is shared and written by the loops: a start is looked up when the call runs.
        values = self._program.loop_values
        return lambda: sum(values[index] * stride for index, stride in fixed)

    def _sum_modes(self, instruction: SumModes) -> Call:
        source, out = self._shard(instruction.source), self._shard(instruction.out)
        out_modes = set(self._schedule.buffers[instruction.out].modes)
        in_target = tuple(mode in out_modes for mode in self._schedule.buffers[instruction.source].modes)
        return self._device.bind_sum(out.view, source.view, source.shape, in_target)

    def _contract(self, instruction: Contract) -> Call:
        a, b, c = (self._shard(number) for number in (instruction.a, instruction.b, instruction.c))
        return self._device.bind_contract(
            self._product_shape(instruction), a.view, b.view, c.view, self._workspace(instruction.workspace),
            instruction.precision, instruction.engine,
        )  # fmt: skip

    def _product_shape(self, instruction: Contract) -> ContractShape:
        """The shape of a product on this rank."""
        buffers = self._schedule.buffers
        numbers = (instruction.a, instruction.b, instruction.c)
        modes = [buffers[number].modes for number in numbers]
        a, b, c = (self._shard(number) for number in numbers)
        sets = [set(entry) for entry in modes]
        batch = [mode for mode in modes[0] if mode in sets[1] and mode in sets[2]]
        m = [mode for mode in modes[0] if mode not in sets[1]]
        n = [mode for mode in modes[1] if mode not in sets[0]]
        k = [mode for mode in modes[0] if mode in sets[1] and mode not in sets[2]]
        # A device takes k as the last modes of an operand or as those right behind batch: both are matrix
        # products on the data as it lies, one of them transposed.
        last = (*batch, *m, *k), (*batch, *n, *k)
        first = (*batch, *k, *m), (*batch, *k, *n)
        stored = all(modes[side] in (last[side], first[side]) for side in (0, 1))
        ordered = stored and sets[2] == {*batch, *m, *n}
        extents = [
            dict(zip(entry, shard.shape, strict=True)) for entry, shard in zip(modes, (a, b, c), strict=True)
        ]
        equal = all(
            extents[0].get(mode, extent) == extent for other in extents[1:] for mode, extent in other.items()
        )
        if not ordered or not equal or any(extents[1][mode] != extents[2][mode] for mode in n):
            raise ValueError(f"contract of step {instruction.step}: its operands do not fit together")
        c_strides = dict(zip(modes[2], c.strides, strict=True))

        def strided(group: Sequence[int]) -> tuple[tuple[int, int], ...]:
            return tuple((extents[2][mode], c_strides[mode]) for mode in group)

        summed = prod(extents[0][mode] for mode in k)
        # With one term, or one row, both orders are the same memory, and the operand counts as k last.
        k_first = "".join(
            name
            for name, side, rows in (("a", 0, m), ("b", 1, n))
            if modes[side] != last[side] and summed > 1 and prod(extents[side][mode] for mode in rows) > 1
        )
        return ContractShape(strided(batch), strided(m), strided(n), summed, k_first)

    def _fused(self, instruction: Fused, numbered: tuple[int, int] = (0, 1), first: bool = True) -> Call:
        """A chain, or the given one of several equal parts of it, and whether it is the `first` to run."""
        number, parts = numbered
        schedule = self._schedule

        def view(buffer: int) -> View:
            whole = self._shard(buffer).view
            size = len(whole) // parts
            return whole[number * size : (number + 1) * size]

        branches = [self._shard(branch).view for branch in instruction.branches]
        out, closing = view(instruction.out), None
        if instruction.closing is not None:
            out, closing = self._shard(instruction.out).view, view(instruction.closing)
        chain = self._device.bind_fused(
            self._chain_shape(instruction, parts), view(instruction.operand), branches, out,
            schedule.profile["fused_bytes"], instruction.precision, closing,
        )  # fmt: skip
        if closing is None or not first:
            return chain

        zero = partial(self._device.zero, out)  # a call that held `self` would keep the whole program alive

        def begin() -> None:
            zero()
            chain()

        return begin

    def _parts(self, instruction: Fused) -> list[tuple[int, int]]:
        """The parts of a chain in the order in which none is written over one that is still to be read."""
        buffers = self._schedule.buffers
        # As memmove: a result that begins behind its operand is written from the last part to the first.
        behind = buffers[instruction.out].offset_bytes > buffers[instruction.operand].offset_bytes
        return [(number, instruction.parts) for number in chunk_order(instruction.parts, behind)]

    def _chain_shape(self, instruction: Fused, parts: int) -> FusedShape:
        """The shape of a chain on this rank, or of one of several equal parts of it."""
        return chain_shape(self._schedule, instruction, parts, lambda buffer: self._shard(buffer).shape)

    def _prepare_products(self) -> None:
        """Let the device get ready for all products at once."""
        products = [
            (self._product_shape(item), item.precision, item.engine)
            for item in self._schedule.instructions
            if isinstance(item, Contract)
        ]
        self._device.prepare_contract(products, self._schedule.dtype)

    def _bind_together(self) -> None:
        """Bind products, loads and sums, each anew where the device has compiled what it lacked.

        Invariant: all scratch memory is taken before, since calls keep what they are bound with.
        """
        kinds = Contract | Load | SumModes | Accumulate
        items = [item for item in self._schedule.instructions if isinstance(item, kinds)]
        calls = self._device.bind_together([partial(self._call, item) for item in items])
        self._together.update(zip(items, calls, strict=True))

    def _prepare_chains(self) -> None:
        """Let the device get ready for all chains at once: whole, or in parts that overlap with exchanges."""
        schedule, chains = self._schedule, []
        # Invariant: the same test as in `bind_chunks` for what may overlap at all, so that the kernels of
        # parts are there when chains are bound in parts.
        overlaps = self._memory is not None or self._communicator.overlaps
        for instructions in (outer.instructions for outer in schedule.parts):
            chunks_of: dict[Fused, int] = {}
            for number, exchange in enumerate(instructions):
                if overlaps and isinstance(exchange, Redistribute) and exchange.parts > 1:
                    for row in overlapped_rows(instructions, number):
                        chunks_of |= dict.fromkeys(row, exchange.parts)
            for chain in instructions:
                if isinstance(chain, Fused):
                    n_parts = chunks_of.get(chain, chain.parts)
                    chains.append((self._chain_shape(chain, n_parts), chain.precision))
        if chains:
            self._device.prepare_fused(chains, schedule.dtype, schedule.profile["fused_bytes"])
        prepare_adjoints(schedule, self._device, self._shard)

    def _change(self, instruction: Redistribute | ReduceScatter) -> Redistribution:
        """The change of layout on this rank."""
        source, target = (
            ShardedTensor(buffer.modes, buffer.layout, buffer.partial, buffer.offset_bytes)
            for buffer in (self._schedule.buffers[number] for number in (instruction.source, instruction.out))
        )
        schedule, rank = self._schedule, self._communicator.rank
        return Redistribution(source, target, schedule.extents, schedule.grid, rank)

    def _exchange(self, instruction: Redistribute | ReduceScatter) -> Call:
        change = self._change(instruction)
        views = self._shard(instruction.source).view, self._shard(instruction.out).view
        ends = change, self._device, self._communicator, views
        if not isinstance(instruction, ReduceScatter) and instruction.compressed:
            return bind_compressed(*ends, *self._compressing(instruction))
        return bind_redistribution(*ends, self._workspace(instruction.workspace), self._memory)

    def _compressing(self, instruction: Redistribute) -> tuple[MessageWorkspace, MessageCompression]:
        """The workspace of an exchange that is compressed, and how it is."""
        schedule, compression = self._schedule, self._schedule.compression
        if compression is None or compression.exchange is None or instruction.workspace is None:
            raise ValueError(f"step {instruction.step}: an exchange is compressed without bound or workspace")
        buffer, view = schedule.buffers[instruction.workspace], self._device.view
        start_bytes = buffer.offset_bytes
        message_workspace = MessageWorkspace(
            buffer.size_bytes, lambda at, count, dtype: view(start_bytes + at, count, dtype), schedule.dtype
        )
        how = MessageCompression(
            self._codec, compression.exchange, compression.setting, instruction.compressed, instruction.step
        )
        self._program.tallies.append(("exchange", how.tally))
        return message_workspace, how

    def _encode(self, instruction: Encode) -> Call:
        compression, buffer = self._schedule.compression, self._schedule.buffers[instruction.out]
        if compression is None or compression.store is None:
            raise ValueError(f"step {instruction.step}: a tensor is stored without a bound")
        stored = SpilledTensor(
            self._device.view(buffer.offset_bytes, buffer.size_bytes, "uint8"), instruction.step
        )
        self._stored[instruction.out] = stored
        self._program.tallies.append(("store", stored.tally))
        values = self._shard(instruction.source).view
        return bind_encode(values, stored, self._codec, compression.store, compression.setting)


def _step(instruction: Instruction) -> int | None:
    """The step that an instruction's time is counted to."""
    if isinstance(instruction, Fused | FusedAdjoint):
        return instruction.steps[-1]
    return getattr(instruction, "step", None)
