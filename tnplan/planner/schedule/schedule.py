"""The annotated schedule: what the planner writes and the executor replays.

Flat and typed: buffers in one arena, instructions over buffers, never a tree. It holds everything except
tensor values. Knows nothing of how a device carries out an instruction.

Changelog of `tnplan.schedule`, each version of which refuses the older ones:
1 (2026-11-21): first version.
2 to 4 (2026-11-21): `fused`; `engine`; `precision`; exchanges in parts; `compression`; `encode`; `decode`.
5 (2026-11-23): `outer`; `serves` of a step; `sliced` is in the order of the loops.
6 (2026-11-23): `summed`; `inner` of a part; `zero`; `repeats` of a step.
7, 8 (2026-11-24): `adds` of `fused`; `before` and `after` of an exchange in parts are numbers of chains.
9 (2026-11-25): `closing` of `fused`.
10 (2026-11-25): `parts` of `fused`; its result may take its operand's place and be larger or smaller.
11 (2026-11-30): `algebra`; `algebras` and `watts` of the profile. Also `devices`, and
`recorded` of the profile, which may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, ClassVar

from tnplan.common.shown_text import html_table
from tnplan.common.units import count_text, size_text, time_text
from tnplan.planner.hardware.compression_options import Compression
from tnplan.planner.hardware.cost import FLOPS_PER_PRODUCT
from tnplan.planner.hardware.process_grid import Digit, Layout

FORMAT = "tnplan.schedule"
VERSION = 11
ENGINES = ("gemm", "cutensor")
STATES = ("local", "activate", "keep", "redistribute", "gather", "reduce")


@dataclass(frozen=True)
class TimeSplit:
    """Predicted seconds of a device by kind; `other_s` is loading, slicing, adding and compressing. Of
    `contract_s` fused chains take `chain_s`."""

    contract_s: float
    permute_s: float
    exchange_s: float
    other_s: float
    chain_s: float = 0.0

    def joules(self, watts: Mapping[str, float]) -> float:
        """What the device takes meanwhile, by the watts of its profile."""
        return (
            (self.contract_s - self.chain_s) * watts["contract"] + self.chain_s * watts["chain"]
            + self.exchange_s * watts["exchange"] + (self.permute_s + self.other_s) * watts["permute"]
        )  # fmt: skip


@dataclass(frozen=True)
class StepAnnotation:
    """The annotation of one pairwise contraction. Sizes are global, after slicing; bytes and times a rank.

    `state` is local, activate, keep, redistribute, gather or reduce (paper, section IV-B). `once` marks a
    step that no sliced index touches, done before the first slice; the result of another one `serves` so many
    slices in a row, for which it `repeats` so often, for values that an early sum runs over. Steps of one
    `Fused` have the same number `fused`, counted from 0 over the schedule, and share its time; for others it
    is None. `hidden_s` is what its exchanges take beside contractions, on top of `exchange_s`; `codec_s` what
    it takes to compress its result and to restore its operands, where these wait for a later step.
    """

    state: str
    a_modes: tuple[int, ...]
    b_modes: tuple[int, ...]
    c_modes: tuple[int, ...]
    layout: Layout
    batch: int
    m: int
    n: int
    k: int
    size_bytes: int
    moved_bytes: int
    moved_bytes_by_tier: tuple[int, ...]
    flops: float
    contract_s: float
    permute_s: float
    exchange_s: float
    once: bool = False
    serves: int = 1
    repeats: int = 1
    fused: int | None = None
    hidden_s: float = 0.0
    codec_s: float = 0.0

    @property
    def predicted_s(self) -> float:
        """Predicted seconds of the step, with what is waited for of its exchanges."""
        return self.contract_s + self.permute_s + self.exchange_s + self.codec_s

    @property
    def chain_s(self) -> float:
        """Its part of `contract_s` in a fused chain."""
        return 0.0 if self.fused is None else self.contract_s

    @property
    def often(self) -> float:
        """How often a slice carries out the step, in the mean of all; 0 where it is done once."""
        return 0.0 if self.once else self.repeats / self.serves


@dataclass(frozen=True)
class Prediction:
    """What the planner expects on one rank of the group. `flops` are real operations of one rank.

    A slice's are the mean of all slices: one that begins an outer part takes longer than the next.
    """

    once_s: float
    slice_s: float
    once_flops: float
    slice_flops: float
    once_moved_bytes: int
    slice_moved_bytes: float
    peak_bytes: int
    live_bytes: int


@dataclass(frozen=True)
class FusedAdjoint:
    """The gradients of a chain of `branches` on `operand` from `cotangent`, that of its result.

    Only schedules of gradients have it. The cotangent is stored as the result is. `gradients` are those of
    the branches and `out` that of the operand, with their modes in any order; None: not wanted. What lies
    between the steps is made again. All on this rank's shards alone: over a digit that spreads a mode of the
    chain, a gradient that lacks the mode is partial. `steps` are the numbers of the annotations, two a
    branch.
    """

    op: ClassVar[str] = "fused_adjoint"
    operand: int
    branches: tuple[int, ...]
    cotangent: int
    out: int | None
    gradients: tuple[int | None, ...]
    steps: tuple[int, ...]

    @property
    def made(self) -> tuple[int, ...]:
        """The buffers that it writes."""
        return tuple(buffer for buffer in (self.out, *self.gradients) if buffer is not None)


@dataclass(frozen=True)
class Mode:
    """A mode of prime extent, or a whole sliced index. `index` is the network's index that it is part of."""

    index: str
    extent: int


