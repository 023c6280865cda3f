"""What tests of GPUs share: how many there are, skips that say what is missing, and devices of both kinds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest

from tnplan.executor.device.cpu.device import NumpyDevice


@cache
def count_gpus() -> int:
    """The GPUs that this process sees; 0 without CuPy."""
    if find_spec("cupy") is None:
        return 0
    from cupy.cuda import runtime

    try:
        return int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError:
        return 0


def needs_gpus(count: int) -> pytest.MarkDecorator:
    """Skip a test visibly where fewer GPUs are seen."""
    return pytest.mark.skipif(count_gpus() < count, reason=f"needs {count} GPU{'s' * (count > 1)}")


DEVICES = ["cpu", pytest.param("gpu", marks=needs_gpus(1))]
"""Parameters of a test of both kinds of device."""


@contextmanager
def opened(kind: str) -> Iterator[Any]:
    """A device of a kind, closed afterwards."""
    if kind == "cpu":
        yield NumpyDevice()
        return
    from tnplan.executor.device.cuda.device import CupyDevice

    device = CupyDevice(0)
    yield device
    device.close()
