"""Selected-basis diagonalization from files or arrays to a result: `tnplan sbd` and `tnplan.diagonalize`.

Reads inputs, chooses the space, solves, measures and writes; the arithmetic is in executor/sbd.

Changelog of `tnplan.sbd`, the JSON beside a result:
1 (2026-11-21): first version.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from math import prod
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.comm.launcher import world_communicator
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu.host_facts import cores, ranks_here
from tnplan.executor.device.cpu.host_memory import host_memory
from tnplan.executor.device.protocols.communicator import AgreedError, Communicator, agree, ending_together
from tnplan.executor.device.selection.select import check_device
from tnplan.executor.sbd.basis.carryover import carry_over, check_share
from tnplan.executor.sbd.basis.determinants import DeterminantList, ListHamiltonian, read_determinants
from tnplan.executor.sbd.basis.fcidump import read_fcidump
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.basis.strings import StringSet, from_integers, read_strings
from tnplan.executor.sbd.properties.reduced_density import Densities, densities, occupations, string_weights
from tnplan.executor.sbd.properties.spin_square import spin_square
from tnplan.executor.sbd.sigma.product_hamiltonian import ProductHamiltonian
from tnplan.executor.sbd.solver.davidson import Criteria, DavidsonStep, Solution
from tnplan.executor.sbd.solver.initial_guess import given_states
from tnplan.executor.sbd.solver.setup import ChosenDevice, SolveSetup, choose_device, set_up_solve
from tnplan.executor.sbd.solver.solve import (
    Hamiltonian,
    SpinPenalty,
    as_product,
    check_roots,
    check_spin,
    solve,
)
from tnplan.planner.common.checks import check_count, is_number
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import check_writable, file_path, write_file, write_text
from tnplan.planner.common.units import size_text

if TYPE_CHECKING:
    Strings = StringSet | Sequence[int] | str | Path

Array = NDArray[Any]

FORMAT = "tnplan.sbd"
VERSION = 1
PRECISIONS = ("fp64", "mixed")
CONSISTENT = 1e-7
"""How far the energy that density matrices give may be from that of the state, in Hartree."""


@dataclass(frozen=True)
class CarryOver:
    """Strings to write for the next basis: to PREFIX.alpha.txt and PREFIX.beta.txt.

    Either the share `ratio` of them, or the fewest that leave the weight `missing` out. Raises InputError for
    values that cannot be.
    """

    prefix: str | Path
    ratio: float | None = None
    missing: float | None = None

    def __post_init__(self) -> None:
        file_path(self.prefix)
        check_share(self.ratio, self.missing)

    @property
    def files(self) -> tuple[Path, Path]:
        """The files of the alpha and of the beta strings."""
        prefix = Path(self.prefix)
        return tuple(prefix.parent / f"{prefix.name}.{spin}.txt" for spin in ("alpha", "beta"))  # type: ignore[return-value]


@dataclass(frozen=True)
class Diagonalization:
    """What a solve gave: energies in Hartree, states [alpha string, beta string] or [determinant].

    `order` are the numbers, among the determinants given, of those of a list. `report` is what the JSON file
    says.
    """

    solution: Solution
    order: Array | None
    densities: tuple[Densities, ...]
    report: dict[str, Any]

    @property
    def energies(self) -> Array:
        """The energies of the states, in Hartree, rising."""
        return self.solution.energies

    @property
    def states(self) -> list[Array]:
        """The normalized states."""
        return self.solution.states


@dataclass(frozen=True)
class _Request:
    """What rank 0 has read and checked for all ranks."""

    integrals: Integrals
    space: DeterminantList | tuple[StringSet, StringSet | None]


@dataclass(frozen=True)
class _Options:
    """The other arguments of `diagonalize`, equal on every rank."""

    roots: int
    criteria: Criteria
    penalty: SpinPenalty | None
    rdm: bool
    carry: CarryOver | None
    target: Path | None
    checkpoint: Path | None
    resume: bool
    memory_bytes: float
    threads: int | None
    device: str
    mixed: bool


def diagonalize(
    integrals: Integrals | str | Path, alpha: Strings | None = None, beta: Strings | None = None, *,
    determinants: DeterminantList | str | Path | None = None, roots: int = 1,
    criteria: Criteria | None = None, penalty: SpinPenalty | None = None,
    start: Sequence[Array] | str | Path = (), rdm: bool = False,
    carry: CarryOver | None = None, output: str | Path | None = None, checkpoint: bool = True,
    resume: bool = False, memory_bytes: float = np.inf, threads: int | None = None, device: str = "auto",
    precision: str = "fp64",
    progress: Callable[[DavidsonStep], None] | None = None, announce: Callable[[str], None] | None = None,
) -> Diagonalization:  # fmt: skip
    """The lowest states of a Hamiltonian among the products of half-strings, or among a list of determinants.

    `integrals` is an FCIDUMP file or `integrals.from_arrays(...)`; `alpha` and `beta` (default:
    those of alpha) are files, integers whose bit p is orbital p, or string sets. `start` are states, or the
    file of an earlier result. The result goes to `output` (.npz, and a .json beside it), which also keeps a
    checkpoint while the solve runs. `memory_bytes` and `threads` are those of a rank. `device` is "gpu" (one
    for each rank), "cpu", or "auto": GPUs where there are any and they can do it; `announce` gets a line
    that says which. With `precision` "mixed", early iterations are in fp32. Under mpirun the call is
    collective; rank 0 reads and writes all files and alone has states. Raises InputError for
    input that cannot be used.
    """
    begin = perf_counter()
    check_device(device)
    if precision not in PRECISIONS:
        raise InputError("--precision", f"{precision!r} is unknown", f"choose from {', '.join(PRECISIONS)}")
    target = None if output is None else file_path(output)
    held = target.parent / f"{target.name}.ckpt" if target is not None and checkpoint else None
    if resume and held is None:
        raise InputError(
            "--resume", "has no checkpoint", "give the --output of the interrupted solve, and let it keep one"
        )
    _check_values(criteria, penalty, carry, threads, memory_bytes)
    options = _Options(
        roots, criteria or Criteria(), penalty, rdm, carry, target, held, resume, memory_bytes, threads,
        device, precision == "mixed",
    )  # fmt: skip

    def read(host_ranks: int) -> _Request:
        _check_outputs(target, carry, integrals, alpha, beta, determinants)
        room_bytes = min(memory_bytes, host_memory()[1] / host_ranks)
        known = integrals if isinstance(integrals, Integrals) else read_fcidump(integrals, room_bytes)
        space = _space(known, alpha, beta, determinants)
        check_roots(roots, prod(_shape(space)))
        if penalty is not None:
            check_spin(penalty.spin, known)
        return _Request(known, space)

    def work(world: Communicator) -> Diagonalization:
        first, host_ranks = world.rank == 0, ranks_here(world)
        checked = agree(world, lambda: read(host_ranks) if first else None)
        request: _Request = world.broadcast_object(checked, 0)
        whole = agree(world, lambda: given_states(start, _shape(request.space)) if first else [])
        say, show = (announce, progress) if first else (None, None)
        return _solved(world, request, options, whole, show, say or _say_nothing, begin)

    world = world_communicator()
    if world is None:
        return run_ranks(1, work)[0]
    with ending_together(world):
        return work(world)


def _say_nothing(line: str) -> None:
    """Nobody listens."""


def _solved(
    world: Communicator, request: _Request, options: _Options, start: list[Array],
    progress: Callable[[DavidsonStep], None] | None, announce: Callable[[str], None], begin: float,
) -> Diagonalization:  # fmt: skip
    """What one rank does, from the checked input to the written result."""
    chosen = _choose(world, request, options, announce)
    threads = options.threads or max(1, cores() // ranks_here(world))
    try:
        with chosen.on_stream():
            site = set_up_solve(
                request.integrals, request.space, chosen, world, options.roots, options.criteria,
                options.memory_bytes, threads,
            )  # fmt: skip
            announce(_described(site))
            setup_s = perf_counter() - begin
            found = solve(
                site.hamiltonian, request.integrals, options.roots, criteria=site.criteria,
                penalty=options.penalty, start=start, checkpoint=options.checkpoint, resume=options.resume,
                progress=progress, place=site.place, mixed=options.mixed,
            )  # fmt: skip
            peak_bytes = site.peak_bytes()
        chosen.ranks.close()
    finally:
        chosen.close()
    solve_s = perf_counter() - begin - setup_s
    measured = {"setup_s": setup_s, "solve_s": solve_s, "peak_bytes": peak_bytes}
    if world.rank > 0:
        agree(world, lambda: None)
        return Diagonalization(found, None, (), {})
    return agree(world, lambda: _hand_over(request, options, site, found, measured))


def _choose(
    world: Communicator, request: _Request, options: _Options, announce: Callable[[str], None]
) -> ChosenDevice:
    """The device of this rank; lists of determinants and penalties are for one CPU."""
    only_here = None
    if isinstance(request.space, DeterminantList):
        only_here = "lists of determinants"
    elif options.penalty is not None:
        only_here = "solves with a spin penalty"
    if only_here is not None and options.mixed:
        raise AgreedError("--precision", f"mixed is not there for {only_here}", "leave it out")
    if only_here is None:
        chosen = choose_device(options.device, world, options.threads or 1)
        if options.device == "auto":
            announce(chosen.line)
        return chosen
    if options.device == "gpu" or world.size > 1:
        raise AgreedError(
            "--device" if world.size == 1 else "mpirun", f"{only_here} run on one CPU rank alone",
            "leave out mpirun, and choose --device cpu",
        )  # fmt: skip
    if options.device == "auto":
        announce(f"device: cpu ({only_here} run there alone)")
    return choose_device("cpu", world, 1)


def _hand_over(
    request: _Request, options: _Options, site: SolveSetup, found: Solution, measured: dict[str, Any]
) -> Diagonalization:
    """Measure the states, write files and give the result, on rank 0."""
    hamiltonian, integrals = site.hamiltonian, request.integrals
    space, wholes = _in_product(hamiltonian, integrals, found.states)
    made = _densities(space, integrals, wholes, found) if options.rdm else ()
    counts = [occupations(space, whole) for whole in wholes]
    report = {
        "format": FORMAT, "version": VERSION, "converged": found.converged,
        "energies_hartree": found.energies.tolist(), "residuals": found.residuals.tolist(),
        "spin_square": [spin_square(space, whole) for whole in wholes],
        "occupations": {
            "alpha": [pair[0].tolist() for pair in counts], "beta": [pair[1].tolist() for pair in counts],
        },
        "space": {
            "shape": list(hamiltonian.shape), "orbitals": integrals.n_orbitals,
            "electrons": [integrals.n_alpha, integrals.n_beta],
            "pairs_contributing": hamiltonian.pairs_contributing,
        },
        "measured": {
            "steps": found.steps, "multiplications": found.multiplications,
            "early_multiplications": found.early_multiplications, **measured,
            "orthogonality": found.orthogonality,
        },
        "predicted_bytes": site.predicted_bytes, "threads": hamiltonian.threads, "ranks": site.ranks,
        "device": site.device, "gathers": site.gathers,
        "environment": {
            "tnplan": version("tnplan"), "numpy": np.__version__, "python": platform.python_version(),
            "machine": platform.machine(), "cores": os.cpu_count(),
        },
    }  # fmt: skip
    order = request.space.given if isinstance(request.space, DeterminantList) else None
    result = Diagonalization(found, order, made, report)
    if options.carry is not None:
        _write_carry_over(options.carry, space, wholes)
    if options.target is not None:
        _write(options.target, result)
        if options.checkpoint is not None and found.converged:
            options.checkpoint.unlink(missing_ok=True)
    return result


def _check_values(
    criteria: Criteria | None, penalty: SpinPenalty | None, carry: CarryOver | None, threads: int | None,
    memory_bytes: float,
) -> None:  # fmt: skip
    given = ("criteria", criteria, Criteria), ("penalty", penalty, SpinPenalty), ("carry", carry, CarryOver)
    for name, value, kind in given:
        if value is not None and not isinstance(value, kind):
            raise InputError(name, f"is {value!r}", f"give a {kind.__name__}")
    if threads is not None:
        check_count("--threads", threads)
    if not (is_number(memory_bytes) and memory_bytes > 0):
        raise InputError("--memory", f"is {memory_bytes!r}", "give a positive number of bytes")


def _check_outputs(target: Path | None, carry: CarryOver | None, *inputs: Any) -> None:
    files = [source for source in inputs if isinstance(source, str | Path)]
    if target is not None:
        if target.suffix != ".npz":
            raise InputError(str(target), "is no .npz", "give the output a name that ends in .npz")
        check_writable(target, *files)
        check_writable(target.with_suffix(".json"), *files)
    for file in carry.files if carry is not None else ():
        check_writable(file, *files)


def _space(
    integrals: Integrals, alpha: Strings | None, beta: Strings | None,
    determinants: DeterminantList | str | Path | None,
) -> DeterminantList | tuple[StringSet, StringSet | None]:  # fmt: skip
    """The determinants: a list, or alpha strings and those of beta where they are given."""
    if (alpha is None) == (determinants is None) or (beta is not None and determinants is not None):
        raise InputError(
            "space", "is given twice or not at all", "give alpha strings, or a list of determinants"
        )
    if determinants is not None:
        if isinstance(determinants, DeterminantList):
            return determinants
        return read_determinants(determinants, integrals)
    assert alpha is not None
    first = _strings(alpha, integrals, integrals.n_alpha, "alpha")
    if beta is None and integrals.n_alpha != integrals.n_beta:
        raise InputError(
            "beta", f"has {integrals.n_beta} electrons where alpha has {integrals.n_alpha}",
            "give beta strings of their own",
        )  # fmt: skip
    return first, None if beta is None else _strings(beta, integrals, integrals.n_beta, "beta")


def _strings(given: Strings, integrals: Integrals, n_electrons: int, spin: str) -> StringSet:
    if isinstance(given, str | Path):
        return read_strings(given, integrals.n_orbitals, n_electrons)
    if not isinstance(given, StringSet):
        return from_integers(given, integrals.n_orbitals, n_electrons)
    if (given.n_orbitals, given.n_electrons) != (integrals.n_orbitals, n_electrons):
        raise InputError(
            f"{spin} strings", f"have {given.n_electrons} electrons in {given.n_orbitals} orbitals",
            f"give {n_electrons} electrons in {integrals.n_orbitals} orbitals",
        )  # fmt: skip
    return given


def _described(site: SolveSetup) -> str:
    size = " x ".join(map(str, site.hamiltonian.shape))
    memory = "" if site.predicted_bytes is None else f", {size_text(site.predicted_bytes)} a rank"
    return f"{size} determinants, {site.hamiltonian.pairs_contributing:.4g} contributing pairs{memory}"


def _shape(space: DeterminantList | tuple[StringSet, StringSet | None]) -> tuple[int, ...]:
    """The shape of a state: [alpha string, beta string] or [determinant]."""
    if isinstance(space, tuple):
        return len(space[0]), len(space[1] or space[0])
    return (len(space),)


def _in_product(
    hamiltonian: Hamiltonian, integrals: Integrals, states: list[Array]
) -> tuple[ProductHamiltonian, list[Array]]:
    """The space of products that holds the states, and the states in it."""
    space, first = as_product(hamiltonian, integrals, states[0])
    if isinstance(hamiltonian, ListHamiltonian):
        return space, [first, *(hamiltonian.basis.embed(state) for state in states[1:])]
    return space, states


def _densities(
    space: ProductHamiltonian, integrals: Integrals, states: list[Array], found: Solution
) -> tuple[Densities, ...]:
    made = tuple(densities(space, state) for state in states)
    for energy, density in zip(found.energies, made, strict=True):
        apart = abs(density.energy(integrals) - energy)
        if not apart <= CONSISTENT and found.converged:
            raise RuntimeError(
                f"density matrices give an energy that is {apart:.2g} Hartree from the state's"
            )
    return made


def _write_carry_over(carry: CarryOver, space: ProductHamiltonian, states: list[Array]) -> None:
    """The strings of most weight in the mean over the states."""
    means = [np.mean(sums, axis=0) for sums in zip(*map(string_weights, states), strict=True)]
    for file, weights, spin in zip(carry.files, means, (space.alpha, space.beta), strict=True):
        chosen = carry_over(weights, ratio=carry.ratio, missing=carry.missing)
        write_text(file, spin.strings.take(chosen).lines())


def _write(target: Path, result: Diagonalization) -> None:
    content: dict[str, Array] = {"energies": result.energies, "states": np.array(result.states)}
    if result.order is not None:
        content["order"] = result.order
    for name in ("alpha", "beta", "two_alpha", "two_beta", "mixed", "one", "two") if result.densities else ():
        content[f"rdm_{name}"] = np.array([getattr(density, name) for density in result.densities])
    write_file(target, lambda stream: np.savez(stream, **content))  # type: ignore[arg-type]
    write_text(target.with_suffix(".json"), json.dumps(result.report, indent=1) + "\n")
