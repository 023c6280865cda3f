"""What `tnplan.simulate` and `tnplan statevector` refuse."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import tnplan
from tests.support.circuits import random_circuit
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.pauli_sum import PauliSum, pack, parse
from tnplan.circuits.program import CircuitProgram, Conditional, Measurement
from tnplan.circuits.qsim import save_qsim

INFINITE = PauliSum(2, pack(0, 1, 2)[None], np.array([math.inf]))
NOT_UNITARY = CircuitProgram(
    1, 1,
    (Measurement(0, 0), Conditional((0,), 1, (Gate("n", (0,), np.ones((2, 2), np.complex128)),))),
)  # fmt: skip

GRADIENT = {"observable": "Z0", "gradient": True, "device": "cpu"}
TURNED = gate("rx", (0,), (0.3,))
MEASURED = CircuitProgram(1, 1, (TURNED, Measurement(0, 0), TURNED))
UNKNOWN = GateSequence(1, (Gate("own", (0,), TURNED.matrix @ gate("h", (0,)).matrix, (0.3, 0.2)),))

# fmt: off
CALLS: list[Row] = [
    ({"precision": "fp16"}, "--precision", "'fp16' is unknown", "choose from fp64, fp32"),
    ({"mode": "fast"}, "--mode", "'fast' is unknown", "choose from compiled"),
    ({"threads": 0}, "--threads", "is 0", "give an integer from 1"),
    ({"observable": parse("Z4", 5)}, "--observable", "is a sum on 5 qubits", "give a sum on 2"),
    ({"observable": 5}, "--observable", "is of type int", "give a text such as"),
    ({"memory": math.nan}, "--memory", "is nan", "give a positive number"),
    ({"depolarize": "x"}, "--depolarizing", "is 'x'", "give a probability"),
    ({"amplitudes": [0]}, "--amplitudes", "'0' is not a bit string", "give 0 or 1 for each of 2 qubits"),
    ({"amplitudes": 5}, "--amplitudes", "is 5", "give a list"),
    ({"circuit": GateSequence(1, ()), "amplitudes": "01"}, "--amplitudes", "is '01'", "give a list"),
    ({"marginal": 5}, "--marginal", "is 5", "give a list"),
    ({"observable": INFINITE}, "--observable", "magnitudes sum to inf", "give a sum of 1e+100 at"),
    ({"marginal": (0.0,)}, "--marginal", "is 0.0", "give an integer from 0"),
    ({"circuit": GateSequence(27, ()), "marginal": range(27)}, "--marginal",
     "has 27 qubits", "ask for 26 qubits or fewer"),
    ({"circuit": 5}, "circuit", "is of type int", "give a file"),
    ({"save": 5}, "file 5", "is not the name", "give its path"),
    ({"circuit": NOT_UNITARY, "shots": 1}, "operation 1, inner gate 0 (n)",
     "is not unitary", "give a unitary matrix"),
    ({"circuit": random_circuit(5, 30, 0), **GRADIENT, "observable": None}, "--gradient",
     "is asked for without an", "give such an observable"),
    ({"circuit": random_circuit(5, 30, 0), **GRADIENT, "depolarize": 0.1, "shots": 3}, "--gradient",
     "a different state", "leave out what"),
    ({"circuit": MEASURED, **GRADIENT, "shots": 3}, "--gradient", "a different state", "leave out what"),
    ({"circuit": UNKNOWN, **GRADIENT}, "gate 0 (own)", "has 2 angles, and its", "use gates of the"),
    ({"circuit": random_circuit(18, 30, 0), **GRADIENT, "memory": 2.5 * 2**22}, "--memory",
     "allows a rank 10.0 MiB, and", "use --precision fp32"),
    ({"fidelity": 1}, "--fidelity", "is 1", "give a number between 0 and 1"),
    ({"fidelity": math.nan}, "--fidelity", "is nan", "give a number between 0 and 1"),
    ({"fidelity": "high"}, "--fidelity", "is 'high'", "give a number between 0 and 1"),
    ({"fidelity": 0.9, "device": "gpu"}, "--device", "states of fewer than 5 qubits run only on a CPU",
     "choose --device cpu"),
    ({"fidelity": 0.9, "start": [1, 0]}, "--fidelity", "is given together with --start", "leave one"),
    ({"fidelity": 0.9, "save": "state.json"}, "--fidelity", "is given together with --save", "leave one"),
    ({"fidelity": 0.9, "observable": "Z0", "gradient": True}, "--fidelity",
     "is given together with --gradient", "leave one"),
    ({"circuit": random_circuit(10, 30, 0), "fidelity": 0.9, "ranks": 2}, "--ranks",
     "is 2 for a state of 10 qubits, 9 per rank", "each needs 10 qubits or more"),
    ({"circuit": random_circuit(12, 30, 0), "fidelity": 0.9, "ranks": 3}, "--ranks", "is 3", "power of two"),
    ({"circuit": MEASURED, "fidelity": 0.9, "shots": 3}, "--fidelity", "measures, resets or", "leave it out"),
    ({"circuit": random_circuit(5, 30, 0), "fidelity": 0.9, "depolarize": 0.1, "shots": 3}, "--fidelity",
     "measures, resets or", "leave it out"),
    ({"circuit": random_circuit(5, 30, 0), "fidelity": 1 - 1e-12}, "--fidelity", "16 bits reach about",
     "ask for a lower"),
    ({"circuit": random_circuit(20, 30, 0), "fidelity": 0.9, "memory": 2**20}, "--memory",
     "allows a rank 1.00 MiB, and", "use more memory or fewer qubits"),
]
COMMANDS: list[Row] = [
    ("--shots 0", "--shots", "is 0", "give an integer from 1"),
    ("--shots -5", "--shots", "is -5", "give an integer from 1"),
    ("--observable '1e100*Z0 + 1e100*Z1'", "--observable",
     "has coefficients whose magnitudes sum to 2e+100", "give a sum of 1e+100 at most"),
    ("--observable '1e200*Z0' --shots 3 --depolarizing 0.5", "--observable",
     "has coefficients whose magnitudes sum to 1e+200", "give a sum of 1e+100 at"),
    ("--observable Z2", "--observable", "names qubit 2", "use qubits 0 to 1"),
    ("--marginal 0,0", "--marginal", "names qubit 0 twice", "name each qubit once"),
    ("--amplitudes 001", "--amplitudes", "'001' is not a bit string", "give 0 or 1 for each of 2 qubits"),
    ("--amplitudes ''", "--amplitudes", "'' is not a bit string", "give 0 or 1 for each of 2 qubits"),
    ("--depolarizing 2 --shots 5", "depolarizing", "probability is 2", "give a number from 0"),
    ("--depolarizing 0.1", "--shots", "is missing", "give the number of runs"),
    ("--depolarizing 0.1 --shots 2 --marginal 0", "--marginal",
     "is asked for, but the program ends in a different state in each run", "ask for shots or an"),
    ("--save state.npy", "state.npy", "is not a .json file", "give the state a name"),
    ("--start nowhere.json", "nowhere.json", "cannot be read", "check the name and the"),
    ("-o no/where/result.json", "no/where/result.json", "its folder does not exist", "choose a folder that"),
]
# fmt: on


@table(CALLS)
def test_a_call_is_refused(refusal: Refusal) -> None:
    refusal.raised_by(lambda: tnplan.simulate(**{"circuit": GateSequence(2, ()), **refusal.given}))


@table(COMMANDS)
def test_a_command_is_refused(
    refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save_qsim(GateSequence(2, (gate("h", (0,)), gate("cnot", (0, 1)))), tmp_path / "bell.qsim")
    refusal.ends(f"statevector bell.qsim {refusal.given}", capsys)
