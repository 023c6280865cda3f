"""Blocks of a compressed state, on a CPU and on a GPU: where numbers lie, and what they decode to. Knows
NumPy.

A block has up to 32 neighbouring amplitudes: a scale, float32, and whole numbers for all real parts, then for
all imaginary parts. An amplitude's part is its number times the scale.
"""

from __future__ import annotations

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.executor.device.cpu.host_memory import host_memory

BLOCK_BITS = 5
"""Amplitudes of a block are the shortest runs of tiles."""
ONE = 64, 2.0**-6
"""The amplitude 1: a whole number and a scale."""


def codes_bytes(n_bits: int, bits: int) -> int:
    """The bytes of 2^n_bits amplitudes."""
    return (2 * bits // 8 << n_bits) + (4 << max(0, n_bits - BLOCK_BITS))


def exchanged(codes: Array, scales: Array) -> list[tuple[Array, int]]:
    """What exchanges move, as `DistributedState.arrays` has it: numbers in words of 8 bytes."""
    amplitudes = 4 // codes.itemsize  # of a word
    return [(codes.view(np.uint64), amplitudes.bit_length() - 1), (scales, BLOCK_BITS)]


def amplitudes_of(codes: Array, scales: Array, norm: float) -> Array:
    """The amplitudes of whole blocks divided by a norm, complex128."""
    parts = codes.reshape(len(scales), 2, -1) * (scales.astype(np.float64) / norm)[:, None, None]
    return np.asarray(parts[:, 0] + 1j * parts[:, 1]).reshape(-1)


def check_room(n_bits: int, dtype: str) -> None:
    """Raise InputError where the host has no room for all amplitudes."""
    needed, free = np.dtype(dtype).itemsize << n_bits, host_memory()[1]
    if 2 * needed > free:
        raise InputError(
            "array", f"takes {size_text(2 * needed)} decoded, and {size_text(free)} are free",
            "ask for single amplitudes, samples or values", topic="memory",
        )  # fmt: skip


def refuse_load() -> None:
    """Raise InputError: the error of what is loaded is not known."""
    raise InputError("load", "cannot be used on a state with a fidelity", "leave out the fidelity")