@dataclass(frozen=True)
class Buffer:
    """A piece of every rank's arena: at `offset_bytes`, `size_bytes` long (that of the largest shard).

    A tensor's shard is stored row-major with `modes` from slowest to fastest; `layout` names the mode that
    each digit of the grid spreads (see `hardware.process_grid`). Over the digits in `partial` the shards
    are terms still to be summed. A workspace, or a compressed tensor, has no modes and `workspace` true.
    """

    modes: tuple[int, ...]
    layout: Layout
    offset_bytes: int
    size_bytes: int
    partial: tuple[int, ...] = ()
    workspace: bool = False


@dataclass(frozen=True)
class Load:
    """Write this rank's shard of input `tensor` to `out`, repeated indices taken on their diagonal.

    The modes of `out` are first the sliced modes of the tensor, whole, then the others.
    """

    op: ClassVar[str] = "load"
    tensor: int
    out: int


@dataclass(frozen=True)
class FixSlice:
    """Copy from `source` to `out` the block in which the leading sliced modes have the loops' values."""

    op: ClassVar[str] = "fix_slice"
    source: int
    out: int


@dataclass(frozen=True)
class AddSlice:
    """Add `source` to the block of `out` in which the leading sliced modes have the loops' values: to the
    result, where open modes are sliced, or to a gradient."""

    op: ClassVar[str] = "add_slice"
    source: int
    out: int


@dataclass(frozen=True)
class SumModes:
    """Sum `source` over its modes that `out` lacks; the rest keep their order."""

    op: ClassVar[str] = "sum_modes"
    source: int
    out: int


@dataclass(frozen=True)
class Contract:
    """`c` = sum over the reduced modes of `a` times `b`, on this rank's shards alone.

    `a` is stored as [batch | m | k] or [batch | k | m] and `b` as [batch | n | k] or [batch | k | n], with
    equal orders of the batch modes and of the k modes; `c` holds batch, m and n modes in any order.
    `workspace` is the tile in which a product is formed before it is written in the order of `c`; None where
    it can be written directly. `step` is the number of the annotation. `precision` says how values are
    multiplied (fp32, tf32, fp16x3, fp64), at least; `engine` which library of a GPU does it: `gemm`, a matrix
    product, or `cutensor`, a tensor one, for operands with k last.
    """

    op: ClassVar[str] = "contract"
    a: int
    b: int
    c: int
    workspace: int | None
    step: int
    engine: str = "gemm"
    precision: str = "fp32"


