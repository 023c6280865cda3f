"""What a diagonalization gives and writes: states, density matrices, strings for the next basis.

Changelog of `tnplan.sbd`, the JSON beside a result:
1 (2026-11-21): first version. With `growth` where a list has grown (2026-11-26). With
`growth.starts`, `measured.test_multiplications` and `measured.whole_space` (2026-11-29),
`measured.lower_states` (2026-11-30), `growth.orbital_lists` (2026-12-01).
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.array_file import open_archive, read_array
from tnplan.common.errors import InputError
from tnplan.common.files import file_path, write_file, write_text
from tnplan.common.release import release
from tnplan.common.shown_text import Printed
from tnplan.common.units import plural
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.sbd.basis.determinants import DeterminantList
from tnplan.executor.sbd.basis.fcidump import write_fcidump
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.basis.orbitals import natural_orbitals, rotate_orbitals
from tnplan.executor.sbd.basis.sector import state_irrep
from tnplan.executor.sbd.basis.space import Space
from tnplan.executor.sbd.basis.strings import carry_over, check_share
from tnplan.executor.sbd.properties.measure import (
    FermionHamiltonian,
    densities,
    occupations,
    string_sets,
    string_weights,
)
from tnplan.executor.sbd.properties.reduced_density import Densities
from tnplan.executor.sbd.properties.spin_square import spin_square
from tnplan.executor.sbd.selected_ci.grow import FINER
from tnplan.executor.sbd.selected_ci.growth import Growth
from tnplan.executor.sbd.solver.davidson import Criteria, DavidsonStep, Solution
from tnplan.executor.sbd.solver.memory_estimate import numbers_of, penalty_bytes
from tnplan.executor.sbd.solver.setup import (
    ChosenDevice,
    SolveRequest,
    SolveSetup,
    set_up_solve,
    takes_blocks,
)
from tnplan.executor.sbd.solver.solve import SpinPenalty
from tnplan.jobs.job import Rank
from tnplan.jobs.job_options import JobOptions
from tnplan.jobs.outputs import write_arrays

Array = NDArray[Any]

FORMAT = "tnplan.sbd"
VERSION = 1
SHOWN_ENERGIES = 4
UNSURE = f"an estimate; an uncertainty needs three thresholds, and --epsilon-pt2 {FINER} times below the last"
CONSISTENT = 1e-7
"""How far the energy that density matrices give may be from that of the state, in Hartree."""


@dataclass(frozen=True)
class CarryOver:
    """Strings to write for the next basis: to PREFIX.alpha.txt and PREFIX.beta.txt.

    Parameters
    ----------
    prefix : path
        How the names of the files begin.
    ratio : float, optional
        The share of the strings to write: those of largest weight.
    missing : float, optional
        Or the total weight that the strings left out may have; the fewest strings are then written.

    Raises
    ------
    InputError
        For values that cannot be.

    Examples
    --------
    >>> tnplan.CarryOver("next", ratio=0.5).files[0].name
    'next.alpha.txt'
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


@dataclass(frozen=True, eq=False, repr=False)
class Solved(Printed):
    """The states that a solve has found, and their energies."""

    solution: Solution

    @property
    def energies(self) -> Array:
        """The energies of the states, rising, in the unit of the Hamiltonian."""
        return self.solution.energies

    @property
    def states(self) -> list[Array]:
        """The normalized states."""
        return self.solution.states


