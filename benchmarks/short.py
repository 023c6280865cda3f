"""The short form of the benchmarks: every row has its goal, and says whether it is met.

    OMP_NUM_THREADS=1 python benchmarks/short.py [--only TEXT ...] [-o results.json]
    python benchmarks/short.py --device gpu [--only TEXT ...] [-o results.json]

It takes ten minutes on two cores. Each part is one of the benchmarks, with small or few cases and with that
benchmark's own functions and goals, in a process of its own. A row is `met`, `near` (missed by no more than
the noise of times on a busy machine) or `MISSED`. What fails or takes too long is a row, too. The status is 1
where a row is MISSED or failed. Goals that need several machines or rivals that are not here are in the
benchmarks themselves: README.md.

With `--device gpu` each part is a whole benchmark on one GPU, whose output is shown. Its row is its exit
status: 0 where it meets all of its goals. `tnplan warmup` before it keeps the compiler out of the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
PATHS = FOLDER.parent / "paths"
NOISE = 0.25
"""By what share a time may miss its goal before it counts: other work shares the machine."""
LONGEST_S = 400.0
"""Seconds of a part, after which it is ended and counts as failed."""
LEAST_CHANCE = 0.05
"""Of so few intervals that hold, or fewer, where 95 % should."""


@dataclass(frozen=True)
class Row:
    """A figure beside its goal: the most that it may be, or the least where `at_least`."""

    what: str
    value: float
    goal: float
    at_least: bool = False
    noise: float = 0.0

    @property
    def verdict(self) -> str:
        """met, near or MISSED; what is no number is missed."""
        sign = -1 if self.at_least else 1
        if sign * self.value <= sign * self.goal:
            return "met"
        return "near" if sign * self.value <= sign * self.goal + self.noise * self.goal else "MISSED"

    @property
    def line(self) -> str:
        """The row of the table."""
        bound = ">=" if self.at_least else "<="
        return f"{self.what:58} {self.value:10.4g}  {bound} {self.goal:<8.4g} {self.verdict}"


def script(name: str) -> Any:
    """A benchmark as a module, such as planning/planning; its folder comes first, as when it is started."""
    folder, _, stem = name.partition("/")
    sys.path[:0] = [str(FOLDER / folder), str(FOLDER.parent)]
    return import_module(stem)


def planning() -> Iterator[Row]:
    """A path for 1,024 ranks is planned in time."""
    from tnplan import load_path, load_profile

    of = script("planning/planning")
    path = load_path(PATHS / "zuchongzhi_n60_m24_b40_schedule_d1024.json")
    yield Row("seconds to plan n60 m24 for 1,024 ranks",
              of.planned_s(path, load_profile("dgx-h100"), 1024), of.GOAL_S, noise=NOISE)  # fmt: skip


def policies() -> Iterator[Row]:
    """Our policy is never slower than the paper's."""
    from tnplan import load_path

    of = script("planning/policies")
    for name in ("sycamore_n53_m14_b30_fused", "zuchongzhi_n60_m24_b35_schedule_d8"):
        row = of.row(load_path(PATHS / f"{name}.json"), name, 64, "dgx-h100")
        yield Row(f"predicted time over the paper's policy, {name[:20]}", row["ours s"] / row["paper s"], 1.0)


def updates() -> Iterator[Row]:
    """An update costs the way to the root, and has the bits of a whole run."""
    of = script("contraction/updates")
    yield Row("equal bits of updates", of.equal_bits(of.load_path(PATHS / of.COMPARED), 3), 3, True)


def small_arrays() -> Iterator[Row]:
    """Warm calls with small arrays beside cotengra, and the files of a first call."""
    of = script("contraction/small_arrays")
    for name, ours, theirs in of.cases():
        ours_s, theirs_s = of.measured(ours, theirs, 15)
        yield Row(f"time of a small call over cotengra's, {name}", ours_s / theirs_s, of.GOAL, noise=NOISE)
    yield Row("files entered by a first call", of.read_by_a_first_call()[1], of.FILES_GOAL)