@dataclass(frozen=True)
class Fused:
    """`out` = `operand` contracted with each of `branches` in turn, on this rank's shards alone.

    A mode that a branch shares with what the chain holds by then is summed; its others join. `out` holds its
    modes in any order; results in between are never stored. No mode is shared by all three tensors of a step,
    and nothing is partial. `out` may begin where `operand` did, which is then gone, if what is summed has
    left its places to what is brought, and what there is more is in front. With `parts` above 1 the first
    modes of both, whole on every rank, cut them into equal parts, done in turn, the last one first if `out`
    is behind `operand`: so it may lie beside what is still to be read. With `adds` it adds to `out`, an early
    sum. With `closing`, which holds the modes that the chain leaves, spread alike, in any order, `out` is the
    sum of the products of their elements, partial over all digits that spread them. `steps` are the numbers
    of the annotations, one a branch and one for `closing`; `precision` as in Contract.
    """

    op: ClassVar[str] = "fused"
    operand: int
    branches: tuple[int, ...]
    out: int
    steps: tuple[int, ...]
    precision: str = "fp32"
    adds: bool = False
    closing: int | None = None
    parts: int = 1


@dataclass(frozen=True)
class Redistribute:
    """Give every rank its shard of `out` from the shards of `source`: the same modes in another layout.

    Where `source` is replicated a rank takes its part from its own copy, so that nothing moves. `workspace`
    bounds the send and receive buffers together; None where nothing moves.

    With `parts` above 1 the first modes of both, whole on every rank, cut it into so many equal parts. One
    may be exchanged beside the `before` chains right before, the first of which the parts go through in turn
    to `source`, and the `after` chains right after, which take those of `out` on: from the first part to the
    last, or `falling`. Nothing but `Free` stands between them. What passes between ranks of the `compressed`
    tiers is compressed as the schedule says.
    """

    op: ClassVar[str] = "redistribute"
    source: int
    out: int
    workspace: int | None
    step: int
    parts: int = 1
    before: int = 0
    after: int = 0
    falling: bool = False
    compressed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Gather(Redistribute):
    """A `Redistribute` to an `out` that every rank holds whole."""

    op: ClassVar[str] = "gather"


@dataclass(frozen=True)
class ReduceScatter:
    """Sum `source` over its partial digits, in the order of their values, into the layout of `out`."""

    op: ClassVar[str] = "reduce_scatter"
    source: int
    out: int
    workspace: int | None
    step: int


@dataclass(frozen=True)
class Encode:
    """Compress tensor `source`, which step `step` made, into the bytes of `out`, as the schedule says."""

    op: ClassVar[str] = "encode"
    source: int
    out: int
    step: int


@dataclass(frozen=True)
class Decode:
    """Restore into `out`, for step `step`, the tensor that `source` holds compressed."""

    op: ClassVar[str] = "decode"
    source: int
    out: int
    step: int


@dataclass(frozen=True)
class Zero:
    """Fill `out` with zeros: an early sum begins."""

    op: ClassVar[str] = "zero"
    out: int


@dataclass(frozen=True)
class Accumulate:
    """Add `source` to `out`: to an early sum, or to the result, which is zero before the first slice."""

    op: ClassVar[str] = "accumulate"
    source: int
    out: int


@dataclass(frozen=True)
class Free:
    """The buffer is not read again; its bytes may be reused."""

    op: ClassVar[str] = "free"
    buffer: int


Instruction = (
    Load | FixSlice | AddSlice | SumModes | Contract | Fused | FusedAdjoint | Redistribute | Gather
    | ReduceScatter | Encode | Decode | Zero | Accumulate | Free
)  # fmt: skip
KINDS = (
    Load, FixSlice, AddSlice, SumModes, Contract, Fused, Redistribute, Gather, ReduceScatter, Encode, Decode,
    Zero, Accumulate, Free,
)  # fmt: skip
OPCODES: dict[str, type] = {kind.op: kind for kind in KINDS}


