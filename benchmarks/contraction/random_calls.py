"""Random einsum calls of every syntax, dtype and library against numpy.einsum; memory of many calls.

    python benchmarks/contraction/random_calls.py [--calls 10000] [--device gpu] [-o results.json]

Every call is made with arrays of a random library of those installed: NumPy, torch and JAX on the host, and
with `--device gpu` CuPy and torch on a GPU. Then one network is contracted and a compiled contraction called
as often, and the resident memory of the process, and what is free on the GPU, are compared before and after.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import warnings
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from calls import environment, lattice
from shared import RESULTS

import tnplan
from tnplan.common.files import write_text
from tnplan.planner.networks.tensors import random_tensors

REAL_DTYPES = ("bool", "int8", "uint16", "int64", "float16", "float32", "float64")
DTYPES = (*REAL_DTYPES, "complex64", "complex128")
TOLERANCE = {"float16": 2e-3, "float32": 2e-6, "complex64": 2e-6}
GROWTH_BYTES = 8 << 20
"""More than this is growth: allocators keep some blocks."""


def random_call(rng: random.Random) -> tuple[tuple[Any, ...], list[np.ndarray], np.dtype[Any]]:
    """What comes before the operands, or the places of lists between them, as indices; the operands, and
    their common dtype."""
    generator = np.random.default_rng(rng.getrandbits(32))
    names = rng.sample([chr(code) for code in (*range(65, 91), *range(97, 123))], 6)
    # A tenth have few indices of large extents.
    sizes, most = ((1, 20, 30), 3) if rng.random() < 0.1 else ((1, 2, 3, 4), 6)
    extents = {name: rng.choice(sizes) for name in names[: rng.randint(1, most)]}
    dots = [rng.choice((1, 2)) for _ in range(rng.randint(0, 2))]
    terms, operands = [], []
    for _ in range(rng.randint(1, 4)):
        term = [rng.choice(list(extents)) for _ in range(rng.randint(0, 3))]
        narrow = {name: 1 if rng.random() < 0.1 else extents[name] for name in term}
        shape = [narrow[name] for name in term]
        if rng.random() < 0.3:
            axes = dots[len(dots) - rng.randint(0, len(dots)) :]
            term, shape = ["...", *term], [*axes, *shape]
        terms.append("".join(term))
        values = generator.integers(0, 4, shape).astype(float)
        dtype = np.dtype(rng.choice(DTYPES))
        imaginary = 1j * generator.integers(0, 4, shape) if dtype.kind == "c" else 0
        operands.append((values + imaginary).astype(dtype))
    letters = sorted({letter for term in terms for letter in term if letter.isalpha()})
    equation = ",".join(terms)
    if rng.random() < 0.8:
        output = "".join(rng.sample(letters, rng.randint(0, len(letters))))
        equation += f"->{'...' if '...' in equation else ''}{output}"
    return (equation,), operands, np.result_type(*operands)


def interleaved(equation: str, operands: list[Any]) -> list[Any]:
    """The same call with lists of indices between the operands."""
    left, _, output = equation.partition("->")
    arguments: list[Any] = []
    for operand, term in zip(operands, left.split(","), strict=True):
        arguments += [operand, _labels(term)]
    return [*arguments, _labels(output)] if "->" in equation else arguments


def _labels(term: str) -> list[Any]:
    before, dots, after = term.partition("...")
    return [*map(ord, before), *([...] if dots else []), *map(ord, after)]


def makers(device: str) -> dict[str, Any]:
    """How an array of each library that is there is made of a NumPy array, and turned into one again."""
    found: dict[str, Any] = {"numpy": (lambda array: array, np.asarray)}
    if find_spec("torch"):
        import torch

        found["torch"] = (lambda array: torch.from_numpy(np.array(array)), lambda array: array.numpy())
        if device == "gpu":
            found["torch on a GPU"] = (
                lambda array: torch.from_numpy(np.array(array)).cuda(),
                lambda array: array.cpu().numpy(),
            )
    if device == "gpu":
        import cupy

        found["cupy"] = (cupy.asarray, lambda array: array.get())
    elif find_spec("jax"):
        import jax

        jax.config.update("jax_enable_x64", True)
        found["jax"] = (jax.numpy.asarray, np.asarray)
    return found


def check(rng: random.Random, libraries: dict[str, Any], counts: Counter[str]) -> None:
    """One random call."""
    (equation,), operands, dtype = random_call(rng)
    name = rng.choice(list(libraries))
    if dtype.kind in "biu" and name in ("cupy", "torch on a GPU"):
        name = "numpy"
    wide = np.complex128 if dtype.kind == "c" else np.float64
    exact = np.einsum(equation, *[operand.astype(wide) for operand in operands])
    if dtype.kind in "iu" and exact.size and exact.max() > np.iinfo(dtype).max:
        counts["too large for the integers: refused"] += 1
        try:
            tnplan.contract(equation, *operands)
        except tnplan.InputError:
            return
        raise AssertionError(f"{equation} was to be refused")
    make, back = libraries[name]
    if name.startswith("torch") and dtype.name == "uint16":
        make, back, name = *libraries["numpy"], "numpy"
    arrays = [make(operand) for operand in operands]
    if name == "numpy" and rng.random() < 0.3:
        found, name = tnplan.contract(*interleaved(equation, arrays)), "numpy, interleaved"
    else:
        found = back(tnplan.contract(equation, *arrays))
    wanted = exact > 0 if dtype.kind == "b" else exact.astype(dtype)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), (equation, name, found.dtype, dtype)
    np.testing.assert_allclose(found, wanted, rtol=TOLERANCE.get(dtype.name, 1e-12), err_msg=equation)
    counts[name] += 1


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


def main() -> int:
    """Run, print, write the file; 1 where memory grew."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
    libraries, counts = makers(options.device), Counter[str]()
    rng = random.Random(0)
    start = time.perf_counter()
    for _ in range(options.calls):
        check(rng, libraries, counts)
    grown = growth(options.calls, options.device)
    row = {
        "calls": dict(counts),
        "seconds": round(time.perf_counter() - start, 1),
        "grown_bytes": grown,
        "environment": environment(options.device),
    }
    print(json.dumps(row, indent=1))
    target = options.output or RESULTS / f"random_calls_{options.device}.json"
    write_text(target, json.dumps(row, indent=1) + "\n")
    return int(max(grown.values()) > GROWTH_BYTES)


if __name__ == "__main__":
    sys.exit(main())
