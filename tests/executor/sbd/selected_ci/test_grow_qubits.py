"""Lists of bit strings that grow by a qubit Hamiltonian's elements: dense references, limits, ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.effort import repeats
from tests.support.engines.sbd_qubits import (
    Term,
    as_text,
    chain_terms,
    random_terms,
    reference_among,
    texts_of,
)
from tnplan.cli.main import run
from tnplan.executor.sbd.selected_ci import grow_qubits

N = 8
EVERY = list(range(2**N))
ONE: dict[str, Any] = {"device": "cpu", "threads": 1}


def problem(kind: str, seed: int) -> tuple[list[Term], np.ndarray, list[str]]:
    """Words, the matrix among all strings, and the string of least energy."""
    terms = random_terms(N, 30, kind, seed)
    matrix = reference_among(terms, EVERY)
    return terms, matrix, texts_of([int(matrix.diagonal().real.argmin())], N)


def numbers_of(found: tnplan.QubitDiagonalization) -> list[int]:
    return (found.bitstrings @ (1 << np.arange(N - 1, -1, -1))).tolist()


@pytest.mark.parametrize("memory", [None, 2e6])
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_selection_and_second_order_are_those_of_dense_matrices(
    kind: str, memory: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several parts too, where terms take more memory than there is."""
    monkeypatch.setattr(grow_qubits, "TERM_BYTES", 48 if memory is None else 50_000)
    terms, matrix, start = problem(kind, 11)
    growth, epsilon = tnplan.Growth((0.3,), epsilon_pt2=0.0, stable=0.0), 0.3
    found = tnplan.diagonalize_qubits(as_text(terms), start, grow=growth, memory=memory, **ONE)
    listed = [int(start[0], 2)]
    for iteration in found.report["growth"]["iterations"]:
        state = np.linalg.eigh(matrix[np.ix_(listed, listed)])[1][:, 0]
        sizes = np.abs(matrix[:, listed] * state).max(axis=1)
        sizes[listed] = 0
        listed += np.flatnonzero(sizes > epsilon).tolist()
        assert iteration["strings"] == len(listed)
    assert numbers_of(found) == sorted(listed)
    listed.sort()
    energies, states = np.linalg.eigh(matrix[np.ix_(listed, listed)])
    np.testing.assert_allclose(found.energies, energies[:1], atol=1e-10)
    outside = np.setdiff1d(EVERY, listed)
    couplings = np.abs(matrix[np.ix_(outside, listed)] @ states[:, 0]) ** 2
    expected = (couplings / (energies[0] - matrix.diagonal().real[outside])).sum()
    (point,) = found.report["growth"]["points"]
    np.testing.assert_allclose(point["corrections"], [expected], atol=1e-9)


@pytest.mark.parametrize("seed", range(repeats(3, 20)))
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_a_threshold_of_zero_takes_all_strings_that_couple(kind: str, seed: int) -> None:
    terms, matrix, start = problem(kind, 100 + seed)
    growth = tnplan.Growth((1.0, 0.5, 0.0), stable=0.0)
    whole = tnplan.diagonalize_qubits(as_text(terms), start, grow=growth, roots=2, **ONE)
    assert whole.report["growth"]["points"][-1]["corrections"] == [0.0, 0.0]
    assert whole.report["growth"]["extrapolated"] == whole.energies.tolist()
    linked = numbers_of(whole)
    np.testing.assert_allclose(
        whole.energies, np.linalg.eigvalsh(matrix[np.ix_(linked, linked)])[:2], atol=1e-9
    )
    assert not matrix[np.ix_(np.setdiff1d(EVERY, linked), linked)].any()


def test_strings_of_two_words_and_ranks() -> None:
    """The first qubits of 70 hop; all numbers of ranks select the same."""
    terms = [*chain_terms(10), *[("Z", (q,), 0.1 * q) for q in range(60, 70)]]
    start = ["1" * 10 + "0" * 50 + "0101010101"]
    growth = tnplan.Growth((0.1, 0.03), determinants=60)
    given = as_text(terms), start
    found = tnplan.diagonalize_qubits(*given, grow=growth, **ONE)
    assert found.report["growth"]["ended"] == "determinants"
    assert len(found.bitstrings) == 60
    exact = tnplan.diagonalize_qubits(*given, grow=tnplan.Growth((0.0,)), **ONE)
    assert len(exact.bitstrings) == 252
    assert exact.energies[0] < found.energies[0] < exact.energies[0] + 2
    shared = tnplan.diagonalize_qubits(*given, grow=growth, ranks=2, **ONE)
    assert np.array_equal(shared.bitstrings, found.bitstrings)
    np.testing.assert_allclose(shared.energies, found.energies, atol=1e-10)


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    terms, matrix, start = problem("real", 5)
    Path("h.txt").write_text(as_text(terms).replace(" +", "\n+"))
    Path("s.txt").write_text(start[0])
    line = "sbd-qubits h.txt s.txt --grow-to 100 --epsilon 1,0.5,0.2,0.1,0.05 --device cpu -o out.npz"
    assert run(line.split()) == 0
    printed = capsys.readouterr().out
    assert "second order" in printed
    assert "root 0 not extrapolated: the line" in printed
    report = json.loads(Path("out.json").read_text())
    assert report["space"]["strings"] == 100
    assert report["energies"][0] >= np.linalg.eigvalsh(matrix)[0]
    # The strings of a result are a start.
    assert run(["sbd-qubits", "h.txt", "out.npz", "--grow", "--no-pt2", "--epsilon", "0.01", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["energies"][0] < report["energies"][0]
    assert again["growth"]["points"] == []