@dataclass(frozen=True, eq=False, repr=False)
class Diagonalization(Solved):
    """What `diagonalize` gives; `print` shows the states, how the list has grown, and the work.

    Parameters
    ----------
    solution : Solution
        Energies in Hartree, states [alpha string, beta string] or [determinant], residuals, and whether the
        solve `converged`.
    order : array or None
        For a list of determinants: the number, among those given, of each one of the states.
    densities : tuple of Densities
        The reduced density matrices of each state, where they were asked for.
    report : dict
        What the JSON file says (docs/explanation/sbd.md).
    determinants : DeterminantList or None
        The list that has grown, where one has: its order is that of the states.
    rotation : array or None
        The orbitals of that list where they were optimized, [orbital of the input, optimized orbital].
    transitions : dict
        The transition density matrices <i| ... |j> of roots i < j, by (i, j), where they were asked for.

    Examples
    --------
    >>> integrals = tnplan.from_arrays(np.diag([-1.0, 1.0]), np.zeros((2, 2, 2, 2)), 1, 1)
    >>> tnplan.diagonalize(integrals, [0b01, 0b10], device="cpu")
    Diagonalization(converged: -2.000000 Ha)
    """

    order: Array | None
    densities: tuple[Densities, ...]
    report: dict[str, Any]
    determinants: DeterminantList | None = None
    rotation: Array | None = None
    transitions: Mapping[tuple[int, int], Densities] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Diagonalization({solution_text(self.solution)} Ha)"

    def __str__(self) -> str:
        return "\n".join(self._lines()) if self.report else repr(self)  # rank 0 has the report

    def _lines(self) -> Iterator[str]:
        report = self.report
        columns = (report[name] for name in ("energies_hartree", "residuals", "spin_square", "symmetry"))
        rows = list(zip(*columns, strict=True))
        labels = f"{'irrep':>7}" if any(irrep is not None for *_, irrep in rows) else ""
        yield f"{'root':>4}{'energy (Ha)':>20}{'residual':>12}{'S^2':>10}{labels}"
        for number, (energy, residual, square, irrep) in enumerate(rows):
            shown = "unknown" if square is None else f"{square:z.5f}"
            yield f"{number:>4}{energy:>20.10f}{residual:>12.1e}{shown:>10}{irrep or '':>7}".rstrip()
        if "growth" in report:
            yield from _growth_lines(report["growth"])
        yield work_text(report["measured"])


def _growth_lines(growth: dict[str, Any]) -> Iterator[str]:
    """The lists that were corrected, and what they extrapolate to."""
    ended = {"epsilon": "stable at the last epsilon"}
    yield f"the list ended: {ended.get(growth['ended'], 'limit of ' + growth['ended'])}"
    yield from point_lines(growth["points"], "determinants", "_hartree")
    for root, fit in enumerate(growth["extrapolation"]):
        if fit is not None:
            error = fit["uncertainty_hartree"]
            sure = UNSURE if error is None else f"uncertain by {error:.1e}"
            yield f"root {root} extrapolated: {fit['energy_hartree']:.6f} Ha, {sure}"
        elif len(growth["points"]) > 1:
            yield NOT_EXTRAPOLATED.format(root)


NOT_EXTRAPOLATED = "root {} not extrapolated: the line through these energies ends above the last of them"


def point_lines(points: Sequence[dict[str, Any]], members: str, unit: str = "") -> Iterator[str]:
    """A table of lists of determinants or strings that were corrected; `unit` ends the names of energies."""
    if points:
        energy = "energy (Ha)" if unit else "energy"
        yield f"{'epsilon':>10}{members:>14}{energy:>20}{'second order':>15}{'together':>16}"
    for point in points:
        energy, correction = point[f"energies{unit}"][0], point[f"corrections{unit}"][0]
        yield (
            f"{point['epsilon']:>10.3g}{point[members]:>14}{energy:>20.10f}{correction:>15.8f}"
            f"{energy + correction:>16.8f}"
        )


def work_text(measured: dict[str, Any]) -> str:
    """What a solve took, and how its states are known to be the lowest."""
    tests = f"{measured['test_multiplications']} more to test for lower states"
    lower = measured["lower_states"]
    if measured["whole_space"]:
        tests = "all of the space diagonalized"
    elif lower["estimated_chance"] < 1:
        tests += (
            f" (estimate: of the states in this space, one that is lower by {lower['by']:.1g} or more "
            f"is missed in {100 * lower['estimated_chance']:g} % of solves)"
        )
    return (
        f"{plural(measured['steps'], 'step', 'steps')}, "
        f"{plural(measured['multiplications'], 'multiplication', 'multiplications')}, "
        f"{tests}, "
        f"{measured['setup_s']:.3g} s to prepare, {measured['solve_s']:.3g} s to solve"
    )


def solution_text(solution: Solution) -> str:
    """Whether a solve converged, and its lowest energies."""
    energies = ", ".join(f"{energy:.6f}" for energy in solution.energies[:SHOWN_ENERGIES])
    more = ", ..." if len(solution.energies) > SHOWN_ENERGIES else ""
    return f"{'converged' if solution.converged else 'not converged'}: {energies}{more}"


