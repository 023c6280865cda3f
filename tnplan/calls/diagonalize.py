"""Selected-basis diagonalization from files or arrays to a result: `tnplan sbd` and `tnplan.diagonalize`.

Reads inputs, chooses the space, solves, measures and writes; the arithmetic is in executor/sbd.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from math import inf, prod
from pathlib import Path
from time import perf_counter
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from tnplan.common.checks import check_choice, check_count, check_kind
from tnplan.common.errors import InputError
from tnplan.common.files import check_writable, file_path
from tnplan.common.kernels.ahead import compile_soon
from tnplan.common.system_calls import cores
from tnplan.common.units import size_text
from tnplan.executor.device.cpu.host_memory import host_memory, ranks_here
from tnplan.executor.device.protocols.communicator import agree
from tnplan.executor.sbd.basis.determinants import DeterminantList
from tnplan.executor.sbd.basis.fcidump import read_fcidump, write_fcidump
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.basis.orbitals import rotate_orbitals
from tnplan.executor.sbd.basis.sector import wanted_irrep
from tnplan.executor.sbd.basis.space import Space, Strings, choose_space
from tnplan.executor.sbd.basis.symmetry_adapted import adapted_orbitals
from tnplan.executor.sbd.properties.measure import FermionHamiltonian, densities
from tnplan.executor.sbd.selected_ci.grow import GrowingList, Grown, GrowthProblem
from tnplan.executor.sbd.selected_ci.growth import Growth, GrowthCheckpoint
from tnplan.executor.sbd.selected_ci.orbital_optimization import check_optimizable
from tnplan.executor.sbd.selected_ci.shards import Workers
from tnplan.executor.sbd.solver.davidson import Criteria, DavidsonStep, Solution
from tnplan.executor.sbd.solver.initial_guess import given_states
from tnplan.executor.sbd.solver.kernel_samples import PRODUCT_KERNELS
from tnplan.executor.sbd.solver.setup import ChosenDevice, SolveSetup
from tnplan.executor.sbd.solver.solve import SpinPenalty, check_roots, check_spin, solve
from tnplan.jobs.diagonalization_result import (
    CarryOver,
    Diagonalization,
    SolveProblem,
    consistent_densities,
    list_files,
    natural_files,
    orbitals_file,
    read_rotation,
    set_up,
    solve_report,
    solver_device,
    step_text,
    write_carry_over,
    write_natural,
    write_result,
)
from tnplan.jobs.job import Job, Needs, Rank, run_job
from tnplan.jobs.job_options import JobOptions, ResumableKeywords, takes_job

TOPIC = "molecules"

Array = NDArray[Any]

PRECISIONS = ("fp64", "mixed")
ADAPTED = "adapted"
"""Instead of a rotation: orbitals are made symmetry-adapted."""


@dataclass(frozen=True)
class _Request:
    """What rank 0 has read and checked for all ranks; `start` are the states that a solve begins with.

    `space` is None where a list is to grow from where it finds best. `rotation` is what was given.
    """

    integrals: Integrals
    space: Space | None
    start: list[Array]
    rotation: Array | None


@dataclass(frozen=True)
class _Problem:
    """The arguments of `diagonalize` besides the job's options; rank 0 reads the inputs."""

    integrals: Integrals | str | Path
    alpha: Strings | None
    beta: Strings | None
    determinants: DeterminantList | str | Path | None
    start: Sequence[Array] | str | Path
    roots: int
    criteria: Criteria
    penalty: SpinPenalty | None
    rdm: bool
    transitions: bool
    carry: CarryOver | None
    is_mixed: bool
    symmetry: int | None
    spin_orbitals: bool | None
    rotation: Any
    natural: Path | None
    grow: Growth | None
    begin_s: float


class DiagonalizationKeywords(ResumableKeywords, total=False):
    """The keywords of a diagonalization's job; `DiagonalizationOptions` says what they mean."""

    precision: str
    rdm: bool
    transitions: bool
    natural: str | Path | None
    carry: CarryOver | None


@dataclass(frozen=True)
class DiagonalizationOptions(JobOptions):
    """How a diagonalization runs, and what is made of its states.

    Parameters
    ----------
    precision : {"fp64", "mixed"}
        "mixed": early iterations in fp32, the last ones and their residuals in fp64.
    rdm : bool
        Compute the one- and two-body reduced density matrices.
    transitions : bool
        Compute the transition density matrices between every two of the roots.
    natural : path, optional
        Write the integrals over natural orbitals of the states to this FCIDUMP file, and their occupations
        and coefficients to the .npz of the same name.
    carry : CarryOver, optional
        Write the strings of most weight to files.
    """

    precision: str = "fp64"
    rdm: bool = False
    transitions: bool = False
    natural: str | Path | None = None
    carry: CarryOver | None = None


