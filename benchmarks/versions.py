"""Does a change make an engine slower? Two source trees by turns, one thread each.

    git worktree add before 4b05c4b5
    python benchmarks/versions.py --before before --rounds 9 --output versions.jsonl

A process of each tree does every job once for its kernels, then both do it by turns. A line a job: the median
over the rounds of the processor seconds after divided by those before, and both medians. Goals: a median of
the ratios within 2 %, no job 5 % slower.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

ROOT = Path(__file__).parents[1]
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def jobs(folder: Path) -> dict[str, Callable[[], Any]]:
    """The job of each engine, without the reading of its inputs."""
    import numpy as np

    import tnplan

    random = np.random.default_rng(5)
    n = 20
    lines = [str(n)]
    for layer in range(0, 24, 3):
        for qubit in range(n):
            angle, other = random.normal(size=2)
            lines += [f"{layer} rx {qubit} {angle}", f"{layer + 1} rz {qubit} {other}"]
        lines += [f"{layer + 2} cz {qubit} {qubit + 1}" for qubit in range(layer % 2, n - 1, 2)]
    (folder / "circuit.qsim").write_text("\n".join(lines) + "\n")
    circuit = tnplan.load_circuit(folder / "circuit.qsim")
    path = tnplan.load_path(ROOT / "paths/sycamore_n53_m10_b24_flops.json")
    small = tnplan.load_path(ROOT / "paths/sycamore_n53_m10_b22_flops.json")
    schedule = tnplan.plan(small, hardware="cpu", memory="512MiB")
    values = np.cumsum(random.normal(size=1 << 23)).astype(np.float32)
    stream = tnplan.compress.compress(values, 1e-3)
    hopping, factors = random.normal(size=(10, 10)), 0.1 * random.normal(size=(20, 10, 10))
    one_electron = np.diag(4.0 * np.arange(10)) + hopping + hopping.T
    symmetric = factors + factors.transpose(0, 2, 1)
    two_electron = np.einsum("kpq,krs->pqrs", symmetric, symmetric)
    integrals = tnplan.from_arrays(one_electron, two_electron, 5, 5)
    strings = [mask for mask in range(1 << 10) if mask.bit_count() == 5]
    local: dict[str, Any] = {"threads": 1, "device": "cpu"}
    return {
        "simulate": lambda: tnplan.simulate(circuit, amplitudes=["0" * n], **local),
        "simulate in fp64": lambda: tnplan.simulate(circuit, amplitudes=["0" * n], precision="fp64", **local),
        "gradient": lambda: tnplan.simulate(circuit, observable="Z0", gradient=True, **local),
        "propagate": lambda: tnplan.propagate(
            circuit, "Z" + "I" * (n - 1), tnplan.Truncation(merged_cut=1e-6), **local
        ),
        "plan": lambda: tnplan.plan(path, hardware="dgx-h100", devices=8),
        "search": lambda: tnplan.search(path, max_tensor=1 << 26, time=2.0, seed=1),
        "execute": lambda: tnplan.execute(schedule, slices=(0, 1), **local),
        "compress": lambda: tnplan.compress.compress(values, 1e-3),
        "decompress": lambda: tnplan.compress.decompress(stream),
        "diagonalize": lambda: tnplan.diagonalize(integrals, strings, strings, **local),
    }


def child() -> None:
    """Do a job that is named on a line, and answer with its processor seconds."""
    with TemporaryDirectory() as folder:
        made = jobs(Path(folder))
        print(json.dumps(list(made)), flush=True)
        for line in sys.stdin:
            begin = process_time()
            made[line.strip()]()
            print(process_time() - begin, flush=True)


class Version:
    """The process of a source tree."""

    def __init__(self, tree: Path) -> None:
        environment = os.environ | dict.fromkeys(THREADS, "1") | {"PYTHONPATH": str(tree.resolve())}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment, cwd=tree,
        )  # fmt: skip
        self.names: list[str] = json.loads(self.read())

    def read(self) -> str:
        """The next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def time_s(self, name: str) -> float:
        """What a job takes."""
        assert self.process.stdin is not None
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        return float(self.read())


MEDIAN, WORST = 1.02, 1.05


def main() -> int:
    """Measure every job, a line each; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--before", type=Path)
    parser.add_argument("--after", type=Path, default=ROOT)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--jobs", nargs="+", help="some of them; default: all")
    parser.add_argument("--output", type=Path, default=Path("versions.jsonl"))
    given = parser.parse_args()
    if given.child:
        child()
        return 0
    before, after = Version(given.before), Version(given.after)
    ratios = []
    for name in given.jobs or after.names:
        before.time_s(name), after.time_s(name)
        pairs = [(before.time_s(name), after.time_s(name)) for _ in range(given.rounds)]
        row = {
            "job": name, "ratio": median(now / then for then, now in pairs),
            "before_s": median(then for then, _ in pairs), "after_s": median(now for _, now in pairs),
        }  # fmt: skip
        ratios.append(row["ratio"])
        with given.output.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{name:18} {row['ratio']:.3f}  {row['before_s']:.4g} {row['after_s']:.4g} s", flush=True)
    print(f"median {median(ratios):.3f}, largest {max(ratios):.3f}")
    missed = median(ratios) > MEDIAN or max(ratios) > WORST
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
