"""Random einsum calls of every syntax, dtype, layout and library against numpy.einsum; memory of many calls.

    PYTHONPATH=. python benchmarks/contraction/random_calls.py [--calls 10000] [--device gpu] [-o FILE]

The calls are those of `tests/support/contraction/random_calls.py`, many of them wrong, with arrays of the
libraries that are installed: NumPy, torch and JAX on the host, and with `--device gpu` CuPy and torch on a
GPU. Then one network is contracted and a compiled contraction called as often, and the resident memory of the
process, and what is free on the GPU, are compared before and after. Goal: no wrong result, no error but
`InputError`, no growth.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from calls import environment, lattice
from shared import RESULTS

import tnplan
from tnplan.common.files import write_text
from tnplan.planner.networks.tensors import random_tensors

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.support.contraction.random_calls import check, libraries, random_call

GROWTH_BYTES = 8 << 20
"""More than this is growth: allocators keep some blocks."""


def resident_bytes() -> int:
    """The memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


def free_on_gpu(device: str) -> int:
    """Free memory of the GPU; 0 without one."""
    if device == "cpu":
        return 0
    import cupy

    return int(cupy.cuda.runtime.memGetInfo()[0])


def growth(calls: int, device: str) -> dict[str, int]:
    """The bytes by which memory grew over so many calls of each kind, after a tenth of them."""
    network = lattice(4, 4, 3)
    arrays = random_tensors(network, "float64", 0)
    grown = {}
    with tnplan.compile(network, dtype="float64", device=device) as compiled:
        kinds = {
            "compiled": lambda: compiled(*arrays),
            "contract": lambda: tnplan.contract(network, *arrays, device=device),
            "compiled anew": lambda: tnplan.compile(network, dtype="float64", device=device).close(),
        }
        for name, call in kinds.items():
            n = calls // 20 if name == "compiled anew" else calls
            for _ in range(n // 10):
                call()
            before = resident_bytes(), free_on_gpu(device)
            for _ in range(n):
                call()
            grown[name] = resident_bytes() - before[0]
            grown[f"{name}, on the GPU"] = before[1] - free_on_gpu(device)
    return grown


def faults_of(calls: int, device: str, seed: int, counts: Counter[str], kinds: Counter[str]) -> list[str]:
    """What is wrong with random calls, a line each; counts what they gave, and their kinds."""
    ways, faults = libraries(device), []
    for number in range(calls):
        call = random_call(random.Random(f"{seed}/{number}"), *ways)
        kinds.update(set(call.kinds))
        try:
            counts[check(call)] += 1
        except Exception as error:
            faults.append(f"{number}: {call.equation} {call.kinds}: {type(error).__name__}: {error}")
            print(faults[-1], flush=True)
    return faults


def main() -> int:
    """Run, print, write the file; 1 where a call has a fault or memory grew."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
    np.seterr(over="ignore")
    counts, kinds = Counter[str](), Counter[str]()
    start = time.perf_counter()
    faults = faults_of(options.calls, options.device, options.seed, counts, kinds)
    grown = growth(options.calls, options.device)
    row = {
        "calls": dict(counts),
        "faults": faults,
        "kinds": dict(kinds),
        "seconds": round(time.perf_counter() - start, 1),
        "grown_bytes": grown,
        "environment": environment(options.device),
    }
    print(json.dumps(row, indent=1))
    target = options.output or RESULTS / f"random_calls_{options.device}.json"
    write_text(target, json.dumps(row, indent=1) + "\n")
    return int(bool(faults) or max(grown.values()) > GROWTH_BYTES)


if __name__ == "__main__":
    sys.exit(main())
