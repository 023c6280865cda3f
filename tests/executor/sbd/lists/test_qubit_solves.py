"""Solves among bit strings: roots, sectors, observables, ranks, checkpoints, memory; dense references."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.engines.sbd_qubits import (
    Term,
    as_text,
    bits_of,
    chain_terms,
    random_terms,
    reference_among,
    texts_of,
    walk,
)
from tests.support.kernels.gpus import DEVICES, needs_gpus
from tnplan.common.errors import InputError
from tnplan.executor.sbd.solver import initial_guess as start_module
from tnplan.executor.sbd.solver import solve as checkpoint_module
from tnplan.executor.sbd.solver.davidson import Criteria, DavidsonStep

TIGHT: dict[str, Any] = {"criteria": Criteria(residual=1e-8, steps=300), "device": "cpu", "threads": 1}


@pytest.fixture(autouse=True)
def few_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts that are far from the solution."""
    monkeypatch.setattr(start_module, "DETERMINANTS", 8)
    monkeypatch.setattr(start_module, "WHOLE", 0)


def problem(n: int, kind: str, count: int) -> tuple[list[Term], list[int], np.ndarray]:
    """Words, strings, and the matrix among them."""
    terms = random_terms(n, 40, kind, 5)
    strings = walk(terms, 6, count)
    return terms, strings, reference_among(terms, strings)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("n", "kind"), [(10, "real"), (10, "complex"), (66, "complex")])
def test_roots_and_observables_are_those_of_dense_matrices(n: int, kind: str, device: str) -> None:
    terms, strings, matrix = problem(n, kind, 140)
    energies, columns = np.linalg.eigh(matrix)
    other = random_terms(n, 10, "complex", 9)
    measured = reference_among(other, strings)
    for ranks in (1, 3) if device == "cpu" else (1,):
        found = tnplan.diagonalize_qubits(
            as_text(terms), texts_of(strings, n), roots=3, observables=[as_text(other), "Z0"],
            **{**TIGHT, "device": device}, ranks=ranks,
        )  # fmt: skip
        assert found.solution.converged
        assert (found.report["device"], found.report["ranks"]) == (device, ranks)
        np.testing.assert_allclose(found.energies, energies[:3], atol=1e-10)
        values = [np.vdot(column, measured @ column).real for column in columns.T[:3]]
        np.testing.assert_allclose(found.expectations[0], values, atol=1e-6)
        assert np.array_equal(found.bitstrings[:, ::-1], bits_of(strings, n))
        for state, column in zip(found.states, columns.T, strict=False):
            assert abs(np.vdot(state, column)) == pytest.approx(1, abs=1e-9)


def test_the_lowest_state_lies_in_another_sector_than_the_lowest_string() -> None:
    """A ring conserves the number of ones; the strings of least energy couple to few others."""
    n = 10
    terms: list[Term] = [*chain_terms(n), *[("Z", (q,), 2.2) for q in range(n)]]
    few = [2**n - 1, *(2**n - 1 - 2**q for q in range(n))]
    rest = [string for string in range(2**n) if string.bit_count() == 5]
    strings = sorted([*few, *rest])
    matrix = reference_among(terms, strings)
    lowest = np.argsort(matrix.diagonal().real)[:8]
    expected = np.linalg.eigvalsh(matrix)[:3]
    in_sector = [at for at, string in enumerate(strings) if string.bit_count() == 5]
    np.testing.assert_allclose(np.linalg.eigvalsh(matrix[np.ix_(in_sector, in_sector)])[0], expected[0])
    assert not {strings[at].bit_count() for at in lowest} & {5}
    found = tnplan.diagonalize_qubits(as_text(terms), texts_of(strings, n), roots=3, **TIGHT)
    np.testing.assert_allclose(found.energies, expected, atol=1e-9)


