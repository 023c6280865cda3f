"""Selected-basis diagonalization from files or arrays to a result: `tnplan sbd` and `tnplan.diagonalize`.

Reads inputs, chooses the space, solves, measures and writes; the arithmetic is in executor/sbd.

Changelog of `tnplan.sbd`, the JSON beside a result:
1 (2026-11-21): first version.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import inf, prod
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from tnplan.api.jobs.diagonalization_result import (
    CarryOver,
    Diagonalization,
    checkpoint_of,
    consistent_densities,
    environment,
    natural_files,
    read_rotation,
    step_text,
    write_carry_over,
    write_natural,
    write_result,
)
from tnplan.api.jobs.job import TIMEOUT_S, Job, JobOptions, Needs, Rank, run_job
from tnplan.api.progress import Listener
from tnplan.executor.device.cpu.host_memory import host_memory
from tnplan.executor.device.protocols.communicator import agree
from tnplan.executor.device.protocols.stop_signal import listening
from tnplan.executor.sbd.basis.determinants import DeterminantList
from tnplan.executor.sbd.basis.fcidump import read_fcidump
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.basis.irreps import state_irrep
from tnplan.executor.sbd.basis.orbitals import rotate_orbitals
from tnplan.executor.sbd.basis.space import Space, choose_space
from tnplan.executor.sbd.properties.measure import FermionHamiltonian, densities, occupations
from tnplan.executor.sbd.properties.spin_square import spin_square
from tnplan.executor.sbd.solver.davidson import Criteria, DavidsonStep, Solution
from tnplan.executor.sbd.solver.initial_guess import given_states
from tnplan.executor.sbd.solver.memory_estimate import numbers_of, penalty_bytes
from tnplan.executor.sbd.solver.setup import ChosenDevice, SolveSetup, keep_symmetry, set_up_solve
from tnplan.executor.sbd.solver.solve import (
    SpinPenalty,
    check_roots,
    check_spin,
    solve,
)
from tnplan.planner.common.checks import check_choice, check_count
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import check_writable, file_path
from tnplan.planner.common.units import size_text

if TYPE_CHECKING:
    from tnplan.executor.sbd.basis.space import Strings

Array = NDArray[Any]

FORMAT = "tnplan.sbd"
VERSION = 1
PRECISIONS = ("fp64", "mixed")


@dataclass(frozen=True)
class _Request:
    """What rank 0 has read and checked for all ranks; `start` are the states that a solve begins with."""

    integrals: Integrals
    space: Space
    start: list[Array]


@dataclass(frozen=True)
class _Solve:
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
    carry: CarryOver | None
    is_mixed: bool
    symmetry: int | None
    spin_orbitals: bool | None
    rotation: Any
    natural: Path | None
    begin_s: float


def diagonalize(
    integrals: Integrals | str | Path,
    alpha: Strings | None = None,
    beta: Strings | None = None,
    *,
    determinants: DeterminantList | str | Path | None = None,
    roots: int = 1,
    criteria: Criteria | None = None,
    penalty: SpinPenalty | None = None,
    start: Sequence[Array] | str | Path = (),
    rdm: bool = False,
    carry: CarryOver | None = None,
    precision: str = "fp64",
    symmetry: int | None = None,
    spin_orbitals: bool | None = None,
    rotation: Array | str | Path | None = None,
    natural: str | Path | None = None,
    device: str = "auto",
    ranks: int | None = None,
    threads: int | None = None,
    memory: float | str | None = None,
    output: str | Path | None = None,
    checkpoint: bool = True,
    resume: bool = False,
    progress: Listener | bool | None = None,
    timeout: float = TIMEOUT_S,
    allow_mixed_builds: bool = False,
) -> Diagonalization:
    """The lowest states of a Hamiltonian among products of half-strings, or among a list of determinants.

    Under mpirun the call is collective; rank 0 reads and writes all files and alone has states.

    Parameters
    ----------
    integrals : Integrals or path
        An FCIDUMP file, or `tnplan.from_arrays(...)`.
    alpha, beta : path, sequence of int, or StringSet, optional
        The half-strings; bit p of an integer is orbital p. Default of `beta`: those of `alpha`.
    determinants : DeterminantList or path, optional
        A list of determinants instead of products.
    roots : int
        How many states to find.
    criteria : Criteria, optional
        When a solve ends.
    penalty : SpinPenalty, optional
        Raises states of another total spin.
    start : sequence of arrays or path, optional
        States to start from, or the file of an earlier result.
    rdm : bool
        Make one- and two-body reduced density matrices.
    carry : CarryOver, optional
        Write the strings of most weight to files.
    precision : {"fp64", "mixed"}
        "mixed": early iterations in fp32, the last ones and their residuals in fp64.
    symmetry : int, optional
        The irreducible representation of the states, from 1 to 8 as ORBSYM numbers them; 0 for any. Default:
        ISYM of the FCIDUMP where that is above 1, else any.
    spin_orbitals : bool, optional
        Whether NORB of the FCIDUMP counts spin orbitals of both spins (GHF), as in `read_fcidump`.
    rotation : array or path, optional
        New orbitals [old orbital, new orbital], as `rotate_orbitals` takes them, or the .npy or .npz of them:
        integrals are rotated before anything else.
    natural : path, optional
        Write the integrals over natural orbitals of the states to this FCIDUMP file, and their occupations
        and coefficients to the .npz of the same name.
    device, ranks, threads, memory, output, checkpoint, resume, progress, timeout, allow_mixed_builds
        How the job uses the machine, as in `execute`. `output` is an .npz with a .json
        beside it; OUTPUT.ckpt keeps a checkpoint while the solve runs.

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
    options = JobOptions.given(
        device, ranks, threads, memory, output, checkpoint, resume, progress,
        timeout=timeout, allow_mixed_builds=allow_mixed_builds,
    )  # fmt: skip
    check_choice("--precision", precision, PRECISIONS)
    if symmetry is not None:
        check_count("--symmetry", symmetry, 0)
    _check_values(criteria, penalty, carry)
    asked = _Solve(
        integrals, alpha, beta, determinants, start, roots, criteria or Criteria(), penalty, rdm, carry,
        precision == "mixed", symmetry, spin_orbitals, rotation,
        None if natural is None else file_path(natural),
        begin_s,
    )  # fmt: skip
    job = Job(
        prepare=lambda: _prepare(asked, options),
        work=lambda rank, request: _work(rank, request, asked, options),
        needs=lambda request, n, threads: Needs(cpu_only=_cpu_only(request)),
    )
    with listening() if options.output is not None and options.checkpoint else nullcontext():
        return run_job(job, options)