def replay() -> Iterator[Row]:
    """A whole contraction beside cotengra's of the same tree."""
    of = script("contraction/replay_vs_cotengra")
    ratio = of.compare(PATHS / "regular_84_3_b22_flops.json", 1, 3)["ratio"]
    yield Row("time over cotengra's, a random regular graph", ratio, of.GOAL, noise=NOISE)


def gradients() -> Iterator[Row]:
    """The way back of a contraction beside the way there."""
    of = script("contraction/gradients")
    for row in of.rows_of("sycamore_n53_m10_unsliced_flops", 1, "cpu"):
        name = f"backward over forward time, {row['share']:g} of the memory"
        yield Row(name, row.get("backward_over_forward", float("nan")), of.GOAL, noise=NOISE)


def random_calls() -> Iterator[Row]:
    """Random calls are right or refused."""
    of = script("contraction/random_calls")
    of.np.seterr(over="ignore")
    yield Row("faults of 300 random calls", len(of.faults_of(300, "cpu", 70, Counter(), Counter())), 0)


def bond_limit() -> Iterator[Row]:
    """Contraction with a bond limit beside quimb."""
    of = script("contraction/bond_limit")
    options = argparse.Namespace(seed=0, low=-0.6, cutoff=1e-10, reference=48)
    name, (graph, extent) = next(iter(of.graphs(0).items()))
    yield Row(f"time over quimb's, max_bond 16, {name}", of.measured(graph, extent, 16, options)[0], of.GOAL,
              noise=NOISE)  # fmt: skip


def compressed_states() -> Iterator[Row]:
    """Bounds and estimates of compressed states on unseen circuits."""
    from tnplan.executor.device.comm.threads import run_ranks

    of = script("statevector/compressed")
    rows = run_ranks(1, lambda ranks: of.coverage((8, 11), 20, 690_000, ranks))[0]
    held, within = of.shares(rows)
    yield Row("share of bounds that hold, 80 runs", held, 1.0, True)
    yield Row("share of estimates within a factor of 2", within, of.WITHIN_GOAL, True)


def intervals() -> Iterator[Row]:
    """Intervals of Monte Carlo propagation hold the exact value."""
    of = script("pauli/interval_coverage")
    rows = [row for seed in range(690_000, 690_120) if (row := of.row("bits", seed)) is not None]
    given = [row for row in rows if row["low"] is not None]
    chance = of.chance_of_fewer(sum(row["is_hit"] for row in given), len(given), of.CONFIDENCE)
    yield Row(f"chance of so few of {len(given)} intervals at 95 %", chance, LEAST_CHANCE, True)


def codec_energy() -> Iterator[Row]:
    """Energies with compressed intermediates."""
    of = script("codecs/codec_energy")
    row = of.measured(5e-3, None, 8, [of.cut_value(circuit, None) for circuit in of.CIRCUITS])
    yield Row("mean error of the energy at a bound of 5e-3", row["mean_error"], of.ENERGY_GOAL)
    yield Row("mean fidelity of intermediates", row["mean_fidelity"], of.FIDELITY_GOAL, True)


def cold_start() -> Iterator[Row]:
    """First calls of processes."""
    of = script("system/cold_start")
    for case in ("import", "contract", "simulate"):
        for row in of.measured(case, "cpu"):
            yield Row(f"seconds to a first result, {case}, {row['caches']} caches", row["first_s"],
                      row["goal_s"], noise=NOISE)  # fmt: skip


def counting() -> Iterator[Row]:
    """The ground states of a spin glass, counted."""
    import tnplan

    of = script("questions/counting")
    tnplan.optimize("independent-sets", "grid 4x4")
    begin = time.perf_counter()
    assert tnplan.optimize("ising", of.instance("glass 32"), threads=2, memory="9GiB").n_optima
    name = "seconds for the ground states of a spin glass of 32 x 32"
    yield Row(name, time.perf_counter() - begin, of.GOAL_S, noise=NOISE)


