"""Questions on ranks of mpirun: what one process says, and refusals that all ranks share."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.mpirun import mpirun, needs_mpi
from tests.support.slow import slow_after
from tnplan.executor.device.comm.threads import ThreadCommunicator
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.select import Chosen
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.job import Rank
from tnplan.questions.engines.contraction import options_of_rank

LAYERS = ("h {q}", "rx {q} 0.{q}1", "cz {q} {r}", "ry {q} 0.7")
CIRCUIT = "8\n" + "".join(
    f"{4 * time + k} {layer.format(q=q, r=q + 1)}\n"
    for time in range(2)
    for k, layer in enumerate(LAYERS)
    for q in (range(time, 7, 2) if "cz" in layer else range(8))
)


@needs_mpi
@pytest.mark.parametrize(
    "method", slow_after(1, ["statevector", "contraction", "pauli"])
)
def test_two_ranks_give_what_one_gives(tmp_path: Path, method: str) -> None:
    file = tmp_path / "c.qsim"
    file.write_text(CIRCUIT)
    options = ("--method", method, "--device", "cpu", "-o", tmp_path / "out.json")
    done = mpirun(
        2, "-m", "tnplan", "expectation", file, "--observable", "X6 Z7", "--observable", "Z2 X3", *options
    )
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    expected = tnplan.Circuit(file).expectation(["X6 Z7", "Z2 X3"], method=method, device="cpu").value
    assert min(abs(expected)) > 0.1
    assert document["ranks"] == 2
    assert document["value"] == pytest.approx(expected.tolist(), abs=1e-12)


def test_plans_of_ranks_do_not_change_with_the_free_memory() -> None:
    """A plan is kept for the next call with the same options, and what is free is never twice the same."""

    def used(free_bytes: float, given: float | None = None) -> ContractionOptions:
        chosen = Chosen(NumpyDevice(1), ThreadCommunicator, "", lambda: None)  # type: ignore[arg-type]
        meter: Any = None
        rank = Rank(SimpleNamespace(size=2), chosen, 3, free_bytes, None, meter=meter)  # type: ignore[arg-type]
        return options_of_rank(rank, ContractionOptions(memory=given))

    first = used(1.00e9)
    assert first == used(1.01e9)
    assert 1e9 / 2**0.25 <= first.memory <= 1e9  # type: ignore[operator]
    assert (first.threads, first.device) == (3, "cpu")
    assert used(1.00e9, given=1.00e9).memory == 1.00e9


@needs_mpi
def test_three_ranks_get_a_method_that_takes_them(tmp_path: Path) -> None:
    file = tmp_path / "c.qsim"
    file.write_text(CIRCUIT)
    options = ("--observable", "X6 Z7", "--device", "cpu", "-o", tmp_path / "out.json")
    done = mpirun(3, "-m", "tnplan", "expectation", file, *options)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    expected = tnplan.Circuit(file).expectation("X6 Z7", method="statevector", device="cpu").value
    assert (document["method"], document["ranks"]) == ("contraction", 3)
    assert abs(expected) > 0.1
    assert document["value"] == pytest.approx([expected], abs=1e-12)


REFUSED = [
    (("expectation", "--observable", "Z9"), "--observable: names qubit 9; use qubits 0 to 7"),
    (
        ("expectation", "--observable", "Z1", "--method", "contraction", "--set", "x=1"),
        "parameter x: is not a parameter of",
    ),
    (
        ("expectation", "--observable", "Z1", "--after", "3"),
        "mpirun: started more than one rank, and --after is for one;",
    ),
    (("overlap", None, "--method", "contraction"), "'contraction' answers overlap on one; start it"),
]


@needs_mpi
@pytest.mark.parametrize("number", slow_after(1, range(len(REFUSED))))
def test_ranks_refuse_together(tmp_path: Path, number: int) -> None:
    file = tmp_path / "c.qsim"
    file.write_text(CIRCUIT)
    (command, *options), line = REFUSED[number]
    done = mpirun(2, "-m", "tnplan", command, file, *(file if one is None else one for one in options))
    assert done.returncode == 2
    assert line in done.stderr
    assert done.stderr.count("tnplan: error") == 1


@needs_mpi
@pytest.mark.slow
def test_ranks_share_strings_and_shots_of_a_contraction(tmp_path: Path) -> None:
    file, strings = tmp_path / "c.qsim", tmp_path / "strings.txt"
    file.write_text(CIRCUIT)
    chosen = [f"{k * 37 % 256:08b}" for k in range(21)]
    strings.write_text("\n".join(chosen) + "\n")
    options = ("--method", "contraction", "--device", "cpu", "-o", tmp_path / "out.json")
    done = mpirun(3, "-m", "tnplan", "amplitudes", file, "--file", strings, *options)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    expected = tnplan.Circuit(file).amplitudes(chosen, method="statevector", device="cpu").value
    assert document["ranks"] == 3
    np.testing.assert_allclose(np.array(document["value"]) @ [1, 1j], expected, rtol=0, atol=1e-12)

    shots = 4000
    for sampling in ("chain", "gates", "rejection"):
        done = mpirun(
            3, "-m", "tnplan", "sample", file, "--shots", shots, "--seed", 5, "--sampling", sampling, *options
        )
        assert done.returncode == 0, done.stderr
        document = json.loads((tmp_path / "out.json").read_text())
        assert sum(document["value"].values()) == shots
        values = np.array([[int(bit) for bit in text] for text in document["value"]])
        counts = np.array([*document["value"].values()])
        means = counts @ (1 - 2.0 * values) / shots
        words = [f"Z{qubit}" for qubit in range(8)]
        exact = tnplan.Circuit(file).expectation(words, method="statevector", device="cpu").value
        np.testing.assert_allclose(means, exact, rtol=0, atol=5 / np.sqrt(shots))


@needs_mpi
def test_ranks_share_repetitions_in_an_input_state(tmp_path: Path) -> None:
    """Any number of ranks; the same numbers as in one process."""
    file, state = tmp_path / "c.qsim", "+r01-l10"
    file.write_text(CIRCUIT)
    options = ("--max-terms", 30, "--repetitions", 8, "--seed", 3, "-o", tmp_path / "out.json")
    asked = ("--observable", "X6 Z7", "--observable", "Z2 X3", "--state", state, "--device", "cpu")
    done = mpirun(3, "-m", "tnplan", "expectation", file, *asked, *options)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    expected = tnplan.Circuit(file).expectation(
        ["X6 Z7", "Z2 X3"], state=state, truncation=tnplan.Truncation(max_terms=30),
        monte_carlo=tnplan.MonteCarlo(8, 3), device="cpu",
    )  # fmt: skip
    assert (document["method"], document["ranks"]) == ("pauli", 3)
    assert max(document["error"]) > 0
    np.testing.assert_array_equal(document["value"], expected.value)
    np.testing.assert_array_equal(document["error"], expected.error)