def solve_report(
    setup: SolveSetup[FermionHamiltonian], solution: Solution, space: Space, integrals: Integrals,
    measured: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """What the JSON beside a result holds."""
    hamiltonian, states, irreps = setup.hamiltonian, solution.states, space.irreps
    counts = [occupations(hamiltonian, state) for state in states]
    return {
        "format": FORMAT, "version": VERSION, "converged": solution.converged,
        "energies_hartree": solution.energies.tolist(), "residuals": solution.residuals.tolist(),
        "spin_square": [spin_square(hamiltonian, state) for state in states],
        "symmetry": [None if irreps is None else state_irrep(state, irreps) for state in states],
        "occupations": {
            "alpha": [pair[0].tolist() for pair in counts], "beta": [pair[1].tolist() for pair in counts],
        },
        "space": {
            "shape": list(hamiltonian.whole_shape), "elements": prod(hamiltonian.shape),
            "orbitals": integrals.n_orbitals,
            "electrons": [integrals.n_alpha, integrals.n_beta],
            "orbitals_shared": integrals.has_common_orbitals, "kind": integrals.kind,
            "pairs_contributing": setup.pairs_contributing, "left_out": space.left_out,
        },
        "measured": {
            **work_of(solution), "early_multiplications": solution.early_multiplications, **measured,
        },
        "predicted_bytes": setup.predicted_bytes, "threads": hamiltonian.threads, "ranks": setup.ranks,
        "device": setup.device, "gathers": setup.gathers,
        "environment": environment(),
    }  # fmt: skip


def work_of(solution: Solution) -> dict[str, Any]:
    """What a report says of the work of a solve, and of how its states were found to be the lowest."""
    return {
        "steps": solution.steps, "multiplications": solution.multiplications,
        "test_multiplications": solution.test_multiplications, "whole_space": solution.is_whole,
        "orthogonality": solution.orthogonality,
        "lower_states": {"by": solution.lower_by, "estimated_chance": solution.lower_chance},
    }  # fmt: skip


@dataclass(frozen=True)
class SolveProblem:
    """What the solves of a job have in common."""

    integrals: Integrals
    penalty: SpinPenalty | None
    criteria: Criteria


def set_up(
    rank: Rank, problem: SolveProblem, space: Space, chosen: ChosenDevice, group: Communicator, roots: int
) -> SolveSetup[FermionHamiltonian]:
    """The tables of a solve, which the ranks of a group share; collective over the group."""
    # A rank holds its share of each vector; the penalty's vectors are taken off before the solver plans its
    # own.
    size = space.size if takes_blocks(problem.integrals) else prod(space.shape)
    share = -(-size // group.size) * numbers_of(problem.integrals)
    reserved_bytes = 0 if problem.penalty is None else penalty_bytes(share)
    memory_bytes = max(rank.memory_bytes - reserved_bytes, 1)
    request = SolveRequest(
        roots, problem.criteria, memory_bytes, rank.threads, space.sector, problem.penalty is not None
    )
    setup = set_up_solve(problem.integrals, space.basis, chosen, group, request)
    return replace(setup, predicted_bytes=setup.predicted_bytes + reserved_bytes)


def solver_device(rank: Rank, ranks: Communicator) -> ChosenDevice:
    """The device of a rank as solves take it; `ranks` are connected for its arrays."""
    free_bytes = int(rank.memory_bytes) if rank.device.name == "gpu" else None
    return ChosenDevice(rank.chosen.line, ranks, free_bytes, rank.on_stream, rank.chosen.close)


def step_text(step: DavidsonStep, unit: str) -> str:
    """A line of progress: where a solve stands after a step, or a test of its states."""
    energies = " ".join(f"{energy:.10f}" for energy in step.energies[:SHOWN_ENERGIES])
    more = " ..." if len(step.energies) > SHOWN_ENERGIES else ""
    name = "test for a lower state" if step.is_test else "step"
    kind = "share at most" if step.is_share else "residual"
    return (
        f"{name} {step.number}: energy {energies}{more}{unit}, {kind} {max(step.residuals):.1e}, "
        f"{step.multiplication_s:.3g} s per multiplication"
    )


def environment() -> dict[str, Any]:
    """What a report says of the machine and the libraries."""
    return {
        "tnplan": release(), "numpy": np.__version__, "python": platform.python_version(),
        "machine": platform.machine(), "cores": os.cpu_count(),
    }  # fmt: skip


def consistent_densities(
    hamiltonian: FermionHamiltonian, integrals: Integrals, states: list[Array], solution: Solution
) -> tuple[Densities, ...]:
    """The reduced density matrices of states, whose energies are checked against the solve's."""
    matrices = tuple(densities(hamiltonian, state) for state in states)
    for energy, density in zip(solution.energies, matrices, strict=True):
        difference = abs(density.energy(integrals) - energy)
        if not difference <= CONSISTENT and solution.converged:
            raise RuntimeError(
                f"density matrices give an energy that is {difference:.2g} Hartree from the state's"
            )
    return matrices


def write_carry_over(carry: CarryOver, hamiltonian: FermionHamiltonian, states: list[Array]) -> None:
    """The strings of most weight in the mean over the states."""
    weights_of = [string_weights(hamiltonian, state) for state in states]
    means = [np.mean(sums, axis=0) for sums in zip(*weights_of, strict=True)]
    for file, weights, strings in zip(carry.files, means, string_sets(hamiltonian), strict=True):
        chosen = carry_over(weights, ratio=carry.ratio, missing=carry.missing)
        write_text(file, strings.take(chosen).lines())


def read_rotation(rotation: Any) -> Any:
    """New orbitals: an array, or that of an .npy, or `matrix` of an .npz."""
    if not isinstance(rotation, str | Path):
        return rotation
    remedy = "give an .npy, or an .npz with an array named matrix"
    if Path(rotation).suffix == ".npz":
        with open_archive(rotation, remedy) as archive:
            if "matrix" not in archive.names:
                raise InputError(str(rotation), "an array named matrix is missing", remedy)
            return archive.read("matrix")
    return read_array(rotation)


def natural_files(target: Path) -> tuple[Path, Path]:
    """The files of natural orbitals: integrals, and occupations and coefficients."""
    return target, target.with_suffix(".npz")


def write_natural(
    target: Path, integrals: Integrals, matrices: Sequence[Densities], rotation: Any = None
) -> None:
    """Write the integrals over natural orbitals, and beside them occupations and coefficients.

    These are over the orbitals of the input, of which `rotation` has made those of the states.
    """
    natural = natural_orbitals(matrices, integrals)
    matrix = natural.matrix if rotation is None else np.asarray(rotation) @ natural.matrix
    content = {"occupations": natural.occupations, "matrix": matrix}
    write_file(target.with_suffix(".npz"), lambda stream: np.savez(stream, **content))  # type: ignore[arg-type]
    write_fcidump(target, rotate_orbitals(integrals, natural.matrix))


def determinants_file(target: Path) -> Path:
    """The file of the determinants that a list has grown to, beside a result."""
    return target.with_suffix(".determinants.txt")


def orbitals_file(target: Path) -> Path:
    """The FCIDUMP of the integrals over optimized orbitals, beside a result."""
    return target.with_suffix(".orbitals.fcidump")


def list_files(target: Path | None, grow: Growth | None) -> list[Path]:
    """The files of a list that grows, beside a result."""
    if target is None or grow is None:
        return []
    return [determinants_file(target)] + [orbitals_file(target)] * (grow.optimize_orbitals > 0)


def write_result(options: JobOptions, target: Path, result: Diagonalization) -> None:
    """Write energies, states and density matrices, and the report beside them."""
    content: dict[str, Array] = {"energies": result.energies, "states": np.array(result.states)}
    if result.order is not None:
        content["order"] = result.order
    names = ["alpha", "beta", "two_alpha", "two_beta", "mixed"]
    if result.report["space"]["orbitals_shared"]:
        names += ["one", "two"]
    tables = {"rdm": result.densities, "transition": tuple(result.transitions.values())}
    for (kind, matrices), name in product(tables.items(), names):
        of_kind = "two_alpha_beta" if name == "mixed" else name
        if matrices:
            content[f"{kind}_{name}"] = np.array([getattr(density, of_kind) for density in matrices])
    if result.transitions:
        content["transition_roots"] = np.array([*result.transitions])
    if result.rotation is not None:
        content["matrix"] = result.rotation
    if result.determinants is not None:
        write_text(determinants_file(target), result.determinants.lines())
    write_arrays(options, content, result.report)
