"""States of one irreducible representation: over products, lists, ranks, with a parity, and of a header."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.oracles.sbd import NumpyBatch
from tests.support.engines.sbd import every_string, random_integrals, reference_matrix, string_set
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.calls.diagonalize import diagonalize
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.sbd.basis.determinants import from_product
from tnplan.executor.sbd.basis.fcidump import write_fcidump
from tnplan.executor.sbd.basis.integrals import Integrals, OrbitalLabels, dense_two, from_arrays
from tnplan.executor.sbd.basis.sector import Sector, string_irreps
from tnplan.executor.sbd.sigma.batched import BatchedHamiltonian
from tnplan.executor.sbd.sigma.product_hamiltonian import ProductHamiltonian
from tnplan.executor.sbd.solver.davidson import Criteria
from tnplan.executor.sbd.solver.solve import SpinPenalty, solve
from tnplan.executor.sbd.solver.vector_backend import DistributedVectors

LABELS = (1, 2, 1, 3, 4)
N = len(LABELS)
TIGHT: dict[str, Any] = {"criteria": Criteria(residual=1e-9), "device": "cpu", "threads": 1}


def symmetric_integrals(counts: tuple[int, int], wanted: int = 1) -> Integrals:
    """Random integrals that the labels allow."""
    made = random_integrals(N, *counts, 31)
    of = np.array(LABELS) - 1
    pairs = of[:, None] ^ of[None, :]
    two = dense_two(made) * (pairs[:, :, None, None] == pairs[None, None])
    integrals = from_arrays(made.one * (pairs == 0), two, *counts, 0.25)
    return replace(integrals, labels=OrbitalLabels(LABELS, wanted))


def energies_of(integrals: Integrals, pairs: list[tuple[int, int]], irrep: int) -> np.ndarray:
    """All energies among the determinants of a representation."""

    def own(string: int) -> int:
        return int(np.bitwise_xor.reduce([LABELS[p] - 1 for p in range(N) if string >> p & 1] or [0]))

    chosen = [pair for pair in pairs if 1 + (own(pair[0]) ^ own(pair[1])) == irrep]
    return np.linalg.eigvalsh(reference_matrix(integrals, chosen)) + integrals.core


@pytest.mark.parametrize("irrep", [1, 2, 3, 4])
@pytest.mark.parametrize("counts", [(2, 2), (3, 2)])
def test_states_of_a_representation(
    irrep: int, counts: tuple[int, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.DETERMINANTS", 6)
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.WHOLE", 0)
    integrals = symmetric_integrals(counts, irrep)
    alpha, beta = (every_string(N, count) for count in counts)
    pairs = list(product(alpha, beta))
    expected = energies_of(integrals, pairs, irrep)[:3]
    strings = [string_set(values, integrals) for values in (alpha, beta)]
    space = from_product(*strings, np.arange(len(pairs)))
    given: tuple[Any, ...] = (alpha,) if counts[0] == counts[1] else (alpha, beta)
    write_fcidump(tmp_path / "h", integrals)
    for result in (
        diagonalize(integrals, *given, symmetry=irrep, roots=3, **TIGHT),
        diagonalize(integrals, determinants=space, symmetry=irrep, roots=3, **TIGHT),
        diagonalize(tmp_path / "h", *given, symmetry=None if irrep > 1 else 1, roots=3, **TIGHT),
    ):
        np.testing.assert_allclose(result.energies, expected, atol=1e-9)
        assert result.report["symmetry"] == [irrep] * 3
    monkeypatch.undo()
    anything = diagonalize(tmp_path / "h", *given, symmetry=0, **TIGHT)
    lowest = min(energies_of(integrals, pairs, one)[0] for one in range(1, 5))
    np.testing.assert_allclose(anything.energies, lowest, atol=1e-9)


@pytest.mark.parametrize("batched", [False, True])
def test_on_ranks(batched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.DETERMINANTS", 6)
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.WHOLE", 0)
    integrals = symmetric_integrals((2, 2))
    values = every_string(N, 2)
    strings = string_set(values, integrals)
    expected = energies_of(integrals, list(product(values, values)), 2)[:2]

    def work(ranks: Any) -> Any:
        h = ProductHamiltonian(integrals, strings, rank_of=(ranks.rank, ranks.size), threads=1)
        labels = string_irreps(strings, LABELS)
        h.restrict(Sector(labels, labels, 1))
        make: Any = (lambda dtype: BatchedHamiltonian(h, NumpyBatch(dtype))) if batched else h.as_type
        return solve(h, integrals, 2, criteria=TIGHT["criteria"], backend=DistributedVectors(h, ranks, make))

    np.testing.assert_allclose(run_ranks(3, work)[0].energies, expected, atol=1e-9)


RIGHT = symmetric_integrals((2, 2))
WRONG = replace(random_integrals(N, 2, 2, 31), labels=OrbitalLabels(LABELS, 3))
# fmt: off
REFUSED: list[Row] = [
    ((WRONG, {}), "ISYM", "asks for a symmetry that integrals break by", "correct ORBSYM, or give"),
    ((replace(RIGHT, labels=OrbitalLabels()), {"symmetry": 2}), "--symmetry",
     "is 2, and orbitals have no labels", "give an FCIDUMP with"),
    ((RIGHT, {"symmetry": 9}), "--symmetry", "is 9, and labels go from 1 to 8", "give an FCIDUMP with"),
    ((RIGHT, {"symmetry": 8}), "space", "has no determinant of symmetry 8", "give other strings, or"),
    ((RIGHT, {"symmetry": -1}), "--symmetry", "is -1", "give an integer from 0"),
    ((RIGHT, {"symmetry": 2, "roots": 99}), "roots", "are 99, but the space has only 24", "ask for 1 to 24"),
    ((RIGHT, {"symmetry": 2, "roots": 9, "penalty": SpinPenalty(2.0)}), "roots",
     "are 9, but the space has only 3 states that the spin penalty keeps", "ask for 1 to 3"),
]
# fmt: on


@table(REFUSED)
def test_a_symmetry_that_is_not_there_is_refused(refusal: Refusal) -> None:
    integrals, options = refusal.given
    refusal.raised_by(lambda: diagonalize(integrals, every_string(N, 2), **options, **TIGHT))
