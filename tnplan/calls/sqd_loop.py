"""Sample-based quantum diagonalization from samples to a state: `tnplan sqd` and `tnplan.sqd.run`.

Rank 0 recovers configurations and makes subspaces (recovery.py); groups of ranks diagonalize them.

Changelog of `tnplan.sqd`, the JSON beside a result:
1 (2026-11-26): first version.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any, Unpack

import numpy as np

from tnplan.calls.sci_solver import spin_penalty
from tnplan.common.arrays import Array
from tnplan.common.checks import check_kind, check_plots
from tnplan.common.files import check_suffix, check_writable, file_path, identity_of, write_text
from tnplan.common.shown_text import Printed
from tnplan.executor.device.cpu.host_memory import host_memory
from tnplan.executor.device.protocols import stop_signal
from tnplan.executor.device.protocols.communicator import agree
from tnplan.executor.sbd.basis.fcidump import read_fcidump
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.basis.string_files import Bitstrings, Samples, read_samples
from tnplan.executor.sbd.solver.davidson import Criteria
from tnplan.executor.sbd.solver.solve import SpinPenalty, check_spin
from tnplan.jobs.diagonalization_result import SolveProblem, environment
from tnplan.jobs.job import Job, Needs, Rank, run_job
from tnplan.jobs.job_options import JobOptions, ResumableKeywords, takes_job
from tnplan.jobs.outputs import write_arrays
from tnplan.jobs.sqd import (
    Loop,
    LoopCheckpoint,
    RankGroups,
    Recovery,
    SqdOptions,
    Subspace,
    SubspaceState,
    check_problem,
)

TOPIC = "samples of a molecule"

FORMAT = "tnplan.sqd"
VERSION = 1


@dataclass(frozen=True, repr=False)
class SqdResult(Printed):
    """The state of lowest energy that the loop found; `print` shows how the loop ended.

    Parameters
    ----------
    energy : float
        In Hartree, the core's included.
    alpha, beta : array
        The strings of its subspace, rising; bit p is orbital p.
    amplitudes : array
        [alpha string, beta string].
    occupancies : array
        Mean occupation numbers [spin, orbital].
    converged : bool
        Whether the energy and the occupancies stand still within their tolerances.
    report : dict
        What the JSON beside a result holds; `iterations` has the energies of all batches.

    Examples
    --------
    >>> tnplan.sqd.run("counts.json", "n2.fcidump", samples_per_batch=300).energy  # doctest: +SKIP
    -109.0462
    """

    energy: float
    alpha: Array
    beta: Array
    amplitudes: Array
    occupancies: Array
    converged: bool
    report: dict[str, Any]

    def __repr__(self) -> str:
        iterations = len(self.report["iterations"])
        return f"SqdResult(energy {self.energy:.10f} Ha after {iterations} iterations)"

    def __str__(self) -> str:
        alpha, beta = self.report["dimensions"]
        ended = "converged after" if self.converged else "not converged in"
        return (
            f"energy {self.energy:.10f} Ha among {alpha} x {beta} determinants\n"
            f"{ended} {len(self.report['iterations'])} iterations, "
            f"{self.report['measured']['time_s']:.3g} s"
        )


@dataclass(frozen=True)
class _Settings:
    """The arguments of `run` besides the job's options."""

    counts: Samples
    integrals: Integrals | str | Path
    options: SqdOptions
    criteria: Criteria
    plot: Path | None


@dataclass(frozen=True)
class _Request:
    """What rank 0 has read and checked for all ranks; it alone needs the samples."""

    integrals: Integrals
    penalty: SpinPenalty | None
    samples: Bitstrings


class LoopKeywords(ResumableKeywords, total=False):
    """The keywords of the job of a loop; `LoopOptions` says what they mean."""

    energy_tol: float
    occupancies_tol: float
    max_iterations: int