def _prepare(asked: _Solve, options: JobOptions) -> _Request:
    """Read and check all inputs, on rank 0."""
    _check_outputs(asked, options.output)
    room_bytes = min(options.memory or inf, host_memory()[1])
    given = asked.integrals
    known = given if isinstance(given, Integrals) else read_fcidump(given, room_bytes, asked.spin_orbitals)
    if asked.rotation is not None:
        known = rotate_orbitals(known, read_rotation(asked.rotation))
    space = choose_space(known, asked.alpha, asked.beta, asked.determinants, asked.symmetry)
    check_roots(asked.roots, space.size)
    if asked.penalty is not None:
        check_spin(asked.penalty, known)
    request = _Request(known, space, given_states(asked.start, space.shape, known.is_complex))
    kind = _fp64_only(request, asked)
    if asked.is_mixed and kind:
        raise InputError("--precision", f"mixed is not there for {kind}", "leave it out")
    return request


def _cpu_only(request: _Request) -> str:
    """What of a solve only CPUs can do; empty where there is nothing."""
    return "complex integrals" if request.integrals.is_complex else ""


def _fp64_only(request: _Request, asked: _Solve) -> str:
    """What of a solve is in fp64 alone; empty where there is nothing."""
    if isinstance(request.space.basis, DeterminantList):
        return "lists of determinants"
    return _cpu_only(request) if asked.penalty is None else "solves with a spin penalty"


