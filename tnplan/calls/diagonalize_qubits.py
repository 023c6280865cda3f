"""A qubit Hamiltonian in a list of bit strings: `tnplan sbd-qubits` and `tnplan.diagonalize_qubits`.

Reads inputs, solves, measures and writes; the arithmetic is in executor/sbd.

Changelog of `tnplan.sbd-qubits`, the JSON beside a result:
1 (2026-11-26): first version. With `measured.test_multiplications` and `measured.whole_space` (2026-11-29).
With `measured.lower_states` (2026-11-30), `growth` (2026-12-03).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from tnplan.circuits.inputs import given_observables, given_operator
from tnplan.circuits.pauli_sum import PauliSum
from tnplan.common.checks import check_choice, check_count, check_kind
from tnplan.common.errors import InputError
from tnplan.common.files import check_suffix, check_writable
from tnplan.common.units import plural, size_text
from tnplan.executor.device.protocols.communicator import agree
from tnplan.executor.sbd.basis.string_files import Bitstrings, Samples, read_bitstrings
from tnplan.executor.sbd.lists.qubit_hamiltonian import PauliTerms, QubitHamiltonian, pauli_terms, words_of
from tnplan.executor.sbd.selected_ci.grow_qubits import GrowingStrings, StringGrowth
from tnplan.executor.sbd.selected_ci.growth import Growth
from tnplan.executor.sbd.solver.davidson import Criteria, DavidsonStep, Solution
from tnplan.executor.sbd.solver.initial_guess import given_states
from tnplan.executor.sbd.solver.setup import SolveRequest, SolveSetup, set_up_qubits
from tnplan.executor.sbd.solver.solve import check_roots, solve
from tnplan.jobs.diagonalization_result import (
    NOT_EXTRAPOLATED,
    Solved,
    environment,
    point_lines,
    solution_text,
    solver_device,
    step_text,
    work_of,
    work_text,
)
from tnplan.jobs.job import Job, Rank, run_job
from tnplan.jobs.job_options import JobOptions, ResumableKeywords, takes_job
from tnplan.jobs.outputs import write_arrays

TOPIC = "qubit Hamiltonians"

Array = NDArray[Any]

FORMAT = "tnplan.sbd-qubits"
VERSION = 1
SIDES = ("right", "left")
"""Where in a bit string qubit 0 may be."""
MOST_STRINGS = 2**31 - 1
"""Strings have numbers of 32 bits."""


@dataclass(frozen=True, eq=False, repr=False)
class QubitDiagonalization(Solved):
    """What `diagonalize_qubits` gives; `print` shows the states and the work.

    Parameters
    ----------
    solution : Solution
        Energies in the unit of the Hamiltonian's coefficients, states [string], residuals, and whether the
        solve `converged`.
    bitstrings : array of bool
        The distinct strings in the order of the states' elements [string, bit], qubit 0 in the last column.
    expectations : array
        Expectation values of the observables in the states [observable, root].
    report : dict
        What the JSON file says (docs/how-to/skqd.md).

    Examples
    --------
    >>> tnplan.diagonalize_qubits("X0 X1 + 0.5*Z0", ["00", "11"], device="cpu")
    QubitDiagonalization(converged: -1.118034 among 2 strings)
    """

    bitstrings: Array
    expectations: Array
    report: dict[str, Any]

    def __repr__(self) -> str:
        return f"QubitDiagonalization({solution_text(self.solution)} among {len(self.bitstrings)} strings)"

    def __str__(self) -> str:
        if not self.report:  # which rank 0 has
            return repr(self)
        lines = [f"{'root':>4}{'energy':>20}{'residual':>12}"]
        for root, (energy, residual) in enumerate(zip(self.energies, self.solution.residuals, strict=True)):
            lines.append(f"{root:>4}{energy:>20.10f}{residual:>12.1e}")
        lines += _growth_lines(self.report.get("growth"))
        return "\n".join([*lines, work_text(self.report["measured"])])


def _growth_lines(growth: dict[str, Any] | None) -> Iterator[str]:
    """The lists that were corrected, and what they extrapolate to; nothing where none has grown."""
    if growth is None:
        return
    yield from point_lines(growth["points"], "strings")
    for root, energy in enumerate(growth["extrapolated"]):
        if energy is not None:
            yield f"root {root} extrapolated: {energy:.6f}, an estimate whose error is not known"
        elif len(growth["points"]) > 1:
            yield NOT_EXTRAPOLATED.format(root)


@dataclass(frozen=True)
class _Problem:
    """The arguments of `diagonalize_qubits` besides the job's options."""

    hamiltonian: Any
    strings: Samples | Sequence[str]
    first_qubit: str
    observables: Any
    start: Sequence[Array] | str | Path
    roots: int
    criteria: Criteria
    grow: Growth | None
    begin_s: float


