"""Powers of contractions against rows one by one, exactly; counts, partition functions, circuits."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.contraction.algebras import (
    ALGEBRAS,
    PRIMES,
    by_rows,
    check,
    compiled,
    make,
    transfer,
)
from tests.support.contraction.resume import InterruptedRunError
from tests.support.kernels.gpus import needs_gpus
from tests.support.slow import slow_after
from tnplan.executor.contraction.run.compiled_program import load_in_place
from tnplan.jobs.arrays import power
from tnplan.questions.combinatorial.counting import by_remainders

ROWS = 3


@pytest.mark.parametrize("name", ALGEBRAS)
@pytest.mark.parametrize("seed", slow_after(4, range(12)))
def test_rows_equal_sums_over_all_values(name: str, seed: int) -> None:
    prime = PRIMES[seed % len(PRIMES)]
    algebra, case = make(name, prime), transfer(100 * ALGEBRAS.index(name) + seed, name, prime)
    path, number, arrays = case
    wanted = [by_rows(case, rows, name, prime) for rows in (0, 1, ROWS)]
    for ranks, groups in ((1, 1), (2, 1), (4, 1), (1, 2), (2, 2)):
        with compiled(case, algebra, ranks, groups) as contraction:
            for rows, expected in zip((0, 1, ROWS), wanted, strict=True):
                found = contraction.power(rows, *arrays, vector=number)
                check(found, path.network, np.asarray(expected).reshape(-1))
            one_row = wanted[1].reshape(-1)
            check(contraction(*arrays), path.network, one_row)
    constants = {each: array for each, array in enumerate(arrays) if each != number}
    shapes = [path.network.shape(each) for each in range(len(arrays))]
    with tnplan.compile(path, *shapes, constants=constants, algebra=algebra) as contraction:
        check(contraction.power(ROWS, arrays[number]), path.network, np.asarray(wanted[-1]).reshape(-1))


@needs_gpus(1)
def test_numbers_on_a_gpu() -> None:
    random = np.random.default_rng(5)
    matrix, vector = random.random((40, 40)) / 20, random.random(40)
    wanted = np.linalg.matrix_power(matrix, 9) @ vector
    for constants in ({}, {0: matrix}):
        shapes = [matrix.shape, vector.shape]
        options = {"dtype": "float64", "device": "gpu", "constants": constants}
        with tnplan.compile("ab,b->a", *shapes, **options) as step:
            arrays = [vector] if constants else [matrix, vector]
            for _ in range(3):
                np.testing.assert_allclose(step.power(9, *arrays, vector=1), wanted, rtol=1e-12)


def test_vectors_stay_or_go_over_rank_0() -> None:
    """What the test above relies on: some vectors stay where they are, on one rank and on several, some are
    copied there, some are handed over."""
    seen = set()
    for seed in range(60):
        case = transfer(seed, "residues", 7)
        for ranks in (1, 2):
            with compiled(case, tnplan.Residues(7), ranks) as contraction:
                schedule, number = contraction.schedule, case[1]
            items = [item for item in schedule.once if item.op != "free"]
            load = load_in_place(schedule, number, range(len(items)))
            same = load is not None and (
                schedule.buffers[load.out].offset_bytes == schedule.buffers[schedule.result].offset_bytes
            )
            seen.add((ranks, schedule.n_slices > 1, load is not None, same))
    assert {(1, False, True, True), (1, False, True, False), (1, True, True, False)} <= seen
    assert {(2, False, True, False), (2, False, False, False), (1, False, False, False)} <= seen


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_rows_of_numbers_are_calls(dtype: str) -> None:
    """The same to the bit on one rank: a row carries out what a call does."""
    for seed in range(10):
        path, number, arrays = transfer(seed, "residues", 7)
        path = replace(path, dtype=dtype)
        arrays = [array.astype(dtype) for array in arrays]
        with tnplan.compile(path, device="cpu", hardware="cpu") as contraction:
            found, vector = contraction.power(ROWS, *arrays, vector=number), arrays[number]
            for _ in range(ROWS):
                vector = contraction(*(vector if k == number else a for k, a in enumerate(arrays)))
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, vector)


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_interrupted_power_goes_on(ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "INTERVAL", 0)
    prime, file = PRIMES[1], tmp_path / "rows"
    case = next(
        case for seed in range(100)
        if prod((case := transfer(seed, "residues", prime))[0].network.shape(case[1])) > 8
    )  # fmt: skip
    path, number, arrays = case
    with compiled(case, tnplan.Residues(prime), ranks) as contraction:
        whole, seen = contraction.power(7, *arrays, vector=number), []

        def progress(at: tnplan.Progress) -> None:
            seen.append(at.done)
            if at.done == 5:
                raise InterruptedRunError

        options: dict[str, Any] = {"vector": number, "checkpoint": file}
        with pytest.raises(InterruptedRunError):
            contraction.power(7, *arrays, progress=progress, **options)
    with compiled(case, tnplan.Residues(prime), ranks) as contraction:
        with pytest.raises(tnplan.InputError, match="continue it with resume"):
            contraction.power(7, *arrays, **options)
        with pytest.raises(tnplan.InputError, match="is of 4 rows, and 3 are asked for"):
            contraction.power(3, *arrays, resume=True, **options)
        others = [np.roll(array, 1) if k == number else array for k, array in enumerate(arrays)]
        with pytest.raises(tnplan.InputError, match="values"):
            contraction.power(7, *others, resume=True, **options)
        options |= {"resume": True, "progress": lambda at: seen.append(at.done)}
        found = contraction.power(7, *arrays, **options)
    assert seen == [1, 2, 3, 4, 5, 5, 6, 7]
    np.testing.assert_array_equal(found, whole)
    check(found, path.network, by_rows(case, 7, "residues", prime).reshape(-1))
    assert not file.exists()
    with compiled(case, tnplan.Residues(7), ranks) as contraction:
        file.write_bytes(b"no checkpoint")
        with pytest.raises(tnplan.InputError, match="is damaged"):
            contraction.power(7, *(array % 7 for array in arrays), **options)


def words(width: int) -> list[int]:
    """Rows of independent sets."""
    return [word for word in range(1 << width) if not word & word << 1]


def hard_squares(width: int, prime: int) -> tuple[tnplan.CompiledContraction, np.ndarray]:
    """The next row of independent sets of a grid, in blocks of up to four sites; and an empty row."""
    widths = [min(4, width - first) for first in range(0, width, 4)]
    blocks = [words(each) for each in widths]
    before, after = "abcdefgh"[: len(blocks)], "ABCDEFGH"[: len(blocks)]
    terms, arrays = [before], [tuple(map(len, blocks))]
    for block, old, new in zip(blocks, before, after, strict=True):
        terms.append(old + new)
        arrays.append(np.array([[not x & y for y in block] for x in block]))
    for k in range(len(blocks) - 1):
        terms.append(after[k : k + 2])
        left, right = blocks[k : k + 2]
        arrays.append(np.array([[not (x >> widths[k] - 1 & 1 and y & 1) for y in right] for x in left]))
    constants = dict(enumerate(arrays[1:], 1))
    equation = f"{','.join(terms)}->{after}"
    step = tnplan.compile(equation, *arrays, constants=constants, algebra=tnplan.Residues(prime))
    empty = np.zeros(arrays[0])
    empty[(0,) * len(blocks)] = 1
    return step, empty


@pytest.mark.parametrize("n", range(4, 17, 3))
def test_independent_sets_by_rows_are_those_of_count(n: int) -> None:
    """A006506 modulo primes, put together; the rows meet in the middle."""
    residues = []
    primes = [8388593, 8388587, 8388581, 8388571, 8388547, 8388539, 8388473, 8388461]
    for prime in primes[: 1 + n * n * 6 // 10 // 22]:
        step, empty = hard_squares(n, prime)
        with step:
            upper, lower = (step.power(rows, empty) for rows in (n // 2 + 1, n - n // 2))
        residues.append((prime, sum(map(lambda a, b: int(a) * int(b), upper.flat, lower.flat)) % prime))
    assert by_remainders(residues) == tnplan.count("independent-sets", f"grid {n}x{n}").value


def test_the_partition_function_of_a_lattice_of_spins() -> None:
    """Ising spins on a 3 x 5 grid: rows of a transfer matrix against all configurations."""
    width, height, beta = 3, 5, 0.4
    bond = np.exp(beta * np.array([[1, -1], [-1, 1]]))
    equation = "abc,aA,bB,cC,AB,BC->ABC"
    constants = dict.fromkeys(range(1, 6), bond)
    with tnplan.compile(equation, (2, 2, 2), *[bond] * 5, dtype="float64", constants=constants) as row:
        # The first row has no bonds upwards: half of what it sums over spins that are free.
        first = np.einsum("AB,BC->ABC", bond, bond)
        found = row.power(height - 1, first).sum()
    spins = 1 - 2 * (np.arange(2 ** (width * height))[:, None] >> np.arange(width * height) & 1)
    grid = spins.reshape(-1, height, width)
    energy = (grid[:, 1:] * grid[:, :-1]).sum((1, 2)) + (grid[:, :, 1:] * grid[:, :, :-1]).sum((1, 2))
    assert found == pytest.approx(np.exp(beta * energy).sum(), rel=1e-12)


@pytest.mark.parametrize("devices", [1, 2])
def test_trotter_steps_are_those_of_a_state_vector(devices: int) -> None:
    """The transverse field on four spins: gates of a step as a network, against matrices on the state."""
    steps, angle = 9, 0.1
    field = np.array([[np.cos(angle), -1j * np.sin(angle)], [-1j * np.sin(angle), np.cos(angle)]])
    bond = np.exp(-1j * 0.2 * np.array([[1, -1], [-1, 1]]))
    equation, n = "abcd,ab,bc,cd,aA,bB,cC,dD->ABCD", 4
    arrays = [bond] * 3 + [field] * 4
    constants = dict(enumerate(arrays, 1))
    state = np.zeros((2,) * n, complex)
    state[0, 1, 0, 1] = 1
    with tnplan.compile(equation, state, *arrays, constants=constants, device="cpu", devices=devices) as step:
        found = step.power(steps, state)
    diagonal, rotation = np.ones(1), np.ones((1, 1))
    for _ in range(n):
        rotation = np.kron(rotation, field)
    bits = np.arange(2**n)[:, None] >> np.arange(n)[::-1] & 1
    diagonal = np.prod([bond[bits[:, k], bits[:, k + 1]] for k in range(n - 1)], axis=0)
    vector = state.reshape(-1)
    for _ in range(steps):
        vector = rotation @ (diagonal * vector)
    np.testing.assert_allclose(found.reshape(-1), vector, atol=1e-12)


def test_what_has_no_power_is_refused() -> None:
    matrix = np.eye(2)
    with tnplan.compile("ab,bc->ac", (2, 2), (2, 3), dtype="float64") as wide:
        with pytest.raises(tnplan.InputError, match=r"array 0: has shape \(2, 2\), and the result \(2, 3\)"):
            wide.power(2, matrix, np.ones((2, 3)))
        with pytest.raises(tnplan.InputError, match="n: is -1"):
            wide.power(-1, matrix, np.ones((2, 3)), vector=1)
        with pytest.raises(tnplan.InputError, match="vector: 2 is not a tensor that calls take"):
            wide.power(1, matrix, np.ones((2, 3)), vector=2)
        with pytest.raises(tnplan.InputError, match="resume: has no checkpoint"):
            wide.power(1, matrix, np.ones((2, 3)), vector=1, resume=True)
        assert np.array_equal(wide.power(2, matrix, np.ones((2, 3)), vector=1), np.ones((2, 3)))
        with pytest.raises(tnplan.InputError, match="call with all arrays first"):
            wide.update({0: matrix})
    with (
        tnplan.compile("ab,bc->ac", (2, 2), (2, 2), dtype="float64", batch=2) as batches,
        pytest.raises(tnplan.InputError, match="has a batch"),
    ):
        batches.power(2, np.ones((2, 2, 2)), np.ones((2, 2, 2)))