@takes_job(DiagonalizationKeywords, DiagonalizationOptions)
def diagonalize(
    integrals: Integrals | str | Path,
    alpha: Strings | None = None,
    beta: Strings | None = None,
    *,
    determinants: DeterminantList | str | Path | None = None,
    grow: Growth | None = None,
    roots: int = 1,
    criteria: Criteria | None = None,
    penalty: SpinPenalty | None = None,
    start: Sequence[Array] | str | Path = (),
    symmetry: int | None = None,
    spin_orbitals: bool | None = None,
    rotation: Array | str | Path | None = None,
    **job: Unpack[DiagonalizationKeywords],
) -> Diagonalization:
    """The lowest states of a Hamiltonian among products of half-strings, or among a list of determinants.

    Under mpirun the call is collective; rank 0 reads and writes all files, and only it has states.

    Parameters
    ----------
    integrals : Integrals or path
        An FCIDUMP file, or `tnplan.from_arrays(...)`.
    alpha, beta : path, sequence of int, or StringSet, optional
        The half-strings; bit p of an integer is orbital p. "all": every string, as in full configuration
        interaction. Default of `beta`: those of `alpha`.
    determinants : DeterminantList or path, optional
        A list of determinants instead of `alpha` and `beta`.
    grow : Growth, optional
        Select determinants by the Hamiltonian's elements, from `determinants` or from the best of several
        starts (selected configuration interaction). The result has the list.
    roots : int
        How many states to find.
    criteria : Criteria, optional
        When a solve ends.
    penalty : SpinPenalty, optional
        Raises states of another total spin.
    start : sequence of arrays or path, optional
        States to start from, or the file of an earlier result.
    symmetry : int, optional
        The irreducible representation of the states, from 1 to 8 as ORBSYM numbers them; 0 for any. Default:
        ISYM of the FCIDUMP where that is above 1, else any.
    spin_orbitals : bool, optional
        Whether NORB of the FCIDUMP counts spin orbitals of both spins (GHF), or orbitals. Default: as its
        header says.
    rotation : array, path or "adapted", optional
        New orbitals [old orbital, new orbital], as `rotate_orbitals` takes them, or the .npy or .npz of them:
        integrals are rotated before anything else. "adapted": symmetry-adapted orbitals, with labels for
        `symmetry`, from the integrals alone.
    output : path, optional
        An .npz for the result, with a .json beside it.
    **job
        How the job uses the machine, and what it writes: `DiagonalizationOptions`.

    Returns
    -------
    Diagonalization
        Energies in Hartree, states of shape [alpha string, beta string] or [determinant], and the report.

    Raises
    ------
    InputError
        For input that cannot be used.

    Examples
    --------
    >>> integrals = tnplan.from_arrays(np.diag([-1.0, 1.0]), np.zeros((2, 2, 2, 2)), 1, 1)
    >>> tnplan.diagonalize(integrals, [0b01, 0b10], device="cpu").energies.round(6)
    array([-2.])
    """
    begin_s = perf_counter()
    options = DiagonalizationOptions.given(diagonalize, job)
    check_choice("--precision", options.precision, PRECISIONS)
    if symmetry is not None:
        check_count("--symmetry", symmetry, 0)
    check_kind("criteria", criteria, Criteria)
    check_kind("penalty", penalty, SpinPenalty)
    check_kind("carry", options.carry, CarryOver)
    check_kind("grow", grow, Growth)
    problem = _Problem(
        integrals, alpha, beta, determinants, start, roots, criteria or Criteria(), penalty, options.rdm,
        options.transitions, options.carry, options.precision == "mixed", symmetry, spin_orbitals, rotation,
        None if options.natural is None else file_path(options.natural),
        grow, begin_s,
    )  # fmt: skip
    # docs/explanation/architecture.md#jobs
    solving = Job(
        prepare=lambda: _prepare(problem, options),
        work=lambda rank, request: _work(rank, request, problem, options),
        needs=lambda request, n, threads: Needs(cpu_only=_cpu_only(request.integrals)),
    )
    with options.heeding_signals():
        return run_job(solving, options)


