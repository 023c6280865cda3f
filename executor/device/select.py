"""Which device every rank computes on: a GPU of its own, or the CPU. Imports CuPy only where a GPU is wanted.

Knows hosts and GPUs; of a schedule no more than the bytes that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from executor.device.communicator import Communicator, agree
from executor.device.device import Device
from executor.device.numpy_device import NumpyDevice
from planner.errors import InputError

DEVICES = ("auto", "cpu", "gpu")
PLACE = "--device gpu"


@dataclass(frozen=True)
class VisibleGpus:
    """The GPUs that a rank sees: identities that no two GPUs share, and architectures such as 'sm_90'."""

    host: str
    identities: tuple[str, ...]
    architectures: tuple[str, ...]


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


def assign(seen: Sequence[VisibleGpus], rank: int) -> int:
    """The number, among the GPUs that it sees, of the GPU for `rank`; raises InputError, for all ranks alike.

    Ranks that see the same GPUs take them in the order of their ranks, so that it does not matter whether a
    launcher shows every rank all GPUs of its host or one alone.
    """
    owner: dict[str, int] = {}
    numbers = []
    for own, gpus in enumerate(seen):
        number = sum(other.identities == gpus.identities for other in seen[:own])
        if number >= len(gpus.identities):
            beside = [other for other in seen if other.host == gpus.host]
            n_gpus = len({identity for other in beside for identity in other.identities})
            raise InputError(
                PLACE, f"{gpus.host} has {_count(n_gpus, 'GPU')} for {_count(len(beside), 'rank')}",
                "start one rank a GPU, or plan for fewer devices",
            )  # fmt: skip
        first = owner.setdefault(gpus.identities[number], own)
        if first != own:
            raise InputError(
                PLACE, f"ranks {first} and {own} would share a GPU of {gpus.host}",
                "show every rank of a host the same GPUs, or each one of its own",
            )  # fmt: skip
        numbers.append(number)
    kinds = {gpus.architectures[number]: gpus.host for gpus, number in zip(seen, numbers, strict=True)}
    if len(kinds) > 1:
        listed = ", ".join(f"{kind} on {host}" for kind, host in sorted(kinds.items()))
        raise InputError(
            PLACE, f"the ranks' GPUs are of different kinds ({listed})",
            "run on GPUs of one kind; CUDA_VISIBLE_DEVICES chooses them",
        )  # fmt: skip
    return numbers[rank]


def _count(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def _open_gpu(number: int, world: Communicator) -> Chosen:
    from executor.device.cupy_device import CupyDevice

    device = CupyDevice(number)
    line = f"device: gpu ({world.size} x {device.facts()['gpu']})"
    if world.size == 1:
        return Chosen(device, world, line, device.close)
    from executor.device.nccl import NcclCommunicator

    return Chosen(device, NcclCommunicator(world, device.stream, connect=False), line, device.close)
