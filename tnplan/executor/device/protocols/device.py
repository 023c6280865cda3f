"""The interface of a device, as replay uses it. Knows boxes, strides, flat buffers; not schedules or ranks.

A device owns one arena of bytes. Everything else is a flat typed view of it, made once. Heavy work is bound
once to its views and shapes and becomes a callable without arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from tnplan.executor.device.protocols.copy import Copy, row_major
from tnplan.executor.device.protocols.copy import View as View

if TYPE_CHECKING:
    from tnplan.executor.device.protocols.codec import Codec


# The backward pass through a fused chain, as gradients use it: the part of the interface of a device.


@dataclass(frozen=True)
class AdjointShape:
    """The backward pass through a chain: from the cotangent of its result, stored as that is, to those of its
    branches and of its operand.

    `gradients` has the modes of each branch's, and `back` those of the operand's, as they are stored, (mode,
    extent) each; None for what is not wanted.

    Examples
    --------
    >>> from tnplan.executor.device.protocols.device import FusedShape
    >>> chain = FusedShape(((0, 4), (1, 2)), (((2, 2), (1, 2)),), ((0, 4), (2, 2)))
    >>> shape = AdjointShape(chain, (((1, 2), (2, 2)),), None)  # the branch's gradient alone, transposed
    """

    chain: FusedShape
    gradients: tuple[tuple[tuple[int, int], ...] | None, ...]
    back: tuple[tuple[int, int], ...] | None


class AdjointDevice(Protocol):
    """What a `Device` does in the backward pass through chains."""

    def bind_adjoint(
        self, shape: AdjointShape, operand: View, branches: Sequence[View], cotangent: View,
        outputs: Sequence[View | None], capacity_bytes: int,
    ) -> Call:  # fmt: skip
        """Bind the backward pass through a chain.

        - `shape`: The chain, and the modes of all gradients as they are stored.
        - `operand`, `branches`, `cotangent`: Flat views of one dtype: what the chain reads, and the cotangent
          of its result.
        - `outputs`: The gradients of the branches and, last, of the operand; None where the shape has none.
        - `capacity_bytes`: As in `bind_fused`.
        - raises ValueError: where `tnplan.planner.hardware.fusion_tile` finds no tile.
        """

    def prepare_adjoints(self, shapes: Iterable[AdjointShape], dtype: str, capacity_bytes: int) -> None:
        """Compile what `bind_adjoint` will need, all at once.

        - `shapes`: Those of all backward passes.
        - `dtype`: That of their values.
        - `capacity_bytes`: As in `bind_fused`.
        """


# Inputs whose values change between runs: what a device gives for them. Knows no device.


class InputBlock(Protocol):
    """Flat views of a device for the inputs of a program, outside its arena.

    - `views`: Row-major values of one dtype, as many as each input has.
    """

    views: list[Any]

    def set(self, number: int, values: Any) -> None:
        """Give an input new values.

        - `number`: The input.
        - `values`: Of the input's shape, on the host or on this device, with any strides; converted to the
          dtype. Or the address of contiguous values of the dtype on this device, which are read with `send`.
        """

    def send(self) -> None:
        """Have what was set on the device for the work that is given to it next."""


Call = Callable[[], None]
Mark = Any
"""A point in a device's work, made by `Device.marks`."""