def _prepare(problem: _Problem, options: JobOptions) -> _Request:
    """Read and check all inputs, on rank 0."""
    _check_outputs(problem, options.output)
    room_bytes = min(options.memory or inf, host_memory()[1])
    integrals = problem.integrals
    known = (
        integrals
        if isinstance(integrals, Integrals)
        else read_fcidump(integrals, room_bytes, problem.spin_orbitals)
    )
    # Before the space is chosen: determinants and labels are over the rotated orbitals.
    rotation = None
    if isinstance(problem.rotation, str | Path) and str(problem.rotation) == ADAPTED:
        known, rotation = adapted_orbitals(known)
    elif problem.rotation is not None:
        rotation = read_rotation(problem.rotation)
        known = rotate_orbitals(known, rotation)
    # A list that grows: the size of the space is not known yet, so that roots are not compared with it.
    if problem.grow is not None:
        space = None
        _check_growth(problem)
        check_count("roots", problem.roots)
        wanted_irrep(known, problem.symmetry)
        if problem.grow.optimize_orbitals:
            check_optimizable(known, room_bytes)
        if problem.penalty is not None:
            check_spin(problem.penalty, known)
        if problem.determinants is not None:
            space = choose_space(known, None, None, problem.determinants, problem.symmetry)
        return _Request(known, space, [], rotation)
    space = choose_space(known, problem.alpha, problem.beta, problem.determinants, problem.symmetry)
    check_roots(problem.roots, space.size)
    if problem.penalty is not None:
        check_spin(problem.penalty, known)
    if cores() > 1 and not _fp64_only(known, space):
        compile_soon(PRODUCT_KERNELS)
    request = _Request(known, space, given_states(problem.start, space.shape, known.is_complex), rotation)
    kind = _fp64_only(known, space)
    if problem.is_mixed and kind:
        raise InputError(
            "--precision", f"mixed is not available for {kind}", "leave it out", topic="precision"
        )
    return request


def _cpu_only(integrals: Integrals) -> str:
    """What of a solve only CPUs can do; empty where there is nothing."""
    return "complex integrals" if integrals.is_complex else ""


def _fp64_only(integrals: Integrals, space: Space) -> str:
    """What of a solve is in fp64 alone; empty where there is nothing."""
    if isinstance(space.basis, DeterminantList):
        return "lists of determinants"
    return _cpu_only(integrals)


def _work(rank: Rank, request: _Request, problem: _Problem, options: JobOptions) -> Diagonalization:
    """What one rank does, from the checked input to the written result."""
    chosen = solver_device(rank, rank.connected() or rank.world)
    with rank.on_stream():
        if problem.grow is not None:
            solved, setup_s = _grow(rank, request, problem, options, chosen), 0.0
        else:
            assert request.space is not None
            setup = _set_up(rank, request.integrals, request.space, problem, chosen)
            setup_s = perf_counter() - problem.begin_s
            solution = _solved(rank, request, problem, options, setup)
            solved = Grown(setup, solution, request.space, {}, request.integrals)
        peak_bytes = solved.setup.peak_bytes()
    solve_s = perf_counter() - problem.begin_s - setup_s
    measured = {"setup_s": setup_s, "solve_s": solve_s, "peak_bytes": peak_bytes, "energy": rank.energy()}
    # Invariant: `agree` is collective. Rank 0 measures and writes; the others wait for the message
    # whether that could be done.
    if not rank.is_first:
        agree(rank.world, lambda: None)
        return Diagonalization(solved.solution, None, (), {})
    return agree(rank.world, lambda: _hand_over(request.rotation, solved, problem, options, measured))


def _set_up(
    rank: Rank, integrals: Integrals, space: Space, problem: _Problem, chosen: ChosenDevice
) -> SolveSetup[FermionHamiltonian]:
    """The tables of a solve; a line says how large it is."""
    solve_problem = SolveProblem(integrals, problem.penalty, problem.criteria)
    setup = set_up(rank, solve_problem, space, chosen, rank.world, problem.roots)
    rank.say(0, 0, _described(setup, space))
    return setup


def _solved(
    rank: Rank, request: _Request, problem: _Problem, options: JobOptions,
    setup: SolveSetup[FermionHamiltonian],
) -> Solution:  # fmt: skip
    """The states of a space."""

    def heard(step: DavidsonStep) -> None:
        rank.say(step.number, problem.criteria.steps, step_text(step, " Ha"), step)

    return solve(
        setup.hamiltonian, request.integrals, problem.roots, criteria=setup.criteria,
        penalty=problem.penalty, start=request.start if rank.is_first else [],
        checkpoint=options.checkpoint_file, resume=options.resume, progress=heard, backend=setup.backend,
        mixed_precision=problem.is_mixed,
    )  # fmt: skip