@dataclass(frozen=True)
class LoopOptions(JobOptions):
    """How a loop runs, and when it ends.

    Parameters
    ----------
    energy_tol, occupancies_tol : float
        The loop ends when the energy, in Hartree, and all occupancies change by less.
    max_iterations : int
        The largest number of iterations.
    """

    energy_tol: float = 1e-8
    occupancies_tol: float = 1e-5
    max_iterations: int = 100


@takes_job(LoopKeywords, LoopOptions)
def run(
    counts: Samples,
    integrals: Integrals | str | Path,
    samples_per_batch: int = 300,
    *,
    num_batches: int = 1,
    symmetrize_spin: bool = False,
    max_dim: int | None = None,
    carryover_threshold: float = 1e-4,
    spin_sq: float | None = None,
    seed: int | None = None,
    criteria: Criteria | None = None,
    plot: str | Path | None = None,
    **job: Unpack[LoopKeywords],
) -> SqdResult:
    """The whole loop of sample-based quantum diagonalization (Robledo-Moreno et al., arXiv 2405.05068).

    Each iteration recovers configurations by the occupancies of the one before, draws batches of them and
    diagonalizes the subspace of each batch. The strings of large amplitudes are carried over. The result is
    that of `diagonalize_fermionic_hamiltonian` of qiskit-addon-sqd for the same seed. Under mpirun the call
    is collective, and ranks share the batches; with fewer batches than ranks, several share one.

    Parameters
    ----------
    counts : path, mapping, or array of bool
        Samples of both spins, alpha's bits on the right: a file of `tnplan sbd --alpha`, a dictionary of
        counts, or booleans [shot, bit].
    integrals : Integrals or path
        An FCIDUMP file, or `tnplan.from_arrays(...)`.
    samples_per_batch : int
        Distinct configurations in a batch, at most.
    num_batches : int
        Batches in an iteration.
    symmetrize_spin : bool
        Use the strings of both spins for each spin.
    max_dim : int, optional
        The largest number of strings of each spin.
    carryover_threshold : float
        Strings of larger amplitudes go into the next iteration.
    spin_sq : float, optional
        Raises states of other S^2, as in `sci_solver`.
    seed : int, optional
        Seed of all random numbers. Default: a new one in each run.
    criteria : Criteria, optional
        When a diagonalization ends.
    plot : path, optional
        Draw energies and changes by iteration, .svg.
    output : path, optional
        An .npz that `SCIState.load` and `tnplan sbd --alpha` read, with a .json beside it.
    checkpoint : bool
        Write OUTPUT.ckpt after each iteration. It stays where the loop has not converged.
    resume : bool
        Continue from that checkpoint; with more iterations a loop that has not converged goes on.
    **job
        How the loop uses the machine, and when it ends: `LoopOptions`.

    Returns
    -------
    SqdResult
        The state of lowest energy. Ranks other than 0 have the same energy and report, and no amplitudes.

    Raises
    ------
    InputError
        For input that cannot be used, where a diagonalization does not converge, or without qiskit-addon-sqd.

    Examples
    --------
    >>> found = tnplan.sqd.run(
    ...     {"0101": 60, "1010": 30, "0111": 10}, "h2.fcidump", 10, seed=1
    ... )  # doctest: +SKIP
    """
    job_options = LoopOptions.given(run, job)
    options = SqdOptions(
        samples_per_batch, num_batches, job_options.energy_tol, job_options.occupancies_tol,
        job_options.max_iterations, symmetrize_spin, max_dim, carryover_threshold, spin_sq, seed,
    )  # fmt: skip
    check_kind("criteria", criteria, Criteria)
    settings = _Settings(
        counts, integrals, options, criteria or Criteria(), None if plot is None else file_path(plot)
    )
    # docs/explanation/architecture.md#jobs
    loop = Job(
        prepare=lambda: _prepare(settings, job_options),
        work=lambda rank, request: _work(rank, request, settings, job_options),
        needs=lambda request, n, threads: Needs(
            cpu_only="complex integrals" if request.integrals.is_complex else ""
        ),
    )
    with job_options.heeding_signals():
        return run_job(loop, job_options)


