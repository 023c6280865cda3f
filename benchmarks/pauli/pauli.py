"""The Pauli engine: beside its rivals in one run, the seed's tables and sweeps, and linearity.

Goals. eagle: two threads 5 times faster than pauli-prop, same terms and value; an H200 3e10 visits a second
from 5 million terms on. ising: not slower than monoprop at an error not larger. tfim: 0.8 of monoprop's time
on one core, preparation 5 microseconds a gate. sample: 10 times faster than cuPauliProp. seed: every row 10
times faster than the seed's GPU, on an H200. linear: time and bytes linear from 1e4 terms to 1e9. ranks: four
H200s 2.5 times faster than one above 1e8 terms. holds: four, 3.5 times.

Usage: python benchmarks/pauli/pauli.py [--only eagle] [--rivals PYTHON] [--device gpu] [-o results.json]
PYTHON is an interpreter of another environment, which has pauli-prop and monoprop; what it lacks is left out.
cuPauliProp runs in a process of this interpreter, with --device gpu. Several GPUs:
mpirun -n 4 python -m mpi4py benchmarks/pauli/pauli.py --device gpu --only ranks --terms 1e8, and --only holds

Medians are of 3 runs. In eagle, ising and sample a second of runs goes before, of ours and of every rival
alike; in the others one run.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pauli_circuits as circuits

import tnplan
from tnplan.circuits.pauli_sum import PauliSum, pack, parse, pauli_sum
from tnplan.common.errors import InputError
from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.device.select import open_device
from tnplan.executor.pauli.algebra.gates import Clifford, circuit_steps
from tnplan.executor.pauli.propagate import Propagation, check_steps, open_terms, prepared, propagate
from tnplan.executor.pauli.resources import Resources
from tnplan.executor.pauli.terms.protocol import RotationBatch
from tnplan.executor.pauli.terms.truncation import Truncation

Row = dict[str, Any]
REPEATS = 3
LARGER_CUTS = (1.05, 1.1, 1.15, 1.2, 1.3, 1.4)
WARM_S = 1.0
WARM_CUT = 2.0**-15
SEED_TABLE = (
    (30000, 500, 80.89, 0.129), (8000, 50, 3.34, 0.009), (5000, 120, 5.47, 0.021), (5000, 150, 6.77, 0.026),
    (4000, 100, 3.55, 0.017), (3000, 200, 5.53, 0.034), (2000, 250, 4.67, 0.043), (1000, 300, 2.78, 0.052),
    (1000, 400, 3.66, 0.069), (500, 500, 2.26, 0.086),
)  # fmt: skip
"""Words, layers, seconds on the seed's CPU, seconds on its GPU (Table in its section 4.3)."""
RINGS = (
    ("ising", 16, 4, 0.0), ("ising", 32, 4, 0.0), ("ising", 32, 16, 1e-5), ("ising", 64, 16, 1e-5),
    ("xxz", 16, 2, 0.0), ("xxz", 32, 2, 0.0), ("xxz", 32, 6, 3e-5), ("xxz", 64, 6, 3e-5),
)  # fmt: skip
"""Models, qubits, steps, and cuts after merging."""


def environment(device: str) -> Row:
    """Where a run is made: the host, the commit, and the GPU with its driver."""
    where = {**host_facts(), "commit": commit(), "device": device}
    if device == "gpu":
        from cupy.cuda import runtime

        from tnplan.executor.device.cuda.gpus import driver_version, gpu_name

        where["gpu"] = gpu_name(runtime.getDeviceProperties(runtime.getDevice()))
        where["driver"] = driver_version()
    return where


