"""Every command with an output, as lines of the command line, and the files that they take."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.support.engines.sbd import fcidump_text, lines_of, random_integrals, some_strings
from tests.support.robustness.good_files import make_files
from tests.support.root import ROOT

CPU = "--device cpu --threads 1"
HAS_ADDON = importlib.util.find_spec("qiskit_addon_sqd") is not None
ON_RANKS = (
    f"execute two.json {CPU} -o out.npy",
    f"amplitudes big.qsim --file strings.txt {CPU} -o out.json",
    f"sample big.qsim --shots 100 --seed 1 {CPU} -o out.json",
    f"expectation c.qsim --file o.txt --method pauli {CPU} -o out.json",
    f"probabilities big.qsim --qubits 0,1,2 {CPU} -o out.json",
    f"reduced-density-matrix big.qsim --qubits 0,1 {CPU} -o out.json",
    f"overlap big.qsim big.qsim {CPU} -o out.json",
    f"trace c.qsim --a Z0 --b Z0 {CPU} -o out.json",
    f"pauli big.qsim --observable Z0 --max-terms 20000 {CPU} -o out.json",
    f"sbd large.fcidump --alpha large.txt {CPU} --residual 1e-6 -o out.npz",
    f"sbd h.fcidump --grow {CPU} -o out.npz",
    f"sbd-qubits w.txt b.txt {CPU} -o out.npz",
    f"statevector big.qsim --observable Z0 {CPU} --save state.json -o out.json",
    *([f"sqd both.json h.fcidump --seed 1 --max-iterations 3 {CPU} -o out.npz"] if HAS_ADDON else []),
    "calibrate --base cpu --device cpu --size 1MiB --dtype complex64 -o out.toml",
)
"""Commands that mpirun may start on several ranks."""
COMMANDS = (
    "network c.qasm -o out.json",
    "workload sycamore --cycles 12 -o out.json",
    "search wide.json --max-tensor 2^20 --time 2 --resume -o out.json",
    "search wide.json --max-tensor 2^20 --method greedy --time 1 -o out.json",
    "plan path.json -o out.json",
    "show one.json --plot out.svg",
    "slurm one.json -o out.sh",
    "report path.json --devices 1,2 --hardware h.toml --html out.html",
    *(line.replace("two.json", "one.json") for line in ON_RANKS),
    "count independent-sets graph.txt",
    "optimize independent-sets graph.txt",
    "estimate big.qsim --sample 10",
    "compress large.npy -o out.tnz",
    "decompress large.npy.tnz -o out.npy",
    "warmup --device cpu",
)
QUBITS = 20


def make_inputs(folder: Path) -> None:
    """The inputs of all commands."""
    make_files(folder)
    random = np.random.default_rng(1)
    gates = [f"{layer} {'cz' if layer % 2 else 'fs'} {q} {q + 1}{'' if layer % 2 else ' 0.3 0.2'}"
             for layer in range(8) for q in range(layer % 2, QUBITS - 1, 2)]  # fmt: skip
    (folder / "big.qsim").write_text("\n".join([str(QUBITS), *gates]) + "\n")
    (folder / "strings.txt").write_text("".join(f"{n:0{QUBITS}b}\n" for n in range(20)))
    samples = random.random((200, 12)) < 0.45
    counts = {"".join("01"[bit] for bit in row): 1 for row in samples.astype(int)}
    (folder / "both.json").write_text(json.dumps(counts))
    (folder / "graph.txt").write_text("".join(f"{n} {(n * n + 1) % 30}\n" for n in range(30)))
    integrals = random_integrals(10, 5, 5, 5)
    (folder / "large.fcidump").write_text(fcidump_text(integrals))
    (folder / "large.txt").write_text(lines_of(some_strings(10, 5, 250, 1), 10))
    np.save(folder / "large.npy", random.normal(size=1 << 21).astype(np.float32))
    for line in (
        "compress large.npy",
        "workload sycamore --cycles 12 -o wide.json",
        "plan path.json --devices 2 --hardware cpu -o two.json",
    ):
        subprocess.run(
            [sys.executable, "-m", "tnplan", *line.split()], cwd=folder, check=True, capture_output=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
