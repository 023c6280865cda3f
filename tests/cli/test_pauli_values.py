"""`tnplan pauli`: repetitions, states, overlaps, values of each term, and what is said of errors."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.kernels.gpus import needs_gpus
from tests.support.robustness.checkpoint_files import document_of
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.pauli_sum import parse
from tnplan.circuits.qsim import save_qsim
from tnplan.cli.main import run
from tnplan.executor.pauli.estimate import estimate_of
from tnplan.executor.pauli.resources import term_bytes
from tnplan.executor.pauli.terms.truncation import Truncation
from tnplan.jobs.pauli_sampling import SampledValue, sampling_needs


@pytest.fixture
def circuit(tmp_path: Path) -> Path:
    """H and CNOT, then RX on both qubits."""
    gates = (gate("h", (0,)), gate("cnot", (0, 1)), gate("rx", (0,), (0.3,)), gate("rx", (1,), (0.3,)))
    save_qsim(GateSequence(2, gates), tmp_path / "bell.qsim")
    return tmp_path / "bell.qsim"


def echo_file(folder: Path) -> Path:
    tnplan.workload.loschmidt(3, qubits=9, qsim=folder / "echo.qsim")
    return folder / "echo.qsim"


def test_repetitions_are_those_of_the_seed_on_any_threads_and_ranks(tmp_path: Path) -> None:
    circuit, limit = echo_file(tmp_path), Truncation(max_terms=300)
    same = {"truncation": limit, "overlap": "Z4 Z5", "device": "cpu"}
    found = [
        tnplan.propagate(circuit, "Z4 Z5", monte_carlo=tnplan.MonteCarlo(4, 3, by), **same, **more)
        for by in ("magnitude", "square")
        for more in ({"threads": 1}, {"threads": 2}, {"ranks": 2, "threads": 1}, {"ranks": 3, "threads": 1})
    ]
    for first, others in ((found[0], found[1:4]), (found[4], found[5:])):
        assert first.estimate is not None
        assert all(other.estimate == first.estimate for other in others)
        assert first.estimate.standard_error > 0
        assert first.report["largest_terms"] <= 300
        assert first.value == pytest.approx(np.mean(first.estimate.values), abs=1e-15)
    assert found[0].estimate != found[4].estimate


def test_repetitions_without_resampling_are_exact(circuit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["pauli", str(circuit), "--observable", "ZZ", "--max-terms", "50", "--repetitions", "9"]
    assert run(arguments) == 0
    assert "exact: no term was resampled\n1 repetition of" in capsys.readouterr().out
    done = tnplan.propagate(
        circuit, "ZZ", Truncation(max_terms=50), monte_carlo=tnplan.MonteCarlo(), device="cpu"
    )
    assert done.report["error_bound"] == 0
    assert done.value == pytest.approx(math.cos(0.6), abs=1e-15)


def test_repetitions_that_all_give_nothing_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["pauli", str(echo_file(tmp_path)), "--observable", "Z4 Z5", "--overlap", "Z4 Z5"]
    arguments += ["--max-terms", "4", "--repetitions", "3"]
    assert run(arguments) == 1
    printed = capsys.readouterr()
    assert "standard error 1 (unknown: every repetition gave 0)\n" in printed.out
    assert "error: every repetition gave 0" in printed.err
    assert run([*arguments, "--allow-empty"]) == 0


def test_interrupted_repetitions_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tnplan.jobs import pauli_sampling as sampling

    circuit, output, done = echo_file(tmp_path), tmp_path / "r.json", []
    arguments = ["pauli", str(circuit), "--observable", "Z4 Z5", "--max-terms", "300", "--threads", "1"]
    arguments += ["--repetitions", "6", "--overlap", "Z4 Z5", "--resample-by", "square", "-o", str(output)]
    whole = sampling.repetition

    def interrupted(task: Any, plan: Any, most: int, number: int) -> Any:
        if number == 4 and done == [0, 1, 2, 3]:
            raise KeyboardInterrupt
        done.append(number)
        return whole(task, plan, most, number)

    monkeypatch.setattr(sampling, "repetition", interrupted)
    assert run(arguments) == 130
    kept = tmp_path / "r.json.ckpt"
    assert len(document_of(kept)["repetitions"]) == 4
    capsys.readouterr()
    assert run(arguments) == 2
    assert "is the checkpoint of an interrupted job; continue it with --resume" in capsys.readouterr().err
    assert run([*arguments, "--resume", "--seed", "5"]) == 2
    assert "belongs to another job; resume with the circuit, observable or options" in capsys.readouterr().err
    done.clear()
    assert run([*arguments, "--resume"]) == 0
    assert done == [4, 5]
    assert not kept.exists()
    resumed = json.loads(output.read_text())["estimate"]
    assert run(arguments) == 0
    assert json.loads(output.read_text())["estimate"] == resumed


def test_an_echo_by_squares_is_said_to_be_biased_and_has_no_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["Z4 Z5", "--max-terms", "40", "--repetitions", "8", "--resample-by", "square", "--device", "cpu"]
    echo, number = str(echo_file(tmp_path)), r"-?\d[\d.e-]*"
    biased = "biased, no interval: words that were resampled apart do not interfere"
    assert run(["pauli", echo, "--observable", "Z4 Z5", "--overlap", *words]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"expectation value {number}, standard error {number} \({biased}\)", first)
    assert second.startswith("8 repetitions of at most 40 terms")
    assert run(["pauli", echo, "--observable", "Z4 Z5", "--json", "--overlap", *words]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [told["estimate"][name] for name in ("kind", "low", "high")] == ["biased", None, None]
    assert told["error_estimate"]["kind"] == f"standard error, {biased}"
    assert run(["trace", echo, "--a", "Z4 Z5", "--b", *words]) == 0
    assert f"value 0: {biased}\nbiased, by pauli" in capsys.readouterr().out
    done = tnplan.propagate(
        echo, "Z4 Z5", Truncation(max_terms=40), overlap="Z4 Z5", device="cpu",
        monte_carlo=tnplan.MonteCarlo(8, 0, "square"),
    )  # fmt: skip
    assert biased in repr(done)
    assert biased in repr(done.estimate)


def test_an_unbiased_echo_prints_its_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["pauli", str(echo_file(tmp_path)), "--observable", "Z4 Z5", "--overlap", "Z4 Z5"]
    assert run([*arguments, "--max-terms", "300", "--repetitions", "8"]) == 0
    first, number = capsys.readouterr().out.splitlines()[0], r"-?\d[\d.e+-]*"
    error = rf"standard error {number}, 95 % interval {number} to {number} \(unbiased"
    assert re.match(rf"expectation value {number}, {error}", first)


def test_the_ends_of_a_narrow_interval_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tnplan.jobs import pauli_sampling as sampling

    monkeypatch.setattr(sampling, "estimate_of_values", lambda *_: estimate_of([1, 1 + 1e-9, 1 + 3e-9]))
    words = ["--observable", "Z4", "--max-terms", "9", "--repetitions", "3", "--device", "cpu"]
    assert run(["pauli", str(echo_file(tmp_path)), *words]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    error = "standard error 8.8e-10, 95 % interval 0.9999999975388 to 1.000000005128 (unbiased)"
    assert first == f"expectation value 1.000000001333, {error}"


def test_a_bound_is_never_more_than_what_is_possible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tnplan.workload.ising(6, lattice="line", qubits=12, qsim=tmp_path / "i.qsim")
    arguments = ["pauli", str(tmp_path / "i.qsim"), "--observable", "Z5", "--device", "cpu"]
    assert run([*arguments, "--max-terms", "20"]) == 0
    out = capsys.readouterr().out
    assert "(vacuous: no possible value is farther away)" in out
    assert "(norm of what was dropped)" in out
    exact = tnplan.propagate(tmp_path / "i.qsim", "Z5", device="cpu")
    assert not exact.report["error_bound_is_vacuous"]
    for overlap in (None, "Z5"):
        done = tnplan.propagate(
            tmp_path / "i.qsim", "Z5", Truncation(max_terms=20), overlap=overlap, device="cpu"
        )
        assert done.report["error_bound"] <= 1 + abs(done.value)
        assert done.report["error_estimate"]["value"] <= done.report["error_bound"]


def test_where_everything_was_cut_the_status_says_so(
    circuit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "r.json"
    arguments = ["pauli", str(circuit), "--observable", "ZZ", "--min-coefficient", "2", "-o", str(output)]
    assert run(arguments) == 1
    printed = capsys.readouterr()
    assert "error at most 1 (vacuous" in printed.out
    assert "error: everything was cut" in printed.err
    assert json.loads(output.read_text())["empty"] is True
    assert run([*arguments, "--allow-empty"]) == 0
    assert "everything was cut" not in capsys.readouterr().err
    assert "everything was cut" in repr(tnplan.propagate(circuit, "ZZ", Truncation(merged_cut=2.0)))


def test_states_and_overlaps_are_asked_for(circuit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, same in (
        (["--state", "+r"], {"state": "+r"}), (["--overlap", "ZZ"], {"overlap": "Z0 Z1"}),
        (["--stabilizers", "X0 X1, -Z0 Z1"], {"state": ["X0 X1", "-Z0 Z1"]}),
    ):  # fmt: skip
        assert run(["pauli", str(circuit), "--observable", "Z0 Z1", "--json", *options]) == 0
        found = json.loads(capsys.readouterr().out)["expectation"]
        assert found == tnplan.propagate(circuit, "ZZ", device="cpu", **same).value
    bell = tnplan.GateSequence(2, ())
    assert tnplan.propagate(bell, "X0 X1 + 2*Z0 Z1", state=["X0 X1", "-Z0 Z1"], device="cpu").value == -1
    assert tnplan.propagate(bell, "2*Z0 + X1", overlap="3*Z0", device="cpu").value == 6
    for picture in ("heisenberg", "schroedinger"):
        done = tnplan.propagate(bell, "X0 - 2*Y1", state="+l", picture=picture, device="cpu")
        assert done.value == pytest.approx(3)


def test_values_of_each_term_and_of_lists(circuit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["pauli", str(circuit), "--each-term", "--observable", "Z0 Z1 + 0.5*Z0"]
    assert run([*arguments, "--observable", "Y0 Y1"]) == 0
    out = capsys.readouterr().out
    assert "value of Z0 Z1: 0.8253356149096" in out
    assert "value of observable 0: 0.8253356149096" in out
    alone = tnplan.propagate(circuit, "YY", device="cpu").value
    done = tnplan.propagate(circuit, ["ZZ + 0.5*Z0", "YY", "-2*ZZ"], each_term=True)
    found = [one["value"] for one in done.report["observables"]]
    assert found == pytest.approx([math.cos(0.6), alone, -2 * math.cos(0.6)], abs=1e-14)
    assert done.value == pytest.approx(sum(found))
    assert done.report["error_bound"] == 0
    cut = tnplan.propagate(circuit, ["ZZ", "YY"], Truncation(max_xy=0), each_term=True)
    assert (cut.report["error_bound"], cut.report["error_estimate"]["kind"]) == (None, "none")


# fmt: off
REFUSED: list[Row] = [
    ("--repetitions 4", "--repetitions", "need a limit of terms", "give --max-terms"),
    ("--repetitions 4 --max-terms 9 --branch-cut 1", "--repetitions",
     "resample terms instead of cutting them", "leave the cuts out"),
    ("--repetitions 4 --max-terms 9 --gradient", "--repetitions", "cannot be combined with --picture",
     "leave those out"),
    ("--repetitions 4 --max-terms 9 --resample-by square", "--resample-by square",
     "is for the overlap of an echo with its own observable", "give --overlap the"),
    ("--repetitions 4 --max-terms 9 --resample-by letters --overlap Z0", "--resample-by letters",
     "is for states of 0 and 1", "resample by magnitude"),
    ("--seed 4", "--seed", "is given without --repetitions", "add --repetitions"),
    ("--resume -o r.json", "--resume", "is only for repetitions", "leave it out"),
    ("--state 00 --stabilizers X0", "--stabilizers", "are given together with --state",
    "leave one of them out"),
    ("--state 00 --overlap Z0", "--overlap", "is given together with a state", "leave one of them out"),
    ("--overlap Z0 --picture schroedinger", "--picture", "schroedinger has no overlaps", "use heisenberg"),
    ("--observable Z1", "--observable", "is a list", "add --each-term for all values"),
    ("--each-term --picture schroedinger", "each_term", "works only in the Heisenberg",
     "leave --picture out"),
    ("--repetitions 4 --max-terms 1000000000 --memory 1MB", "--memory",
     "allows a rank 977 KiB, and", "smaller --max-terms"),
]
# fmt: on


@table(REFUSED)
def test_what_cannot_go_together_is_refused(
    refusal: Refusal, circuit: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(circuit.parent)
    refusal.ends(f"pauli {circuit.name} --observable Z0 {refusal.given}", capsys)


@pytest.mark.parametrize(
    ("device", "most", "stays"), [("auto", 99_999, True), ("auto", 100_000, False), ("gpu", 9, False)]
)
def test_repetitions_of_few_terms_take_no_gpu_of_themselves(device: str, most: int, stays: bool) -> None:
    terms = parse("Z0 + X1", 70)
    sampled = SampledValue((), terms, None, tnplan.MonteCarlo(), Truncation(max_terms=most))
    needs = sampling_needs(sampled, 3, device)
    assert bool(needs.cpu_only) == stays
    assert needs.cpu_bytes > 3 * most * term_bytes(70, 8)
    assert needs.gpu_bytes > 2 * most * term_bytes(70, 8)


@needs_gpus(1)
def test_repetitions_on_a_gpu(circuit: Path) -> None:
    ask = tnplan.Truncation(max_terms=2)
    done = tnplan.propagate(circuit, "Z0 Z1", ask, monte_carlo=tnplan.MonteCarlo(64, 1), device="gpu")
    again = tnplan.propagate(circuit, "Z0 Z1", ask, monte_carlo=tnplan.MonteCarlo(64, 1), device="gpu")
    exact = tnplan.propagate(circuit, "Z0 Z1", device="cpu").value
    assert done.estimate is not None
    assert done.report["device"] == "gpu"
    assert abs(done.value - exact) <= 4 * done.estimate.standard_error
    assert again.value == pytest.approx(done.value, abs=1e-12)
