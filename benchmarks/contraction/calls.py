"""Compiled contractions that are called again and again, beside cotengra: times of a call, arrays in and out.

    python benchmarks/contraction/calls.py [--device gpu] [-o results.json]

On a CPU with one thread: a PEPS of 5 x 5 tensors of bond 4 and a row of ten matrices of extent 2, cotengra's
compiled contractor of the same path beside ours. On a GPU whole contractions of paths in `paths/`, from and
to arrays of the host, and from and to torch's on the GPU; cotengra with torch on the same GPU beside both.
Medians after three calls, by turns in one run. Goals: on a CPU 1.2 times cotengra's time, ten matrices 60 us;
on a GPU 0.5 times, and 1 ms besides the work itself.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from cotengra_check import cotengra_tree
from shared import PATHS, RESULTS, open_device
from threadpoolctl import threadpool_limits

import tnplan
from tnplan.common.files import write_text
from tnplan.executor.contraction.run.compiled_program import CompiledProgram
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.path_file import load_path, tensors_file
from tnplan.planner.networks.tensors import load_tensors, random_tensors

Row = dict[str, Any]
CPU_GOAL, CPU_CALLS = 1.2, 1000
SMALL_GOAL_S = 60e-6
GPU_GOAL, GPU_CALLS = 0.5, 15
GPU_OVERHEAD_S = 1e-3
GPU_CASES = (
    "sycamore_n53_m10_b24_flops",
    "regular_84_3_b22_flops",
    "regular_84_3_unsliced_flops",
    "peps_11x11_b21_flops",
    "peps_11x11_unsliced_flops",
)
NO_TIMES = ("case", "difference")
TOLERANCE = {"float64": 1e-12, "complex64": 2e-5, "complex128": 1e-12}


def by_turns(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The median seconds of some calls, made by turns after three of each."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(3):
        for call in calls.values():
            call()
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in seconds.items()}


def lattice(rows: int, columns: int, bond: int) -> tnplan.Network:
    """A lattice of tensors, one index for each pair of neighbours."""
    terms = []
    for row in range(rows):
        for column in range(columns):
            bonds = [("d", row - 1, column), ("d", row, column), ("r", row, column - 1), ("r", row, column)]
            inside = [
                f"{kind}{i}_{j}"
                for kind, i, j in bonds
                if 0 <= i < rows - (kind == "d") and 0 <= j < columns - (kind == "r")
            ]
            terms.append(tuple(inside))
    return tnplan.Network(tuple(terms), (), {index: bond for term in terms for index in term})


def matrices(n: int) -> tnplan.Network:
    """A product of matrices of extent 2."""
    terms = tuple((f"i{k}", f"i{k + 1}") for k in range(n))
    return tnplan.Network(terms, ("i0", f"i{n}"), {f"i{k}": 2 for k in range(n + 1)})


def on_cpu() -> list[Row]:
    """Both on one thread, along one path."""
    return [
        {"case": name, **one_on_cpu(network)}
        for name, network in (("peps 5 x 5, bond 4", lattice(5, 5, 4)), ("ten matrices", matrices(10)))
    ]


def one_on_cpu(network: tnplan.Network) -> Row:
    """The times of one network."""
    arrays = random_tensors(network, "float64", 0)
    path = tnplan.search(network, dtype="float64", unlimited=True, methods=["greedy"], time=0)
    theirs = cotengra_tree(path).get_contractor()
    with tnplan.compile(path, device="cpu") as ours:
        wanted = theirs(*arrays)
        difference = float(abs(ours(*arrays) - wanted).max() / abs(wanted).max())
        assert difference <= TOLERANCE["float64"], difference
        calls = {"ours": lambda: ours(*arrays), "cotengra": lambda: theirs(*arrays)}
        return {**by_turns(calls, CPU_CALLS), "difference": difference}


def on_gpu() -> list[Row]:
    """Ours from the host and from torch's arrays, and cotengra with torch, on one GPU."""
    import torch

    rows = []
    for name in GPU_CASES:
        path = load_path(PATHS / f"{name}.json")
        tensors = tensors_file(PATHS / f"{name}.json", path.tensors)
        assert tensors is not None
        rows.append(
            {"case": name, **one_on_gpu(path, load_tensors(tensors, path.network, path.dtype), torch)}
        )
    return rows