@dataclass(frozen=True)
class _Request:
    """What rank 0 has read and checked for all ranks; `strings` are words [string, W]."""

    terms: PauliTerms
    strings: Array
    observables: list[PauliTerms]
    start: list[Array]


@takes_job(ResumableKeywords, JobOptions)
def diagonalize_qubits(
    hamiltonian: Any,
    strings: Samples | Sequence[str],
    *,
    roots: int = 1,
    observables: Any = (),
    first_qubit: str = "right",
    grow: Growth | None = None,
    criteria: Criteria | None = None,
    start: Sequence[Array] | str | Path = (),
    **job: Unpack[ResumableKeywords],
) -> QubitDiagonalization:
    """The lowest states of a qubit Hamiltonian in the space of given bit strings.

    It is the last step of sample-based Krylov quantum diagonalization (SKQD; Yu et al., arXiv 2501.09702):
    strings are sampled from states of a Krylov space, and the Hamiltonian is diagonalized among them. Under
    mpirun the call is collective; rank 0 reads and writes all files, and only it has states.

    Parameters
    ----------
    hamiltonian : str, Path, PauliSum, SparsePauliOp, QubitOperator, or mapping
        A Hermitian sum of Pauli words: a text such as "X0 X1 + 0.5*Z0", an object of Qiskit or OpenFermion,
        words with their coefficients, or a file with one term per line or a JSON object of words.
    strings : path, mapping, sequence of str, or array of bool
        A file of bit strings, one per line, or of counts; a dictionary of counts; texts; or booleans
        [string, bit] with qubit 0 in the last column. Strings that are repeated count once.
    roots : int
        How many states to find.
    observables : str, PauliSum, SparsePauliOp, QubitOperator, list of these, or Path
        Other Hermitian operators, whose expectation values are measured in the states; a file has one a
        line.
    first_qubit : {"right", "left"}
        Where in a string qubit 0 is: on the right as Qiskit's counts have it, or on the left as in `sample`.
    grow : Growth, optional
        Select more strings by the Hamiltonian's elements, from those given. Thresholds are in the unit of the
        coefficients, and `determinants` are strings.
    criteria : Criteria, optional
        When a solve ends; in the unit of the coefficients.
    start : sequence of arrays or path, optional
        States to start from, or the file of an earlier result over the same strings.
    output : path, optional
        An .npz for the result, with a .json beside it.
    **job
        How the job uses the machine: `JobOptions`.

    Returns
    -------
    QubitDiagonalization
        Energies, states over the distinct strings in rising order, and expectation values.

    Raises
    ------
    InputError
        For input that cannot be used.

    Examples
    --------
    >>> found = tnplan.diagonalize_qubits(
    ...     "X0 X1 + Y0 Y1 + Z0 Z1", {"01": 60, "10": 40}, observables="Z0", device="cpu"
    ... )
    >>> found.energies.round(6), found.expectations.round(6) + 0
    (array([-3.]), array([[0.]]))
    """
    begin_s = perf_counter()
    options = JobOptions.given(diagonalize_qubits, job)
    check_choice("--first-qubit", first_qubit, SIDES)
    check_kind("criteria", criteria, Criteria)
    check_kind("grow", grow, Growth)
    problem = _Problem(
        hamiltonian, strings, first_qubit, observables, start, roots, criteria or Criteria(), grow, begin_s
    )
    # docs/explanation/architecture.md#jobs
    solving = Job(
        prepare=lambda: _prepare(problem, options),
        work=lambda rank, request: _work(rank, request, problem, options),
    )
    with options.heeding_signals():
        return run_job(solving, options)


