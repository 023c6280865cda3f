"""Estimates of samples by rejection: their candidates, and the contraction of a round as it is counted."""

from __future__ import annotations

from itertools import count
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.bad_input import refused
from tnplan.cli.main import run
from tnplan.executor.contraction.run.sparse_state import RowReplay
from tnplan.executor.device.protocols.device import Call
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.schedule.row_schedule import RowStep
from tnplan.planner.workloads.lattice import lattice_circuit
from tnplan.questions.estimates import contraction_cost
from tnplan.questions.estimates.cost import SAMPLES_FACTOR
from tnplan.questions.tensor_networks.networks import ROW_S
from tnplan.questions.tensor_networks.sample import expected_rounds
from tnplan.questions.tensor_networks.sparse_state import SparseState, batch_s


@pytest.mark.parametrize("n_open", [0, 3])
@pytest.mark.parametrize(("rows", "shots"), [(2, 30), (3, 1000), (3, 9000)])
def test_candidates_are_those_that_are_drawn(rows: int, shots: int, n_open: int) -> None:
    """Also where one round does not hold them all; chance may take a round more, of as many as before."""
    circuit = lattice_circuit("rectangular", rows, 3, 16, 0)
    found = tnplan.Circuit(circuit).sample(
        shots, sampling="rejection", open_qubits=n_open, seed=1, device="cpu", threads=1
    )
    rounds = expected_rounds(shots)
    assert (len(rounds) > 1) == (shots > 3000)
    assert 10 * shots <= sum(rounds) < 25 * shots
    assert sum(rounds) / 1.5 < found.details["candidates"] < sum(rounds) * 2.1


def cost(shots: int, devices: int = 1, *, size: int = 3, **how: Any) -> tnplan.MethodEstimate:
    """The estimate of the contraction."""
    circuit = tnplan.Circuit(lattice_circuit("rectangular", size, 3, 16, 0))
    found = circuit.estimate(sample=shots, sampling="rejection", threads=1, devices=[devices], **how)
    rows = {row.method: row for row in found.rows}
    assert "draws from the whole distribution" in rows["statevector"].reason
    return rows["contraction"]


def test_shots_are_predicted_by_their_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search counts as long as it took: here each takes a millisecond, however busy the machine is."""
    seconds = count()
    monkeypatch.setattr(contraction_cost, "perf_counter", lambda: 1e-3 * next(seconds))
    few, many, shared = cost(100), cost(50_000), cost(50_000, 10)
    assert few.cost is not None
    assert many.cost is not None
    assert shared.cost is not None
    assert few.cost.time_s < many.cost.time_s
    assert shared.cost.time_s < many.cost.time_s / 4
    assert (few.error_kind, few.cost.factor) == ("statistical", SAMPLES_FACTOR)


@pytest.mark.parametrize("how", [{}, {"xeb": 0.5}])
def test_strings_on_a_gpu(monkeypatch: pytest.MonkeyPatch, how: dict[str, float]) -> None:
    """Without one here: a GPU of the profile contracts many strings in less time than a core, within its
    memory."""
    seconds = count()
    monkeypatch.setattr(contraction_cost, "perf_counter", lambda: 1e-6 * next(seconds))
    core, gpu = (
        cost(50_000, size=4, hardware=name, device=device, **how)
        for name, device in (("cpu", "cpu"), ("h200-nvlink", "gpu"))
    )
    assert core.cost is not None
    assert gpu.cost is not None
    assert 0 < gpu.cost.memory_bytes < load_profile("h200-nvlink").memory_bytes
    assert gpu.cost.time_s < core.cost.time_s


def test_a_round_that_does_not_fit_is_no_estimate(tmp_path: Path) -> None:
    source = Path(load_profile.__code__.co_filename).parent / "cpu.toml"
    small = tmp_path / "small.toml"
    small.write_text(source.read_text().replace("memory_bytes = 4_000_000_000", "memory_bytes = 4_000", 1))
    found = cost(100, hardware=small)
    assert found.cost is None
    assert found.reason == "does not fit"


def test_too_few_slices_are_refused_as_samples_are() -> None:
    circuit = tnplan.Circuit(tnplan.GateSequence(2, ()))
    for ask in (lambda **how: circuit.estimate(sample=5, **how), lambda **how: circuit.sample(5, **how)):
        with pytest.raises(tnplan.InputError, match="fidelity: needs 2 slices"):
            ask(sampling="rejection", fidelity=0.5)


def test_the_contraction_of_a_round_is_counted_as_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations at the rate, elements that are gathered and written at the bandwidth, and rows."""
    circuit = lattice_circuit("rectangular", 3, 3, 16, 0)
    strings = np.unique(np.random.default_rng(1).integers(0, 2, (200, 9), np.uint8), axis=0)
    state = SparseState(circuit, strings, ContractionOptions(device="cpu", threads=1))
    counted = {"rows": 0, "elements": 0, "products": 0}
    bind = RowReplay.bind

    def counting(self: RowReplay, step: RowStep) -> Call:
        call = bind(self, step)
        of_m, of_n = step.m, step.n
        if step.pairs is None:  # each row with each: rows are the first modes of both operands
            count, of_m, of_n = step.m[0][0] * step.n[0][0], step.m[1:], step.n[1:]
        else:
            count = len(step.pairs)
        h, m, n = (prod(extent for extent, _ in modes) for modes in (step.batch, of_m, of_n))

        def counted_call() -> None:
            call()
            counted["rows"] += count
            counted["elements"] += count * h * (m * step.k + step.k * n + m * n)
            counted["products"] += count * h * m * n * step.k

        return counted_call

    monkeypatch.setattr(RowReplay, "bind", counting)
    state.amplitudes()
    profile = load_profile("cpu")
    seconds = counted["products"] / (50e9 / 8) + counted["elements"] * 16 / 10e9 + counted["rows"] * ROW_S
    assert counted["rows"] > len(strings)
    assert batch_s(state.plan, state.products_per_s, state.dtype, profile) == pytest.approx(seconds)


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.qsim").write_text("2\n0 h 0\n1 cz 0 1\n2 h 1\n")
    line = "estimate c.qsim --sample 50 --sampling rejection --open-qubits 1"
    assert run(line.split()) == 0
    assert "auto takes contraction" in capsys.readouterr().out
    refused(capsys, "estimate c.qsim --expectation Z0 --sampling rejection", "is given without --sample")
    refused(capsys, "estimate c.qsim --sample 5 --fidelity 0.5", "--fidelity: is for samples by rejection")
