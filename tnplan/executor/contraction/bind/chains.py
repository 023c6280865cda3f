"""A schedule's fused chains and the backward passes through them, as a device gets ready for them.

That takes kernels, which a GPU may not have yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from math import ceil

from tnplan.common.system_calls import cores
from tnplan.executor.contraction.redistribute.plan import ShardBox
from tnplan.executor.device.protocols.device import AdjointShape, Call, Device, FusedShape, View
from tnplan.planner.hardware.chunked_overlap import cut_modes
from tnplan.planner.schedule.data_flow import end_of
from tnplan.planner.schedule.schedule import Fused, FusedAdjoint, Schedule

Shard = Callable[[int], ShardBox]
"""Gives this rank's part of a buffer."""
KERNEL_S = 0.33
"""Seconds that a core compiles a kernel of a chain, on the host of an H100."""


def chain_shape(
    schedule: Schedule, chain: Fused, parts: int, shape_of: Callable[[int], tuple[int, ...]]
) -> FusedShape:
    """The shape of a chain, or of one of several equal parts of it, on the rank whose buffers have the shapes
    that `shape_of` gives."""
    operand = schedule.buffers[chain.operand]
    cut = cut_modes(operand.modes, operand.layout, schedule.extents, schedule.grid, parts)
    if cut is None:
        raise ValueError(f"the chain of step {chain.steps[-1]} has no {parts} parts")

    def modes(buffer: int) -> tuple[tuple[int, int], ...]:
        stored = zip(schedule.buffers[buffer].modes, shape_of(buffer), strict=True)
        return tuple(entry for entry in stored if entry[0] not in cut)

    branches = tuple(map(modes, chain.branches))
    return FusedShape(
        modes(chain.operand), branches, modes(end_of(chain)), chain.adds, chain.closing is not None
    )


def chains_of_one_rank(schedule: Schedule) -> list[tuple[FusedShape, str]]:
    """The shape and the precision of each chain of a schedule for one rank."""

    def shape_of(buffer: int) -> tuple[int, ...]:
        return tuple(schedule.extents[mode] for mode in schedule.buffers[buffer].modes)

    return [
        (chain_shape(schedule, chain, chain.parts, shape_of), chain.precision)
        for chain in schedule.instructions
        if isinstance(chain, Fused)
    ]


def bind_adjoint(schedule: Schedule, instruction: FusedAdjoint, device: Device, shard: Shard) -> Call:
    """The call of one instruction."""

    def view(buffer: int | None) -> View | None:
        return None if buffer is None else shard(buffer).view

    return device.bind_adjoint(
        _adjoint_shape(schedule, instruction, shard), view(instruction.operand),
        list(map(view, instruction.branches)), view(instruction.cotangent),
        [*map(view, instruction.gradients), view(instruction.out)], schedule.profile["fused_bytes"],
    )  # fmt: skip


def prepare_adjoints(schedule: Schedule, device: Device, shard: Shard) -> None:
    """Let the device get ready for all backward passes at once."""
    items = [item for item in schedule.instructions if isinstance(item, FusedAdjoint)]
    if items:
        shapes = [_adjoint_shape(schedule, item, shard) for item in items]
        device.prepare_adjoints(shapes, schedule.dtype, schedule.profile["fused_bytes"])


def _adjoint_shape(schedule: Schedule, instruction: FusedAdjoint, shard: Shard) -> AdjointShape:
    """The shape on this rank."""

    def modes(buffer: int) -> tuple[tuple[int, int], ...]:
        return tuple(zip(schedule.buffers[buffer].modes, shard(buffer).shape, strict=True))

    def made(buffer: int | None) -> tuple[tuple[int, int], ...] | None:
        return None if buffer is None else modes(buffer)

    chain = FusedShape(
        modes(instruction.operand), tuple(map(modes, instruction.branches)), modes(instruction.cotangent)
    )
    return AdjointShape(chain, tuple(map(made, instruction.gradients)), made(instruction.out))


class MissingKernels:
    """The kernels of chains on a GPU that its cache does not have.

    - `chains`: The chains, each with its precision.
    - `dtype`: Of their tensors.
    - `capacity_bytes`: Of a tile, as the profile has it.
    - `gpu`: The GPU of this process.
    """

    def __init__(
        self, chains: Iterable[tuple[FusedShape, str]], dtype: str, capacity_bytes: int, gpu: int
    ) -> None:
        from tnplan.executor.device.cuda.fused.chain import chain_kernels
        from tnplan.executor.device.cuda.runtime.kernel_cache import is_kept, may_compile

        self._gpu = gpu
        self._begun: list[Future[bytes]] | None = None
        kernels = {repr(kernel): kernel for kernel in chain_kernels(chains, dtype, capacity_bytes)}
        self._missing = [kernel for kernel in kernels.values() if not is_kept(*kernel, gpu)]
        self.may_compile = may_compile()

    def __len__(self) -> int:
        return len(self._missing)

    @property
    def wait_s(self) -> float:
        """Seconds until all are compiled, on the cores of this process."""
        return KERNEL_S * ceil(len(self) / cores())

    def are_ready(self) -> bool:
        """Whether all are compiled by now; the first call begins with them, in threads.

        Raises what ended the compilation of one.
        """
        if self._begun is None:
            from tnplan.executor.device.cuda.runtime.kernel_cache import compile_soon

            self._begun = compile_soon(self._missing, self._gpu)
        ended = [future for future in self._begun if future.done()]
        for future in ended:
            future.result()
        return len(ended) == len(self._begun)
