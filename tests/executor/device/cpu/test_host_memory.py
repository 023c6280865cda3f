"""The memory that a process may take, from files as Linux has them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import tnplan
from tnplan.executor.device.cpu.host_memory import UNKNOWN_BYTES, host_memory
from tnplan.jobs.arrays import contracted, planning

KIB = 1024
MEMINFO = "MemTotal:       1000000 kB\nMemFree:         100000 kB\nMemAvailable:    600000 kB\n"
WHOLE = 1_000_000.0 * KIB, 600_000.0 * KIB


def host(folder: Path, memberships: str, files: dict[str, str]) -> tuple[float, float]:
    """What is told where /proc and /sys/fs/cgroup hold these."""
    (folder / "proc" / "self").mkdir(parents=True)
    (folder / "proc" / "meminfo").write_text(MEMINFO)
    (folder / "proc" / "self" / "cgroup").write_text(memberships)
    for name, text in files.items():
        path = folder / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return host_memory(folder / "proc", folder / "groups")


@pytest.mark.parametrize(
    ("memberships", "files", "expected"),
    [
        ("", {}, WHOLE),
        ("0::/\n", {"memory.max": "max\n", "memory.current": "5\n"}, WHOLE),
        ("0::/job\n", {"job/memory.max": "4000\n", "job/memory.current": "1000\n"}, (4000, 3000)),
        (
            "0::/job/step\n",
            {
                "job/memory.max": "4000\n", "job/memory.current": "3000\n",
                "job/memory.stat": "anon 1\ninactive_file 500\n",
                "job/step/memory.max": "max\n", "job/step/memory.current": "1\n",
            },
            (4000, 1500),
        ),
        ("0::/job\n", {"job/memory.max": "4000\n", "job/memory.current": "9000\n"}, (4000, 0)),
        ("0::/host/job\n", {"memory.max": "4000\n", "memory.current": "1000\n"}, (4000, 3000)),
        ("0::/a\n", {"unified/a/memory.max": "4000\n", "unified/a/memory.current": "0\n"}, (4000, 4000)),
        (
            "7:cpu:/job\n4:hugetlb,memory:/job\n",
            {
                "memory/job/memory.limit_in_bytes": "4000\n", "memory/job/memory.usage_in_bytes": "1000\n",
                "memory/job/memory.stat": "inactive_file 7\ntotal_inactive_file 200\n",
                "cpu/job/memory.limit_in_bytes": "1\n", "cpu/job/memory.usage_in_bytes": "1\n",
            },
            (4000, 3200),
        ),
        (
            "4:memory:/\n",
            {"memory/memory.limit_in_bytes": f"{1 << 62}\n", "memory/memory.usage_in_bytes": "1\n"},
            WHOLE,
        ),
    ],
)  # fmt: skip
def test_a_group_limits_what_the_host_has(
    tmp_path: Path, memberships: str, files: dict[str, str], expected: tuple[float, float]
) -> None:
    assert host(tmp_path, memberships, files) == expected


def test_a_host_that_does_not_tell_what_is_free_has_what_is_installed(tmp_path: Path) -> None:
    total, free = host_memory(tmp_path / "none", tmp_path / "none")
    assert total == free == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_a_host_that_tells_nothing_is_never_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sysconf")
    assert host_memory(tmp_path / "none", tmp_path / "none") == (UNKNOWN_BYTES, UNKNOWN_BYTES)


def test_contractions_are_planned_where_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "host_memory", lambda: (UNKNOWN_BYTES, UNKNOWN_BYTES))
    planning.forget_contractions()
    contracted.forget()
    assert tnplan.contract("ab,bc,ca->", *np.ones((3, 2, 2))) == 8


def test_this_host_has_memory() -> None:
    total, free = host_memory()
    assert 0 < free <= total < 2**50
