"""The name of the device that a job is to use, and a GPU's start as soon as one is expected.

Imports little: the modules of the job are imported while CUDA begins.
"""

from __future__ import annotations

from importlib.util import find_spec

from tnplan.common.errors import InputError
from tnplan.executor.device.comm.launcher import launched_size
from tnplan.executor.device.cuda.runtime.early_context import begin_cuda

DEVICES = ("auto", "cpu", "gpu")


def check_device(wanted: str) -> None:
    """Raise InputError where `wanted` is no name of a device."""
    if not isinstance(wanted, str) or wanted not in DEVICES:
        raise InputError(
            "--device", f"{wanted!r} is unknown", f"choose from {', '.join(DEVICES)}", topic="GPUs",
        )


def expect_gpu(wanted: str) -> None:
    """Let CUDA begin beside this thread, where a job of this process alone will use a GPU.

    A lone process takes the first GPU that it sees. Where the device is chosen later, no context is made.
    Raises InputError where `wanted` is no name of a device.
    """
    check_device(wanted)
    if wanted != "cpu" and launched_size() == 1 and find_spec("cupy") is not None:
        begin_cuda(0 if wanted == "gpu" else None)