def _grow(
    rank: Rank, request: _Request, problem: _Problem, options: JobOptions, chosen: ChosenDevice
) -> Grown:
    """A list that grows, and its states. Solves and selections get half of the memory each."""
    assert problem.grow is not None
    start = None
    if request.space is not None:
        assert isinstance(request.space.basis, DeterminantList)
        start = request.space.basis
    growth = GrowthProblem(
        request.integrals, problem.grow, problem.criteria, problem.roots, problem.symmetry, start,
        problem.penalty,
    )  # fmt: skip
    # The tables of a solve are still there while the next determinants are selected.
    solve_bytes = select_bytes = rank.memory_bytes / 2
    # On a GPU the solve has the GPU's memory and the selection the host's: neither takes from the other.
    if rank.device.name == "gpu":
        solve_bytes = rank.memory_bytes
        select_bytes = min(options.memory or inf, host_memory()[1] / ranks_here(rank.world))
    workers = Workers(rank.world, rank.threads, select_bytes)
    if rank.device.name == "gpu":
        from tnplan.executor.sbd.cuda.coupling_steps import GpuCouplings

        workers = replace(workers, on_gpu=partial(GpuCouplings, memory_bytes=solve_bytes))
    growing = GrowingList(growth, chosen, solve_bytes, workers, rank.say)
    path = options.checkpoint_file
    store = None if path is None else GrowthCheckpoint(path, growth.identity)
    return growing.grow(store, options.resume)


def _hand_over(
    rotation: Array | None, solved: Grown, problem: _Problem, options: JobOptions, measured: dict[str, Any]
) -> Diagonalization:
    """Measure the states, write files and give the result, on rank 0; `rotation` was given."""
    solution, hamiltonian, integrals = solved.solution, solved.setup.hamiltonian, solved.integrals
    if solved.rotation is not None:
        rotation = solved.rotation if rotation is None else np.asarray(rotation) @ solved.rotation
    states, basis = solution.states, solved.space.basis
    matrices = consistent_densities(hamiltonian, integrals, states, solution) if problem.rdm else ()
    report = solve_report(solved.setup, solution, solved.space, integrals, measured)
    if problem.grow is not None:
        report["growth"] = solved.report
    listed = basis if isinstance(basis, DeterminantList) else None
    order = None if listed is None else listed.given
    pairs = combinations(range(len(states)), 2) if problem.transitions else ()
    result = Diagonalization(
        solution, order, matrices, report, None if problem.grow is None else listed,
        None if solved.rotation is None else rotation,
        {(bra, ket): densities(hamiltonian, states[bra], states[ket]) for bra, ket in pairs},
    )  # fmt: skip
    if problem.natural is not None:
        matrices = matrices or tuple(densities(hamiltonian, x) for x in states)
        write_natural(problem.natural, integrals, matrices, rotation)
    if problem.carry is not None:
        write_carry_over(problem.carry, hamiltonian, states)
    if options.output is not None:
        write_result(options, options.output, result)
        if result.rotation is not None:
            write_fcidump(orbitals_file(options.output), integrals)
    return result


def _check_growth(problem: _Problem) -> None:
    """Refuse what does not go with a list that grows."""
    assert problem.grow is not None
    if problem.penalty is not None and not problem.grow.flips:
        raise InputError("--no-flips", "cannot be combined with --spin", "leave one of them out")
    refused = (
        ("--alpha", problem.alpha is not None or problem.beta is not None, "start from --determinants"),
        ("--start", len(str(problem.start) if isinstance(problem.start, Path) else problem.start) > 0,
         "start from --determinants"),
        ("--precision", problem.is_mixed, "leave it out: lists are only solved in fp64"),
    )  # fmt: skip
    for name, is_there, remedy in refused:
        if is_there:
            raise InputError(name, "cannot be combined with --grow", remedy)


def _check_outputs(problem: _Problem, target: Path | None) -> None:
    """Refuse outputs that cannot be written, or would replace an input or each other."""
    outputs = [] if problem.carry is None else [*problem.carry.files]
    inputs = problem.integrals, problem.alpha, problem.beta, problem.determinants, problem.rotation
    if problem.natural is not None:
        outputs += natural_files(problem.natural)
        # Both writings would go through, and the second would replace the first.
        if target is not None and {target, target.with_suffix(".json")} & {*natural_files(problem.natural)}:
            raise InputError("--natural", f"is {problem.natural}, which -o writes too", "give another name")
    if target is not None:
        if target.suffix != ".npz":
            raise InputError(str(target), "is not an .npz file", "give the output a name that ends in .npz")
        outputs += [target, target.with_suffix(".json")]
        outputs += list_files(target, problem.grow)
    for output in outputs:
        check_writable(output, *inputs)


def _described(setup: SolveSetup[FermionHamiltonian], space: Space) -> str:
    shape, elements = setup.hamiltonian.whole_shape, prod(setup.hamiltonian.shape)
    size = " x ".join(map(str, shape))
    if elements < prod(shape):
        size = f"{elements} determinants of symmetry {space.irrep} among {size}"
    else:
        size += " determinants"
    left_out = f"; samples of other electrons left out: {space.left_out:g}" if space.left_out else ""
    pairs = f"{setup.pairs_contributing:.4g} contributing pairs, {size_text(setup.predicted_bytes)} per rank"
    return f"{size}, {pairs}{left_out}"