@dataclass(frozen=True)
class ContractShape:
    """One local contraction: a as [batch | m | k], b as [batch | n | k], both row-major and contiguous.

    `batch`, `m` and `n` hold (extent, stride in c) of each mode, in elements; `k` is the contracted extent.
    An operand in `k_first`, which is "", "a", "b" or "ab", is stored as [batch | k | m] or [batch | k | n].

    Examples
    --------
    >>> shape = ContractShape((), ((2, 1),), ((3, 2),), 5)  # c is stored as [n | m]
    >>> shape.sizes, shape.direct
    ((1, 2, 3, 5), 'nm')
    """

    batch: tuple[tuple[int, int], ...]
    m: tuple[tuple[int, int], ...]
    n: tuple[tuple[int, int], ...]
    k: int
    k_first: str = ""

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The extents of batch, m, n and k."""
        b, m, n = (prod(extent for extent, _ in modes) for modes in (self.batch, self.m, self.n))
        return b, m, n, self.k

    @property
    def direct(self) -> str | None:
        """'mn' or 'nm' where c is stored exactly as [batch | m | n] or [batch | n | m], else None."""
        for name, parts in (("mn", self.batch + self.m + self.n), ("nm", self.batch + self.n + self.m)):
            modes = [mode for mode in parts if mode[0] != 1]
            if tuple(stride for _, stride in modes) == row_major([extent for extent, _ in modes]):
                return name
        return None


@dataclass(frozen=True)
class RowShape:
    """Products of pairs of rows of two tensors: a as [row | batch | m | k], b as [row | batch | n | k].

    `each` is the product of one pair, without `k_first`; `count` pairs have their results `row_stride`
    elements apart in c.

    Examples
    --------
    >>> shape = RowShape(ContractShape((), ((2, 3),), ((3, 1),), 5), 10, 6)  # c is stored as [row | m | n]
    >>> shape.plain_order
    'mn'
    """

    each: ContractShape
    count: int
    row_stride: int

    @property
    def plain_order(self) -> str | None:
        """'mn' or 'nm' where c is stored exactly as [row | batch | m | n] or [row | batch | n | m]."""
        each = self.each
        return replace(each, batch=((self.count, self.row_stride), *each.batch)).direct


@dataclass(frozen=True)
class FusedShape:
    """A chain: `operand` contracted with each of `branches` in turn, done in one pass over the large tensors.

    Each tensor lists (mode, extent) as it is stored, row-major and contiguous; mode numbers are labels. A
    mode that a branch shares with the chain's tensor at that step is summed; its others join. A chain that
    `adds` adds to `out`; one that `closes` reads it, and only sums up the products with it; others write it.

    Examples
    --------
    >>> chain = FusedShape(((0, 4), (1, 2)), (((2, 2), (1, 2)),), ((0, 4), (2, 2)))  # mode 1 becomes mode 2
    """

    operand: tuple[tuple[int, int], ...]
    branches: tuple[tuple[tuple[int, int], ...], ...]
    out: tuple[tuple[int, int], ...]
    adds: bool = False
    closes: bool = False


def nothing() -> None:
    """The call of work that has no elements."""


def call_in_turn(calls: Sequence[Call]) -> Call:
    """One call that makes all calls in order."""
    if len(calls) < 2:
        return calls[0] if calls else nothing

    def run() -> None:
        for call in calls:
            call()

    return run


class Device(AdjointDevice, Protocol):
    """What replay needs of a device.

    Work is done in the order of its calls. A call may return before its work is done; `synchronize`, and what
    hands values to the host, waits. Views are flat; counts, extents and strides are in elements, sizes and
    offsets whose name ends in `_bytes` in bytes.

    Examples
    --------
    >>> import numpy as np
    >>> from tnplan.executor.device.cpu.device import NumpyDevice
    >>> device = NumpyDevice()
    >>> device.allocate(64)
    >>> a, b = device.view(0, 4, "float32"), device.view(16, 4, "float32")
    >>> device.from_host(a, np.arange(4, dtype="float32"))
    >>> device.zero(b)
    >>> _ = device.bind_accumulate(b, a)()
    >>> device.to_host(b).tolist()
    [0.0, 1.0, 2.0, 3.0]
    """

    name: str
    """'cpu' or 'gpu'."""
    runs_calls_together: bool
    """Whether `recorded` lets calls run at the same time."""
    peak_bytes: int
    """The most bytes that the device layer held for tensor data at once."""

    def allocate(self, size_bytes: int) -> None:
        """Allocate the arena, once.

        - `size_bytes`: Bytes of the arena, 0 or more.
        - raises InputError: where the device has too little free memory.
        """

    def view(self, offset_bytes: int, count: int, dtype: str) -> View:
        """A flat view of the arena.

        - `offset_bytes`: Where it begins in the arena.
        - `count`: Its elements.
        - `dtype`: 'float32', 'float64', 'complex64', 'complex128' or 'uint8'.
        - returns: Shape (count,); it stays valid while the device does.
        """

    def current(self) -> AbstractContextManager[Any]:
        """The context in which any thread may give this device work."""

    def leave(self) -> None:
        """End what making this device changed for the thread that made it: from now on work is given to it
        inside `current()`."""

    def input_block(self, counts: Sequence[int], dtype: str) -> InputBlock:
        """Allocate memory outside the arena for inputs whose values change between runs.

        - `counts`: The elements of each input.
        - `dtype`: Of all of them.
        - raises InputError: where the device has too little free memory.
        """

    def recorded(self, calls: Sequence[Call], waits: Sequence[Sequence[int]] | None = None) -> Call:
        """Record calls in their order, so that making them again costs the host as little as possible.

        - `calls`: Each has been made once. What it reads from the host is read now, for the last time.
        - `waits`: For each call the numbers of the earlier ones that must be over before it begins; others
          may be made at the same time. None: each waits for the one before.
        - returns: Does the same work on the same views.
        """

    def bind_copy(
        self, target: View, source: View, copy: Copy, target_start: int = 0, source_start: int = 0,
        rows: tuple[int, int] | None = None, add: bool = False,
    ) -> Call:  # fmt: skip
        """Bind a permuting copy of a box.

        - `target`, `source`: Flat views of one dtype.
        - `copy`: The box: extents, and strides in both views.
        - `target_start`, `source_start`: The elements at which the box begins in the views.
        - `rows`: First and last + 1 of the rows of `copy.lead` that are copied; None: all.
        - `add`: Whether the box is added to the target.
        - returns: Copies whenever it is called.
        """

    def bind_load(self, target: View, array: NDArray[Any] | None, copy: Copy, source_start: int) -> Call:
        """Bind the copy of a box of a host array to the device.

        - `target`: A flat view, which the box fills.
        - `array`: Flat, of the target's dtype: on the host, or a view of an input block. None only for a
          device that holds no values.
        - `copy`: The box.
        - `source_start`: The element of the array at which it begins.
        - raises ValueError: where there is no array, or one of another dtype.
        """

    def bind_block(self, target: View, source: View, start: Callable[[], int]) -> Call:
        """Bind the copy of a contiguous block.

        - `target`: A flat view, which the block fills.
        - `source`: A flat view of the same dtype.
        - `start`: Gives, whenever the call is made, the element of the source at which the block begins.
        """

    def bind_add_block(self, target: View, source: View, start: Callable[[], int]) -> Call:
        """Bind the sum of a contiguous block and a view, written to the block.

        - `target`: A flat view with the block.
        - `source`: A flat view of the same dtype, as long as the block.
        - `start`: Gives, whenever the call is made, the element of the target at which the block begins.
        """

    def bind_sum(
        self, target: View, source: View, extents: tuple[int, ...], in_target: tuple[bool, ...]
    ) -> Call:
        """Bind a sum over axes, always in the same order.

        - `target`: Row-major over the axes that are kept.
        - `source`: Row-major of shape `extents`.
        - `extents`: The extent of each axis of the source.
        - `in_target`: For each axis whether the target has it.
        """

    def bind_contract(
        self, shape: ContractShape, a: View, b: View, c: View, workspace: View | None,
        precision: str = "fp32", engine: str = "gemm",
    ) -> Call:  # fmt: skip
        """Bind a contraction: c = the sum over k of a times b.

        - `shape`: Extents, and where the modes lie in c.
        - `a`, `b`, `c`: Flat views of one dtype, stored as `shape` says.
        - `workspace`: Holds a tile of the product where c has another order.
        - `precision`: Values are multiplied at least that precisely: 'fp32', 'tf32', 'fp16x3' or 'fp64',
          which is taken for every type of 64 bits a real number.
        - `engine`: 'gemm' or 'cutensor'; a CPU has the first alone.
        - raises ValueError: where a workspace is needed and missing, or the type does not have the precision.
        """

    def prepare_contract(self, products: Iterable[tuple[ContractShape, str, str]], dtype: str) -> None:
        """Take the memory that `bind_contract` will need for all products, which run one after the other.

        - `products`: Shape, precision and engine of each.
        - `dtype`: That of their values.
        - raises InputError: where the device has too little free memory.
        """

    def bind_together(self, binds: Sequence[Callable[[], Call]]) -> list[Call]:
        """The calls that these bind on this device; what they need is compiled at once.

        - `binds`: Each may be called several times.
        - returns: In their order.
        """

    def bind_fused(
        self, shape: FusedShape, operand: View, branches: Sequence[View], out: View, capacity_bytes: int,
        precision: str = "fp32", closing: View | None = None,
    ) -> Call:  # fmt: skip
        """Bind a chain: out = the operand contracted with every branch in turn.

        - `shape`: The modes of all tensors as they are stored.
        - `operand`, `branches`, `out`: Flat views of one dtype.
        - `capacity_bytes`: Bytes of a tile of the operand at most.
        - `precision`: As in `bind_contract`.
        - `closing`: With it, the sum of the products with this tensor, formed in double precision, is added
          to the number `out`.
        - raises ValueError: where `tnplan.planner.hardware.fusion_tile` finds no tile.
        """

    def prepare_fused(
        self, chains: Iterable[tuple[FusedShape, str]], dtype: str, capacity_bytes: int
    ) -> None:
        """Compile what `bind_fused` will need, all at once.

        - `chains`: Shape and precision of each.
        - `dtype`: That of their values.
        - `capacity_bytes`: As in `bind_fused`.
        """

    def bind_accumulate(self, target: View, source: View) -> Call:
        """Bind the sum target += source, of flat views of one dtype and length."""

    def exponents(self, count: int, dtype: str) -> Exponents:
        """Slots for exponents of two, and what scales tensors by them.

        - `count`: How many slots.
        - `dtype`: Of the tensors.
        """

    def codec(self) -> Codec:
        """What compresses and restores views of this device."""

    def zero(self, target: View) -> None:
        """Fill a view with zeros."""

    def to_host(self, source: View) -> NDArray[Any]:
        """The contents of a view; waits for the work before.

        - returns: Flat, of the view's dtype; on a CPU the view itself.
        """

    def to_hosts(self, sources: Sequence[View]) -> list[NDArray[Any]]:
        """What `to_host` gives of each, with one wait for all that are small."""

    def from_host(self, target: View, array: NDArray[Any]) -> None:
        """Set the contents of a view from a flat host array of its length."""

    def synchronize(self) -> None:
        """Wait until all work is done; raises RuntimeError where work of the device has failed."""

    def marks(self, count: int) -> Sequence[Mark]:
        """New points in time, which can be set as often as wanted.

        - `count`: How many.
        """

    def mark(self, point: Mark) -> None:
        """Set a point to the time at which the work given so far is done."""

    def elapsed_s(self, first: Mark, second: Mark) -> float:
        """The seconds from one point to another; to be called after `synchronize`."""

    def named(self, name: str, call: Call) -> Call:
        """The call under a name that profilers show, where the device has one to show it."""

    def memory(self) -> tuple[int, int]:
        """The bytes of memory that the device has for a rank, and those that are free."""

    def facts(self) -> dict[str, Any]:
        """What result.json says of the device: kind, name, versions of its libraries."""


class RowDevice(Device, Protocol):
    """A device for the steps of many bit strings at once, whose tensors have rows."""

    def bind_rows(
        self, shape: RowShape, pairs: NDArray[Any], a: View, b: View, c: View, workspace: View | None,
        precision: str = "fp32",
    ) -> Call:  # fmt: skip
        """Bind products of pairs of rows.

        - `shape`: Of the product of a pair, and where rows lie in c.
        - `pairs`: The rows of a and b that make each row of c, int32 [row, 2].
        - `a`, `b`, `c`: Flat views of one dtype, stored as `shape` says.
        - `workspace`: Holds the product of one pair at least.
        - `precision`: As in `bind_contract`.
        - returns: Forms all rows of c whenever it is called, each in one order of its sums.
        """


# Exponents of two on a device: what it gives to keep tensors within the range of their type.
#
# Knows flat views and slots; not what a tensor stands for. Nothing here makes the host wait but `total` of
# `bind_total`.


ZERO = -0x7F7F7F80
"""The exponent of a tensor of zeros. All its bytes are equal, and no sum with it comes above half of it."""
ZERO_BYTE = 0x80


class Exponents(Protocol):
    """Slots with an integer each, all ZERO at first, and calls that scale tensors and write how much there.

    Tensors stand for their values times 2 to the sum of some slots. Scaling by a power of two rounds nothing
    but what leaves the range at its lower end. A tensor with values that are not finite stays as it is. Calls
    are made one after the other, and while this object lives.

    Examples
    --------
    >>> import numpy as np
    >>> from tnplan.executor.device.cpu.device import NumpyDevice
    >>> device = NumpyDevice()
    >>> device.allocate(16)
    >>> values = device.view(0, 2, "float64")
    >>> device.from_host(values, np.array([3.0, -6.0]))
    >>> exponents = device.exponents(1, "float64")
    >>> exponents.bind_normalize([values], [0])()
    >>> send, total = exponents.bind_total([0])
    >>> send()
    >>> device.to_host(values).tolist(), total()
    ([0.375, -0.75], 3)
    """

    def bind_normalize(self, views: Sequence[View], slots: Sequence[int], tolerated_bits: int = 0) -> Call:
        """Bind the scaling of tensors until their largest part, of real and imaginary ones, is from 0.5 to 1.

        - `views`: Flat views, each with its own slot.
        - `slots`: Get p where the values were multiplied by 2^-p, ZERO where all of them are zero.
        - `tolerated_bits`: Tensors with a p of this size at most stay as they are, and their slots get 0.
        """

    def bind_clear(self, slot: int) -> Call:
        """Bind the writing of ZERO to a slot: a sum begins, whose tensor is zero."""

    def bind_accumulate(self, target: View, source: View, slot: int, terms: Sequence[int]) -> Call:
        """Bind the sum target += source, where both stand for multiples.

        - `target`, `source`: Flat views of one length. The source is not changed.
        - `slot`: The exponent of the target, which becomes that of the sum.
        - `terms`: The slots whose sum is the exponent of the source.
        """

    def bind_aligned(self, target: View, factor: View, slot: int, terms: Sequence[int], call: Call) -> Call:
        """Bind a call that adds to the target a product of tensors.

        - `target`: A flat view.
        - `factor`: One of the tensors, which is scaled for the call, and is as before afterwards.
        - `slot`: The exponent of the target, which becomes that of the sum.
        - `terms`: The slots whose sum is the exponent of the product.
        - `call`: Adds the product.
        """

    def bind_total(self, slots: Sequence[int]) -> tuple[Call, Callable[[], int]]:
        """Bind the sending of slots to the host.

        - `slots`: Those of which a tensor's exponent is the sum.
        - returns `send`: Sends what they hold by then.
        - returns `total`: The sum of what was sent last, 0 for a tensor of zeros; waits for the work before.
        """
