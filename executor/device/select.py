"""Which device every rank computes on: a GPU of its own, or the CPU. Imports CuPy only where a GPU is wanted.

Knows hosts and GPUs; of a schedule no more than the bytes that it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from executor.device.assign import PLACE, VisibleGpus, assign
from executor.device.communicator import Communicator, agree
from executor.device.device import Device
from executor.device.numpy_device import NumpyDevice
from planner.errors import InputError

DEVICES = ("auto", "cpu", "gpu")


@dataclass(frozen=True)
class Chosen:
    """A rank's device, the communicator for its buffers, what was chosen in a line; `close` gives it back."""

    device: Device
    ranks: Communicator
    line: str
    close: Callable[[], None]


def check_device(wanted: str) -> None:
    """Raise InputError where `wanted` is no name of a device."""
    if wanted not in DEVICES:
        raise InputError("--device", f"{wanted!r} is unknown", f"choose from {', '.join(DEVICES)}")


def open_device(wanted: str, world: Communicator, needed_bytes: int, threads: int) -> Chosen:
    """The device of this rank; collective over the world.

    'gpu' gives every rank a GPU of its own or raises AgreedError on all ranks; 'auto' takes the CPU instead
    and says why. `needed_bytes` are those of the arena; a CPU works with `threads` threads.
    """
    refusal = None
    if wanted != "cpu":
        try:
            return _open_gpu(agree(world, lambda: find_gpu(world, needed_bytes)), world)
        except InputError as error:
            if wanted == "gpu":
                raise
            refusal = error.problem
    line = "device: cpu" if refusal is None else f"device: cpu ({refusal})"
    return Chosen(NumpyDevice(threads), world, line, lambda: None)


def find_gpu(world: Communicator, needed_bytes: int) -> int:
    """The number of this rank's GPU; raises InputError. Collective over the world."""
    seen: list[VisibleGpus] = []
    for entry in world.gather_objects(_look()):
        if not isinstance(entry, VisibleGpus):
            raise InputError(*entry)
        seen.append(entry)
    number = assign(seen, world.rank)
    from executor.device.gpus import check_free, check_nccl

    if world.size > 1:
        check_nccl()
    check_free(number, needed_bytes)
    return number


def _look() -> VisibleGpus | tuple[str, str, str]:
    """What this rank sees, or why it sees nothing, so that all ranks can hear of it."""
    if find_spec("cupy") is None:
        return PLACE, "CuPy is not installed", "install it with: pip install 'tnplan[gpu]'"
    try:
        from executor.device.gpus import visible_gpus
    except ImportError as error:
        return PLACE, f"CuPy cannot be imported ({' '.join(str(error).split())})", "mend its installation"
    try:
        return visible_gpus()
    except InputError as error:
        return error.place, error.problem, error.remedy


def _open_gpu(number: int, world: Communicator) -> Chosen:
    from executor.device.cupy_device import CupyDevice

    device = CupyDevice(number, has_neighbours=world.size > 1 and world.name == "threads")
    line = f"device: gpu ({world.size} x {device.facts()['gpu']})"
    if world.size == 1:
        return Chosen(device, world, line, device.close)
    from executor.device.nccl import NcclCommunicator

    return Chosen(device, NcclCommunicator(world, device.stream, connect=False), line, device.close)