def _prepare(problem: _Problem, options: JobOptions) -> _Request:
    """Read and check all inputs, on rank 0."""
    target = options.output
    if target is not None:
        check_suffix(target, ".npz")
        for path in (target, target.with_suffix(".json")):
            check_writable(path, problem.hamiltonian, problem.strings, problem.start)
    strings = _read_strings(problem)
    n_strings, n_qubits = strings.bits.shape
    if n_strings > MOST_STRINGS:
        raise InputError("strings", f"are {n_strings}", f"give at most {MOST_STRINGS} strings")
    place = str(problem.hamiltonian) if isinstance(problem.hamiltonian, Path) else "hamiltonian"
    terms = pauli_terms(given_operator(problem.hamiltonian, n_qubits, "hamiltonian"), place)
    sums: Sequence[PauliSum] = ()
    if not isinstance(problem.observables, Sequence) or len(problem.observables):
        sums, _ = given_observables(problem.observables, n_qubits)
    if problem.grow is None:
        check_roots(problem.roots, n_strings, "strings")
    else:
        _check_growth(problem, options)
    return _Request(
        terms, words_of(strings.bits), [pauli_terms(total, "--observable") for total in sums],
        given_states(problem.start, (n_strings,), terms.is_complex),
    )  # fmt: skip


def _check_growth(problem: _Problem, options: JobOptions) -> None:
    """Refuse what does not go with a list that grows."""
    assert problem.grow is not None
    check_count("roots", problem.roots)
    for name, is_given in (
        ("--optimize-orbitals", problem.grow.optimize_orbitals), ("--pt2-error", problem.grow.pt2_error)
    ):  # fmt: skip
        if is_given:
            raise InputError(name, "is not for qubit Hamiltonians", "leave it out")
    is_started = len(str(problem.start) if isinstance(problem.start, Path) else problem.start) > 0
    for name, is_there in (("--start", is_started), ("--resume", options.resume)):
        if is_there:
            raise InputError(
                name, "cannot be combined with --grow", "give the .npz of an earlier result as the strings"
            )


def _read_strings(problem: _Problem) -> Bitstrings:
    """The distinct strings, of as many bits as the Hamiltonian has qubits, where it says how many."""
    hamiltonian = problem.hamiltonian
    is_ours = isinstance(hamiltonian, PauliSum)
    n_qubits = hamiltonian.n_qubits if is_ours else getattr(hamiltonian, "num_qubits", None)
    return read_bitstrings(
        problem.strings, "strings", None if n_qubits is None else (int(n_qubits),),
        "give a bit for each qubit of the Hamiltonian", problem.first_qubit == "left",
    )  # fmt: skip


