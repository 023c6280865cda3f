"""Contractions on one GPU by m, n, k, precision and order of the result, with their errors.

Every result is compared with complex128 (float64) at random rows, relative to the sum of absolute values.
Goal: 45 TFLOP/s in fp32 and 100 in fp16x3 (8 real operations a complex multiply-add) from k = n = 256 on,
whatever the order of the result.
Usage: python benchmarks/contraction/gemm.py [--seconds 0.05] [--dtype complex64] [-o results.json]
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from roofline import fill, timed_s

from tnplan.common.arrays import ITEM_BYTES
from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.executor.device.cuda.device import CupyDevice
from tnplan.executor.device.protocols.copy import Copy, row_major
from tnplan.executor.device.protocols.device import ContractShape
from tnplan.executor.device.protocols.precision import DOUBLE, expected_error, supported
from tnplan.planner.hardware.cost import FLOPS_PER_PRODUCT

ORDERS = ("m n", "n m", "runs", "alternating")
SIZES = ((22, 4), (22, 5), (22, 6), (21, 7), (20, 8), (18, 9), (17, 10))
"""Binary modes of m and of n = k."""
LONG = ((16, 8, 8192),)
"""Binary modes of m and n, and k."""
TILE_BYTES = 16 << 20
CHECKED_ROWS = 8


GOALS, GOAL_FROM = {"fp32": 45e12, "fp16x3": 100e12}, 256
"""Operations a second of complex64, from these n and k on."""


@dataclass(frozen=True)
class Row:
    """One measurement."""

    m: int
    n: int
    k: int
    order: str
    precision: str
    time_s: float
    flop_per_s: float
    copy_share: float
    """Bytes read and written once in this time, over the copy's bandwidth."""
    error: float
    expected_error: float


def modes(m_bits: int, n_bits: int, order: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """(extent, stride in c) of binary modes of m and n for an order of the result."""
    m, n = [("m", i) for i in range(m_bits)], [("n", i) for i in range(n_bits)]
    half, last = n_bits // 2, m_bits - 4
    stored = {
        "m n": m + n,
        "n m": n + m,
        "runs": m[: m_bits // 2] + n[:half] + m[m_bits // 2 : last] + n[half:] + m[last:],
        "alternating": m[:-n_bits] + [mode for pair in zip(m[-n_bits:], n, strict=True) for mode in pair],
    }[order]
    strides = dict(zip(stored, row_major([2] * len(stored)), strict=True))
    return tuple((2, strides[mode]) for mode in m), tuple((2, strides[mode]) for mode in n)


def place(part: tuple[tuple[int, int], ...], numbers: Any) -> Any:
    """Offsets in c of numbers of a part with binary modes."""
    places = np.zeros(len(numbers), np.int64)
    for position, (_, stride) in enumerate(part):
        places += (numbers >> (len(part) - 1 - position) & 1) * stride
    return places


def error(device: CupyDevice, shape: ContractShape, a: Any, b: Any, c: Any) -> float:
    """The largest error of some rows, relative to the sum of absolute values."""
    _, m, n, k = shape.sizes
    rows = np.unique(np.linspace(0, m - 1, CHECKED_ROWS).astype(np.int64))
    wide = "complex128" if a.dtype.kind == "c" else "float64"
    taken = np.stack([device.to_host(a[row * k : (row + 1) * k]) for row in rows]).astype(wide)
    other = device.to_host(b).reshape(n, k).astype(wide)
    exact, scale = taken @ other.T, np.abs(taken) @ np.abs(other).T
    columns = place(shape.n, np.arange(n))
    found = np.stack([c[start + columns].get() for start in place(shape.m, rows)])
    return float((np.abs(found - exact) / scale).max())


def measure(device: CupyDevice, dtype: str, seconds: float) -> list[Row]:
    """All sizes, orders and precisions of a type, printed as they are measured."""
    item = ITEM_BYTES[dtype]
    sizes = [(m, n, 1 << n) for m, n in SIZES] + list(LONG)
    if dtype in DOUBLE:
        sizes = [(m - 1, n, k) for m, n, k in sizes]
    counts = [max(k << m for m, _, k in sizes), max(k << n for _, n, k in sizes),
              max(1 << m + n for m, n, _ in sizes), TILE_BYTES // item]  # fmt: skip
    device.allocate(sum(counts) * item)
    views, offset = [], 0
    for count in counts:
        views.append(device.view(offset * item, count, dtype))
        offset += count
    all_a, all_b, all_c, tile = views
    fill(device, all_a)
    fill(device, all_b)
    half = len(all_a) // 2
    copy_s = timed_s(device, device.bind_copy(all_a[half:], all_a[:half], Copy((), (), half)), seconds)
    copy_bytes_per_s = 2 * half * item / copy_s
    print(f"{dtype}; device copy {copy_bytes_per_s / 1e12:.2f} TB/s, bytes read and written")
    print("       m     n     k  order        precision        ms  TFLOP/s  share of copy    error  promised")
    rows = []
    for m, n, k in sizes:
        for precision in supported(dtype):
            for order in ORDERS:
                shape = ContractShape((), *modes(m, n, order), k)
                a, b, c = all_a[: k << m], all_b[: k << n], all_c[: 1 << m + n]
                call = device.bind_contract(shape, a, b, c, tile, precision)
                device.zero(c)
                time_s = timed_s(device, call, seconds)
                moved = (len(a) + len(b) + len(c)) * item / copy_bytes_per_s
                rate = FLOPS_PER_PRODUCT[dtype] * k * 2.0 ** (m + n) / time_s
                row = Row(
                    1 << m, 1 << n, k, order, precision, time_s, rate, moved / time_s,
                    error(device, shape, a, b, c), expected_error(precision, k),
                )  # fmt: skip
                rows.append(row)
                print(
                    f"{row.m:8d} {row.n:5d} {k:5d}  {order:11s}  {precision:9s} {time_s * 1e3:9.3f} "
                    f"{rate / 1e12:8.1f} {row.copy_share:14.2f} {row.error:8.1e}  {row.expected_error:8.1e}",
                    flush=True,
                )
    return rows


def main() -> int:
    """Print the table and write it; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", action="append", choices=sorted(ITEM_BYTES))
    parser.add_argument("--seconds", type=float, default=0.05, help="time for each measurement")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    measured = {}
    for dtype in options.dtype or ["complex64", "complex128"]:
        device = CupyDevice(0)
        measured[dtype] = [asdict(row) for row in measure(device, dtype, options.seconds)]
        facts = device.facts()
        device.close()
    wrong = [row for rows in measured.values() for row in rows if not row["error"] <= row["expected_error"]]
    print(f"{len(wrong)} of {sum(map(len, measured.values()))} have a larger error than promised")
    if options.output:
        report = {"environment": {**host_facts(), "commit": commit(), **facts}, "rows": measured}
        options.output.write_text(json.dumps(report, indent=1) + "\n")
    missed = bool(wrong) or any(
        row["flop_per_s"] < GOALS.get(row["precision"], 0.0)
        for row in measured.get("complex64", [])
        if min(row["n"], row["k"]) >= GOAL_FROM
    )
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
