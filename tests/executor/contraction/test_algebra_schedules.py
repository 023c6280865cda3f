"""Schedules of algebras from files, over ranks, slices and checkpoints: equal to sums over all values."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.contraction.algebras import ALGEBRAS, MAX_MIN, PRIMES, check, make, problem, values
from tests.support.contraction.compression import exchanging, slow_profile
from tests.support.contraction.resume import InterruptedRunError
from tests.support.effort import repeats
from tests.support.mpirun import SCRIPTS, mpirun, needs_mpi
from tests.support.networks import eager_profile, random_path
from tests.support.slow import slow_after, slow_unless
from tnplan.executor.contraction.run import checkpoint as checkpoints
from tnplan.planner.hardware.compression_options import Compression, Lossy
from tnplan.planner.networks.tensors import save_tensors
from tnplan.planner.schedule.file import with_identity

EAGER: dict[str, Any] = {"hardware": eager_profile(), "memory": inf, "threshold": 1}
CPU: dict[str, Any] = {"device": "cpu", "threads": 1}


@pytest.mark.parametrize("name", ALGEBRAS)
@pytest.mark.parametrize("seed", slow_after(1, range(repeats(4, 10))))
def test_random_networks_from_files(name: str, seed: int, tmp_path: Path) -> None:
    """On 1, 2 and 4 ranks of a group, and in two groups; a value that differs in a bit is found."""
    algebra, prime, path, arrays, wanted = problem(name, seed)
    save_tensors(arrays, tmp_path / "tensors.npz")
    of_call = algebra
    if name != "max-min":  # others have a name
        of_call = f"{name}:{prime}" if name in ("residues", "optima") else None
    for ranks in (1, 2, 4):
        file = tmp_path / f"{ranks}.json"
        tnplan.plan(path, devices=ranks, ranks_per_group=ranks, algebra=algebra, output=file, **EAGER)
        for groups in (1, 2):
            options = {**CPU, "ranks": groups * ranks, "algebra": of_call}
            result = tnplan.execute(file, tmp_path / "tensors.npz", **options)
            check(result.array, path.network, wanted)
            assert result.report["not_finite"] == 0
    schedule = tnplan.load_schedule(file)
    assert schedule.algebra == name
    with tnplan.compile(schedule, algebra=algebra, devices=4) as contraction:
        check(contraction(*arrays), path.network, wanted)


def test_a_result_wrong_by_one_bit_is_found() -> None:
    algebra, _, path, arrays, wanted = problem("residues", 3)
    found = tnplan.contract(path, *arrays, algebra=algebra)
    check(found, path.network, wanted)
    found.reshape(-1).view(np.uint64)[-1] ^= 1
    with pytest.raises(AssertionError):
        check(found, path.network, wanted)


@pytest.mark.parametrize(
    ("name", "compress"), slow_unless(lambda k, j: k % 2 == j, ALGEBRAS, [None, "checkpoints"])
)
def test_an_interrupted_run_goes_on(
    name: str, compress: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many groups, with fewer and with more, whose partial sums are added as the algebra does."""
    monkeypatch.setattr(checkpoints, "INTERVAL", 0)
    algebra, _, path, arrays, wanted = problem(name, 7, least_slices=4)
    schedule = tnplan.plan(path, devices=2, ranks_per_group=2, algebra=algebra, **EAGER)
    options = {"algebra": algebra, "compress": compress, "output": tmp_path / "sum.npy", **CPU}

    def progress(at: tnplan.Progress) -> None:
        if at.done == 1 and at.total > 1:
            raise InterruptedRunError

    for before, after in ((4, 4), (2, 4), (4, 2)):
        with pytest.raises(InterruptedRunError):
            tnplan.execute(schedule, arrays, ranks=before, progress=progress, **options)
        found = tnplan.execute(schedule, arrays, ranks=after, resume=True, **options)
        assert found.report["slices"]["resumed"] > 0
        check(found.array, path.network, wanted)


def test_the_checkpoint_of_another_prime_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "INTERVAL", 0)
    *_, path, arrays, _ = problem("residues", 0, least_slices=4)
    arrays = [array % 7 for array in arrays]
    schedule, output = tnplan.plan(path, algebra="residues"), tmp_path / "sum.npy"

    def progress(at: tnplan.Progress) -> None:
        if at.done == 2:
            raise InterruptedRunError

    with pytest.raises(InterruptedRunError):
        tnplan.execute(schedule, arrays, algebra="residues:7", output=output, progress=progress, **CPU)
    with pytest.raises(tnplan.InputError, match="values: is "):
        tnplan.execute(schedule, arrays, algebra="residues:11", output=output, resume=True, **CPU)


