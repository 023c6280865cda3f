"""The GPUs that this process sees: identities, kinds, free memory. Runs nothing on them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from socket import gethostname
from typing import Any

from cupy.cuda import Device, runtime

from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.executor.device.cpu.host_memory import REMEDY
from tnplan.executor.device.cuda.gpu_assignment import PLACE, VisibleGpus


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
            PLACE, f"{gethostname()} has no GPU that this process may see",
            "check CUDA_VISIBLE_DEVICES, or choose --device cpu", topic="GPUs",
        )  # fmt: skip
    all_properties = [_properties(number) for number in range(count)]
    return VisibleGpus(
        gethostname(),
        tuple(_identity(number, properties) for number, properties in enumerate(all_properties)),
        tuple(f"sm_{entry['major']}{entry['minor']}" for entry in all_properties),
    )


def _identity(number: int, properties: dict[str, Any]) -> str:
    uuid = properties.get("uuid")
    return uuid.hex() if isinstance(uuid, bytes) else f"{gethostname()} {pci_bus(number)}"


def pci_bus(number: int) -> str:
    """The PCI bus of a GPU."""
    return str(Device(number).pci_bus_id)


def check_free(number: int, needed_bytes: int, remedy: str = REMEDY) -> None:
    """Raise InputError where a GPU has less free memory than is needed."""
    with Device(number):
        free_bytes, total_bytes = runtime.memGetInfo()
    if needed_bytes > free_bytes:
        raise InputError(
            PLACE,
            f"{size_text(needed_bytes)} are needed, GPU {number} of {gethostname()} has "
            f"{size_text(free_bytes)} free of {size_text(total_bytes)}",
            f"stop other programs on it, or {remedy}",
            topic="memory",
        )


def free_bytes(number: int) -> int:
    """The free memory of a GPU."""
    with Device(number):
        return int(runtime.memGetInfo()[0])


def model_name(number: int) -> str:
    """The name of a GPU's model."""
    return gpu_name(_properties(number))


@cache
def _properties(number: int) -> dict[str, Any]:
    """What the driver says of a GPU; it takes the driver a millisecond."""
    return dict(runtime.getDeviceProperties(number))


def check_nccl() -> None:
    """Raise InputError where NCCL is not installed."""
    try:
        import_module("cupy_backends.cuda.libs.nccl")
    except ImportError:
        raise InputError(
            PLACE,
            "NCCL, which connects GPUs, is not installed",
            "install it with: pip install 'tnplan[gpu]'",
            topic="installation",
        ) from None


def gpu_name(properties: dict[str, Any]) -> str:
    """The name of a GPU from its properties."""
    name = properties["name"]
    return name.decode() if isinstance(name, bytes) else str(name)


def driver_version() -> str | None:
    """The version of NVIDIA's driver as Linux has it; None where there is no such file."""
    version = Path("/proc/driver/nvidia/version")
    if not version.exists():
        return None
    words = version.read_text().split("\n")[0].split()
    return next((word for word in words if word[0].isdigit() and "." in word), None)
