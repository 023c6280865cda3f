"""Warm calls of `tnplan.contract` with small arrays beside `cotengra.einsum`, and the files of a first call.

    python benchmarks/contraction/small_arrays.py

Both are timed in turns in one process, a round of each after the other: the least of all rounds counts, so
that what else runs on the machine matters little. Goals: 1.2 times cotengra's time for a product of 4 x 5 and
5 x 6, and a first call of a process that enters 60 files at most.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, permutations
from pathlib import Path
from time import perf_counter
from typing import Any

import cotengra
import numpy as np

import tnplan

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.support.first_call import read_by_a_first_call

ROUNDS, CALLS = 60, 20
GOAL, FILES_GOAL = 1.2, 60


def arrays(dtype: str, *shapes: tuple[int, ...]) -> list[Any]:
    """Random arrays of a dtype."""
    generator = np.random.default_rng(0)
    values = [generator.random(shape) for shape in shapes]
    if np.dtype(dtype).kind == "c":
        values = [one + 1j * generator.random(one.shape) for one in values]
    return [one.astype(dtype) for one in values]


def cases() -> Iterator[tuple[str, Callable[[], Any], Callable[[], Any]]]:
    """Each with a call of ours and one of cotengra."""
    named: dict[str, tuple[str, list[Any]]] = {
        f"4x5 times 5x6, {dtype}": ("ij,jk->ik", arrays(dtype, (4, 5), (5, 6)))
        for dtype in ("float64", "float32", "complex64", "complex128")
    }
    named["32x32 times 32x32"] = "ij,jk->ik", arrays("float64", (32, 32), (32, 32))
    named["chain of three"] = "ij,jk,kl->il", arrays("float64", (4, 5), (5, 6), (6, 3))
    named["scalar"] = "ij,ij->", arrays("float64", (4, 5), (4, 5))
    named["transposed result"] = "ij,jk->ki", arrays("float64", (4, 5), (5, 6))
    named["batch"] = "bij,bjk->bik", arrays("float64", (7, 4, 5), (7, 5, 6))
    named["one array"] = "ijk->ki", arrays("float64", (4, 5, 6))
    named["strided"] = "ij,jk->ik", [arrays("float64", (8, 5))[0][::2], arrays("float64", (6, 5))[0].T]
    for name, (equation, given) in named.items():
        yield name, partial(tnplan.contract, equation, *given), partial(cotengra.einsum, equation, *given)
    mixed = arrays("float32", (4, 5)) + arrays("float64", (5, 6))
    yield (
        "float32 times float64",
        partial(tnplan.contract, "ij,jk->ik", *mixed), partial(cotengra.einsum, "ij,jk->ik", *mixed),
    )  # fmt: skip
    whole = [np.arange(20).reshape(4, 5), np.arange(30).reshape(5, 6)]
    yield (
        "integers",
        partial(tnplan.contract, "ij,jk->ik", *whole), partial(cotengra.einsum, "ij,jk->ik", *whole),
    )  # fmt: skip
    a, b = arrays("float64", (4, 5), (5, 6))
    lists = a.tolist(), b.tolist()
    yield (
        "lists",
        partial(tnplan.contract, "ij,jk->ik", *lists),
        lambda: cotengra.einsum("ij,jk->ik", *map(np.asarray, lists)),
    )
    ours, theirs = (cycle(f"{''.join(x)},{''.join(y)}->ad" for x in permutations("abc")
                          for y in permutations("bcd")) for _ in range(2))  # fmt: skip
    same = [np.ones((4, 4, 4)), np.ones((4, 4, 4))]
    yield (
        "36 equations in turn",
        lambda: tnplan.contract(next(ours), *same),
        lambda: cotengra.einsum(next(theirs), *same),
    )


def round_s(call: Callable[[], Any]) -> float:
    """The seconds of a call in a row of them."""
    start = perf_counter()
    for _ in range(CALLS):
        call()
    return (perf_counter() - start) / CALLS


def measured(ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int = ROUNDS) -> tuple[float, float]:
    """The least seconds of a call of ours and of one of cotengra, which give the same."""
    np.testing.assert_allclose(np.asarray(ours()), np.asarray(theirs()), rtol=1e-5)
    least_s = [float("inf")] * 2
    for _ in range(rounds):
        for number, call in enumerate((ours, theirs)):
            least_s[number] = min(least_s[number], round_s(call))
    return least_s[0], least_s[1]


def main() -> int:
    """Print a row of the table of notes for each case; 1 where a goal is missed."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    ratios = []
    print("| case | tnplan, us | cotengra, us | ratio |\n|---|---|---|---|")
    for name, ours, theirs in cases():
        ours_s, theirs_s = measured(ours, theirs)
        ratios.append(ours_s / theirs_s)
        print(f"| {name} | {1e6 * ours_s:.1f} | {1e6 * theirs_s:.1f} | {ours_s / theirs_s:.2f} |")
    modules, entered = read_by_a_first_call()
    print(f"first call of a process: {modules} modules of tnplan, {entered} files entered")
    missed = max(ratios) > GOAL or entered > FILES_GOAL
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