@dataclass(frozen=True)
class LoopLevel:
    """Instructions whose results serve all slices that have the same values of the first `depth` sliced
    indices: they are replayed before the body wherever one of these values changes.

    Parts that are inside the loops of the first `inner` summed indices too stand in a row, deeper ones later.
    It is gone through for all their values; what its parts make for each other is gone after it.
    """

    depth: int
    instructions: tuple[Instruction, ...]
    inner: int = 0


@dataclass(frozen=True, repr=False)
class Schedule:
    """The whole schedule of one group of `ranks_per_group` ranks; `tnplan.plan` makes it.

    `indices` maps every network index to its modes, from major to minor (an index of extent 1 has none; a
    sliced one has one, its own). `leaves[i]` lists the indices of input tensor i. `once` is replayed before
    the first slice and `body` for every slice; `body` ends by accumulating into buffer `result`, whose modes
    in order make up the axes of `output`. Without sliced indices all work is in `once`, which leaves the
    result in that buffer, and `body` is empty. Between the two stand the parts that several slices share,
    `outer`, their depths rising. A buffer that a part makes and a later one reads holds its tensor until the
    part is replayed. The indices in `summed` are no slices' but summed within one, outermost loop first: a
    row of parts inside their loops adds to a tensor that the part before makes zero, and that parts of the
    same depth or more read afterwards. `compression` says with which bounds tensors are compressed, where
    they are.

    Parameters
    ----------
    path_identity, name, policy, dtype, precision, profile, ranks_per_group, memory_bytes, threshold_bytes
        What was planned, and for what.
    grid : tuple of Digit
        The process grid: the digits of a rank's number, the slowest tier first.
    size_dict, leaves, output, sliced, tensors
        The network, its sliced indices in the order of the loops, and the file of its tensors.
    modes, indices, buffers
        Modes of prime extent, the modes of every index, and the pieces of the arena.
    once, body, outer, result
        Instructions, and the buffer of the result.
    steps : tuple of StepAnnotation
        Every pairwise contraction: sizes, states, distributed modes and predicted times.
    predicted : Prediction
        What is expected on one rank.
    compression, summed
        Bounds of what is compressed, and indices that are summed within a slice.
    algebra : str, optional
        What adds and multiplies instead of numbers: the name of an algebra with that dtype.
    devices : int, optional
        For how many devices it was planned; any multiple of a group carries it out.
    identity : str
        The SHA-256 of all else but the devices.

    Examples
    --------
    >>> matrices = tnplan.Network((("a", "b"), ("b", "c")), ("a", "c"), {"a": 4, "b": 8, "c": 2})
    >>> tnplan.plan(tnplan.ContractionPath(matrices, ((0, 1),))).predicted.peak_bytes
    768
    """

    path_identity: str
    name: str
    policy: str
    dtype: str
    precision: str
    profile: dict[str, Any]
    ranks_per_group: int
    grid: tuple[Digit, ...]
    memory_bytes: int | None
    threshold_bytes: int
    size_dict: dict[str, int]
    leaves: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    sliced: tuple[str, ...]
    tensors: str | None
    modes: tuple[Mode, ...]
    indices: dict[str, tuple[int, ...]]
    buffers: tuple[Buffer, ...]
    once: tuple[Instruction, ...]
    body: tuple[Instruction, ...]
    steps: tuple[StepAnnotation, ...]
    result: int
    predicted: Prediction
    compression: Compression | None = None
    outer: tuple[LoopLevel, ...] = ()
    summed: tuple[str, ...] = ()
    algebra: str | None = None
    devices: int | None = field(default=None, compare=False)
    identity: str = ""

    def __repr__(self) -> str:
        return f"Schedule({self.name or 'unnamed'}: {', '.join(self._facts.values())})"

    def _repr_html_(self) -> str:
        return html_table(f"Schedule {self.name or 'unnamed'}", self._facts.items())

    @property
    def _facts(self) -> dict[str, str]:
        return {
            "network": f"{count_text(len(self.leaves), 'tensor', 'tensors')}, {self.values_text}",
            "ranks": f"{count_text(self.ranks_per_group, 'rank', 'ranks')} of {self.profile['name']}",
            "slices": count_text(self.n_slices, "slice", "slices"),
            "time": f"{time_text(self.projected_s(1))} predicted",
            "memory": f"peak {size_text(self.predicted.peak_bytes)}",
        }

    @property
    def values_text(self) -> str:
        """The dtype of its values, and the algebra that they are of."""
        return self.dtype if self.algebra is None else f"{self.algebra} in {self.dtype}"

    @property
    def parts(self) -> tuple[LoopLevel, ...]:
        """All instructions by part: `once` with depth 0, the outer ones, and the body where there is one."""
        body = (LoopLevel(len(self.sliced), self.body),) if self.body else ()
        return (LoopLevel(0, self.once), *self.outer, *body)

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions of all parts."""
        return tuple(item for level in self.parts for item in level.instructions)

    @property
    def most_shared(self) -> int:
        """Slices in a row, from the first, after which every part that is replayed begins anew."""
        return self.serves(self.outer[0].depth) if self.outer else 1

    def repeats(self, inner: int) -> int:
        """How many values the first `inner` summed indices have together."""
        return prod(self.size_dict[index] for index in self.summed[:inner])

    def serves(self, depth: int) -> int:
        """How many slices in a row have the same values of the first `depth` sliced indices."""
        return prod(self.size_dict[index] for index in self.sliced[depth:])

    @cached_property
    def extents(self) -> dict[int, int]:
        """The extent of every mode, by its number."""
        return {number: mode.extent for number, mode in enumerate(self.modes)}

    @property
    def compressed_counts(self) -> tuple[int, int]:
        """How many exchanges are compressed, and how many tensors wait compressed."""
        items = self.instructions
        exchanges = sum(isinstance(item, Redistribute | Gather) and bool(item.compressed) for item in items)
        return exchanges, sum(isinstance(item, Encode) for item in items)

    @property
    def n_slices(self) -> int:
        """The number of slices."""
        return prod(self.size_dict[index] for index in self.sliced)

    @property
    def operations(self) -> float:
        """The real operations of the whole contraction, of all ranks and slices; one group is counted."""
        products = 0.0
        for step in self.steps:
            runs = 1.0 if step.once else self.n_slices * step.often
            products += runs * (step.batch * step.m * step.n * step.k)
        return products * FLOPS_PER_PRODUCT[self.dtype]

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of the gathered result."""
        return tuple(self.size_dict[index] for index in self.output)

    @property
    def sliced_output(self) -> tuple[str, ...]:
        """The open indices that are sliced, in their order; the result's modes begin with theirs."""
        return tuple(index for index in self.output if index in self.sliced)

    def slice_values(self, number: int) -> dict[str, int]:
        """The value of each sliced index in slice `number`; the last index runs fastest."""
        return self._values(self.sliced, number)

    def summed_values(self, number: int) -> dict[str, int]:
        """The value of each summed index in round `number` of their loops; the last index runs fastest."""
        return self._values(self.summed, number)

    def _values(self, indices: Sequence[str], number: int) -> dict[str, int]:
        values = {}
        for index in reversed(indices):
            number, values[index] = divmod(number, self.size_dict[index])
        return values

    def projected_s(self, n_groups: int) -> float:
        """Predicted seconds of all slices on `n_groups` groups, each with an even run of them."""
        most = -(-self.n_slices // n_groups)
        even = self.n_slices % n_groups == 0
        seconds = 0.0
        for serves, part_s in self.seconds_by_serves().items():
            whole = even and (most % serves == 0 or serves % most == 0)
            seconds += part_s * (-(-most // serves) if whole else (most - 2) // serves + 2)
        return self.predicted.once_s + seconds

    def time_split(self, n_groups: int) -> TimeSplit:
        """Where the predicted time of all slices goes, on `n_groups` groups."""
        rounds = -(-self.n_slices // n_groups)
        contract_s, permute_s, exchange_s, chain_s = (
            sum(getattr(step, name) * (1 if step.once else rounds * step.often) for step in self.steps)
            for name in ("contract_s", "permute_s", "exchange_s", "chain_s")
        )
        other_s = max(self.projected_s(n_groups) - contract_s - permute_s - exchange_s, 0.0)
        return TimeSplit(contract_s, permute_s, exchange_s, other_s, chain_s)

    def projected_j(self, n_groups: int, devices: int) -> float | None:
        """Predicted joules of `devices` devices of which `n_groups` groups work; None without watts.

        Those beyond the groups idle meanwhile. Hosts, networks and cooling are not counted.
        """
        watts = self.profile.get("watts")
        if not watts:
            return None
        working = n_groups * self.ranks_per_group
        idle_j = (devices - working) * self.projected_s(n_groups) * watts["idle"]
        return working * self.time_split(n_groups).joules(watts) + idle_j

    def seconds_by_serves(self) -> dict[int, float]:
        """Predicted seconds of the steps by how many slices in a row they serve, without those of `once`."""
        seconds: dict[int, float] = {}
        for step in self.steps:
            if not step.once:
                seconds[step.serves] = seconds.get(step.serves, 0.0) + step.predicted_s * step.repeats
        return seconds


def with_parts(schedule: Schedule, parts: Sequence[Sequence[Instruction]]) -> Schedule:
    """The schedule with other instructions in its parts, as many as `Schedule.parts` has."""
    once, *others = map(tuple, parts)
    body = others.pop() if schedule.body else ()
    outer = tuple(replace(level, instructions=new) for level, new in zip(schedule.outer, others, strict=True))
    return replace(schedule, once=once, outer=outer, body=body)


@dataclass(frozen=True)
class TensorGradient:
    """The gradient of input `tensor`, in `buffer` at the end. It is constant along modes of the tensor that
    the buffer lacks: no other tensor and not the output has them."""

    tensor: int
    buffer: int


@dataclass(frozen=True, repr=False)
class GradientSchedule(Schedule):
    """A contraction and the gradients of its inputs; the pass `reverse` makes it.

    The last of `leaves` is the cotangent of the result: it has the indices of `output`. `after` mirrors
    `outer` and `once`: the first stands for the deepest of them, the last for `once`. A part of it is
    replayed after the body wherever the one that it stands for has served its last slice. It takes up the
    sums that slices have added to since that one was replayed. It has no file.

    - `after`: The parts after the body, their depths falling to 0; none where no index is sliced.
    - `gradients`: Where the gradients are at the end, in the order in which they were asked for.

    Examples
    --------
    >>> from tnplan.planner.passes.reverse import reverse
    >>> matrices = tnplan.Network((("a", "b"), ("b", "c")), ("a", "c"), {"a": 4, "b": 8, "c": 2})
    >>> schedule = reverse(tnplan.plan(tnplan.ContractionPath(matrices, ((0, 1),))), [0])
    >>> schedule.leaves[-1], [gradient.tensor for gradient in schedule.gradients]
    (('a', 'c'), [0])
    """

    after: tuple[LoopLevel, ...] = ()
    gradients: tuple[TensorGradient, ...] = ()

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions of all parts."""
        return (*super().instructions, *(item for level in self.after for item in level.instructions))

    @property
    def cotangent(self) -> int:
        """The number of the input that is the cotangent of the result."""
        return len(self.leaves) - 1