def test_strings_that_hardly_couple_are_solved_in_few_steps() -> None:
    """A diagonal operator over its own gaps gives the state itself: corrections must not lie along it."""
    n, chance = 20, np.random.default_rng(3)
    terms: list[Term] = [("ZZ", (p, q), float(chance.standard_normal())) for p in range(n) for q in range(p)]
    terms += [("XX", (q, q + 1), 1.0) for q in range(n - 1)]
    strings = sorted(chance.choice(2**n, 500, replace=False).tolist())
    expected = np.linalg.eigvalsh(reference_among(terms, strings))[0]
    found = tnplan.diagonalize_qubits(as_text(terms), texts_of(strings, n), **TIGHT)
    assert found.solution.converged
    assert found.solution.steps <= 20
    np.testing.assert_allclose(found.energies[0], expected, atol=1e-9)


def test_degenerate_states_are_all_found() -> None:
    terms = chain_terms(9)
    strings = [string for string in range(2**9) if string.bit_count() in (4, 5)]
    expected = np.linalg.eigvalsh(reference_among(terms, strings))[:4]
    assert np.ptp(expected) < 1e-10
    found = tnplan.diagonalize_qubits(as_text(terms), texts_of(strings, 9), roots=4, **TIGHT)
    np.testing.assert_allclose(found.energies, expected, atol=1e-8)


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_a_killed_solve_resumes(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module.SolveCheckpoint, "INTERVAL", 0)
    terms, strings, matrix = problem(10, kind, 140)
    target, given = tmp_path / "out.npz", (as_text(terms), texts_of(strings, 10))

    def kill(at: Any) -> None:
        if isinstance(at.detail, DavidsonStep) and at.detail.number == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tnplan.diagonalize_qubits(*given, roots=2, output=target, progress=kill, **TIGHT)
    kept = tmp_path / "out.npz.ckpt"
    assert kept.exists()
    with pytest.raises(InputError, match="belongs to another solve"):
        tnplan.diagonalize_qubits(given[0] + " + Z3", given[1], roots=2, output=target, resume=True, **TIGHT)
    whole = tnplan.diagonalize_qubits(*given, roots=2, **TIGHT)
    found = tnplan.diagonalize_qubits(*given, roots=2, output=target, resume=True, **TIGHT)
    assert found.solution.steps < whole.solution.steps
    assert not kept.exists()
    np.testing.assert_allclose(found.energies, np.linalg.eigvalsh(matrix)[:2], atol=1e-9)
    again = tnplan.diagonalize_qubits(given[0], target, roots=2, start=target, **TIGHT)
    assert again.solution.steps <= 2
    np.testing.assert_allclose(again.energies, found.energies, atol=1e-12)


def test_strings_of_every_form_give_the_same(tmp_path: Path) -> None:
    strings = [0b0001, 0b0111, 0b0100, 0b1111]
    texts = texts_of(strings, 4)
    expected = tnplan.diagonalize_qubits("X0 X1 + Y1 X2 - 0.3*Z0 Z3", texts, **TIGHT)
    (tmp_path / "s.txt").write_text("# strings\n" + "\n".join(f"{text} 2" for text in [*texts, texts[1]]))
    (tmp_path / "c.json").write_text(json.dumps({"counts": dict.fromkeys(texts, 3)}))
    np.savez(tmp_path / "b.npz", bitstrings=bits_of(strings, 4)[:, ::-1])
    turned = [text[::-1] for text in texts]
    for given, more in (
        (tmp_path / "s.txt", {}), (tmp_path / "c.json", {}), (tmp_path / "b.npz", {}),
        (dict.fromkeys(texts, 7), {}), ([*texts, texts[0]], {}), (bits_of(strings, 4)[:, ::-1], {}),
        (turned, {"first_qubit": "left"}), (tuple(reversed(texts)), {}),
    ):  # fmt: skip
        found = tnplan.diagonalize_qubits("X0 X1 + Y1 X2 - 0.3*Z0 Z3", given, **TIGHT, **more)
        np.testing.assert_array_equal(found.bitstrings, expected.bitstrings)
        np.testing.assert_allclose(found.energies, expected.energies, atol=1e-14)