@pytest.mark.parametrize("name", ALGEBRAS)
def test_what_is_exchanged_without_loss_is_exact(name: str) -> None:
    chance, algebra = np.random.default_rng(5), make(name, PRIMES[1])
    path = exchanging(17, 7)
    arrays = [values(name, path.network.shape(k), PRIMES[1], chance) for k in range(len(path.network.inputs))]
    options = {**EAGER, "hardware": slow_profile(node=1), "devices": 2, "ranks_per_group": 2}
    schedule = tnplan.plan(path, compress="exchange=0:2", algebra=algebra, **options)
    assert schedule.compressed_counts[0] > 0
    result = tnplan.execute(schedule, arrays, algebra=algebra, **CPU)
    np.testing.assert_array_equal(result.array, tnplan.contract(path, *arrays, algebra=algebra))
    assert result.report["compression"]["exchange"]["stream_bytes"] > 0


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"algebra": "min-plus"}, "is min-plus in float64, and the schedule is for max-plus in float64"),
        ({"algebra": "plus-times"}, "is plus-times, and the schedule is for max-plus in float64"),
        ({"compress": "exchange=1e-3"}, "has a bound of errors, but values of max-plus have to stay exact"),
    ],
)
def test_what_a_schedule_is_not_for_is_refused(options: dict[str, Any], line: str) -> None:
    path = random_path(3, 500)
    schedule = tnplan.plan(path, algebra="max-plus")
    arrays = [np.zeros(path.network.shape(k)) for k in range(len(path.network.inputs))]
    with pytest.raises(tnplan.InputError, match=line):
        tnplan.execute(schedule, arrays, **{**CPU, **options})
    if "compress" not in options:
        with pytest.raises(tnplan.InputError, match=line):
            tnplan.compile(schedule, algebra=options["algebra"])


def test_values_that_an_algebra_has_not_are_refused(tmp_path: Path) -> None:
    schedule = tnplan.plan(tnplan.from_einsum("a,a->", [(2,), (2,)], [(0, 1)]), algebra="residues")
    for array, line in (([0.5, 1], "not integers"), ([1j, 0], "complex128"), ([2**53 + 1, 1], "round")):
        save_tensors([np.array(array), np.ones(2)], tmp_path / "t.npz")
        with pytest.raises(tnplan.InputError, match=line):
            tnplan.execute(schedule, tmp_path / "t.npz", **CPU)


def test_an_algebra_without_a_name_is_given_again() -> None:
    schedule = tnplan.plan(tnplan.from_einsum("a->", [(2,)], []), algebra=MAX_MIN)
    with pytest.raises(tnplan.InputError, match="'max-min' is unknown"):
        tnplan.execute(schedule, [np.ones(2)], **CPU)
    with pytest.raises(tnplan.InputError, match="contractions over max-min run only on a CPU"):
        tnplan.execute(schedule, [np.ones(2)], algebra=MAX_MIN, device="gpu")
    assert tnplan.execute(schedule, [np.array([1.0, 2.0])], algebra=MAX_MIN, **CPU).array == 2


def test_older_programs_refuse_a_schedule_of_an_algebra(tmp_path: Path) -> None:
    """By its version. Chains and bounds of errors are none of it, whoever wrote it."""
    file = tmp_path / "schedule.json"
    schedule = tnplan.plan(random_path(3, 500), algebra="max-plus", output=file)
    assert json.loads(file.read_text())["version"] > 10
    bound = Compression(exchange=Lossy(1e-3))
    with pytest.raises(tnplan.InputError, match="a bound changes values of max-plus"):
        tnplan.execute(with_identity(replace(schedule, compression=bound)), [], **CPU)
    with pytest.raises(tnplan.InputError, match="have to stay exact"):
        tnplan.plan(random_path(3, 500), algebra="max-plus", compress="store=1e-3")


@needs_mpi
@pytest.mark.parametrize(("ranks", "times"), [(2, 1), pytest.param(4, 2, marks=pytest.mark.slow)])
def test_ranks_of_mpirun(ranks: int, times: int, tmp_path: Path) -> None:
    done = mpirun(ranks, SCRIPTS / "algebras.py", tmp_path, times)
    assert done.returncode == 0, done.stderr
    said = [f"networks: {12 * times}", f"powers: {6 * times}"]
    assert done.stdout.splitlines()[-2:] == said, done.stdout + done.stderr
