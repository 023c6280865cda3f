"""How much memory a simulation takes, known before anything is allocated."""

from __future__ import annotations

import re
from pathlib import Path

from executor.statevector.passes import Tile
from planner.errors import InputError

ITEM_BYTES = {"complex64": 8, "complex128": 16}
TILES_A_THREAD = 3
"""A thread holds one tile, and tables of a pass as large as one or two."""
LARGEST = 62
"""Qubits: a sample is a number of 63 bits."""


def predicted_bytes(n_qubits: int, dtype: str, tile: Tile, threads: int, ranks: int = 1) -> int:
    """The bytes that a rank of a simulation takes at most for amplitudes, tiles and tables."""
    item = ITEM_BYTES[dtype]
    amplitudes = (item << n_qubits) // ranks
    return amplitudes + threads * TILES_A_THREAD * (item << min(n_qubits, tile.bits))


def check_memory(needed_bytes: int, room_bytes: float, n_qubits: int, dtype: str) -> None:
    """Raise InputError where a simulation needs more bytes than there are."""
    if needed_bytes > room_bytes:
        other = "complex64, " if dtype == "complex128" else ""
        raise InputError(
            "memory", f"{n_qubits} qubits in {dtype} need {needed_bytes / 2**30:.4g} GiB a rank, and "
            f"{room_bytes / 2**30:.4g} GiB are there",
            f"use {other}more ranks, more memory or fewer qubits",
        )  # fmt: skip


def free_bytes() -> float:
    """The bytes of memory that a new process could take on this host; without end where it cannot be told."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return float("inf")
    found = re.search(r"^MemAvailable:\s*(\d+) kB$", text, re.MULTILINE)
    return float(found[1]) * 1024 if found else float("inf")
