"""`tnplan statevector` from a file to its answers, saved states and OpenQASM programs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.circuits import random_circuit, state_vector
from tests.support.engines.statevector import qft
from tests.support.robustness.mutated_files import signed
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.program import (
    CircuitProgram,
    Conditional,
    Measurement,
    Reset,
    final_measurements,
)
from tnplan.circuits.qasm.read import parse_qasm_program
from tnplan.circuits.qsim import save_qsim
from tnplan.cli.main import run
from tnplan.common.errors import InputError
from tnplan.executor.statevector.memory_estimate import check_answer_memory, predicted_bytes
from tnplan.executor.statevector.scheduling.tiled_passes import Tile
from tnplan.jobs import statevector as simulation


@pytest.fixture
def circuit(tmp_path: Path) -> Path:
    """H and CNOT, then RX on both qubits."""
    gates = (gate("h", (0,)), gate("cnot", (0, 1)), gate("rx", (0,), (0.3,)), gate("rx", (1,), (0.3,)))
    save_qsim(GateSequence(2, gates), tmp_path / "bell.qsim")
    return tmp_path / "bell.qsim"


def test_a_gradient_is_shown(circuit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["statevector", str(circuit), "--observable", "Z0 Z1", "--gradient", "--threads", "1"]
    assert run([*arguments, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["gradient"]
    assert [(row["gate"], row["name"], row["parameter"], row["angle"]) for row in rows] == [
        (2, "rx", 0, 0.3), (3, "rx", 0, 0.3)
    ]  # fmt: skip
    assert [row["derivative"] for row in rows] == pytest.approx([-math.sin(0.6)] * 2, abs=1e-12)
    assert run(arguments) == 0
    assert "derivative at gate 2 (rx), angle 0, 0.3: -0.564" in capsys.readouterr().out
    assert run([*arguments[:2], "--gradient"]) == 2
    assert "--gradient: is asked for without an observable" in capsys.readouterr().err


def test_a_file_gives_its_answers(circuit: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    arguments = [
        "statevector", str(circuit), "--observable", "Z0 Z1", "--shots", "1000", "--amplitudes", "00,01",
        "--marginal", "1", "--precision", "fp64", "--seed", "5", "--threads", "1", "-o", str(output),
    ]  # fmt: skip
    assert run([*arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(output.read_text())
    assert (printed["format"], printed["version"]) == ("tnplan.statevector", 3)
    assert printed["expectation"] == pytest.approx(math.cos(0.6), abs=1e-14)
    assert sum(printed["counts"].values()) == 1000
    state = state_vector(GateSequence(2, (gate("h", (0,)), gate("cnot", (0, 1)), gate("rx", (0,), (0.3,)),
                                     gate("rx", (1,), (0.3,)))))  # fmt: skip
    assert complex(*printed["amplitudes"]["01"]) == pytest.approx(state[0, 1], abs=1e-14)
    assert printed["marginal"]["probabilities"] == pytest.approx([0.5, 0.5], abs=1e-14)
    assert run(arguments) == 0
    shown = capsys.readouterr().out
    assert "expectation value 0.8253" in shown
    assert "count 00" in shown
    again = tnplan.simulate(circuit, shots=1000, seed=5, precision="fp64")
    assert again.report["counts"] == printed["counts"]


def test_a_saved_state_goes_on(tmp_path: Path) -> None:
    whole = random_circuit(6, 90, 5)
    first, second = GateSequence(6, whole.gates[:45]), GateSequence(6, whole.gates[45:])
    saved = tmp_path / "half.json"
    tnplan.simulate(first, precision="fp64", save=saved)
    done = tnplan.simulate(second, precision="fp64", start=saved)
    np.testing.assert_allclose(done.simulator.array(), state_vector(whole).reshape(-1), atol=1e-12)
    document = json.loads(saved.read_text())
    assert (document["format"], document["version"]) == ("tnplan.state", 2)
    for change, message in (
        ({"where": [0] * 6}, r"where: is \[0, 0"), ({"dtype": "object"}, "dtype: is 'object'"),
        ({"where": [0, 1, 2, 3, 4, 5.0]}, r"where: is \[0, 1"), ({"where": []}, r"where: is \[\]"),
        ({"where": list(range(9999))}, r"where: is \[0, 1"), ({"parts": ["a.npy"] * 3}, "names 3 files"),
        ({"where": [0, 1]}, "holds complex128 of shape"),
        ({"parts": ["none.npy"]}, "none.npy: cannot be read"),
        ({"parts": []}, r"parts: is \[\]"),
        ({"version": 9}, "version: is 9"), ({"version": 1}, "version: is 1; this tnplan reads version 2"),
        ({"checksums": []}, r"checksums: is \[\]"),
        ({"checksums": ["0" * 64]}, r"half\.0\.npy: is not as it was saved \(its checksum differs\)"),
    ):  # fmt: skip
        broken = tmp_path / "broken.json"
        broken.write_text(json.dumps(signed(document | change)))
        with pytest.raises(InputError, match=message):
            tnplan.simulate(second, precision="fp64", start=broken)
    with pytest.raises(InputError, match="is a state of 6 qubits in complex128"):
        tnplan.simulate(second, precision="fp32", start=saved)
    for wrong, text in ((math.nan, "nan"), (2.0, "256")):
        with pytest.raises(InputError, match=f"has probabilities whose sum is {text}"):
            tnplan.simulate(second, precision="fp64", start=np.full(64, wrong, np.complex128), ranks=2)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_saved_state_that_was_changed_is_refused(tmp_path: Path, ranks: int) -> None:
    nothing, saved, other = GateSequence(6, ()), tmp_path / "s.json", tmp_path / "o.json"
    tnplan.simulate(random_circuit(6, 40, 1), save=saved, ranks=2)
    tnplan.simulate(random_circuit(6, 40, 2), save=other, ranks=2)
    names = [tmp_path / f"s.{rank}.npy" for rank in (0, 1)]
    first, second, foreign = (path.read_bytes() for path in (*names, tmp_path / "o.0.npy"))
    flipped = first[:200] + bytes([first[200] ^ 1]) + first[201:]
    for contents in ((flipped, second), (second, first), (foreign, second), (first, first)):
        for path, content in zip(names, contents, strict=True):
            path.write_bytes(content)
        with pytest.raises(InputError, match=r"s\.[01]\.npy: is not as it was saved"):
            tnplan.simulate(nothing, start=saved, ranks=ranks)
    for path, content in zip(names, (first, second), strict=True):
        path.write_bytes(content)
    assert tnplan.simulate(nothing, start=saved, ranks=ranks).simulator.n_qubits == 6
    document = json.loads(saved.read_text())
    document["where"].reverse()
    saved.write_text(json.dumps(document))
    with pytest.raises(InputError, match="was changed after it was written; give a state as it was saved"):
        tnplan.simulate(nothing, start=saved, ranks=ranks)


def test_a_state_has_files_of_its_own(tmp_path: Path) -> None:
    saved, part = tmp_path / "state.json", tmp_path / "state.1.npy"
    for output in (saved, part):
        with pytest.raises(InputError, match="is also a file of the state; give the result another name"):
            tnplan.simulate(GateSequence(6, ()), ranks=2, save=saved, output=output)
    save_qsim(GateSequence(6, ()), part)
    with pytest.raises(InputError, match="is an input and would be replaced"):
        tnplan.simulate(part, ranks=2, save=saved)
    part.unlink()
    part.mkdir()
    with pytest.raises(InputError, match=r"state\.1\.npy: is a folder"):
        tnplan.simulate(GateSequence(6, ()), ranks=2, save=saved)
    assert list(tmp_path.iterdir()) == [part]


def test_a_start_state_keeps_its_files(circuit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = circuit.parent
    start, part = folder / "st.json", folder / "st.0.npy"
    tnplan.simulate(circuit, save=start)
    start.rename(folder / "first.json")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for options in (["-o", str(part)], ["-o", str(folder / "first.json")], ["--save", str(start)]):
        assert run(["statevector", str(circuit), "--start", str(folder / "first.json"), *options]) == 2
        assert "is an input and would be replaced; give the output another name" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_what_is_written_is_named(circuit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_qsim(GateSequence(6, (gate("h", (0,)),)), circuit)
    for ranks, parts in ((1, "s.0.npy"), (2, "s.0.npy to s.1.npy")):
        saved = circuit.parent / "s.json"
        assert run(["statevector", str(circuit), "--save", str(saved), "--ranks", str(ranks)]) == 0
        shown = capsys.readouterr().out
        assert f"written: {saved} (state), {circuit.parent}/{parts} (its amplitudes)\n" in shown
        assert "1 operation in 1 pass and 0 exchanges" in shown


def test_a_state_not_saved_whole_has_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = tmp_path / "state.json"
    tnplan.simulate(GateSequence(6, ()), save=saved)
    save_part = simulation.save_part

    def full(path: Path, rank: int, amplitudes: object) -> None:
        if rank:
            raise InputError(str(path), "cannot be written (No space left on device)", "free space there")
        save_part(path, rank, amplitudes)  # type: ignore[arg-type]

    monkeypatch.setattr(simulation, "save_part", full)
    with pytest.raises(InputError, match="No space left"):
        tnplan.simulate(GateSequence(6, (gate("x", (5,)),)), ranks=2, save=saved)
    assert not saved.exists()


def test_memory_is_predicted_and_refused(circuit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert predicted_bytes(30, "complex64", Tile(16, 5, 3), 2) == pytest.approx(2**33, rel=0.01)
    assert predicted_bytes(30, "complex128", Tile(15, 4, 3), 2, 4) == pytest.approx(2**32, rel=0.01)
    assert run(["statevector", str(circuit), "--memory", "1", "--threads", "1"]) == 2
    assert (
        "--memory: allows a rank 1 B, and 256 B are needed; use --precision fp32, more ranks"
        in capsys.readouterr().err
    )
    with pytest.raises(
        InputError, match=r"16\.0 PiB are needed for a rank, .* free; use precision fp32, more ranks"
    ):
        tnplan.simulate(GateSequence(50, ()))
    assert run(["statevector", str(circuit), "--memory", "1MiB", "--shots", "1000", "--threads", "1"]) == 0
    capsys.readouterr()
    assert run(["statevector", str(circuit), "--memory", "1MiB", "--shots", "20000", "--threads", "1"]) == 2
    assert "takes 1.22 MiB per rank besides the state, and 1.00 MiB are there" in capsys.readouterr().err
    check_answer_memory(None, 20, 30, 2**28)
    with pytest.raises(InputError, match=r"marginal: takes 512 MiB per rank besides the state, and 256 MiB"):
        check_answer_memory(10, 21, 30, 2**28)


QASM3 = """OPENQASM 3.0;
include "stdgates.inc";
qubit[3] q;
bit[2] c;
bit d;
ry(1.1) q[0];
c[0] = measure q[0];
x q[1]; x q[1];
if (c[0]) { x q[1]; } else { h q[2]; reset q[1]; }
if (c == 1) { cx q[1], q[2]; if (!c[1]) { x q[0]; } }
c[1] = measure q[1];
d = measure q[2];
"""
QASM2 = """OPENQASM 2.0;
include "qelib1.inc";
qreg q[2];
creg c[2];
h q[0];
measure q[0] -> c[0];
if (c == 1) x q[1];
reset q[0];
measure q[1] -> c[1];
"""


def test_programs_of_openqasm() -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    program = parse_qasm_program(QASM3, "c.qasm")
    kinds = [type(item) for item in program.operations]
    assert kinds == [Gate, Measurement, Gate, Gate, Conditional, Conditional, Measurement, Measurement]
    branch, nested = program.operations[4:6]
    assert isinstance(branch, Conditional)
    assert isinstance(nested, Conditional)
    assert (branch.bits, branch.value, branch.otherwise[1]) == ((0,), 1, Reset(1))
    assert (nested.bits, nested.value) == ((0,), 1)  # c[1] and c[2] are 0 so far
    assert [item.name for item in nested.body if isinstance(item, Gate)] == ["cx", "x"]
    counts = tnplan.simulate(program, shots=400, seed=1).report["counts"]
    assert set(counts) == {"111", "000", "001"}
    assert abs(counts["111"] - 400 * math.sin(0.55) ** 2) < 4.5 * 10
    counts = tnplan.simulate(parse_qasm_program(QASM2, "c.qasm"), shots=200, seed=1).report["counts"]
    assert set(counts) == {"00", "11"}


@pytest.mark.parametrize("given", [["t=pi/2", "n=2"], ["n=2", "t=1.5707963267948966"]])
def test_inputs_are_set(tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str]) -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    circuit = tmp_path / "c.qasm"
    circuit.write_text(
        'include "stdgates.inc"; input float t; input uint n; qubit q; bit c;\n'
        "for uint k in [1:n] rx(t) q;\nc = measure q;"
    )
    options = [word for text in given for word in ("--set", text)]
    for command in (
        ["statevector", str(circuit), "--shots", "5"], ["pauli", str(circuit), "--observable", "Z0"],
        ["network", str(circuit), "--amplitude", "1", "-o", str(tmp_path / "n.json")],
    ):  # fmt: skip
        assert run([*command, *options]) == 0
        capsys.readouterr()
        for wrong, message in (
            (["--set", "t"], "'t' sets nothing; write a name and a value, such as theta=0.3"),
            ([*options, "--set", "t=1"], "sets t twice; set it once"),
            ([*options, "--set", "s=1"], "parameter s: is not an input of"),
        ):
            assert run([*command, *wrong]) == 2
            error = capsys.readouterr().err
            assert message in error
            assert error.count("\n") == 1


def test_measurements_at_the_end_take_one_run() -> None:
    program = CircuitProgram(3, 2, (gate("x", (2,)), Measurement(2, 0), gate("h", (0,)), Measurement(0, 1)))
    assert final_measurements(program) == {0: 2, 1: 0}
    done = tnplan.simulate(program, shots=100_000, seed=2)
    assert done.report["passes"] == 1
    assert set(done.report["counts"]) == {"10", "11"}
    assert abs(done.report["counts"]["10"] - 50_000) < 4.5 * 160
    assert final_measurements(CircuitProgram(1, 1, (Measurement(0, 0), gate("x", (0,))))) is None
    twice = CircuitProgram(2, 2, (gate("h", (0,)), Measurement(0, 0), Measurement(0, 1), gate("x", (1,))))
    assert final_measurements(twice) == {0: 0, 1: 0}
    assert set(tnplan.simulate(twice, shots=100, seed=1).report["counts"]) == {"00", "11"}


@pytest.mark.parametrize(
    ("after", "observable", "value"),
    [
        ((gate("h", (0,)),), "Z0", 0.0),
        ((Conditional((0,), 0, (gate("x", (1,)),)),), "Z1", -1.0),
        ((Reset(0),), "Z0", 1.0),
        ((Measurement(0, 0), gate("h", (0,))), "Z0", 0.0),
    ],
)  # fmt: skip
def test_a_bit_written_again_hides_no_measurement(
    after: tuple[Any, ...], observable: str, value: float
) -> None:
    """H, a measurement, another one to its bit: with H after that the qubit is even, not back at 0."""
    program = CircuitProgram(2, 1, (gate("h", (0,)), Measurement(0, 0), Measurement(1, 0), *after))
    assert final_measurements(program) is None
    done = tnplan.simulate(program, shots=400, observable=observable, seed=3, precision="fp64")
    assert abs(done.report["expectation"] - value) < 4.5 / 20


def test_a_state_of_ranks_that_have_ended_is_refused() -> None:
    simulator = tnplan.simulate(GateSequence(6, ()), ranks=2).simulator
    for ask in (simulator.array, simulator.norm, lambda: simulator.probabilities([0])):
        with pytest.raises(InputError, match="2 ranks of this process that had it have ended; ask"):
            ask()
    assert tnplan.simulate(GateSequence(6, ())).simulator.norm() == 1


def test_the_transform_of_a_basis_state_from_the_api() -> None:
    done = tnplan.simulate(qft(10), amplitudes=["0" * 10], precision="fp64", mode="stages")
    assert done.answer.amplitudes[0] == pytest.approx(2**-5, abs=1e-14)  # type: ignore[index]


def test_a_start_state_may_be_an_array(circuit: Path) -> None:
    nothing = GateSequence(3, (gate("id1", (0,)),))
    bits = [format(number, "03b") for number in range(8)]
    amplitudes = np.arange(1, 9) * np.exp(1j * np.arange(8))
    amplitudes /= np.linalg.norm(amplitudes)
    for precision, error in (("fp64", 1e-15), ("fp32", 1e-7)):
        done = tnplan.simulate(nothing, start=amplitudes, amplitudes=bits, precision=precision)
        found = done.answer.amplitudes
        assert found is not None
        # Character k of the bits is qubit k, which is bit k of the index.
        expected = [amplitudes[int(text[::-1], 2)] for text in bits]
        np.testing.assert_allclose(found, expected, atol=error)
    real = np.zeros(8)
    real[1] = 1
    for bad in (real[:-1], real.reshape(2, 4), 2 * real, real[:4], ["a", "b"], real > 0, real[:0]):
        with pytest.raises(InputError, match="start"):
            tnplan.simulate(nothing, start=bad)
