"""What `tnplan.sqd.run` refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tnplan.sqd
from tests.support.engines.sbd import fcidump_text, random_integrals
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.executor.sbd.solver.davidson import Criteria

N = 5
INTEGRALS = random_integrals(N, 2, 2, 5)

# fmt: off
CALLS: list[Row] = [
    ({"samples_per_batch": 0}, "--samples-per-batch", "is 0", "give an integer from 1"),
    ({"num_batches": 0}, "--num-batches", "is 0", "give an integer from 1"),
    ({"max_iterations": 0}, "--max-iterations", "is 0", "give an integer from 1"),
    ({"max_dim": 0}, "--max-dim", "is 0", "give an integer from 1"),
    ({"energy_tol": -1.0}, "--energy-tol", "is -1.0", "give a number of 0 or"),
    ({"carryover_threshold": float("nan")}, "--carryover-threshold", "is nan", "give a number of 0 or"),
    ({"seed": -1}, "--seed", "is -1", "give an integer from 0"),
    ({"spin_sq": -1.0}, "sci_solver: spin_sq", "is -1.0", "give s (s + 1), a"),
    ({"output": "."}, ".", "does not end in .npz", "no other format is"),
    ({"output": "out.json"}, "out.json", "does not end in .npz", "no other format is"),
    ({"plot": "out.png"}, "out.png", "does not end in .svg", "no other format is"),
    ({"plot": "counts.json"}, "counts.json", "does not end in .svg", "no other format is"),
    ({"counts": {"0" * 10: 1}}, "counts",
     "no sample of 2 alpha and 2 beta electrons", "give more samples, with"),
    ({"counts": {"0101": 1}}, "counts: key '0101'",
     "is not a string of 5 zeros and ones", "write one bitstring per"),
    ({"counts": {"01010": 1}}, "counts", "holds strings of 5 bits, not 10", "give samples of both spins"),
    ({"counts": {}}, "counts", "holds no sample", "give at least one"),
    ({"counts": np.zeros((3, 10))}, "counts", "are an array of shape (3, 10)", "give a file, counts"),
    ({"counts": [[True], [True, False]]}, "counts", "are of type list", "give a file, counts"),
    ({"integrals": 5}, "file 5", "is not the name of a file", "give its path"),
    ({"criteria": 5}, "criteria", "is 5", "give a Criteria"),
    ({"criteria": Criteria(residual=1e-9, steps=1), "ranks": 2}, "sqd",
     "did not converge in 1 steps", "allow more steps, or a"),
    ({"integrals": random_integrals(N, 2, 1, 5), "symmetrize_spin": True}, "--symmetrize-spin",
     "not 2 and 1", "leave it out"),
]
# fmt: on


@table(CALLS)
def test_a_call_is_refused(refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("qiskit_addon_sqd.fermion", reason="needs qiskit-addon-sqd")
    monkeypatch.chdir(tmp_path)
    Path("h.fcidump").write_text(fcidump_text(INTEGRALS))
    Path("counts.json").write_text('{"0001100011": 3, "0010100011": 2, "0001100101": 1}')
    if isinstance(refusal.given.get("criteria"), Criteria):
        monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.DETERMINANTS", 2)
        monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.WHOLE", 0)
    usual = {"counts": "counts.json", "integrals": "h.fcidump", "num_batches": 2, "max_iterations": 4,
             "samples_per_batch": 5, "seed": 7, "criteria": Criteria(residual=1e-9), "device": "cpu",
             "threads": 1}  # fmt: skip
    refusal.raised_by(lambda: tnplan.sqd.run(**{**usual, **refusal.given}))
