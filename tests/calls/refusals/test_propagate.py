"""What `tnplan.propagate` and `tnplan pauli` refuse."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import tnplan
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.pauli_sum import PauliSum, parse
from tnplan.circuits.qsim import save_qsim

PAIR = GateSequence(2, (gate("cnot", (0, 1)),))
NAN = PauliSum(2, parse("Z0", 2).keys, np.array([math.nan]))
WIDE = GateSequence(4, (gate("h", (0,)), Gate("large", (0, 1, 2, 3), np.eye(16, dtype=np.complex128))))

# fmt: off
CALLS: list[Row] = [
    ({"circuit": None}, "circuit", "is of type NoneType", "give a file"),
    ({"observable": 5}, "--observable", "is of type int", "give a text such as"),
    ({"observable": parse("Z2", 3)}, "--observable", "is a sum on 3 qubits", "give a sum on 2"),
    ({"observable": NAN}, "--observable", "magnitudes add up to nan", "give at most 1.79769e+308 in"),
    ({"truncation": 5}, "truncation", "is 5", "give a tnplan.Truncation"),
    ({"device": "tpu"}, "--device", "'tpu' is unknown", "choose from auto, cpu"),
    ({"state": 0}, "--state", "is 0", "give letters"),
    ({"state": ["0", "0"]}, "--stabilizers", "'0' is not a word with a sign", "write words with a sign"),
    ({"depolarize": "x"}, "--depolarizing", "probability is 'x'", "give a number from 0"),
    ({"circuit": GateSequence(2, ()), "depolarize": 2}, "--depolarizing", "probability is 2", "give a"),
    ({"stop_above": "x"}, "stop_above", "is 'x'", "give an integer from 0"),
    ({"stop_above": 2.5}, "stop_above", "is 2.5", "give an integer from 0"),
    ({"circuit": "nowhere.qsim"}, "nowhere.qsim", "cannot be read (No such file", "check the name and the"),
    ({"circuit": WIDE, "depolarize": 0.1}, "gate 1 (large)",
     "acts on 4 qubits, but depolarizing noise acts on at most 3", "split the gate, or"),
]
COMMANDS: list[Row] = [
    ("--observable Z2", "--observable", "names qubit 2", "use qubits 0 to 1"),
    ("--observable ZZZ", "--observable", "has a word of 3 letters", "give one letter for each of 2"),
    ("--observable Z0 --state 012", "--state", "'012' is not a state", "give one of 0 1 + - r l"),
    ("--observable Z0 --max-weight -1", "max_weight", "is -1", "give an integer from 0"),
    ("--observable Z0 --depolarizing 2", "--depolarizing", "probability is 2", "give a number from 0"),
    ("--observable 'Z0 + Z1' --max-terms 1", "max_terms",
     "is 1, and the observable has 2 terms", "allow that many or more"),
    ("--observable Z0 --memory 100", "--memory",
     "allows a rank 100 B, and 116 B are needed", "give an observable of"),
    ("--observable Z0 --gradient --picture schroedinger", "gradient",
     "works only in the Heisenberg", "leave --picture out"),
    ("--observable Z0 --gradient --depolarizing 0.1 --device gpu", "--device",
     "gradients through channels", "choose --device cpu"),
    ("--observable '1e39*X0' --precision fp32", "--observable",
     "has coefficients whose magnitudes add up to 1e+39", "give at most 3.40282e+38 in all"),
    ("--observable '1e308*Z0+1e308*Z0' --json", "--observable",
     "has coefficients whose magnitudes add up to inf", "give at most 1.79769e+308 in"),
    ("--observable '1e308*Z0+1e308*Z1' --json", "--observable",
     "has coefficients whose magnitudes add up to inf", "give at most 1.79769e+308 in"),
    ("--observable Z0 --symmetry 0,0", "--symmetry", "has no permutation at position 0",
    "give a list of perm"),
    ("--observable Z0 --symmetry 0,1 --symmetry 1,0", "gate 0 (h)",
     "becomes a gate that is not in its layer, by permutation 1", "give a symmetry of every"),
    ("--observable Z0 --symmetry 0,1 --gradient", "--symmetry",
     "cannot be combined with any of schroedinger, gradient", "leave it or them out"),
    ("--observable Z0 --record x.png", "x.png", "does not end in .json or .svg", "no other format is"),
]
# fmt: on


@table(CALLS)
def test_a_call_is_refused(refusal: Refusal) -> None:
    refusal.raised_by(lambda: tnplan.propagate(**{"circuit": PAIR, "observable": "Z0", **refusal.given}))


@pytest.mark.filterwarnings("error")
@table(COMMANDS)
def test_a_command_is_refused(
    refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    gates = (gate("h", (0,)), gate("cnot", (0, 1)), gate("rx", (0,), (0.3,)), gate("rx", (1,), (0.3,)))
    save_qsim(GateSequence(2, gates), tmp_path / "bell.qsim")
    refusal.ends(f"pauli bell.qsim {refusal.given}", capsys)