def test_hamiltonians_of_every_form_give_the_same(tmp_path: Path) -> None:
    strings = ["00", "01", "11"]
    expected = np.linalg.eigvalsh([[0.5, 0, 1], [0, -0.5, 0.25], [1, 0.25, -0.5]])[0]
    (tmp_path / "h.txt").write_text("# two lines\n1.0*X0 X1 + 0.25*X1\n0.5*Z0 \n - 0.25*Z0 X1")
    (tmp_path / "h.json").write_text('{"X0 X1": 1.0, "X1": 0.25, "ZI": 0.5, "Z0 X1": [-0.25, 0]}')
    text = "X0 X1 + 0.25*X1 + 0.5*ZI - 0.25*Z0 X1"
    words = {"X0 X1": 1.0, "X1": 0.25, "Z0": 0.5, "Z0 X1": -0.25}
    matrix = reference_among([("XX", (0, 1), 1), ("X", (1,), 0.25), ("Z", (0,), 0.5), ("ZX", (0, 1), -0.25)],
                             [0, 1, 3])  # fmt: skip
    expected = np.linalg.eigvalsh(matrix)[0]
    for given in (tmp_path / "h.txt", tmp_path / "h.json", text, words):
        found = tnplan.diagonalize_qubits(given, strings, **TIGHT)
        np.testing.assert_allclose(found.energies, [expected], atol=1e-12)


@pytest.mark.slow
def test_the_addon_finds_the_same() -> None:
    """`solve_qubit` of qiskit-addon-sqd, on the same strings. Slow: it compiles for each word."""
    addon = pytest.importorskip("qiskit_addon_sqd.qubit", reason="needs qiskit-addon-sqd")
    quantum_info = pytest.importorskip("qiskit.quantum_info", reason="needs Qiskit")
    for kind in ("real", "complex"):
        terms, strings, _ = problem(10, kind, 140)
        whole = quantum_info.SparsePauliOp.from_sparse_list(terms, 10)
        theirs, _ = addon.solve_qubit(bits_of(strings, 10)[:, ::-1], whole, k=2, which="SA")
        found = tnplan.diagonalize_qubits(whole, bits_of(strings, 10)[:, ::-1], roots=2, **TIGHT)
        np.testing.assert_allclose(found.energies, np.sort(theirs), atol=1e-9)


def test_memory_that_is_too_small_is_refused() -> None:
    terms, strings, _ = problem(10, "complex", 140)
    with pytest.raises(InputError, match=r"memory: is .*, but the vectors of a solve need"):
        tnplan.diagonalize_qubits(as_text(terms), texts_of(strings, 10), memory="5kB", **TIGHT)
    found = tnplan.diagonalize_qubits(as_text(terms), texts_of(strings, 10), memory="200kB", **TIGHT)
    assert found.report["predicted_bytes"] <= 200_000


@needs_gpus(1)
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_a_gpu_takes_the_memory_that_is_predicted(kind: str) -> None:
    terms = random_terms(30, 60, kind, 2)
    bits = bits_of(walk(terms, 6, 60_000), 30)[:, ::-1]
    loose = {"criteria": Criteria(residual=1e-5), "roots": 2}
    found = tnplan.diagonalize_qubits(as_text(terms), bits, device="gpu", **loose)
    expected = tnplan.diagonalize_qubits(as_text(terms), bits, device="cpu", **loose)
    np.testing.assert_allclose(found.energies, expected.energies, atol=1e-8)
    assert found.report["space"] == expected.report["space"]
    predicted = found.report["predicted_bytes"]
    assert 0.5 * predicted < found.report["measured"]["peak_bytes"] < 1.05 * predicted


def test_blas_takes_one_thread_for_short_vectors_and_as_many_as_before_afterwards() -> None:
    """Limits of a rank's thread are without effect where another thread holds one."""
    from threadpoolctl import threadpool_info

    def blas() -> list[int]:
        return [entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"]

    heard: list[int] = []
    before = blas()
    strings = [f"{number:09b}" for number in range(512)]
    words = " + ".join(f"X{q} X{q + 1} + {q + 1}*Z{q}" for q in range(8))
    tnplan.diagonalize_qubits(
        words,
        strings,
        device="cpu",
        threads=3,
        progress=lambda at: heard.append(min(blas())) if at.done else None,
    )
    assert heard
    assert set(heard) == {1}
    assert blas() == before