def _prepare(settings: _Settings, job_options: JobOptions) -> _Request:
    """Read and check all inputs, on rank 0."""
    target = job_options.output
    if target is not None:
        check_suffix(target, ".npz")
    if settings.plot is not None:
        check_suffix(settings.plot, ".svg")
        check_plots("--plot")
    outputs = [] if target is None else [target, target.with_suffix(".json")]
    for path in [*outputs, *([] if settings.plot is None else [settings.plot])]:
        check_writable(path, settings.counts, settings.integrals)
    source = settings.integrals
    room_bytes = min(job_options.memory or inf, host_memory()[1])
    integrals = source if isinstance(source, Integrals) else read_fcidump(source, room_bytes)
    check_problem(integrals, settings.options)
    penalty = None
    if settings.options.spin_sq is not None:
        penalty = spin_penalty(settings.options.spin_sq, (integrals.n_alpha, integrals.n_beta))
        check_spin(penalty, integrals)
    return _Request(integrals, penalty, read_samples(settings.counts, integrals.n_orbitals))


def _work(rank: Rank, request: _Request, settings: _Settings, job_options: JobOptions) -> SqdResult:
    """What one rank does, from the checked input to the written result."""
    begin_s = perf_counter()
    groups = RankGroups(rank, settings.options.num_batches)
    problem = SolveProblem(request.integrals, request.penalty, settings.criteria)
    loop = _RankLoop(rank, request, settings, job_options)
    # Invariant: every rank makes the same iterations: rank 0 decides, and sends subspaces or the end.
    while (subspaces := loop.next_subspaces()) is not None:
        loop.learn(subspaces, *groups.lowest(subspaces, problem))
    measured = {
        "time_s": perf_counter() - begin_s, "device": rank.device.name, "ranks": rank.world.size,
        "groups": groups.count, "threads": rank.threads, "energy": rank.energy(),
    }  # fmt: skip
    result = agree(rank.world, lambda: loop.hand_over(measured))
    energy, converged, report = rank.world.broadcast_object(
        None if result is None else (result.energy, result.converged, result.report), 0
    )
    none = np.array([], np.int64)
    return result or SqdResult(energy, none, none, np.zeros((0, 0)), np.zeros((2, 0)), converged, report)