def molecule() -> Iterator[Row]:
    """A multiplication by a molecule's Hamiltonian beside PySCF."""
    of = script("sbd/sbd")
    case = next(case for case in of.CASES if case.name == "n2_1387")
    if find_spec("pyscf") is None or not case.present():
        return
    row = of.molecule_row(case, 2)
    yield Row("PySCF's time over ours, N2", row["ratio_whole"], of.GOAL_RATIO, True, NOISE)
    yield Row("error of the energy, Hartree", abs(row["energy_error"]), of.GOAL_ENERGY)


PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    part.__name__: part
    for part in (
        planning, policies, updates, small_arrays, replay, gradients, random_calls, bond_limit,
        compressed_states, intervals, codec_energy, cold_start, counting, molecule,
    )
}  # fmt: skip


GPU_COMMANDS = {
    "random_calls": "contraction/random_calls.py --device gpu --calls 3000 --seed 690",
    "calls": "contraction/calls.py --device gpu",
    "algebra_rates": "questions/algebra_rates.py",
    "algebra_networks": "questions/algebra_networks.py",
    "counting_instances": "questions/counting_instances.py --device gpu --first 8000 --processes 8",
    "compressed_states": "statevector/compressed.py --gpu QFT:30,random:30,QFT:36,random:35",
    "states": "statevector/statevector_gpu.py --qubits 26,30",
    "permutation": "system/permutation.py",
}
"""Benchmarks on one GPU, the quickest first; each has its goals, and its status is 1 where it misses one."""


def gpu_rows(name: str) -> list[Row]:
    """The exit status of a benchmark on a GPU, which prints its figures."""
    file, *options = GPU_COMMANDS[name].split()
    command = [sys.executable, str(FOLDER / file), *options]
    environment = {**os.environ, "PYTHONPATH": str(FOLDER.parent), "PYTHONUNBUFFERED": "1"}
    try:
        status = subprocess.run(command, env=environment, timeout=LONGEST_S, check=False).returncode
    except subprocess.TimeoutExpired:
        return [Row(f"{name}: ended after {LONGEST_S:g} s", float("nan"), 0.0)]
    return [Row(f"exit status of {name}", abs(status), 0)]  # negative after a signal


def rows_of(name: str) -> list[Row]:
    """What a part gives, in a process of its own; a part that fails is a row that is missed."""
    command = [sys.executable, str(FOLDER / "short.py"), "--part", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=True)
    except subprocess.TimeoutExpired:
        return [Row(f"{name}: ended after {LONGEST_S:g} s", float("nan"), 0.0)]
    except subprocess.CalledProcessError as error:
        print(error.stderr, file=sys.stderr)
        return [Row(f"{name}: failed", float("nan"), 0.0)]
    return [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]


def main() -> int:
    """Run the parts, print the table, write the file; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[""], help="parts whose names have one of these in them")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--part", choices=tuple(PARTS), help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    if options.part is not None:
        rows = list(PARTS[options.part]())
        print(json.dumps([asdict(row) for row in rows]))
        return 0
    begin, found = time.perf_counter(), {}
    parts, measured = (GPU_COMMANDS, gpu_rows) if options.device == "gpu" else (PARTS, rows_of)
    for name in (name for name in parts if any(text in name for text in options.only)):
        start = time.perf_counter()
        found[name] = measured(name)
        print(f"{name} ({time.perf_counter() - start:.0f} s)" + ("" if found[name] else ": left out"))
        for row in found[name]:
            print(f"  {row.line}", flush=True)
    verdicts = Counter(row.verdict for rows in found.values() for row in rows)
    counts = ", ".join(f"{verdicts[name]} {name}" for name in ("met", "near", "MISSED"))
    load = f"{os.getloadavg()[0]:.1f} processes beside it on {os.cpu_count()} cores"
    print(f"{counts}, in {time.perf_counter() - begin:.0f} s, {load}")
    if options.output is not None:
        named = {
            name: [{**asdict(row), "verdict": row.verdict} for row in rows] for name, rows in found.items()
        }
        options.output.write_text(json.dumps(named, indent=1) + "\n")
    return int(verdicts["MISSED"] > 0)


if __name__ == "__main__":
    sys.exit(main())
