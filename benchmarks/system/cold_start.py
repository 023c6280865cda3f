"""How long the first call takes in a fresh process, with empty caches and with those of the run before.

    python benchmarks/system/cold_start.py [--device gpu] [--case TEXT] [-o results.json]

Every row is a process of its own: seconds from its start to the first result, `import tnplan` included, the
same call once more, and seconds of all processors, those of processes that compile among them. Caches are in
a temporary folder, emptied before the first process of a case; the least of three warm processes is kept.
Goals: simulate and propagate of 20 qubits 4 s with empty caches and 0.5 s with warm ones; contract 1.5 s and
0.3 s (beyond CUDA's own start on a GPU); import 0.3 s, without numba, CuPy and matplotlib.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

Row = dict[str, Any]
RESULTS = Path(__file__).parents[1] / "results" / "startup"
GOALS_S = {
    "import": (0.3, 0.3), "cuda": (None, None), "contract": (1.5, 0.3), "simulate": (4.0, 0.5),
    "propagate": (4.0, 0.5), "diagonalize": (None, None), "compress": (None, None),
}  # fmt: skip
"""Seconds with empty and with warm caches."""
WARM_RUNS = 3
FOLDERS = ("TNPLAN_CACHE_DIR", "NUMBA_CACHE_DIR", "CUPY_CACHE_DIR", "CUDA_CACHE_PATH")
HEAVY = ("numba", "cupy", "matplotlib")


def cuda(device: str) -> Any:
    """CUDA's own start: CuPy's import and the first GPU's context."""
    if device == "gpu":
        import cupy

        cupy.cuda.runtime.free(0)


def contract(device: str) -> Any:
    """A chain of three matrices."""
    import numpy as np

    import tnplan

    random = np.random.default_rng(0)
    return tnplan.contract("ab,bc,cd->ad", *(random.random((8, 8)) for _ in range(3)), device=device)


def simulate(device: str) -> Any:
    """Twelve layers of Haar-random gates on 4 x 5 qubits, samples and an expectation value."""
    import tnplan
    from tnplan.planner.workloads.lattice import lattice_circuit

    circuit = lattice_circuit("rectangular", 4, 5, 12, 0)
    return tnplan.simulate(circuit, shots=100, observable="Z0 Z1", seed=0, device=device).answer.expectation


def propagate(device: str) -> Any:
    """Three Trotter steps on 4 x 5 qubits."""
    import tnplan
    from tnplan.planner.workloads.lattice import trotter_circuit

    circuit = trotter_circuit("rectangular", 4, 5, 3, 0, 0.25)
    return tnplan.propagate(circuit, "Z9", tnplan.Truncation(branch_cut=1e-3), device=device).value


def diagonalize(device: str) -> Any:
    """A random Hamiltonian of six orbitals among products of strings."""
    import numpy as np

    import tnplan

    one = np.random.default_rng(0).normal(size=(6, 6))
    integrals = tnplan.from_arrays(one + one.T, np.zeros((6, 6, 6, 6)), 3, 3)
    strings = [bits for bits in range(64) if bits.bit_count() == 3]
    return float(tnplan.diagonalize(integrals, strings, device=device).energies[0])


def compress(device: str) -> Any:
    """65,536 numbers in 64 bits, there and back."""
    import numpy as np

    from tnplan.compress import compress, decompress

    values = np.sin(np.arange(1 << 16))
    return float(np.abs(decompress(compress(values, 1e-3)) - values).max())


CASES: dict[str, Callable[[str], Any]] = {
    "import": lambda device: None, "cuda": cuda, "contract": contract, "simulate": simulate,
    "propagate": propagate, "diagonalize": diagonalize, "compress": compress,
}  # fmt: skip


def child(case: str, device: str) -> None:
    """One process: prints when the first result was there, on the clock of all processes."""
    import tnplan  # noqa: F401

    imported, loaded = time.time(), [name for name in HEAVY if name in sys.modules]
    assert not loaded, loaded
    CASES[case](device)
    first = time.time()
    CASES[case](device)
    print(json.dumps({"imported": imported, "first": first, "again_s": time.time() - first}))
    with suppress(ChildProcessError):  # processes that compile: their time counts once they are waited for
        while True:
            os.wait()


def one_process(case: str, device: str, folder: Path) -> Row:
    """The times of a process with these caches."""
    environment = {**os.environ, **{name: str(folder / name) for name in FOLDERS}, "TNPLAN_PATH_CACHE": "0"}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    done = subprocess.run(
        [sys.executable, __file__, "--child", case, "--device", device], env=environment, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = json.loads(done.stdout.splitlines()[-1])
    return {
        "import_s": said["imported"] - start, "first_s": said["first"] - start, "again_s": said["again_s"],
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    }  # fmt: skip


def measured(case: str, device: str) -> list[Row]:
    """Rows of a case: empty caches, then warm ones."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        cold = one_process(case, device, folder)
        kernels = sum(path.suffix in (".o", ".nbc", ".cubin") for path in folder.rglob("*"))
        runs = [one_process(case, device, folder) for _ in range(WARM_RUNS)]
        warm = min(runs, key=lambda row: row["first_s"])
    goals = GOALS_S[case]
    return [
        {"case": case, "caches": "empty", "goal_s": goals[0], **cold, "kernels": kernels},
        {"case": case, "caches": "warm", "goal_s": goals[1], **warm, "kernels": 0},
    ]


def main() -> int:
    """Measure, print and write; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--case", default="", help="only cases whose names have this in them")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.device)
        return 0
    from tnplan.common.files import write_text
    from tnplan.executor.device.cpu.host_memory import host_facts

    rows: list[Row] = []
    for case in (name for name in CASES if arguments.case in name):
        for row in measured(case, arguments.device):
            rows.append(row)
            goal = "" if row["goal_s"] is None else f"goal {row['goal_s']} s"
            print(
                f"{case:12} {row['caches']:6} first {row['first_s']:6.2f} s, again {row['again_s']:6.3f} s, "
                f"processors {row['cpu_s']:6.2f} s, {row['kernels']:3} kernels  {goal}", flush=True,
            )  # fmt: skip
    document = {
        "date": time.strftime("%Y-%m-%d"), "device": arguments.device, "load": os.getloadavg()[0],
        "rows": rows, "environment": host_facts(),
    }  # fmt: skip
    output = arguments.output or RESULTS / f"cold_start_{arguments.device}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    write_text(output, json.dumps(document, indent=1) + "\n")
    print(f"written: {output}")
    missed = any(row["goal_s"] is not None and row["first_s"] > row["goal_s"] for row in rows)
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
