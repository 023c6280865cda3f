"""`simulate(fidelity=)` and `tnplan statevector --fidelity`: answers, bits, the report, runs done again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tnplan
from tests.support.circuits import random_circuit, state_vector
from tests.support.engines.unseen_circuits import unseen_circuit
from tnplan.circuits.qsim import save_qsim
from tnplan.cli.main import run
from tnplan.common.errors import InputError

PEAK = "tnplan.executor.statevector.packed_error.PEAK"


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_answers_are_near_those_of_the_exact_state(precision: str) -> None:
    circuit = unseen_circuit("vqe", 10, 77)
    exact = state_vector(circuit).reshape(-1)
    bit_strings = ["0" * 10, "1" * 10]
    asked = {"shots": 2000, "observable": "Z0 X3 - Z9", "amplitudes": bit_strings, "marginal": [0, 7]}
    plain = tnplan.simulate(circuit, **asked, seed=5, device="cpu")
    for fidelity, bits in ((0.99, 8), (0.999999, 16)):
        done = tnplan.simulate(circuit, **asked, seed=5, fidelity=fidelity, precision=precision)
        report = done.report
        assert (report["bits"], report["fidelity"]) == (bits, fidelity)
        assert fidelity <= report["fidelity_estimate"] < 1
        assert report["fidelity_bound"] <= report["fidelity_estimate"] + 1e-12
        own = done.simulator.array()
        true = abs(np.vdot(exact, own)) ** 2 / np.vdot(own, own).real
        assert true >= report["fidelity_bound"] - 1e-6  # of the array in single precision
        # |<A> - <A>'| <= 2 |A| sqrt(1 - F) for pure states: the trace distance is sqrt(1 - F).
        most = 4 * np.sqrt(1 - report["fidelity_bound"])
        assert done.answer.expectation == pytest.approx(plain.answer.expectation, abs=most)
        assert done.answer.amplitudes == pytest.approx(plain.answer.amplitudes, abs=most / 2)
        assert done.answer.probabilities == pytest.approx(plain.answer.probabilities, abs=most / 2)
        assert done.answer.norm == pytest.approx(1, abs=1e-6)
        assert sum(done.answer.counts.values()) == 2000
        assert f"amplitudes of {bits} bits a part: fidelity 0.99" in str(done)
        assert report["predicted_bytes"] < plain.report["predicted_bytes"]


def test_a_run_is_done_again_with_more_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the prediction was too good; where no bits are left, the run is refused."""
    circuit = random_circuit(9, 60, 3)
    assert tnplan.simulate(circuit, fidelity=0.999999).report["bits"] == 16
    monkeypatch.setattr(PEAK, 1e-6)
    report = tnplan.simulate(circuit, fidelity=0.999999).report
    assert (report["bits"], report["fidelity_estimate"] >= 0.999999) == (16, True)
    with pytest.raises(InputError, match=r"the run with 16 bits has about 0\.99999999"):
        tnplan.simulate(circuit, fidelity=1 - 1e-11)


def test_more_bits_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    circuit = unseen_circuit("random", 18, 1)
    asked = {"threads": 1, "precision": "fp32", "device": "cpu"}
    needed = tnplan.simulate(circuit, fidelity=0.99, **asked).report["predicted_bytes"]
    monkeypatch.setattr(PEAK, 1e-6)
    with pytest.raises(InputError, match="for 16 bits"):
        tnplan.simulate(circuit, fidelity=0.999999, memory=needed + 1000, **asked)


def test_small_states_are_for_a_cpu() -> None:
    with pytest.raises(InputError, match="compressed states of fewer than 5 qubits run only on a CPU"):
        tnplan.simulate(unseen_circuit("vqe", 4, 1), fidelity=0.9, device="gpu")
    assert tnplan.simulate(unseen_circuit("vqe", 4, 1), fidelity=0.9).report["device"] == "cpu"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_qsim(unseen_circuit("qaoa", 6, 2), tmp_path / "qaoa.qsim")
    arguments = ["statevector", str(tmp_path / "qaoa.qsim"), "--fidelity", "0.99", "--observable", "Z0 Z1"]
    assert run([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["bits"] == 8
    assert report["version"] == 3
    assert run([*arguments, "--gradient"]) == 2
    assert "--fidelity: is given together with --gradient" in capsys.readouterr().err
