"""Benchmarks of samples on the CPU: predicted and exact cross-entropies, parts of the slices of a bunch."""

from __future__ import annotations

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from tests.support.circuits import state_vector
from tests.support.root import ROOT
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network
from tnplan.planner.networks.path_file import save_path
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.search.search_in_proportion import greedy_path
from tnplan.planner.workloads.sycamore import sycamore_circuit

RECORD = "benchmarks/contraction/sycamore_record.py"
CYCLES, QUBITS, OPEN = 9, 14, 4


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, cwd=ROOT, timeout=120, check=False
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A path with slices for all values of the last qubits."""
    ends = "0" * (QUBITS - OPEN) + "." * OPEN
    network, _ = simplify(*circuit_network(sycamore_circuit(CYCLES, 0, QUBITS), ends))
    file = tmp_path / "path.json"
    summed = sorted({index for term in network.inputs for index in term} - {*network.output})
    save_path(ContractionPath(network, greedy_path(network), (summed[10], summed[20], summed[30])), file)
    return file


def part(path: Path, file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run(
        RECORD, "part", "--path", path, "--output", file, "--device", "cpu", "--hardware", "h200-nvlink",
        "--cycles", str(CYCLES), "--qubits", str(QUBITS), *words,
    )  # fmt: skip


@pytest.mark.slow
def test_parts_of_the_slices_add_up(path: Path, tmp_path: Path) -> None:
    state = state_vector(sycamore_circuit(CYCLES, 0, QUBITS)).reshape(-1)[: 2**OPEN]
    first, others, whole = (tmp_path / f"{name}.npz" for name in ("first", "others", "whole"))
    done = part(path, first, "--slices", "3")
    row = json.loads(done.stdout)
    assert row["slices"] == [0, 3]
    part(path, others, "--first", "3", "--slices", "1000")
    again = part(path, whole, "--slices", "1000", "--precision", "tf32", "--beside", str(first))
    parts = [np.load(file) for file in (first, others)]
    assert [tuple(kept["slices"]) for kept in parts] == [(0, 3), (3, row["of"])]
    assert all(sha256(kept["amplitudes"].tobytes()).hexdigest() == kept["sha256"] for kept in parts)
    rounding = 1e-5 * 2 ** (-QUBITS / 2)
    np.testing.assert_allclose(sum(kept["amplitudes"] for kept in parts), state, rtol=0, atol=rounding)
    np.testing.assert_allclose(np.load(whole)["amplitudes"], state, rtol=0, atol=rounding)
    a = parts[0]["amplitudes"]
    wanted = abs(np.vdot(a, state)) ** 2 / (np.vdot(a, a) * np.vdot(state, state)).real
    assert json.loads(again.stdout)["fidelity beside"] == pytest.approx(wanted, rel=1e-4)
    assert row["fidelity"] == pytest.approx(np.mean(np.abs(a) ** 2) * 2**QUBITS, rel=1e-4)


@pytest.mark.slow
def test_the_path_of_a_part_is_of_sycamore() -> None:
    """And is no other circuit's: that is refused."""
    done = run(RECORD, "part", "--device", "cpu", "--cycles", "19")
    assert done.returncode == 1
    assert "sycamore_bunch_path.json: is of another network" in done.stderr


@pytest.mark.slow
def test_samples_have_the_predicted_cross_entropy() -> None:
    """As users draw them; the exact one by the state vector."""
    done = run(
        "benchmarks/questions/xeb.py", "--device", "cpu", "--gates", "sycamore", "--seeds", "7", "8",
        "--layers", "14", "--shots", "200", "--exact", "statevector",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [row["target"] for row in rows] == [1.0, 0.1, 0.01]
    assert all(abs(row["xeb"] - row["predicted"]) < 3 * row["error"] for row in rows)
    assert rows[0]["xeb"] > 0.8
