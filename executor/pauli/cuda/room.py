"""What is said where a GPU has no memory for more terms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import cupy

from tnplan.planner.common.errors import InputError


@contextmanager
def room_for(terms: int) -> Iterator[None]:
    """Arrays of so many terms are made within; InputError where the GPU has no memory for one of them."""
    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError:
        raise InputError(
            "GPU", f"has no memory for {terms} terms", "truncate, set --memory, or use more GPUs"
        ) from None
