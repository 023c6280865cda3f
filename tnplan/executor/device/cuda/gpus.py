"""The GPUs that this process sees: identities, kinds, free memory. Runs nothing on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from socket import gethostname
from typing import Any

from cupy.cuda import Device, runtime

from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.executor.device.cpu.host_memory import REMEDY

# Which GPU every rank takes, from what all ranks see. Pure: imports no GPU library and asks no device.


PLACE = "--device gpu"


@dataclass(frozen=True)
class VisibleGpus:
    """The GPUs that a rank sees: identities that no two GPUs share, and architectures such as 'sm_90'."""

    host: str
    identities: tuple[str, ...]
    architectures: tuple[str, ...]


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
                topic="GPUs",
            )  # fmt: skip
        first = owner.setdefault(gpus.identities[number], own)
        if first != own:
            raise InputError(
                PLACE, f"ranks {first} and {own} would share a GPU of {gpus.host}",
                "show every rank of a host the same GPUs, or each one of its own",
                topic="GPUs",
            )  # fmt: skip
        numbers.append(number)
    kinds = {gpus.architectures[number]: gpus.host for gpus, number in zip(seen, numbers, strict=True)}
    if len(kinds) > 1:
        listed = ", ".join(f"{kind} on {host}" for kind, host in sorted(kinds.items()))
        raise InputError(
            PLACE, f"the ranks' GPUs are of different kinds ({listed})",
            "run on GPUs of one kind; CUDA_VISIBLE_DEVICES chooses them",
            topic="GPUs",
        )  # fmt: skip
    return numbers[rank]


def _count(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


# The GPUs that this process sees: identities, kinds, free memory. Runs nothing on them.


def visible_gpus() -> VisibleGpus:
    """What this process sees; raises InputError where that is no GPU."""
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise InputError(
            PLACE, f"{gethostname()} has no GPU ({str(error).partition(':')[0]})",
            "run where nvidia-smi lists one, or choose --device cpu",
            topic="GPUs",
        ) from None  # fmt: skip
    if count == 0:
        raise InputError(
            PLACE,
            f"{gethostname()} shows this process no GPU",
            "look at CUDA_VISIBLE_DEVICES, or choose --device cpu",
            topic="GPUs",
        )
    found = [runtime.getDeviceProperties(number) for number in range(count)]
    return VisibleGpus(
        gethostname(),
        tuple(_identity(number, properties) for number, properties in enumerate(found)),
        tuple(f"sm_{entry['major']}{entry['minor']}" for entry in found),
    )


def _identity(number: int, properties: dict[str, Any]) -> str:
    uuid = properties.get("uuid")
    return uuid.hex() if isinstance(uuid, bytes) else f"{gethostname()} {Device(number).pci_bus_id}"


def check_free(number: int, needed_bytes: int, remedy: str = REMEDY) -> None:
    """Raise InputError where a GPU has less free memory than is needed."""
    with Device(number):
        free_bytes, total_bytes = runtime.memGetInfo()
    if needed_bytes > free_bytes:
        raise InputError(
            PLACE,
            f"{size_text(needed_bytes)} are needed, GPU {number} of {gethostname()} has "
            f"{size_text(free_bytes)} free of {size_text(total_bytes)}",
            f"end what else runs on it, or {remedy}",
            topic="memory",
        )


def free_bytes(number: int) -> int:
    """The free memory of a GPU."""
    with Device(number):
        return int(runtime.memGetInfo()[0])


def model_name(number: int) -> str:
    """The name of a GPU's model."""
    return gpu_name(runtime.getDeviceProperties(number))


def check_nccl() -> None:
    """Raise InputError where NCCL is not installed."""
    try:
        import_module("cupy_backends.cuda.libs.nccl")
    except ImportError:
        raise InputError(
            PLACE, "NCCL, which connects GPUs, is not installed",
            "install it with: pip install 'tnplan[gpu]'", topic="installation",
        ) from None


def gpu_name(properties: dict[str, Any]) -> str:
    """The name of a GPU from its properties."""
    name = properties["name"]
    return name.decode() if isinstance(name, bytes) else str(name)


def driver_version(version: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """The version of NVIDIA's driver as Linux has it; None where there is no such file."""
    if not version.exists():
        return None
    words = version.read_text().split("\n")[0].split()
    return next((word for word in words if word[0].isdigit() and "." in word), None)
