"""The memory of a GPU for more terms: what is said where there is none, and blocks that are given back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import cupy

from tnplan.common.errors import InputError

POOLED_BYTES = 1 << 26
"""So much that is free stays in CuPy's pool in any case."""


def give_back(kept_bytes: int = 0) -> None:
    """Free the blocks that CuPy's pool keeps, where they are more. A limit of memory counts them too."""
    pool = cupy.get_default_memory_pool()
    if pool.free_bytes() > max(kept_bytes, POOLED_BYTES):
        pool.free_all_blocks()


@contextmanager
def room_for(terms: int) -> Iterator[None]:
    """Arrays of so many terms are made within; InputError where the GPU has no memory for one of them."""
    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError:
        raise InputError(
            "GPU", f"has no memory for {terms} terms", "truncate, set --memory, or use more GPUs",
            topic="memory",
        ) from None