def one_on_gpu(path: ContractionPath, arrays: list[np.ndarray], torch: Any) -> Row:
    """The times of one path."""
    tree = cotengra_tree(path)
    there = [torch.from_numpy(array).cuda() for array in arrays]

    def theirs() -> np.ndarray:
        moved = [torch.from_numpy(array).cuda() for array in arrays]
        return np.asarray(tree.contract(moved).cpu().numpy())

    with tnplan.compile(path, device="gpu") as ours:
        wanted = theirs()
        difference = float(abs(ours(*arrays) - wanted).max() / abs(wanted).max())
        assert difference <= TOLERANCE[path.dtype], difference
        assert abs(ours(*there).cpu().numpy() - wanted).max() <= TOLERANCE[path.dtype] * abs(wanted).max()

        def on_device() -> None:
            ours(*there)
            torch.cuda.synchronize()

        device = open_device("gpu")
        program = CompiledProgram(ours.schedule, device, run_ranks(1, lambda own: own)[0])

        def work() -> None:
            program.run()
            device.synchronize()

        def theirs_on_device() -> None:
            tree.contract(there)
            torch.cuda.synchronize()

        calls: dict[str, Callable[[], Any]] = {
            "ours": lambda: ours(*arrays),
            "work": work,
            "torch_arrays": on_device,
            "cotengra": theirs,
            "cotengra_there": theirs_on_device,
        }
        return {**by_turns(calls, GPU_CALLS), "difference": difference}


def verdict(row: Row, device: str) -> str:
    """What of the goals a row misses."""
    missed = []
    if device == "cpu":
        if row["ours"] > CPU_GOAL * row["cotengra"]:
            missed.append(f"over {CPU_GOAL} of cotengra")
        if row["case"] == "ten matrices" and row["ours"] > SMALL_GOAL_S:
            missed.append("over 60 us")
    else:
        if row["ours"] > GPU_GOAL * row["cotengra"]:
            missed.append(f"over {GPU_GOAL} of cotengra")
        if row["torch_arrays"] > GPU_GOAL * row["cotengra_there"]:
            missed.append(f"over {GPU_GOAL} of cotengra with arrays on the GPU")
        if row["ours"] - row["work"] > GPU_OVERHEAD_S:
            missed.append("over 1 ms besides the work")
    return f"MISSED: {', '.join(missed)}" if missed else ""


def main() -> int:
    """Run, print the table, write the file; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    with threadpool_limits(limits=1, user_api="blas"):
        rows = on_cpu() if options.device == "cpu" else on_gpu()
    for row in rows:
        times = "  ".join(f"{key} {row[key] * 1e3:.4f} ms" for key in row if key not in NO_TIMES)
        ratio = row["ours"] / row["cotengra"]
        print(f"{row['case']:30} {times}  ratio {ratio:.3f}  {verdict(row, options.device)}")
    target = options.output or RESULTS / f"calls_{options.device}.json"
    write_text(
        target, json.dumps({"environment": environment(options.device), "rows": rows}, indent=1) + "\n"
    )
    return 1 if any(verdict(row, options.device) for row in rows) else 0


def environment(device: str) -> Row:
    """The machine and the versions of what was compared."""
    import cotengra

    facts = {**host_facts(), "tnplan": tnplan.__version__, "cotengra": cotengra.__version__}
    if device == "gpu":
        import torch

        facts |= {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    return facts


if __name__ == "__main__":
    sys.exit(main())