class _RankLoop:
    """The loop as one rank sees it: rank 0 recovers, learns and writes, the others receive subspaces."""

    def __init__(self, rank: Rank, request: _Request, settings: _Settings, job_options: JobOptions) -> None:
        self._rank, self._request, self._settings, self._options = rank, request, settings, job_options
        self._kept: LoopCheckpoint | None = None
        self._begin_s = perf_counter()
        self._recovery = agree(rank.world, self._begin)

    def _begin(self) -> Recovery | None:
        """What rank 0 begins with: the checkpoint, or nothing."""
        if not self._rank.is_first:
            return None
        request, options = self._request, self._settings.options
        path = self._options.checkpoint_file
        if path is not None:
            self._kept = LoopCheckpoint(path, _identity(request, self._settings))
        loop = None if self._kept is None else self._kept.read(self._options.resume)
        loop = loop or Loop(np.random.default_rng(options.seed))
        return Recovery(request.samples, request.integrals, options, loop)

    def next_subspaces(self) -> list[Subspace] | None:
        """The subspaces of the next iteration, on every rank; None at the end.

        Raises StoppedRunError where a signal asked to stop and a checkpoint stands.
        """
        self._begin_s = perf_counter()
        world, recovery = self._rank.world, self._recovery
        standing = None if recovery is None else (recovery.is_done, bool(recovery.loop.iterations))
        is_done, is_kept = world.broadcast_object(standing, 0)
        if is_done:
            return None
        is_kept = is_kept and self._options.checkpoint_file is not None
        # A signal may reach some ranks alone: all stop where one has heard it, and only where a
        # checkpoint has an iteration.
        stop = max(world.gather_objects(stop_signal.asked())) if is_kept else ""
        if stop:
            raise stop_signal.StoppedRunError(stop)
        recovered = agree(world, lambda: None if recovery is None else recovery.subspaces())
        subspaces: list[Subspace] = world.broadcast_object(recovered, 0)
        self._recovered_s = perf_counter() - self._begin_s
        return subspaces

    def learn(self, subspaces: list[Subspace], state: SubspaceState | None, energies: list[float]) -> None:
        """Take in what an iteration found, and keep a checkpoint."""
        agree(self._rank.world, lambda: self._learn(subspaces, state, energies))

    def _learn(self, subspaces: list[Subspace], state: SubspaceState | None, energies: list[float]) -> None:
        recovery = self._recovery
        if recovery is None or state is None:
            return
        report = {
            "batch_energies_hartree": energies,
            "dimensions": [[len(alpha), len(beta)] for alpha, beta in subspaces],
            "recovery_s": self._recovered_s, "time_s": perf_counter() - self._begin_s,
        }  # fmt: skip
        recovery.learn(state, report)
        # A converged loop is over and needs no checkpoint.
        if self._kept is not None and not recovery.loop.converged:
            self._kept.write(recovery.loop)
        iterations = recovery.loop.iterations
        text = _iteration_text(len(iterations), iterations[-1])
        self._rank.say(len(iterations), self._settings.options.max_iterations, text, iterations[-1])

    def hand_over(self, measured: dict[str, Any]) -> SqdResult | None:
        """Write the result, on rank 0, and give it there."""
        if self._recovery is None:
            return None
        loop, integrals = self._recovery.loop, self._request.integrals
        best = loop.best
        assert best is not None
        report = {
            "format": FORMAT, "version": VERSION, "converged": loop.converged,
            "energy_hartree": best.energy, "occupancies": best.occupancies.tolist(),
            "dimensions": list(best.amplitudes.shape), "orbitals": integrals.n_orbitals,
            "electrons": [integrals.n_alpha, integrals.n_beta], "options": asdict(self._settings.options),
            "iterations": loop.iterations, "measured": measured,
            "environment": environment(),
        }  # fmt: skip
        result = SqdResult(
            best.energy, *best.strings, best.amplitudes, best.occupancies, loop.converged, report
        )
        if self._options.output is not None:
            write_arrays(self._options, _arrays(result), report)
        if self._settings.plot is not None:
            from tnplan.reporting.plots import iterations_plot, svg_of

            write_text(self._settings.plot, svg_of(iterations_plot(loop.iterations)))
        return result


def _identity(request: _Request, settings: _Settings) -> str:
    """What a checkpoint belongs to: all but the iterations at most."""
    samples = hashlib.sha256(np.packbits(request.samples.bits, axis=1).tobytes())
    samples.update(request.samples.weights.tobytes())
    options = {**asdict(settings.options), **asdict(settings.criteria)}
    del options["max_iterations"]
    return identity_of([request.integrals.identity, samples.hexdigest(), options])


def _iteration_text(number: int, iteration: dict[str, Any]) -> str:
    largest = max(alpha * beta for alpha, beta in iteration["dimensions"])
    change = iteration["occupancies_change"]
    changed = "" if change is None else f", occupancies change by {change:.1e}"
    energy = f"energy {iteration['energy_hartree']:.10f} Ha"
    return f"iteration {number}: {energy}{changed}, at most {largest} determinants"


def _arrays(result: SqdResult) -> dict[str, Any]:
    """The state, as `SCIState.load` of qiskit-addon-sqd reads it."""
    return {
        "energy": result.energy, "occupancies": result.occupancies, "amplitudes": result.amplitudes,
        "ci_strs_a": result.alpha, "ci_strs_b": result.beta, "norb": result.report["orbitals"],
        "nelec": result.report["electrons"],
    }  # fmt: skip
