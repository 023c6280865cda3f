"""Pass 7, lower: the tree with its layouts becomes flat instructions over buffers.

Sub-trees are walked in the order that needs the least memory. What no sliced index touches goes into `once`,
what several slices in a row share or what an early sum runs over onto loop levels of its own, and the rest is
the `body` of every slice; what a loop level leaves for later ones stays as long as one is replayed. Buffers
have lifetimes here and no offsets yet (pass 8). Knows nothing of how an instruction is carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, prod

from tnplan.planner.hardware.cost import compressing_bytes
from tnplan.planner.hardware.process_grid import Layout, largest_shard
from tnplan.planner.passes.chunk_exchanges import ChunkedExchange, ChunkedExchanges, Row
from tnplan.planner.passes.fuse import Chain, Fusion
from tnplan.planner.passes.lowering.annotate import annotate
from tnplan.planner.passes.lowering.buffer_assignment import Lifetime
from tnplan.planner.passes.sharding.search import gemm_precision
from tnplan.planner.passes.sharding.sharded_tree import ShardedTree, restrict_layout
from tnplan.planner.passes.tree.loop_levels import last_level_needed
from tnplan.planner.schedule.data_flow import reads
from tnplan.planner.schedule.schedule import (
    Accumulate,
    AddSlice,
    Buffer,
    Contract,
    FixSlice,
    Free,
    Fused,
    Gather,
    Instruction,
    Load,
    Redistribute,
    ReduceScatter,
    StepAnnotation,
    SumModes,
    Zero,
)

Task = tuple[int, Callable[[int], None] | None]
"""A node, and what emits it once all that it needs is there; None for the node with all that is under it."""


@dataclass(frozen=True)
class LoweredProgram:
    """Instructions, buffers (offsets still 0) with their lifetimes, and step annotations.

    `segments` has the instructions of every loop level: `once`, the outer ones, and the body; those of an
    early sum are `early_sum_levels`. `in_place` has the buffer that another one overwrites, and in how many
    chunks. `chunked` has the exchanges that may go in chunks, by the buffer that they fill.
    """

    buffers: tuple[Buffer, ...] = ()
    lifetimes: tuple[Lifetime, ...] = ()
    segments: tuple[tuple[Instruction, ...], ...] = ()
    early_sum_levels: range = range(0)
    in_place: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    steps: tuple[StepAnnotation, ...] = ()
    chunked: Mapping[int, ChunkedExchange] = field(default_factory=dict)
    result: int = 0


def lower(sharded: ShardedTree, fusion: Fusion, exchanges: ChunkedExchanges) -> LoweredProgram:
    """Emit the program of one group of ranks."""
    return _Lowering(sharded, fusion, exchanges).run()


class _Lowering:
    def __init__(self, sharded: ShardedTree, fusion: Fusion, exchanges: ChunkedExchanges) -> None:
        self.tree, self.space, self.placement = sharded.tree, sharded.space, sharded.placement
        self.sharded = replace(sharded, orders=exchanges.orders)
        self.orders, self.planned_chunks = exchanges.orders, exchanges.by_node
        self.fusion, self.rows = fusion, _rows(exchanges, fusion)
        self.delivered: dict[Chain, tuple[tuple[int, ...], list[int]]] = {}
        self.n_chains = 0
        self.extents = {number: mode.extent for number, mode in enumerate(self.tree.modes)}
        self.buffers: list[Buffer] = []
        self.segments: list[list[Instruction]] = []
        self.steps: list[StepAnnotation] = []
        self.in_place: dict[int, tuple[int, int]] = {}
        self.chunked: dict[int, ChunkedExchange] = {}
        self.now = 0
        self.summing, self.levels = self.tree.loop_nest.early_sum_levels, self.tree.loop_nest.levels
        self.first: list[int] = []
        self.last: list[int] = []
        self.made_in: list[int] = []
        self.until: dict[int, int] = {}
        self.ends: list[int] = []
        self.free_after_sum: list[int] = []
        self.buffer_of: dict[int, int] = {}
        self.early_sum = -1

    def run(self) -> LoweredProgram:
        """Emit one loop level after the other, and settle the lifetimes."""
        tree, loop_nest, summing = self.tree, self.tree.loop_nest, self.summing
        # Levels one after the other: 0 is done once, the last for every slice. `ends[level]` is the last
        # instruction of a level, until which what is read there later has to live.
        in_slices = loop_nest.level_of[tree.root] > 0
        result = -1
        for level in range(len(self.levels)):
            self._begin(level)
            for node in self._kept_roots(level):
                self._emit_subtree(node)
            # Zeroed right before the loops of the early sum, and added to at the end of their innermost
            # level.
            if loop_nest.waist is not None and level == summing.start - 1:
                self.early_sum = self._sum_of(loop_nest.waist)
                self._emit(Zero(self.early_sum))
            if loop_nest.waist is not None and level == summing.stop - 1:
                self._add(loop_nest.waist, self.early_sum)
            self.ends.append(self.now - 1)
            # The sum over slices is there from the first part on: nothing of a slice may overwrite it.
            if not level and in_slices:
                result = self._sum_of(tree.root)
        if in_slices:
            self._add(tree.root, result)
        else:
            result = self.buffer_of[tree.root]
        # Invariant: the result, and what a level leaves for later ones, lives to the end of its last reader's
        # level, since that level is replayed.
        self.ends[-1] = self.now
        self.until[result] = len(self.ends) - 1
        for buffer, level in self.until.items():
            self.last[buffer] = max(self.last[buffer], self.ends[level])
        lifetimes = (
            Lifetime(buffer.size_bytes, first, last)
            for buffer, first, last in zip(self.buffers, self.first, self.last, strict=True)
        )
        return LoweredProgram(
            buffers=tuple(self.buffers), lifetimes=tuple(lifetimes),
            segments=tuple(map(tuple, self.segments)), early_sum_levels=summing, in_place=self.in_place,
            steps=tuple(self.steps), chunked=self.chunked, result=result,
        )  # fmt: skip

    def _begin(self, level: int) -> None:
        """What is emitted from here on belongs to a loop level."""
        self.level = level
        self.target: list[Instruction] = []
        self.segments.append(self.target)
        if self.summing and level == self.summing.stop:
            for buffer in self.free_after_sum:
                self._free(buffer)
        if not level:
            for leaf, leaf_level in enumerate(self.tree.loop_nest.level_of[: self.tree.n_leaves]):
                # A sliced input is loaded whole once; each level takes its slice of it (`FixSlice`).
                if leaf_level:
                    self._load(leaf)

    def _sum_of(self, node: int) -> int:
        """A buffer in which results of a node are added up; that of the root has all open modes."""
        leading = self.tree.sliced_output if node == self.tree.root else ()
        return self._buffer((*leading, *self.orders[node]), self.placement.produced[node])

    def _add(self, node: int, target: int) -> None:
        """Add a node's result to a sum, which stands for the node from here on; a chain has added its own."""
        if self.buffer_of[node] == target:
            return
        source, self.buffer_of[node] = self.buffer_of[node], target
        is_part = node == self.tree.root and self.tree.sliced_output
        self._emit(AddSlice(source, target) if is_part else Accumulate(source, target))
        self._free(source)

    def _kept_roots(self, level: int) -> list[int]:
        """The nodes of a loop level that steps of later ones take, and the root of the tree in its own."""
        tree, level_of = self.tree, self.tree.loop_nest.level_of
        if level_of[tree.root] == level:
            return [tree.root]
        roots: list[int] = []
        for number, pair in enumerate(tree.children):
            if level_of[tree.n_leaves + number] > level:
                roots.extend(child for child in pair if level_of[child] == level)
        return roots

    def _emit_subtree(self, root: int) -> None:
        """Post-order, the operand that frees the most after its own peak first."""
        # Depth first without recursion: a node is pushed without its task, and again behind its operands with
        # it.
        order = self._walk_order(root)
        stack: list[Task] = [(root, None)]
        while stack:
            node, emit = stack.pop()
            if emit is not None:
                emit(node)
            elif self.tree.loop_nest.level_of[node] < self.level:
                continue
            elif node >= self.tree.n_leaves:
                stack.extend(reversed(self._tasks(node, order[node])))
            elif self.level:
                self._fix_slice(node)
            else:
                self._load(node)

    def _tasks(self, node: int, operands: list[int]) -> list[Task]:
        """What makes a node, in order. Between what is exchanged in chunks and the chains that it overlaps
        with nothing is made, so their branches are delivered before."""
        tasks: list[Task] = [(operand, None) for operand in operands]
        if node not in self.rows:
            return [*tasks, (node, self._contract)]
        last = len(tasks) - (operands[-1] in self.planned_chunks)
        return [*tasks[:last], (node, self._deliver_branches), *tasks[last:], (node, self._fuse)]

    def _operands(self, node: int) -> tuple[int, ...]:
        """What must be there before a node: its operands, or the stem and all branches of its row."""
        if node not in self.rows:
            return self.tree.children[node - self.tree.n_leaves]
        row = self.rows[node]
        return row[0].stem, *(other for chain in row for other in chain.others)

    def _walk_order(self, root: int) -> dict[int, list[int]]:
        """For every node under `root` its operands in the order to compute them (Sethi and Ullman's rule on
        bytes); what lies inside a chain is never stored, and what is exchanged in chunks comes last."""
        # Sethi and Ullman (1970), with bytes for registers: computing the operand first whose peak exceeds
        # what it leaves by most gives the least peak of the two orders.
        peak: dict[int, float] = {}
        left_bytes: dict[int, float] = {}
        order: dict[int, list[int]] = {}
        stack: list[tuple[int, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            size = self.space.shard_bytes(node, self.sharded.distribution.states[node])
            if node < self.tree.n_leaves or self.tree.loop_nest.level_of[node] < self.level:
                peak[node], left_bytes[node] = size, size
            elif not ready:
                stack.append((node, True))
                stack.extend((child, False) for child in self._operands(node))
            else:
                order[node] = sorted(
                    self._operands(node),
                    # An exchange in chunks runs beside the chains around it: between them nothing else may be
                    # made.
                    key=lambda child: (child in self.planned_chunks, left_bytes[child] - peak[child]),
                )
                before = most = 0.0
                for child in order[node]:
                    # While an operand is computed, the results of those before it wait.
                    most = max(most, before + peak[child])
                    before += left_bytes[child]
                peak[node], left_bytes[node] = max(most, before + size), size
        return order

    def _load(self, leaf: int) -> None:
        tree = self.tree
        layout = self.placement.produced[leaf]
        sliced, summed = tree.leaf_sliced[leaf], tree.leaf_summed[leaf]
        buffer = self._buffer((*sliced, *self.orders[leaf], *summed), layout)
        self._emit(Load(leaf, buffer))
        if summed:
            loaded, buffer = buffer, self._buffer((*sliced, *self.orders[leaf]), layout)
            self._emit(SumModes(loaded, buffer))
            self._free(loaded)
        self.buffer_of[leaf] = buffer

    def _fix_slice(self, leaf: int) -> None:
        if self.tree.leaf_sliced[leaf]:
            source = self.buffer_of[leaf]
            fixed = self._buffer(self.orders[leaf], self.placement.produced[leaf])
            self._emit(FixSlice(source, fixed))
            self.buffer_of[leaf] = fixed

    def _contract(self, node: int) -> None:
        step = self.sharded.step(node)
        number = self._annotate(node, None)
        operands = [self._deliver(child, node, number) for child in (step.left, step.right)]
        output = self._output(node)
        tile = self._tile(output) if step.permuted else None
        precision = gemm_precision(self.space, step, self.sharded.choice(node).layout)
        self._emit(Contract(operands[0], operands[1], output, tile, number, precision=precision))
        for buffer in (*operands, tile):
            if buffer is not None:
                self._free(buffer)
        self.buffer_of[node] = self._summed(node, output, number)

    def _summed(self, node: int, output: int, number: int) -> int:
        """The result of a step, summed over the ranks that hold terms of it."""
        partial = self.placement.partial[node]
        if not partial:
            return output
        source, output = output, self._buffer(self.orders[node], self.placement.produced[node])
        # Reduce-scatter: from every peer its term of this rank's shard.
        peers = prod(self.sharded.grid[digit].radix for digit in partial) - 1
        size_bytes = self.buffers[output].size_bytes
        self._exchange(ReduceScatter(source, output, None, number), peers * size_bytes, peers)
        return output

    def _output(self, node: int) -> int:
        """A buffer for the result of a step, as the step leaves it on its ranks."""
        layout = self.sharded.layout(node)
        if layout:
            layout = restrict_layout(layout, frozenset(self.tree.legs[node]))
        return self._buffer(self.orders[node], layout, self.placement.partial[node])

    def _deliver_branches(self, end: int) -> None:
        """What the chains of the row that ends at a node take besides stems, in their steps' layouts."""
        for chain in self.rows[end]:
            shares = zip(chain.nodes, chain.times_s, strict=True)
            numbers = tuple(self._annotate(node, (self.n_chains, time_s)) for node, time_s in shares)
            self.n_chains += 1
            taken = zip(chain.others, chain.nodes, numbers, strict=True)
            self.delivered[chain] = numbers, [self._deliver(*branch) for branch in taken]

    def _fuse(self, end: int) -> None:
        """The chains of the row that ends at a node."""
        for chain in self.rows[end]:
            numbers, others = self.delivered.pop(chain)
            operand = self._deliver(chain.stem, chain.nodes[0], numbers[0])
            last = chain.nodes[-1]
            adds = last == self.tree.loop_nest.waist
            output = self.early_sum if adds else self._output(last)
            operands = [operand, *others]
            branches = tuple(others[: len(chain.branches)])
            closing = None if chain.closing is None else others[-1]
            moved = self.fusion.in_place.get(last)
            chunks = 1
            # An operand that another level made is read again when this one is replayed: it must not be
            # overwritten.
            if moved is not None and moved.parts and self._is_replayed_with(operand):
                chunks = moved.parts
                self.in_place[output] = operand, chunks
            self._emit(Fused(operand, branches, output, numbers, chain.precision, adds, closing, chunks))
            # The operand's bytes are the result's from here on: there is nothing to free.
            if output in self.in_place:
                operands.pop(0)
            for buffer in operands:
                self._free(buffer)
            self.buffer_of[last] = self._summed(last, output, numbers[-1])

    def _annotate(self, node: int, fused: tuple[int, float] | None) -> int:
        """Append the annotation of a step; its number."""
        loop_nest = self.tree.loop_nest
        shared = (loop_nest.serves[self.level], loop_nest.repeats[self.level]) if self.level else None
        self.steps.append(annotate(self.sharded, node, shared, fused))
        return len(self.steps) - 1

    def _deliver(self, child: int, node: int, number: int) -> int:
        """The operand's buffer in the layout of its step, exchanged if it was produced in another."""
        source = self.buffer_of[child]
        have = self.buffers[source]
        needed = self.placement.needed[child]
        if have.layout == needed:
            return source
        exchange = self.sharded.exchange_before(node, child)
        assert exchange is not None
        chunked = self.planned_chunks.get(child)
        output = self._buffer(have.modes if chunked is None else chunked.out_modes, needed)
        if chunked is not None:
            self.chunked[output] = chunked
        peers = sum(int(count) for count in exchange.messages_by_tier)
        kind = Gather if not any(mode is not None for mode in needed) else Redistribute
        moving = kind(source, output, None, number, compressed=self.space.compressed(exchange))
        self._exchange(moving, ceil(exchange.received_bytes), peers)
        return output

    def _exchange(self, exchange: Redistribute | ReduceScatter, received_bytes: int, peers: int) -> None:
        if received_bytes:
            compressed = isinstance(exchange, Redistribute) and exchange.compressed
            least = compressing_bytes([peers]) if compressed else 2 * peers * self.space.model.item_bytes
            # Send and receive halves, at most the exchange buffer of the profile, at least one element a
            # peer.
            size = max(min(2 * received_bytes, self.space.model.profile.exchange_bytes), least)
            exchange = replace(exchange, workspace=self._workspace(size))
        chunked = self.chunked.get(exchange.out)
        if isinstance(exchange, Redistribute) and chunked is not None:
            exchange = replace(exchange, parts=chunked.chunks)
        self._emit(exchange)
        self._free(exchange.source)
        if exchange.workspace is not None:
            self._free(exchange.workspace)

    def _buffer(self, modes: tuple[int, ...], layout: Layout, partial: tuple[int, ...] = ()) -> int:
        size = largest_shard(modes, layout, self.extents, self.sharded.grid) * self.space.model.item_bytes
        return self._append(Buffer(modes, layout, 0, size, partial))

    def _tile(self, output: int) -> int:
        limit = max(self.space.model.profile.tile_bytes, self.space.model.item_bytes)
        return self._workspace(min(self.buffers[output].size_bytes, limit))

    def _workspace(self, size_bytes: int) -> int:
        return self._append(Buffer((), (None,) * len(self.sharded.grid), 0, size_bytes, workspace=True))

    def _append(self, buffer: Buffer) -> int:
        self.buffers.append(buffer)
        self.first.append(self.now)
        self.last.append(self.now)
        self.made_in.append(self.level)
        return len(self.buffers) - 1

    def _emit(self, instruction: Instruction) -> None:
        self.target.append(instruction)
        for buffer in reads(instruction):
            self._use(buffer)
        self.now += 1

    def _use(self, buffer: int) -> None:
        """It lives until now, or as long as this level is replayed without the one that makes it."""
        level, summing = self.made_in[buffer], self.summing
        if self._is_replayed_with(buffer):
            self.last[buffer] = self.now
            return
        self.until[buffer] = max(self.until.get(buffer, 0), last_level_needed(self.levels, level, self.level))
        if self.level in summing and level == summing.start - 1:
            self.free_after_sum.append(buffer)

    def _free(self, buffer: int) -> None:
        """Free what is made again with this level; what other levels make stays."""
        if self._is_replayed_with(buffer):
            self.last[buffer] = self.now
            self._emit(Free(buffer))

    def _is_replayed_with(self, buffer: int) -> bool:
        made_in = self.made_in[buffer]
        return made_in == self.level or self.levels[made_in] == self.levels[self.level]


def _rows(exchanges: ChunkedExchanges, fusion: Fusion) -> dict[int, Row]:
    """The chains by the last node of their row: those around one chunked exchange are one, others alone."""
    rows = [row for chunked in exchanges.by_node.values() for row in (chunked.before, chunked.after) if row]
    overlapped = {chain for row in rows for chain in row}
    alone = [(chain,) for chain in fusion.chains if chain not in overlapped]
    return {row[-1].nodes[-1]: row for row in (*rows, *alone)}
