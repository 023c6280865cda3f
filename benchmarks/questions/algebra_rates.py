"""Products over algebras on a GPU beside CuPy's product of FP32 (no tensor cores): rates, and checks.

    python benchmarks/questions/algebra_rates.py
    python benchmarks/questions/algebra_rates.py --shapes 1x4096x4096x4096 --only max-plus

A shape is BATCHxMxNxK. A line says how long a product takes, its operations a second (two for each of the
B M N K terms), and how many times the rate of FP32 that is. `differs` ends a line of which a block is not
that of the CPU. Goal: max-plus in fp32 at half the rate of FP32 from 1024 in
each extent on. The exit status is 1 where it is missed or a
product differs.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

SHAPES = (
    "1x4096x4096x4096 1x8192x8192x1024 16x1024x1024x1024 1x1048576x16x16 1x262144x64x64 1x64x64x262144 "
    "4096x32x32x32"
)
CASES = [("max-plus", "float32"), ("max-plus", "float64"), ("boolean", "float32"), ("residues", "float64"),
         ("optima", "complex128")]  # fmt: skip
ROUNDS, BLOCK, PRIME = 5, 24, 8388593
GOAL, LARGE = 0.5, 1024
"""The rate of max-plus in fp32 over that of FP32, where all extents are large."""


def algebra_of(name: str, dtype: str) -> Any:
    """The algebra of a case."""
    from tnplan.executor.device.cpu.algebra import Boolean, Optima, Residues, Tropical

    if name == "max-plus":
        return Tropical(False, dtype)
    made = {"boolean": Boolean, "residues": lambda: Residues(PRIME), "optima": lambda: Optima(PRIME)}
    return made[name]()


def values(name: str, dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Random values; those of large arrays repeat."""
    random = np.random.default_rng(seed)
    size = int(np.prod(shape))
    few = min(size, 1 << 20)
    if name == "boolean":
        made = (random.random(few) < 0.01).astype(dtype)
    elif name == "residues":
        made = random.integers(0, PRIME, few).astype(dtype)
    elif name == "optima":
        made = random.integers(-3, 4, few) + 1j * random.integers(0, PRIME, few)
    else:
        made = random.integers(-1000, 1000, few).astype(dtype)
    return np.resize(made, size).reshape(shape).astype(dtype)


def seconds(device: Any, call: Any) -> float:
    """The least of some rounds, after one that is not counted."""
    call()
    marks, least = device.marks(2), np.inf
    for _ in range(ROUNDS):
        device.mark(marks[0])
        call()
        device.mark(marks[1])
        device.synchronize()
        least = min(least, device.elapsed_s(*marks))
    return float(least)


def fp32_s(device: Any, batch: int, m: int, n: int, k: int) -> float:
    """CuPy's product."""
    import cupy

    with device.stream:
        a, b = cupy.ones((batch, m, k), np.float32), cupy.ones((batch, k, n), np.float32)
        out = cupy.empty((batch, m, n), np.float32)
        return seconds(device, lambda: cupy.matmul(a, b, out=out))


def product_s(name: str, dtype: str, batch: int, m: int, n: int, k: int) -> tuple[float, bool]:
    """The seconds of a product, and whether its first and last block are those of the CPU."""
    import cupy

    from tnplan.executor.device.cuda.algebra.device import AlgebraCupyDevice
    from tnplan.executor.device.protocols.device import ContractShape

    algebra = algebra_of(name, dtype)
    device = AlgebraCupyDevice(algebra, 0)
    a, b = (values(name, dtype, (batch, rows, k), seed) for rows, seed in ((m, 1), (n, 2)))
    with device.stream:
        of_a, of_b = (cupy.asarray(each.reshape(-1)) for each in (a, b))
        c = cupy.full(batch * m * n, np.nan, dtype)
    shape = ContractShape(((batch, m * n),), ((m, n),), ((n, 1),), k)
    call = device.bind_contract(shape, of_a, of_b, c, None)
    least = seconds(device, call)
    found, is_right = c.reshape(batch, m, n), True
    for t, some in ((0, slice(0, BLOCK)), (batch - 1, slice(-BLOCK, None))):
        left, right = a[t : t + 1, some], b[t : t + 1, some]
        wanted = np.empty((1, left.shape[1], right.shape[1]), dtype)
        algebra.bind_product(np.ascontiguousarray(left), np.ascontiguousarray(right), wanted)()
        is_right &= bool((found[t : t + 1, some, some].get() == wanted).all())
    device.close()
    return least, is_right


def main() -> int:
    """Measure all cases of all shapes; 1 where a product differs or misses its goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shapes", default=SHAPES, help="shapes, apart by blanks")
    parser.add_argument("--only", default="", help="algebras whose name has this text")
    options = parser.parse_args()
    from tnplan.executor.device.cuda.device import CupyDevice

    plain = CupyDevice(0)
    print(plain.facts()["gpu"], flush=True)
    fails = False
    for text in options.shapes.split():
        batch, m, n, k = map(int, text.split("x"))
        operations = 2 * batch * m * n * k
        base = fp32_s(plain, batch, m, n, k)
        rate = f"{operations / base / 1e12:7.2f} T/s"
        print(f"{text}  fp32               {base * 1e3:9.3f} ms  {rate}", flush=True)
        for name, dtype in CASES:
            if options.only not in name:
                continue
            least, is_right = product_s(name, dtype, batch, m, n, k)
            rate = f"{operations / least / 1e12:7.2f} T/s  {base / least:5.2f} of fp32"
            is_slow = (name, dtype) == CASES[0] and min(m, n, k) >= LARGE and base / least < GOAL
            fails |= is_slow or not is_right
            end = ("" if is_right else "  differs") + ("  MISSED" if is_slow else "")
            print(f"{text}  {name:8} {dtype:10}{least * 1e3:9.3f} ms  {rate}{end}", flush=True)
    return int(fails)


if __name__ == "__main__":
    sys.exit(main())
