"""What an estimate says below its rows agrees with them, on every number of devices."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tnplan
from tests.support.circuits import random_circuit
from tests.support.effort import repeats
from tnplan.planner.hardware.profile import load_profile


def angles_by_name(n_qubits: int, draw: random.Random, file: Path) -> tnplan.Circuit:
    """A circuit with a named parameter, for gradients."""
    lines = [f'OPENQASM 3.0; include "stdgates.inc"; input float t; qubit[{n_qubits}] q;']
    for _ in range(draw.randint(1, 4)):
        lines += [f"ry({q + 1} * t) q[{q}];" for q in range(n_qubits)]
        lines += ["cz q[{}], q[{}];".format(*draw.sample(range(n_qubits), 2)) for _ in range(n_qubits)]
    file.write_text("\n".join(lines))
    return tnplan.Circuit(file, {"t": 0.3})


def drawn_estimate(seed: int, folder: Path) -> tnplan.CircuitEstimate:
    """A random circuit and question on random numbers of devices, each with a random memory."""
    draw = random.Random(seed)
    n_qubits = draw.choice((6, 14, 20, 30, 48))
    circuit = tnplan.Circuit(random_circuit(n_qubits, draw.randint(n_qubits, 4 * n_qubits), seed))
    question: dict[str, Any] = draw.choice(
        (
            {"sample": 100}, {"expectation": "Z0 Z3"}, {"expectation": "Z0 Z3", "gradient": True},
            {"trace": ("Z0", "X1")}, {"amplitudes": ["0" * n_qubits]},
            {"probabilities": [0, 2]}, {"open_qubits": [*range(min(n_qubits, draw.randint(1, 24)))]},
        )
    )  # fmt: skip
    if "gradient" in question:
        circuit = angles_by_name(n_qubits, draw, folder / "named.qasm")
    profile = load_profile(draw.choice(("cpu", "h200-nvlink")))
    memory_bytes = profile.reserved_bytes + int(2 ** draw.uniform(14, 34))
    devices = draw.sample((1, 2, 3, 4, 8, 16, 64), draw.randint(1, 4))
    return circuit.estimate(
        **question, devices=devices, hardware=replace(profile, memory_bytes=memory_bytes), search_time=0.05
    )


def agrees_with_its_rows(found: tnplan.CircuitEstimate) -> None:
    """Every number of devices has a line, which says that nothing fits where no row does, and there alone."""
    counts = list(dict.fromkeys(row.devices for row in found.rows))
    assert [choice.devices for choice in found.choices] == counts
    table, ends = str(found).splitlines(), []
    if len(counts) > 1:
        ends = table[-len(counts) :]
    else:
        ends = [line for line in table if line.startswith(("best:", "nothing fits:"))]
    for count, choice, line in zip(counts, found.choices, ends, strict=True):
        fitting = {row.method for row in found.rows if row.devices == count and row.cost is not None}
        assert ("nothing fits" in line) == (not fitting) == (choice.method is None)
        assert (choice.method in fitting) == bool(fitting)
        # An estimate of one method has nothing to choose.
        has_choice = bool(fitting) and len({row.method for row in found.rows}) > 1
        assert (choice.auto in fitting) == has_choice
        assert len(counts) == 1 or line.startswith(f"{count} device")
    for row in found.rows:
        assert row.cost is None or row.needs_devices is None or row.needs_devices <= row.devices
        assert (row.cost is None) == bool(row.reason)
        assert "among 1 devices" not in row.reason
    assert ("nothing fits" in repr(found)) == any(choice.method is None for choice in found.choices)
    assert found.document["method"] == found.method == found.choices[0].method
    assert [one["method"] for one in found.document["choices"]] == [one.method for one in found.choices]


@pytest.mark.parametrize("seed", range(repeats(12, 300)))
def test_an_estimate_says_that_nothing_fits_where_no_row_does(seed: int, tmp_path: Path) -> None:
    agrees_with_its_rows(drawn_estimate(seed, tmp_path))


def test_a_method_that_fits_more_devices_is_named_for_them() -> None:
    """A state of 35 qubits fits on four GPUs: what is said of one is not said of four."""
    circuit = tnplan.Circuit(random_circuit(35, 40, 0))
    asked: dict[str, Any] = {"sample": 5, "hardware": "h200-nvlink", "method": "statevector"}
    found = circuit.estimate(**asked, devices=[1, 4], state_fidelity=1)
    agrees_with_its_rows(found)
    assert [choice.method for choice in found.choices] == [None, "statevector"]
    one, four = str(found).splitlines()[-2:]
    assert one == "1 device: nothing fits: statevector: does not fit"
    assert four.startswith("4 devices: best: statevector: predicted ")
    assert repr(found).endswith(": nothing fits on 1, statevector on 4)")


def test_a_gradient_that_does_not_fit_where_its_value_does_needs_more(tmp_path: Path) -> None:
    """A schedule that keeps its values takes more memory than that of the value alone."""
    circuit = angles_by_name(20, random.Random(0), tmp_path / "named.qasm")
    question: dict[str, Any] = {
        "expectation": "Z0 Z3", "gradient": True, "method": "contraction", "search_time": 0.05,
    }  # fmt: skip
    profile = load_profile("cpu")
    (wide,) = circuit.estimate(**question, hardware=profile).rows
    assert wide.cost is not None
    memory_bytes = profile.reserved_bytes + int(0.8 * wide.cost.memory_bytes)
    found = circuit.estimate(**question, hardware=replace(profile, memory_bytes=memory_bytes))
    agrees_with_its_rows(found)
    assert [row.reason for row in found.rows] == ["does not fit"]
