"""The loop of sample-based diagonalization: the numbers of qiskit-addon-sqd, ranks, files and refusals."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
import tnplan.sqd
from tests.support.engines.sbd import fcidump_text, random_integrals, reference_matrix
from tests.support.mpirun import mpirun, needs_mpi
from tests.support.robustness.checkpoint_files import changed
from tests.support.stop import ask_to_stop
from tnplan.cli.main import run as command
from tnplan.common.errors import InputError
from tnplan.executor.device.protocols.stop_signal import StoppedRunError
from tnplan.executor.sbd.basis.integrals import dense_two
from tnplan.executor.sbd.basis.string_files import read_samples
from tnplan.executor.sbd.solver.davidson import Criteria
from tnplan.jobs.sqd import LoopCheckpoint

N = 5
INTEGRALS = random_integrals(N, 2, 2, 5)
BITS = np.random.default_rng(1).random((200, 2 * N)) < 0.42
TIGHT: dict[str, Any] = {"criteria": Criteria(residual=1e-9), "device": "cpu", "threads": 1}
SMALL: dict[str, Any] = {"num_batches": 2, "max_iterations": 4, "samples_per_batch": 5, "seed": 7}


@pytest.fixture(scope="module")
def fermion() -> Iterator[Any]:
    """The package; PySCF beneath it keeps to one thread."""
    package = pytest.importorskip("qiskit_addon_sqd.fermion", reason="needs qiskit-addon-sqd")
    import pyscf.lib

    with pyscf.lib.with_omp_threads(1):
        yield package


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with h.fcidump and counts.json, which is the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h.fcidump").write_text(fcidump_text(INTEGRALS))
    texts = ["".join("01"[bit] for bit in row) for row in BITS.astype(int)]
    (tmp_path / "counts.json").write_text(json.dumps({text: texts.count(text) for text in texts}))
    return tmp_path


def energies(result: tnplan.sqd.SqdResult) -> list[float]:
    return [iteration["energy_hartree"] for iteration in result.report["iterations"]]


OPTIONS: list[dict[str, Any]] = [
    {},
    {"carryover_threshold": 0.3, "max_dim": 5},
    {"symmetrize_spin": True, "num_batches": 1},
    {"energy_tol": 2.0, "occupancies_tol": 0.9},
]


@pytest.mark.parametrize(
    ("options", "solver"),
    [*((option, "ours") for option in OPTIONS), *((one, "theirs") for one in OPTIONS[1:])],
)
def test_every_iteration_has_the_energy_of_the_addon(
    fermion: Any, options: dict[str, Any], solver: str
) -> None:
    options = {**SMALL, **options}
    heard: list[float] = []
    solve = partial(fermion.solve_sci_batch, tol=1e-13)
    if solver == "ours":
        solve = partial(tnplan.sqd.sci_solver, **TIGHT)
    theirs = fermion.diagonalize_fermionic_hamiltonian(
        INTEGRALS.one, dense_two(INTEGRALS), BITS, norb=N, nelec=(2, 2), sci_solver=solve,
        callback=lambda results: heard.append(min(result.energy for result in results)), **options,
    )  # fmt: skip
    ours = tnplan.sqd.run(BITS, INTEGRALS, **options, **TIGHT)
    core = INTEGRALS.core
    np.testing.assert_allclose(energies(ours), np.array(heard) + core, rtol=0, atol=1e-9)
    np.testing.assert_allclose(ours.energy, theirs.energy + core, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(ours.alpha, theirs.sci_state.ci_strs_a)
    np.testing.assert_array_equal(ours.beta, theirs.sci_state.ci_strs_b)
    np.testing.assert_allclose(ours.occupancies, theirs.orbital_occupancies, rtol=0, atol=1e-6)
    assert ours.converged == (len(heard) < SMALL["max_iterations"])


@pytest.mark.usefixtures("fermion")
def test_the_energy_is_the_lowest_of_the_subspace() -> None:
    found = tnplan.sqd.run(BITS, INTEGRALS, **SMALL, **TIGHT)
    pairs = list(product(found.alpha.tolist(), found.beta.tolist()))
    lowest = np.linalg.eigvalsh(reference_matrix(INTEGRALS, pairs))[0] + INTEGRALS.core
    np.testing.assert_allclose(found.energy, lowest, rtol=0, atol=1e-9)
    assert found.energy == min(energies(found))
    assert found.occupancies.sum(1) == pytest.approx([2, 2])


@pytest.mark.usefixtures("fermion")
def test_a_spin_is_selected() -> None:
    weak = tnplan.from_arrays(INTEGRALS.one / 20, dense_two(INTEGRALS) / 20, 2, 2)
    options = {"samples_per_batch": 60, "max_iterations": 1, "symmetrize_spin": True, "seed": 7, **TIGHT}
    singlet, triplet = (tnplan.sqd.run(BITS, weak, spin_sq=square, **options) for square in (0.0, 2.0))
    assert singlet.energy < triplet.energy - 1e-3
    square = tnplan.diagonalize(
        weak, triplet.alpha.tolist(), triplet.beta.tolist(), start=[triplet.amplitudes], device="cpu",
        criteria=Criteria(residual=1e-8), penalty=tnplan.SpinPenalty(1.0),
    )  # fmt: skip
    np.testing.assert_allclose(triplet.energy, square.energies[0], atol=1e-6)


@pytest.mark.usefixtures("fermion")
@pytest.mark.parametrize(("ranks", "batches"), [(2, 3), (3, 2), (2, 1)])
def test_ranks_share_the_batches(ranks: int, batches: int) -> None:
    options = {**SMALL, "num_batches": batches}
    alone = tnplan.sqd.run(BITS, INTEGRALS, **options, **TIGHT)
    shared = tnplan.sqd.run(BITS, INTEGRALS, ranks=ranks, **options, **TIGHT)
    np.testing.assert_allclose(energies(shared), energies(alone), rtol=0, atol=1e-10)
    np.testing.assert_allclose(np.abs(shared.amplitudes), np.abs(alone.amplitudes), rtol=0, atol=1e-6)
    assert shared.report["measured"]["groups"] == min(ranks, batches)


@needs_mpi
@pytest.mark.usefixtures("fermion")
def test_mpirun_gives_the_same(files: Path) -> None:
    options = ["--samples-per-batch", "5", "--num-batches", "3", "--max-iterations", "2", "--seed", "7"]
    options += ["--device", "cpu", "--threads", "1"]
    done = mpirun(2, "-m", "tnplan", "sqd", "counts.json", "h.fcidump", *options, "-o", "two.npz")
    assert done.returncode == 1, done.stderr
    assert "go on with --resume" in done.stderr
    assert command(["sqd", "counts.json", "h.fcidump", *options, "-o", "one.npz"]) == 1
    two, one = (json.loads((files / f"{name}.json").read_text()) for name in ("two", "one"))
    for mine, theirs in zip(two["iterations"], one["iterations"], strict=True):
        np.testing.assert_allclose(
            mine["batch_energies_hartree"], theirs["batch_energies_hartree"], rtol=0, atol=1e-9
        )
    assert (two["measured"]["ranks"], one["measured"]["ranks"]) == (2, 1)


def interrupted(after: int, **options: Any) -> None:
    """Run until so many iterations are done, then stop as Ctrl-C does."""

    def stop(at: Any) -> None:
        if at.done == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tnplan.sqd.run("counts.json", "h.fcidump", progress=stop, output="out.npz", **options, **TIGHT)


@pytest.mark.usefixtures("fermion")
@pytest.mark.parametrize("seed", [7, None])
def test_an_interrupted_run_goes_on_as_if_it_had_not_been(files: Path, seed: int | None) -> None:
    options = {**SMALL, "seed": seed}
    interrupted(2, **options)
    kept = (files / "out.npz.ckpt").read_bytes()

    def resumed() -> tnplan.sqd.SqdResult:
        (files / "out.npz.ckpt").write_bytes(kept)
        return tnplan.sqd.run("counts.json", "h.fcidump", output="out.npz", resume=True, **options, **TIGHT)

    first, second = resumed(), resumed()
    assert energies(first) == energies(second)
    assert (files / "out.npz.ckpt").exists() == (not first.converged)
    if seed is not None:
        whole = tnplan.sqd.run("counts.json", "h.fcidump", **options, **TIGHT)
        assert energies(first) == energies(whole)
        np.testing.assert_array_equal(first.amplitudes, whole.amplitudes)


@pytest.mark.usefixtures("fermion")
def test_a_signal_stops_it_after_an_iteration(files: Path) -> None:
    def stop(at: Any) -> None:
        if at.done == 2:
            ask_to_stop(signal.SIGTERM)

    options = {**SMALL, **TIGHT, "output": "out.npz"}
    with pytest.raises(StoppedRunError, match="SIGTERM"):
        tnplan.sqd.run("counts.json", "h.fcidump", progress=stop, **options)
    assert (files / "out.npz.ckpt").exists()
    resumed = tnplan.sqd.run("counts.json", "h.fcidump", resume=True, **options)
    assert energies(resumed) == energies(tnplan.sqd.run("counts.json", "h.fcidump", **{**SMALL, **TIGHT}))


@pytest.mark.usefixtures("fermion")
def test_a_checkpoint_of_another_run_is_refused(files: Path) -> None:
    interrupted(1, **SMALL)
    path = files / "out.npz.ckpt"
    kept = path.read_bytes()

    def resumed(message: str, resume: bool = True, **options: Any) -> None:
        with pytest.raises(InputError, match=message):
            tnplan.sqd.run(
                "counts.json", "h.fcidump", output="out.npz", resume=resume, **{**SMALL, **options}, **TIGHT
            )

    resumed("checkpoint of an interrupted run; continue it with resume", resume=False)
    resumed("another run; resume with the integrals, samples or options", seed=8)
    resumed("another run; resume with the integrals, samples or options", num_batches=3)
    path.write_bytes(kept[: len(kept) // 2])
    resumed("is damaged")
    changes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"arrays": {LoopCheckpoint.ARRAYS.index("best_amplitudes"): np.zeros((1, 1))}}, "is damaged"),
        ({"arrays": {LoopCheckpoint.ARRAYS.index("occupancies"): np.full((2, N), np.nan)}}, "is damaged"),
        ({"document": {}}, "is damaged"),
        ({"version": 3}, "is tnplan.sqd.checkpoint 3, not tnplan.sqd.checkpoint 2"),
    )
    for change, message in changes:
        path.write_bytes(kept)
        changed(path, **change)
        resumed(message)


@pytest.mark.usefixtures("files")
def test_the_command_writes_what_others_read(fermion: Any, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--samples-per-batch", "5", "--num-batches", "2", "--max-iterations", "3", "--seed", "3"]
    arguments = ["sqd", "counts.json", "h.fcidump", *options, "--device", "cpu", "-o", "out.npz"]
    assert command([*arguments, "--plot", "out.svg"]) == 1
    shown = capsys.readouterr()
    report = json.loads(Path("out.json").read_text())
    assert f"energy {report['energy_hartree']:.10f} Ha" in shown.out
    assert "not converged in 3 iterations" in shown.out
    assert "iteration 3: energy" in shown.err
    assert (report["format"], report["version"]) == ("tnplan.sqd", 1)
    assert len(report["iterations"]) == 3
    assert "<svg" in Path("out.svg").read_text()
    state = fermion.SCIState.load("out.npz")
    np.testing.assert_allclose(state.orbital_occupancies(), report["occupancies"], rtol=0, atol=1e-9)
    again = tnplan.diagonalize("h.fcidump", "out.npz", "out.npz", device="cpu")
    np.testing.assert_allclose(again.energies[0], report["energy_hartree"], rtol=0, atol=1e-9)
    Path("out.npz.ckpt").unlink()
    assert command([*arguments, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["energy_hartree"] == report["energy_hartree"]


@pytest.mark.usefixtures("fermion", "files")
def test_a_loop_that_has_not_converged_is_continued(capsys: pytest.CaptureFixture[str]) -> None:
    loose = ["--energy-tol", "20", "--occupancies-tol", "1"]
    arguments = ["sqd", "counts.json", "h.fcidump", "--samples-per-batch", "5", "--seed", "7", *loose]
    arguments += ["--device", "cpu", "-o", "out.npz", "--max-iterations"]
    assert command([*arguments, "1"]) == 1
    assert "one iteration tells no change; go on with --resume and more" in capsys.readouterr().err
    assert not json.loads(Path("out.json").read_text())["converged"]
    assert command([*arguments, "2", "--resume"]) == 0
    assert "error" not in capsys.readouterr().err
    resumed = json.loads(Path("out.json").read_text())
    assert resumed["converged"]
    assert not Path("out.npz.ckpt").exists()
    assert command([*arguments, "2"]) == 0
    whole = json.loads(Path("out.json").read_text())
    assert whole["energy_hartree"] == resumed["energy_hartree"]


@pytest.mark.usefixtures("fermion", "files")
def test_what_has_not_converged_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--samples-per-batch", "5", "--max-iterations", "2", "--seed", "7", "--device", "cpu"]
    assert command(["sqd", "counts.json", "h.fcidump", *options, "--json"]) == 1
    shown = capsys.readouterr()
    last = json.loads(shown.out)["iterations"][-1]
    assert f"energy changes by {last['energy_change_hartree']:.1e} Ha (--energy-tol 1e-08)" in shown.err
    assert f"occupancies by {last['occupancies_change']:.1e} (--occupancies-tol 1e-05)" in shown.err
    assert shown.err.rstrip().endswith("allow more --max-iterations")


def test_a_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "qiskit_addon_sqd", None)
    monkeypatch.setitem(sys.modules, "qiskit_addon_sqd.fermion", None)
    with pytest.raises(InputError, match="needs qiskit-addon-sqd"):
        tnplan.sqd.run(BITS, INTEGRALS, **SMALL)


def test_samples_are_merged_whatever_holds_them(tmp_path: Path) -> None:
    texts = ["0110", "0011", "0110"]
    bits = np.array([[character == "1" for character in text] for text in texts])
    (tmp_path / "lines.txt").write_text("\n".join(texts) + "\n1111 0\n")
    (tmp_path / "counts.json").write_text('{"01 10": 2, "00 11": 1}')
    np.savez(tmp_path / "bits.npz", bitstrings=bits)
    held = [tmp_path / name for name in ("lines.txt", "counts.json", "bits.npz")]
    for given in (*held, bits, {"0011": 1, "0110": 2}):
        samples = read_samples(given, 2)
        assert samples.bits.tolist() == [[True, True, False, False], [False, True, True, False]]
        assert samples.weights.tolist() == [1, 2]