def _work(rank: Rank, request: _Request, problem: _Problem, options: JobOptions) -> QubitDiagonalization:
    """What one rank does, from the checked input to the written result."""
    chosen = solver_device(rank, rank.connected() or rank.world)

    def heard(step: DavidsonStep) -> None:
        rank.say(step.number, problem.criteria.steps, step_text(step, ""), step)

    with rank.on_stream():
        growth = None
        if problem.grow is not None:
            setup_s = perf_counter() - problem.begin_s
            grown = GrowingStrings(
                StringGrowth(
                    request.terms, problem.grow, problem.criteria, problem.roots, chosen, rank.world,
                    rank.memory_bytes, rank.threads, rank.say,
                ),
                request.strings,
            ).grow()  # fmt: skip
            setup, solution, growth = grown.setup, grown.solution, grown.report
            request = replace(request, strings=grown.strings)
        else:
            solve_request = SolveRequest(problem.roots, problem.criteria, rank.memory_bytes, rank.threads)
            setup = set_up_qubits(request.terms, request.strings, chosen, rank.world, solve_request)
            rank.say(0, 0, _described(setup, request))
            setup_s = perf_counter() - problem.begin_s
            solution = solve(
                setup.hamiltonian, request.terms, problem.roots, criteria=setup.criteria,
                start=request.start if rank.is_first else [], checkpoint=options.checkpoint_file,
                resume=options.resume, progress=heard, backend=setup.backend,
            )  # fmt: skip
        peak_bytes = setup.peak_bytes()
    solve_s = perf_counter() - problem.begin_s - setup_s
    measured = {"setup_s": setup_s, "solve_s": solve_s, "peak_bytes": peak_bytes, "energy": rank.energy()}
    # Invariant: `agree` is collective: the others wait for the message whether rank 0 could write.
    if not rank.is_first:
        agree(rank.world, lambda: None)
        return QubitDiagonalization(solution, np.zeros((0, 0), bool), np.zeros((0, 0)), {})
    return agree(rank.world, lambda: _hand_over(request, options, setup, solution, (measured, growth)))


def _hand_over(
    request: _Request, options: JobOptions, setup: SolveSetup[QubitHamiltonian], solution: Solution,
    reports: tuple[dict[str, Any], dict[str, Any] | None],
) -> QubitDiagonalization:  # fmt: skip
    """Measure the states, write files and give the result, on rank 0."""
    measured, growth = reports
    hamiltonian, terms = setup.hamiltonian, request.terms
    values = [hamiltonian.expectation(sum_, x) for sum_ in request.observables for x in solution.states]
    expectations = np.array(values).reshape(len(request.observables), len(solution.states))
    report = {
        "format": FORMAT, "version": VERSION, "converged": solution.converged,
        "energies": solution.energies.tolist(), "residuals": solution.residuals.tolist(),
        "expectations": expectations.tolist(),
        "space": {
            "strings": len(request.strings), "qubits": terms.n_qubits, "words": terms.n_terms,
            "flips": len(terms.groups.flips), "complex": terms.is_complex,
            "pairs_contributing": setup.pairs_contributing,
        },
        "measured": {**work_of(solution), **measured},
        "predicted_bytes": setup.predicted_bytes, "threads": hamiltonian.threads, "ranks": setup.ranks,
        "device": setup.device, "environment": environment(),
        **({} if growth is None else {"growth": growth}),
    }  # fmt: skip
    # Words have bit q of a string for qubit q; columns are turned, so that the last one is the first qubit.
    bits = np.unpackbits(request.strings.view(np.uint8), axis=1, bitorder="little")
    bitstrings = np.ascontiguousarray(bits[:, : terms.n_qubits][:, ::-1], bool)
    result = QubitDiagonalization(solution, bitstrings, expectations, report)
    if options.output is not None:
        write_arrays(options, {
            "energies": result.energies, "states": np.array(result.states), "bitstrings": bitstrings,
            "expectations": expectations,
        }, report)  # fmt: skip
    return result


def _described(setup: SolveSetup[QubitHamiltonian], request: _Request) -> str:
    terms = request.terms
    return (
        f"{plural(len(request.strings), 'string', 'strings')} of "
        f"{plural(terms.n_qubits, 'qubit', 'qubits')}, "
        f"{plural(terms.n_terms, 'word', 'words')} that flip bits in "
        f"{plural(len(terms.groups.flips), 'way', 'ways')}, "
        f"{setup.pairs_contributing:.4g} contributing pairs, {size_text(setup.predicted_bytes)} per rank"
    )
