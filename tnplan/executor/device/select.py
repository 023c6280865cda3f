"""Which device every rank computes on: a GPU of its own, or the CPU. Imports CuPy only where a GPU is wanted.

Knows hosts and GPUs; of a schedule no more than the bytes that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tnplan.common.errors import InputError, page_of
from tnplan.executor.device.cpu.host_memory import REMEDY, check_host_memory, ranks_here
from tnplan.executor.device.cuda.gpu_assignment import PLACE, VisibleGpus, assign
from tnplan.executor.device.protocols.communicator import Communicator, agree
from tnplan.executor.device.protocols.device import Device, RowDevice

if TYPE_CHECKING:
    from tnplan.executor.device.cpu.algebra import Algebra

PROFILES = (("H200", "h200-nvlink"), ("H100", "h100-nvlink"), ("B200", "gb200-nvl72"))
"""Part of a GPU's name, and the shipped profile of machines that have it; the first one for others."""


@dataclass(frozen=True)
class Chosen:
    """A rank's device, the communicator for its buffers, what was chosen in a line; `close` gives it back.

    `gpu_bus` is the GPU's PCI bus, empty where the device is a CPU.
    """

    device: Device
    ranks: Communicator
    line: str
    close: Callable[[], None]
    gpu_bus: str = ""


def open_device(
    wanted: str, world: Communicator, needed_bytes: int, threads: int, cpu_bytes: int | None = None,
    remedy: str = REMEDY, algebra: Algebra | None = None,
) -> Chosen:  # fmt: skip
    """The device of this rank; collective over the world.

    'gpu' gives every rank a GPU of its own or raises AgreedError on all ranks; 'auto' takes the CPU instead
    and says why. `needed_bytes` are those of a rank, `cpu_bytes` those on a CPU where they are others. A CPU
    works with `threads` threads; where a host has too little for all its ranks, all raise AgreedError, with
    the `remedy`. Over an `algebra` of a user's it is the CPU.
    """
    refusal = None
    if wanted != "cpu" and (algebra is None or algebra.has_gpu_kernels):
        try:
            return open_gpu(agree(world, lambda: find_gpu(world, needed_bytes, remedy)), world, algebra)
        except InputError as error:
            if wanted == "gpu":
                raise
            refusal = error.problem
    from tnplan.executor.device.cpu.algebra_device import AlgebraDevice
    from tnplan.executor.device.cpu.device import NumpyDevice

    line = "device: cpu" if refusal is None else f"device: cpu ({refusal})"
    device = NumpyDevice(threads) if algebra is None else AlgebraDevice(algebra, threads)
    rank_bytes = needed_bytes if cpu_bytes is None else cpu_bytes
    n_ranks = ranks_here(world)
    agree(world, lambda: check_host_memory(rank_bytes, device.memory()[1], n_ranks, remedy))
    return Chosen(device, world, line, lambda: None)


def find_gpu(world: Communicator, needed_bytes: int, remedy: str = REMEDY) -> int:
    """The number of this rank's GPU; raises InputError. Collective over the world."""
    visible: list[VisibleGpus] = []
    for entry in world.gather_objects(look()):
        if not isinstance(entry, VisibleGpus):
            raise InputError(*entry)
        visible.append(entry)
    number = assign(visible, world.rank)
    from tnplan.executor.device.cuda.gpus import check_free, check_nccl

    if world.size > 1:
        check_nccl()
    check_free(number, needed_bytes, remedy)
    return number


@contextmanager
def open_lone_gpu(number: int) -> Iterator[RowDevice]:
    """GPU `number` for this thread, without other ranks; given back at the end."""
    _check_seen(number)
    from tnplan.executor.device.cuda.device import CupyDevice

    device = CupyDevice(number)
    try:
        yield device
    finally:
        device.close()


def sees_gpu(count: int = 1) -> bool:
    """Whether this process sees CuPy and so many GPUs."""
    gpus = look()
    return isinstance(gpus, VisibleGpus) and len(gpus.identities) >= count


def free_gpu_bytes(number: int) -> int:
    """The free memory of a GPU; raises InputError where there is none."""
    _check_seen(number)
    from tnplan.executor.device.cuda.gpus import free_bytes

    return free_bytes(number)


def gpu_profile(number: int) -> str:
    """The shipped profile for a GPU: of its model, or else the most general one."""
    _check_seen(number)
    from tnplan.executor.device.cuda.gpus import model_name

    return profile_of(model_name(number))


def profile_of(gpu_name: str) -> str:
    """The shipped profile for GPUs of a name as the driver says it."""
    return next((profile for model, profile in PROFILES if model in gpu_name), PROFILES[0][1])


def _check_seen(number: int) -> None:
    visible = look()
    if not isinstance(visible, VisibleGpus):
        raise InputError(*visible)
    if number >= len(visible.identities):
        raise InputError(
            PLACE,
            f"GPU {number} is not one of {len(visible.identities)}",
            "name one of these GPUs",
            topic="GPUs",
        )


def look() -> VisibleGpus | tuple[str, str, str, str]:
    """What this rank sees, or why it sees nothing, so that all ranks can hear of it."""
    if find_spec("cupy") is None:
        remedy = "install it with: pip install 'tnplan[gpu]'"
        return PLACE, "CuPy is not installed", remedy, page_of("installation")
    try:
        from tnplan.executor.device.cuda.gpus import visible_gpus
    except ImportError as error:
        problem = f"CuPy cannot be imported ({' '.join(str(error).split())})"
        return PLACE, problem, "repair its installation", page_of("installation")
    try:
        return visible_gpus()
    except InputError as error:
        return error.place, error.problem, error.remedy, error.page


def open_gpu(number: int, world: Communicator, algebra: Algebra | None = None) -> Chosen:
    """The GPU of that number for this rank, over an algebra or for numbers; collective over the world."""
    from tnplan.executor.device.cuda.device import CupyDevice
    from tnplan.executor.device.cuda.gpus import pci_bus

    has_neighbours = world.size > 1 and world.name == "threads"
    if algebra is None:
        device = CupyDevice(number, has_neighbours)
    else:
        from tnplan.executor.device.cuda.algebra.device import AlgebraCupyDevice

        device = AlgebraCupyDevice(algebra, number, has_neighbours)
    line, bus = f"device: gpu ({world.size} x {device.facts()['gpu']})", pci_bus(number)
    if world.size == 1:
        return Chosen(device, world, line, device.close, bus)
    from tnplan.executor.device.comm.nccl import NcclCommunicator

    return Chosen(device, NcclCommunicator(world, device.stream, connect=False), line, device.close, bus)