def main() -> int:
    """Run the cases, print their rows, and write them; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=CASES, action="append")
    parser.add_argument("--rivals", type=Path, help="an interpreter that has pauli-prop and monoprop")
    parser.add_argument("--terms", type=float, default=5e6, help="eagle, GPU: smaller cuts, to so many terms")
    parser.add_argument(
        "--precision",
        choices=("fp64", "fp32"),
        action="append",
        help="of linear, ranks, and eagle at smaller cuts; one after another (default: fp64)",
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="GPU: no larger case after so long a one")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    options.precision = options.precision or ["fp64"]
    is_first = not {*MANY_RANKS} & {*(options.only or ())} or everyone().rank == 0
    output = options.output if is_first else None
    document: Row = {"cases": {}, "environments": {}}
    if output and output.exists():
        document = json.loads(output.read_text())
    where, failed = environment(options.device), list[str]()
    for name in options.only or [name for name in CASES if name not in MANY_RANKS]:
        rows = CASES[name](options)
        document["cases"][f"{name}, {options.device}"] = rows
        document["environments"][f"{name}, {options.device}"] = where
        for row in rows if is_first else ():
            print(name, " ".join(f"{key} {value:.6g}" if isinstance(value, float) else f"{key} {value}"
                                 for key, value in row.items()), flush=True)  # fmt: skip
        if output:
            output.write_text(json.dumps(document, indent=1) + "\n")
        is_judged = is_first and (options.device == "gpu" or name not in ON_A_GPU)
        if is_judged and not all(GOALS_MET.get(name, _always)(rows)):
            failed.append(name)
            print(name, "misses its goal", flush=True)
    missed = bool(failed)
    if missed:
        print("MISSED")
    return int(missed)


def timed(run: Callable[[], Propagation], warm_s: float = 0.0) -> tuple[Propagation, Row]:
    """The median of several runs: its seconds, and the processor's seconds over all threads.

    `warm_s`: seconds of runs before those that are counted; one run at least.
    """
    times: list[tuple[float, float]] = []
    begin = time.perf_counter()
    done = run()
    while time.perf_counter() - begin < warm_s:
        done = run()
    for _ in range(REPEATS):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        done = run()
        times.append((time.perf_counter() - begin, time.process_time() - begin_cpu))
    wall_s, cpu_s = sorted(times)[REPEATS // 2]
    return done, {
        "time_s": wall_s,
        "cpu_s": cpu_s,
        "terms": done.n_terms,
        "value": done.value,
    }


def uses(device: str) -> list[tuple[str, Resources]]:
    """Ours, by name."""
    if device == "gpu":
        return [("tnplan, gpu", Resources(device="gpu"))]
    return [(f"tnplan, {n} threads", Resources(threads=n)) for n in (1, 2)]


def rival(options: argparse.Namespace, name: str, problem: Row) -> list[Row]:
    """A rival's row; none, and a line, where it is absent."""
    script, python = "pauli_rivals.py", options.rivals
    if name == "cupauliprop":
        script, python = "pauli_cupauliprop.py", Path(sys.executable)
    if python is None:
        print(f"{name} is left out: --rivals names no interpreter that has it")
        return []
    done = subprocess.run(
        [str(python), str(Path(__file__).parent / script), name],
        input=json.dumps({**problem, "repeats": REPEATS, "warm_s": WARM_S}), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        print(f"{name} is left out: {(done.stderr.strip().splitlines() or ['it failed'])[-1]}")
        return []
    return [{"by": name, **json.loads(done.stdout.splitlines()[0])}]


def eagle(options: argparse.Namespace) -> list[Row]:
    """127 qubits, theta 0.7, branches and terms cut at 2^-12; on a GPU also at smaller cuts."""
    rotations, start = circuits.eagle(0.7, 20), parse("Z62", 127)
    steps, rows = circuits.steps_of(rotations), []
    for name, use in uses(options.device):
        limits = Truncation(2.0**-12, 2.0**-12)
        done, row = timed(partial(propagate, steps, start, limits, use, keep="none"), WARM_S)
        rows.append({"by": name, "cut": 2.0**-12, **row, "visits_per_s": done.visits / row["time_s"]})
    problem = {
        "n_qubits": 127, "rotations": rotations, "observable": 62, "cut": 2.0**-12, "max_terms": 400_000,
    }  # fmt: skip
    if options.device == "gpu":
        return rows + larger(options, Resources(device="gpu"))
    return rows + rival(options, "pauli-prop", problem)


def everyone() -> Communicator:
    """The ranks of mpirun."""
    from tnplan.executor.device.comm.mpi import world

    return world()


def ranks(options: argparse.Namespace) -> list[Row]:
    """The same circuit on all ranks of mpirun, at cuts 2 times smaller each.

    A run that is not counted goes before, in which all ranks have terms: NCCL opens its ways when they are
    first used.
    """
    chosen = open_device(options.device, everyone(), 0, 1)
    try:
        with chosen.device.stream if options.device == "gpu" else nullcontext():  # type: ignore[attr-defined]
            use = Resources(device=options.device, ranks=chosen.ranks.split(0, everyone().rank))
            steps, start = circuits.steps_of(circuits.eagle(0.7, 20)), parse("Z62", 127)
            propagate(steps, start, Truncation(WARM_CUT, WARM_CUT), use, keep="none")
            return [{"ranks": everyone().size, **row} for row in larger(options, use)]
    finally:
        chosen.close()


def holds(options: argparse.Namespace) -> list[Row]:
    """Words of 64 qubits that the GPUs of mpirun hold: every rotation doubles them, until one is refused."""
    chosen = open_device(options.device, everyone(), 0, 1)
    try:
        with chosen.device.stream:  # type: ignore[attr-defined]
            use = Resources(device=options.device, ranks=chosen.ranks.split(0, everyone().rank))
            return doublings(open_terms(use.converted(four_words()), use), chosen.ranks)
    finally:
        chosen.close()


def doublings(terms: Any, world: Communicator) -> list[Row]:
    """Rotations about X_1, X_2, ...; words with the first of them go to other ranks."""
    rows: list[Row] = []
    if world.size > 1:
        terms._move(np.array([pack(2 << bit, 0, 64) for bit in range(world.size.bit_length() - 1)]))
    for qubit in range(1, 61):
        begin, refused, own = time.perf_counter(), "", 0
        try:
            terms.rotate(pack(1 << qubit, 0, 64), 0.8, 0.6, 0.0)
            terms.end_step()
            own = terms.n
        except InputError as error:
            refused = str(error)
        seconds = time.perf_counter() - begin
        counts, sizes, lines = zip(*world.gather_objects((own, terms.size_bytes, refused)), strict=True)
        if any(lines):
            print(f"holds ends: {max(lines)}")
            break
        rows.append({
            "ranks": world.size, "terms": sum(counts), "time_s": seconds,
            "bytes_per_term": sum(sizes) / sum(counts),
        })  # fmt: skip
    terms.close()
    return rows


def larger(options: argparse.Namespace, use: Resources) -> list[Row]:
    """The circuit of `eagle` at cuts 2 times smaller each, until there are as many terms as asked for."""
    return [row for name in options.precision for row in to_size(options, replace(use, precision=name))]


def to_size(options: argparse.Namespace, use: Resources) -> list[Row]:
    """The rows of one precision."""
    steps, start = circuits.steps_of(circuits.eagle(0.7, 20)), parse("Z62", 127)
    rows: list[Row] = []
    for power in range(13, 30):
        cut = 2.0**-power
        begin = time.perf_counter()
        try:
            done = propagate(steps, start, Truncation(cut, cut), use, keep="none")
        except InputError as error:
            print(f"eagle ends before 2^-{power}: {error}")
            break
        seconds, record = time.perf_counter() - begin, done.record
        rows.append({
            "by": f"tnplan, {options.device}", "cut": cut, "precision": use.precision, "time_s": seconds,
            "terms": done.n_terms, "value": done.value,
            "visits_per_s": done.visits / seconds, "branched": sum(record.branched) / done.visits,
            "largest": max(record.before), "GB": done.size_bytes / 1e9,
        })  # fmt: skip
        slowest = seconds if use.ranks is None else max(use.ranks.gather_objects(seconds))
        if done.n_terms >= options.terms or slowest > options.seconds:
            break
    return rows


def sample(options: argparse.Namespace) -> list[Row]:
    """NVIDIA's sample: 127 qubits, theta pi/4, terms cut at 1e-4 and weight 8 every 10 gates."""
    rotations, start = circuits.eagle(math.pi / 4, 20), parse("Z62", 127)
    steps, limits = circuits.steps_of(rotations), Truncation(merged_cut=1e-4, max_weight=8, every=10)
    rows = []
    for name, use in uses(options.device):
        done, row = timed(partial(propagate, steps, start, limits, use, keep="none"), WARM_S)
        rows.append({"by": name, **row, "largest": done.largest})
    problem = {
        "n_qubits": 127, "rotations": rotations, "observable": 62, "cut": 1e-4, "max_weight": 8, "every": 10,
        "max_terms": 1 << 20, "workspace_bytes": 1 << 28,
    }  # fmt: skip
    return rows + (rival(options, "cupauliprop", problem) if options.device == "gpu" else [])


def ising(options: argparse.Namespace) -> list[Row]:
    """Square lattices, every angle 0.08; errors against a cut 10 times smaller.

    With a rival ours is also timed at the largest of some cuts whose error is not larger than the rival's.
    """
    rows = []
    for side, layers, cut in ((6, 15, 1e-5), (8, 15, 1e-5), (12, 21, 3e-5)):
        rotations, n, middle = circuits.ising_2d(side, layers, 0.08), side**2, side**2 // 2 + side // 2
        steps, start = circuits.steps_of(rotations), parse(f"Z{middle}", n)

        def value(cut: float, steps: Any = steps, start: Any = start) -> float:
            return propagate(steps, start, Truncation(branch_cut=cut), keep="none").value

        exact = value(cut / 10)
        problem = {"n_qubits": n, "rotations": rotations, "observable": middle, "cut": cut}
        found = [{"cut": cut, **row} for row in rival(options, "monoprop", problem)]
        cuts = [cut]
        for row in found:
            least = abs(row["value"] - exact)
            cuts += [c for c in (cut * f for f in LARGER_CUTS) if abs(value(c) - exact) <= least][-1:]
        for name, use in uses(options.device):
            for own in cuts:
                run = partial(propagate, steps, start, Truncation(branch_cut=own), use, keep="none")
                found.append({"cut": own, "by": name, **timed(run, WARM_S)[1]})
        rows += [{"side": side, "layers": layers, **row, "error": abs(row["value"] - exact)} for row in found]
    return rows


def tfim(options: argparse.Namespace) -> list[Row]:
    """monoprop's own circuit on 8 x 8, 16 steps, cut 1e-5, from a circuit of Qiskit to the value on a thread:
    equal angles, and all different. `read_us` and `prepare_us` are a gate's part of the time, `last_s` and
    `series_s` the value after the last step and those after each."""
    rows = []
    for spread in (0.0, 1e-3):
        rotations = circuits.tfim(8, 16, spread)
        circuit, start = circuits.qiskit_circuit(64, rotations), parse("Z35 Z36", 64)

        def done(truncation: Truncation, circuit: Any = circuit) -> Any:
            options = {"device": "cpu", "threads": 1, "keep": "none"}
            return tnplan.propagate(circuit, "Z35 Z36", truncation, **options).propagation

        exact = done(Truncation(branch_cut=4e-7)).value
        problem = {"n_qubits": 64, "rotations": rotations, "observable": [35, 36], "cut": 1e-5}
        found = rival(options, "monoprop", {**problem, "is_whole": True})
        parts: dict[str, list[float]] = {"read_us": [], "prepare_us": []}
        for _ in range(REPEATS):
            times = [time.process_time()]
            gates = tnplan.load_circuit(circuit)
            times.append(time.process_time())
            steps = circuit_steps(gates)
            check_steps(steps, 64)
            prepared(steps, start, False)
            times.append(time.process_time())
            for name, seconds in zip(parts, np.diff(times), strict=True):
                parts[name].append(1e6 * seconds / len(rotations))
        for kind, cut in (("branch_cut", 1e-5), ("merged_cut", 2e-5)):
            truncation = Truncation(**{kind: cut})
            row = timed(partial(done, truncation), WARM_S)[1]
            row |= {column: min(each) for column, each in parts.items()}
            after = [len(rotations) // 16 * k for k in range(1, 17)]
            for name, stops in (("last_s", after[-1:]), ("series_s", after)):
                row[name] = np.inf
                for _ in range(REPEATS):
                    begin = time.process_time()
                    tnplan.Circuit(circuit).expectation(
                        "Z35 Z36", after=stops, method="pauli", threads=1, device="cpu", truncation=truncation
                    )
                    row[name] = min(row[name], time.process_time() - begin)
            found.append({"by": f"tnplan, {kind} {cut:g}", **row})
        rows += [{"spread": spread, **row, "error": abs(row["value"] - exact)} for row in found]
    return rows


def symmetry(options: argparse.Namespace) -> list[Row]:
    """The mean of Z on rings, with words that translations take to each other merged, and without."""
    rows = []
    for kind, n, steps, cut in RINGS:
        circuit, step = circuits.ring(kind, n, steps)
        for permutations in (None, [[(q + step) % n for q in range(n)]]):
            # One word for those of a whole ring has the sum of their coefficients.
            own_cut = cut if permutations else cut * step / n
            begin = time.process_time()
            done = tnplan.propagate(
                circuit, " + ".join(f"{step / n}*Z{q}" for q in range(0, n, step)), symmetry=permutations,
                truncation=Truncation(merged_cut=own_cut), state="01" * (n // 2) if step == 2 else None,
                keep="none", device="cpu", threads=1,
            )  # fmt: skip
            rows.append({
                "kind": kind, "n_qubits": n, "steps": steps, "cut": own_cut,
                "merged": done.report["symmetry"], "terms": done.report["terms"], "value": done.value,
                "cpu_s": time.process_time() - begin,
            })  # fmt: skip
    return rows


def seed(options: argparse.Namespace) -> list[Row]:
    """Words on 7 qubits through Clifford layers: one pass a layer, and all layers as one map.

    Medians of several runs: of the layers, and with the terms taken to the device before and back after.
    """
    rows = []
    for n_words, n_layers, cpu_s, gpu_s in SEED_TABLE:
        start, layer = circuits.random_words(7, n_words), circuits.clifford_layer(7, "h")
        use = uses(options.device)[0][1]
        row: Row = {"words": n_words, "distinct": start.n_terms, "layers": n_layers}
        for name, passes, gates in (("", n_layers, layer), ("fused_", 1, layer * n_layers)):
            seconds = [through_layers(start, gates[::-1], passes, use) for _ in range(REPEATS + 1)][1:]
            row[f"{name}time_s"], row[f"{name}whole_s"] = (
                sorted(times)[REPEATS // 2] for times in zip(*seconds, strict=True)
            )
        rows.append({**row, "seed_cpu_s": cpu_s, "seed_gpu_s": gpu_s})
    return rows


def through_layers(
    start: PauliSum, gates: Sequence[Clifford], passes: int, use: Resources
) -> tuple[float, float]:
    """The seconds of so many passes of gates, alone and with opening the terms and taking them back."""
    begin = time.perf_counter()
    terms = open_terms(start, use)
    assert terms.n == start.n_terms
    opened = time.perf_counter()
    for _ in range(passes):
        terms.clifford(gates)
    assert terms.n == start.n_terms
    done = time.perf_counter()
    assert terms.local_terms().n_terms == start.n_terms
    end = time.perf_counter()
    terms.close()
    return done - opened, end - begin


def sweeps(options: argparse.Namespace) -> list[Row]:
    """The seed's mixed example (10 qubits, 100 gates, 1000 words) and what it varies, one at a time."""
    base = {"qubits": 10, "gates": 100, "words": 1000, "rotations": 0.25, "max_weight": 6}
    varied = {
        "qubits": (4, 6, 8, 10, 16, 32), "gates": (25, 50, 100, 200), "words": (50, 500, 5000, 50000),
        "rotations": (0.0, 0.25, 0.5, 0.8), "max_weight": (4, 5, 6, 7, 8),
    }  # fmt: skip
    use = uses(options.device)[0][1]
    rows = []
    for name, values in varied.items():
        for value in values:
            case: Any = {**base, name: value}
            steps = circuits.mixed(case["qubits"], case["gates"], case["rotations"])
            start = circuits.light_words(case["qubits"], case["words"], case["max_weight"])
            limits = Truncation(max_weight=case["max_weight"], merged_cut=1e-3)
            done, row = timed(partial(propagate, steps, start, limits, use, keep="none"))
            rows.append({
                "varied": name, **case, **row, "largest": done.largest, "visits": done.visits,
                "size_bytes": done.size_bytes,
            })  # fmt: skip
    return rows


def linear(options: argparse.Namespace) -> list[Row]:
    """Ten rotations about X_0 of words of 64 qubits, two fifths of which it splits, into each other.

    All words of X on some qubits times four words of Z, one of which has Z_0; rotations double them.
    """
    use = uses(options.device)[-1][1]
    return [row for name in options.precision for row in doubled(options, replace(use, precision=name))]


def four_words() -> PauliSum:
    """Four words of Z on 64 qubits, one of which has Z_0; all have Z on qubits 1 to 60."""
    return pauli_sum([(0, z, 1.0) for z in (2**64 - 1, *(2**64 - 2 - (1 << k) for k in (63, 62, 61)))], 64)


def doubled(options: argparse.Namespace, use: Resources) -> list[Row]:
    """The rows of one precision."""
    rows: list[Row] = []
    terms = open_terms(use.converted(four_words()), use)
    rotation, again = pack(1, 0, 64), 10
    terms.rotate(rotation, 0.8, 0.6, 0.0)
    terms.end_step()
    for qubit in range(1, 29 if options.device == "gpu" else 20):
        try:
            terms.rotate(pack(1 << qubit, 0, 64), 0.8, 0.6, 0.0)
            terms.end_step()
            n = terms.n
        except InputError as error:
            print(f"linear ends before {2 * n} terms: {error}")
            break
        begin, begin_cpu = time.perf_counter(), time.process_time()
        rotations = np.repeat(rotation[None], again, axis=0)
        zeros = np.zeros(again, np.int64)
        batch = RotationBatch(rotations, np.full(again, 0.8), np.full(again, 0.6), zeros > 0, zeros)
        terms.rotate_many(batch, 0.0, Truncation().limits)
        assert terms.n == n
        wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - begin_cpu
        if n > 10_000:
            rows.append({
                "terms": n, "s_per_visit": wall_s / again / n, "cpu_s_per_visit": cpu_s / again / n,
                "bytes_per_term": terms.size_bytes / n, "precision": use.precision,
            })  # fmt: skip
        if wall_s > options.seconds:
            break
    terms.close()
    return rows


CASES: dict[str, Callable[[argparse.Namespace], list[Row]]] = {
    "eagle": eagle, "sample": sample, "ising": ising, "tfim": tfim, "symmetry": symmetry,
    "seed": seed, "sweeps": sweeps, "linear": linear, "ranks": ranks, "holds": holds,
}  # fmt: skip
MANY_RANKS = ("ranks", "holds")
"""Cases of all ranks of mpirun, run where they are asked for."""


def _always(rows: list[Row]) -> Iterator[bool]:
    """A case without a goal of its own rows."""
    yield True


def _ours(rows: list[Row], *names: str) -> list[Row]:
    return [row for row in rows if str(row["by"]).startswith(names or ("tnplan",))]


def eagle_is_met(rows: list[Row]) -> Iterator[bool]:
    """Two threads beside pauli-prop; the visits a second of a GPU where there are many terms."""
    theirs = _ours(rows, "pauli-prop")
    for ours in _ours(rows, "tnplan, 2 threads") if theirs else ():
        yield 5 * ours["time_s"] <= theirs[0]["time_s"]
        yield ours["terms"] == theirs[0]["terms"] and math.isclose(ours["value"], theirs[0]["value"])
    yield from (row["visits_per_s"] >= 3e10 for row in _ours(rows, "tnplan, gpu") if row["terms"] >= 5e6)


def ising_is_met(rows: list[Row]) -> Iterator[bool]:
    """Not slower than monoprop on the same number of cores, at an error that is not larger."""
    for theirs in _ours(rows, "monoprop"):
        here = [row for row in _ours(rows) if row["side"] == theirs["side"]]
        yield any(row["error"] <= theirs["error"] and row["time_s"] <= theirs["time_s"] for row in here)


def tfim_is_met(rows: list[Row]) -> Iterator[bool]:
    """On one core: 0.8 of monoprop's time at an error that is not larger, and microseconds a gate."""
    for theirs in _ours(rows, "monoprop"):
        here = [row for row in _ours(rows) if row["spread"] == theirs["spread"]]
        yield any(row["error"] <= theirs["error"] and row["cpu_s"] <= 0.8 * theirs["cpu_s"] for row in here)
    yield from (row["prepare_us"] <= 5 for row in _ours(rows))


def sample_is_met(rows: list[Row]) -> Iterator[bool]:
    """Ten times faster than cuPauliProp."""
    for theirs in _ours(rows, "cupauliprop"):
        yield from (10 * row["time_s"] <= theirs["time_s"] for row in _ours(rows))


def seed_is_met(rows: list[Row]) -> Iterator[bool]:
    """Ten times faster than the seed's GPU."""
    yield from (10 * row["time_s"] <= row["seed_gpu_s"] for row in rows)


GOALS_MET: dict[str, Callable[[list[Row]], Iterator[bool]]] = {
    "eagle": eagle_is_met, "ising": ising_is_met, "tfim": tfim_is_met, "sample": sample_is_met,
    "seed": seed_is_met,
}  # fmt: skip
"""What the rows of a case say of its goal; ranks and holds are beside runs on other numbers of GPUs."""
ON_A_GPU = ("seed",)
"""Cases whose goal is one of a GPU."""

if __name__ == "__main__":
    sys.exit(main())