def _work(rank: Rank, request: _Request, asked: _Solve, options: JobOptions) -> Diagonalization:
    """What one rank does, from the checked input to the written result."""
    is_gpu = rank.device.name == "gpu"
    free_bytes = int(rank.memory_bytes) if is_gpu else None
    chosen = ChosenDevice(
        rank.chosen.line, rank.connected() or rank.world, free_bytes, rank.on_stream, rank.chosen.close
    )

    def heard(step: DavidsonStep) -> None:
        rank.say(step.number, asked.criteria.steps, step_text(step, " Ha"), step)

    share = -(-prod(request.space.shape) // rank.world.size) * numbers_of(request.integrals)
    penalty = 0 if asked.penalty is None else penalty_bytes(share)
    with rank.on_stream():
        setup = set_up_solve(
            request.integrals, request.space.basis, chosen, rank.world, asked.roots, asked.criteria,
            max(rank.memory_bytes - penalty, 1), rank.threads,
        )  # fmt: skip
        setup = replace(setup, predicted_bytes=setup.predicted_bytes + penalty)
        keep_symmetry(setup, request.space)
        rank.say(0, 0, _described(setup, request.space))
        setup_s = perf_counter() - asked.begin_s
        solution = solve(
            setup.hamiltonian, request.integrals, asked.roots, criteria=setup.criteria,
            penalty=asked.penalty, start=request.start if rank.is_first else [],
            checkpoint=checkpoint_of(options), resume=options.resume, progress=heard, backend=setup.backend,
            mixed_precision=asked.is_mixed,
        )  # fmt: skip
        peak_bytes = setup.peak_bytes()
    solve_s = perf_counter() - asked.begin_s - setup_s
    measured = {"setup_s": setup_s, "solve_s": solve_s, "peak_bytes": peak_bytes}
    if not rank.is_first:
        agree(rank.world, lambda: None)
        return Diagonalization(solution, None, (), {})
    return agree(rank.world, lambda: _hand_over(request, asked, options, setup, solution, measured))


def _hand_over(
    request: _Request,
    asked: _Solve,
    options: JobOptions,
    setup: SolveSetup[FermionHamiltonian],
    solution: Solution,
    measured: dict[str, Any],
) -> Diagonalization:
    """Measure the states, write files and give the result, on rank 0."""
    hamiltonian, integrals = setup.hamiltonian, request.integrals
    states = solution.states
    matrices = consistent_densities(hamiltonian, integrals, states, solution) if asked.rdm else ()
    counts = [occupations(hamiltonian, state) for state in states]
    irreps = request.space.irreps
    report = {
        "format": FORMAT, "version": VERSION, "converged": solution.converged,
        "energies_hartree": solution.energies.tolist(), "residuals": solution.residuals.tolist(),
        "spin_square": [spin_square(hamiltonian, state) for state in states],
        "symmetry": [None if irreps is None else state_irrep(state, irreps) for state in states],
        "occupations": {
            "alpha": [pair[0].tolist() for pair in counts], "beta": [pair[1].tolist() for pair in counts],
        },
        "space": {
            "shape": list(hamiltonian.shape), "orbitals": integrals.n_orbitals,
            "electrons": [integrals.n_alpha, integrals.n_beta],
            "orbitals_shared": integrals.has_common_orbitals, "kind": integrals.kind,
            "pairs_contributing": setup.pairs_contributing,
            "left_out": request.space.left_out,
        },
        "measured": {
            "steps": solution.steps, "multiplications": solution.multiplications,
            "early_multiplications": solution.early_multiplications, **measured,
            "orthogonality": solution.orthogonality,
        },
        "predicted_bytes": setup.predicted_bytes, "threads": hamiltonian.threads, "ranks": setup.ranks,
        "device": setup.device, "gathers": setup.gathers,
        "environment": environment(),
    }  # fmt: skip
    basis = request.space.basis
    order = basis.given if isinstance(basis, DeterminantList) else None
    result = Diagonalization(solution, order, matrices, report)
    if asked.natural is not None:
        write_natural(asked.natural, integrals, matrices or tuple(densities(hamiltonian, x) for x in states))
    if asked.carry is not None:
        write_carry_over(asked.carry, hamiltonian, states)
    if options.output is not None:
        write_result(options.output, result)
        checkpoint = checkpoint_of(options)
        if checkpoint is not None and solution.converged:
            checkpoint.unlink(missing_ok=True)
    return result


def _check_values(criteria: Criteria | None, penalty: SpinPenalty | None, carry: CarryOver | None) -> None:
    given = ("criteria", criteria, Criteria), ("penalty", penalty, SpinPenalty), ("carry", carry, CarryOver)
    for name, value, kind in given:
        if value is not None and not isinstance(value, kind):
            raise InputError(name, f"is {value!r}", f"give a {kind.__name__}")


def _check_outputs(asked: _Solve, target: Path | None) -> None:
    """Refuse outputs that cannot be written, or would replace an input or each other."""
    outputs = [] if asked.carry is None else [*asked.carry.files]
    inputs = asked.integrals, asked.alpha, asked.beta, asked.determinants, asked.rotation
    if asked.natural is not None:
        outputs += natural_files(asked.natural)
        if target is not None and {target, target.with_suffix(".json")} & {*natural_files(asked.natural)}:
            raise InputError("--natural", f"is {asked.natural}, which -o writes too", "give another name")
    if target is not None:
        if target.suffix != ".npz":
            raise InputError(str(target), "is no .npz", "give the output a name that ends in .npz")
        outputs += [target, target.with_suffix(".json")]
    for output in outputs:
        check_writable(output, *inputs)


def _described(setup: SolveSetup[FermionHamiltonian], space: Space) -> str:
    size = " x ".join(map(str, setup.hamiltonian.shape))
    left_out = f"; samples of other electrons left out: {space.left_out:g}" if space.left_out else ""
    pairs = f"{setup.pairs_contributing:.4g} contributing pairs, {size_text(setup.predicted_bytes)} a rank"
    return f"{size} determinants, {pairs}{left_out}"
