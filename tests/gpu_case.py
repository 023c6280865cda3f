"""What tests of GPUs share: how many there are, and skips that say what is missing."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import pytest


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
