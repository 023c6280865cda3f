"""Selected configuration interaction: select and diagonalize until the list is stable at every threshold.

Heat-bath configuration interaction (Holmes, Tubman and Umrigar, J. Chem. Theory Comput. 12, 3674 (2016)),
with a second-order correction of every list, and the extrapolation to none. Reads
and writes no file but the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from time import perf_counter
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.common.files import identity_of
from tnplan.executor.device.protocols.communicator import agree
from tnplan.executor.device.protocols.stop_signal import StoppedRunError, asked
from tnplan.executor.sbd.basis.determinants import DeterminantList
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.basis.orbitals import rotate_orbitals
from tnplan.executor.sbd.basis.sector import wanted_irrep
from tnplan.executor.sbd.basis.space import Space, choose_space
from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian
from tnplan.executor.sbd.properties.measure import FermionHamiltonian, densities
from tnplan.executor.sbd.properties.spin_square import SpinTarget, spin_square
from tnplan.executor.sbd.selected_ci.connections import (
    Candidates,
    from_keys,
    member_keys,
    second_order,
    select,
    with_keys,
)
from tnplan.executor.sbd.selected_ci.excitation_tables import excitation_tables
from tnplan.executor.sbd.selected_ci.growth import COLUMNS, Growth, GrowthCheckpoint, GrowthState
from tnplan.executor.sbd.selected_ci.orbital_optimization import (
    descending_rotations,
    list_sizes,
    orbital_derivatives,
)
from tnplan.executor.sbd.selected_ci.semistochastic import SUMMED, sampled_second_order
from tnplan.executor.sbd.selected_ci.shards import Workers
from tnplan.executor.sbd.selected_ci.spin_families import Closure, SpinFamilies
from tnplan.executor.sbd.selected_ci.starts import DeterminantSearch, Start, start_states
from tnplan.executor.sbd.solver.davidson import Criteria, Solution
from tnplan.executor.sbd.solver.memory_estimate import numbers_of, penalty_bytes
from tnplan.executor.sbd.solver.setup import ChosenDevice, SolveRequest, SolveSetup, set_up_solve
from tnplan.executor.sbd.solver.solve import SpinPenalty, check_roots, ranking_target, solve

# Short growths from several starts, and which of them are the best.
#
# Knows starts and states of growths; grows nothing.


BROKEN = 2
"""Spin-broken starts that go on besides the best, since they gain most from correlation."""
LOWEST_CORRECTION = -0.1
"""Hartree. A larger correction is of determinants near the state's own energy, and has no meaning."""
SAME = 1e-7
"""States whose energies differ by less, in Hartree, turn into each other under a symmetry."""
OVERLAP, ALIKE = 1e-2, 0.1
"""A start leads to a state that was reached where their overlap is above the first. States whose overlap is
above the second are alike."""


@dataclass
class Trial:
    """A start, what it has led to, the second-order correction of the state there, and its spin's penalty."""

    start: Start
    state: GrowthState
    correction: float = 0.0
    penalty: float = 0.0
    least_term: float = np.inf
    """What the correction leaves out."""
    early: Start | None = None
    """The state at the end of the first round."""

    @property
    def estimate(self) -> float:
        """The energy with the penalty, and with the correction as far as that can be believed."""
        return self.state.energies[0] + max(self.correction, LOWEST_CORRECTION) + self.penalty

    @property
    def reached(self) -> Start:
        """The state that was reached."""
        return Start(member_keys(self.state.basis), self.state.states, 0, 0.0)

    @property
    def report(self) -> dict[str, Any]:
        """What the report says of it."""
        return {
            "start_determinants": len(self.start.keys), "determinants": len(self.state.basis),
            "energy_hartree": self.state.energies[0], "correction_hartree": self.correction,
        }  # fmt: skip


def best_trials(trials: list[Trial], count: int) -> list[int]:
    """The numbers of the best trials by their estimates, one of those that are alike.

    Besides, those of the best that are spin-broken.
    """
    best: list[int] = []
    for number in sorted(range(len(trials)), key=lambda other: trials[other].estimate):
        trial = trials[number]
        if not any(
            abs(trials[other].state.energies[0] - trial.state.energies[0]) < SAME
            or trials[other].reached.overlap(trial.reached) > ALIKE
            for other in best
        ):
            best.append(number)
    return best[:count] + [other for other in best[count:] if trials[other].start.is_broken][:BROKEN]


# The energy of all determinants from those of growing lists: E against the second-order correction, to zero.
#
# Knows numbers.


LEAST_POINTS = 2
LINE_POINTS = 3
"""Points of smallest corrections that the line is laid through: over more of them curves bend."""
PARABOLA_POINTS = 5
"""The same for the parabola."""
FINER = 30
"""How many times smaller than the last threshold terms of the corrections have to be for an uncertainty."""
QUADRATIC_POINTS = 4
"""Points that a parabola needs: one more than it has numbers."""


@dataclass(frozen=True)
class Extrapolation:
    """Energies at no correction, in Hartree.

    - `energy`: By a straight line of variational energies over the three smallest corrections, with weights 1
      / E2^2.
    - `uncertainty`: The distance from that energy to the variational one of the last list, which is a bound;
      or where one of these is larger: the standard error of the line, the distance to `quadratic`, and that
      to E + E2 of the smallest correction. No constant is fitted; benchmarks/notes/sbd.md counts how often it
      holds the exact energy. None with two points, which tell nothing of it.
    - `quadratic`: By a parabola over the five smallest corrections with the same weights; None with fewer
      than four.
    - `slope`: Of the line; -1 where the correction is exact.
    - `points`: How many points the line has.
    """

    energy: float
    uncertainty: float | None
    quadratic: float | None
    slope: float
    points: int

    def report(self) -> dict[str, Any]:
        """The same as JSON holds it."""
        names = {"energy": "energy_hartree", "uncertainty": "uncertainty_hartree"}
        names["quadratic"] = "quadratic_hartree"
        return {names.get(name, name): value for name, value in asdict(self).items()}


def extrapolate(
    energies: Sequence[float], corrections: Sequence[float], errors: Sequence[float] = ()
) -> Extrapolation | None:
    """The fits of the points of smallest corrections; None with fewer than two corrections that differ.

    None also where the line ends above the last energy, which is a bound. A correction of zero says that
    nothing is missing. `errors` are standard errors of the corrections; what they change of the line comes to
    its uncertainty.
    """
    exact = [energy for energy, correction in zip(energies, corrections, strict=True) if correction == 0]
    if exact:
        return Extrapolation(float(min(exact)), float(energies[-1] - min(exact)), None, -1.0, 1)
    # As the list grows, E2 -> 0 and E -> the full energy, nearly on a line (Holmes, Umrigar and
    # Sharma, J. Chem. Phys. 147, 164111 (2017)). Points of small E2 count most.
    order = np.argsort(-np.abs(corrections), kind="stable")
    x, y = (np.array(values, float)[order] for values in (corrections, energies))
    sampled = np.array(errors or [0.0] * len(x), float)[order][-LINE_POINTS:]
    if len(set(x.tolist())) < LEAST_POINTS:
        return None
    # Differences keep their digits; the sums of large energies do not.
    origin = y[-1]
    line, error = _fit(x[-LINE_POINTS:], y[-LINE_POINTS:] - origin, 1)
    added = line[0] - (energies[-1] - origin)
    if added > 0:
        return None
    distances = [abs(added), error, abs(line[0] - x[-1])]
    quadratic = None
    if len(set(x[-PARABOLA_POINTS:].tolist())) >= QUADRATIC_POINTS:
        quadratic = float(_fit(x[-PARABOLA_POINTS:], y[-PARABOLA_POINTS:] - origin, 2)[0][0])
        distances.append(abs(line[0] - quadratic))
    shifts = np.diag(sampled)
    shifted = [_fit(x[-LINE_POINTS:] + shift, y[-LINE_POINTS:] - origin, 1)[0][0] for shift in shifts]
    uncertainty = float(max(distances) + np.linalg.norm(np.array(shifted) - line[0]))
    return Extrapolation(
        float(origin + line[0]), uncertainty if len(x) >= LINE_POINTS else None,
        None if quadratic is None else float(origin + quadratic), float(line[1]), min(len(x), LINE_POINTS),
    )  # fmt: skip


def extrapolated(growth: Growth, points: Sequence[dict[str, Any]], root: int) -> Extrapolation | None:
    """What the corrected lists of a growth extrapolate to.

    Without an uncertainty where the corrections may leave out what the thresholds do.
    """
    fit = extrapolate(*([point[name][root] for point in points] for name in COLUMNS))
    last = points[-1]["epsilon"] if points else 0.0
    if fit is None or growth.epsilon_pt2 is None or not 0 < last < FINER * growth.epsilon_pt2:
        return fit
    return replace(fit, uncertainty=None)


def _fit(x: Any, y: Any, degree: int) -> tuple[Any, float]:
    """Coefficients of a polynomial with weights 1 / x^2, the constant first, and its standard error."""
    # Weighted least squares: rows times sqrt(weight) = 1 / |x|, scaled so that the matrix has
    # elements near 1.
    scale = np.abs(x).max()
    roots = np.abs(x).min() / np.abs(x)
    matrix = np.vander(x / scale, degree + 1, increasing=True) * roots[:, None]
    coefficients = np.linalg.lstsq(matrix, y * roots, rcond=None)[0]
    error, free = 0.0, len(x) - degree - 1
    if free > 0:
        variance = np.sum((matrix @ coefficients - y * roots) ** 2) / free
        error = float(np.sqrt(variance * np.linalg.pinv(matrix.T @ matrix)[0, 0]))
    return coefficients / scale ** np.arange(degree + 1), error


SETTLED = 1000
"""From so many determinants on, the memory of one tells that of a longer list."""
LONGER = 1.3
"""How much more memory than now a determinant of a longer list takes, at most."""
MADE_BYTES = 300
"""What a list takes while it is made from keys of two words, a determinant, where no two have a string in
common. Where many do it is 60."""
STARTS = 50
"""Starts that are tried at most; fewer where the memory does not hold their lists."""
ROUNDS = (100, 16, 1e-3), (500, 3, 1e-4), (2000, 3, 1e-4)
"""Determinants to which starts grow, how many of the best go on then, and up to what their corrections leave
terms out, in Hartree. Smaller terms take most of the time, and are much the same for all starts."""
BEST_START_DETERMINANTS = 500
"""Determinants of what the best start has led to from which a growth to a size goes on."""
EPSILON, DETERMINANTS, MEMORY = "epsilon", "determinants", "memory"
"""What ends a growth."""
ORBITAL_RESIDUAL = 1e-4
"""The residuals of solves while orbitals are optimized, in Hartree: energies are off by its square."""


class ShortListError(InputError):
    """Determinants that stand together are more than a list may have."""


@dataclass(frozen=True)
class GrowthProblem:
    """What is to grow. `start` is the list to grow from; None: the growth looks for one itself."""

    integrals: Integrals
    growth: Growth
    criteria: Criteria
    n_roots: int = 1
    symmetry: int | None = None
    start: DeterminantList | None = None
    penalty: SpinPenalty | None = None

    @property
    def families(self) -> SpinFamilies:
        """Which determinants stand in the list together."""
        integrals, closure = self.integrals, Closure.NOTHING
        if self.penalty is not None:
            closure = Closure.PLACEMENTS
        elif self.growth.flips and integrals.has_common_orbitals and integrals.n_alpha == integrals.n_beta:
            closure = Closure.FLIPS
        return SpinFamilies(closure, integrals.n_alpha)

    @property
    def identity(self) -> str:
        """What a checkpoint belongs to."""
        start = None if self.start is None else sha256(member_keys(self.start).tobytes()).hexdigest()
        options = [asdict(self.growth), asdict(self.criteria), self.n_roots, self.symmetry, start]
        options += [] if self.penalty is None else [asdict(self.penalty)]
        return identity_of([self.integrals.identity, *options])


@dataclass(frozen=True)
class Grown:
    """The last list with its solve, over these integrals, and the report of all.

    `rotation` [given orbital, orbital] is that of orbitals that were optimized.
    """

    setup: SolveSetup[FermionHamiltonian]
    solution: Solution
    space: Space
    report: dict[str, Any]
    integrals: Integrals
    rotation: Array | None = None


class GrowingList:
    """A list that grows, as one rank sees it; all calls are collective.

    `chosen` and `memory_bytes` are those of the solves, `workers` those of the selection.
    """

    def __init__(
        self, problem: GrowthProblem, chosen: ChosenDevice, memory_bytes: float, workers: Workers,
        say: Callable[[int, int, str, Any], None] = lambda *step: None,
    ) -> None:  # fmt: skip
        self._problem, self._chosen, self._memory_bytes, self._workers = (
            problem, chosen, memory_bytes, workers
        )  # fmt: skip
        self._ranks, self._say, self._series = workers.ranks, say, problem.growth.series
        self._irrep, self._families = wanted_irrep(problem.integrals, problem.symmetry), problem.families
        self._solved: tuple[SolveSetup[FermionHamiltonian], Solution, Space] | None = None

    def grow(self, checkpoint: GrowthCheckpoint | None = None, resume: bool = False) -> Grown:
        """Grow from the start, or from where the checkpoint is, to the end."""
        first = self._ranks.rank == 0

        def opened() -> GrowthState | None:
            return checkpoint.read(self._problem.integrals, resume) if checkpoint and first else None

        state: GrowthState | None = self._ranks.broadcast_object(agree(self._ranks, opened), 0)
        rotation, orbital_lists = (None, []) if state is None else (state.rotation, state.orbital_lists)
        if state is None and self._problem.growth.optimize_orbitals:
            rotation, orbital_lists = self._optimize_orbitals()
        if rotation is not None:
            rotated = rotate_orbitals(self._problem.integrals, rotation)
            self._problem = replace(self._problem, integrals=rotated)
        self._make_tables()
        if state is None:
            state = replace(self._begun(), rotation=rotation, orbital_lists=orbital_lists)
        while state.n_done < len(self._series):
            self._keep(state, checkpoint)
            self._advance(state)
        self._keep(state, checkpoint)
        check_roots(self._problem.n_roots, len(state.basis), "determinants that were selected")
        if self._solved is None:
            self._solve(state, state.basis)
        assert self._solved is not None
        return Grown(*self._solved, self._report(state), self._problem.integrals, rotation)

    def _make_tables(self) -> None:
        """The tables of selection, over the orbitals in which the list grows; collective."""
        problem, workers = self._problem, self._workers
        self._tables = agree(
            self._ranks,
            lambda: excitation_tables(problem.integrals, problem.growth.least_term, workers.memory_bytes / 2),
        )
        tables_bytes = min(self._tables.size_bytes, workers.memory_bytes / 2)
        least_bytes = min(self._ranks.gather_objects(workers.memory_bytes - tables_bytes))
        self._workers = replace(workers, memory_bytes=least_bytes)

    def _optimize_orbitals(self) -> tuple[Array, list[dict[str, Any]]]:
        """Rotate orbitals in ever longer lists, each of which grows from the one before; collective.

        The rotation, and what is reported of each list. The growth is to start from the last one.
        """
        given, rotation, reports = self._problem, np.eye(self._problem.integrals.n_orbitals), []
        sizes = list_sizes(given.growth.optimize_orbitals)
        criteria = replace(given.criteria, residual=max(given.criteria.residual, ORBITAL_RESIDUAL))
        for number, size in enumerate(sizes):
            growth = replace(
                given.growth, epsilons=(), determinants=size, epsilon_pt2=None, optimize_orbitals=0
            )
            integrals = rotate_orbitals(given.integrals, rotation)
            problem = replace(given, integrals=integrals, growth=growth, criteria=criteria)
            growing = GrowingList(problem, self._chosen, self._memory_bytes, self._workers)
            try:
                growing.grow()
            except ShortListError:
                if size == sizes[-1]:
                    raise
                continue
            turned, state, energies = growing._lowered()
            rotation, given = rotation @ turned, replace(given, start=state.basis)
            reports.append({
                "determinants": len(state.basis), "energy_hartree": energies[0],
                "optimized_hartree": min(energies), "solves": len(energies),
            })  # fmt: skip
            text = f"{len(state.basis)} determinants, energy {energies[0]:.8f}, "
            text += f"optimized {min(energies):.8f} Ha"
            self._say(number + 1, len(sizes), f"orbitals: {text}", reports[-1])
        self._problem = given
        return rotation, reports

    def _lowered(self) -> tuple[Array, GrowthState, list[float]]:
        """The rotation in which the states solved last have the least mean energy.

        With the list, and all energies tried.
        """
        assert self._solved is not None
        given, first, basis = self._problem.integrals, self._ranks.rank == 0, self._solved[2].basis
        assert isinstance(basis, DeterminantList)
        state = GrowthState(basis, self._solved[1].states if first else [])
        search, energies = descending_rotations(given.n_orbitals, given.labels), list[float]()
        rotation = best = next(search)
        while rotation is not None:
            setup, solution, _ = self._solved
            energies.append(float(np.mean(solution.energies)))
            best = rotation if energies[-1] == min(energies) else best
            derivatives = None
            if first:
                matrices = [densities(setup.hamiltonian, x) for x in solution.states]
                derivatives = orbital_derivatives(self._problem.integrals, matrices, energies[-1])
            # Rank 0 decides, since others may round differently.
            rotation = self._decided(search.send(derivatives) if derivatives else None)
            if rotation is not None:
                self._problem = replace(self._problem, integrals=rotate_orbitals(given, rotation))
                self._solve(state, state.basis)
        assert best is not None
        return best, state, energies

    def _begun(self) -> GrowthState:
        """The start's list, or what has grown a little from the start that leads to the least energy."""
        problem, n = self._problem, self._problem.integrals.n_orbitals
        if problem.start is not None:
            begun = GrowthState(from_keys(self._families.closed(member_keys(problem.start)), n))
            self._solve(begun, begun.basis)
            return begun
        starts = self._decided(agree(self._ranks, self._starts))
        # Selection adds what couples to the list, so that it may stay in another symmetry than the ground
        # state has. So several starts grow a little, and the lowest energy with its second order goes on.
        trials = self._tried(starts) if problem.n_roots == 1 else self._tried_alone()
        if problem.n_roots > 1:
            # The lowest states among few determinants may be of other symmetries than those of the end.
            cut = [self._largest_of(trial.reached, ROUNDS[0][0]) for trial in trials]
            keys = [start.keys for start in (starts[0], *cut) if start is not None]
            begun = GrowthState(from_keys(np.unique(np.concatenate(keys), axis=0), n))
            self._solve(begun, begun.basis)
            return replace(begun, starts=[trial.report for trial in trials])
        best = trials[0].start if trials else starts[0]
        # To a size, lists of early thresholds are of no use, and a start alone may lead elsewhere again.
        if trials and problem.growth.determinants is not None and not problem.growth.epsilons:
            best = self._largest_of(trials[0].reached, BEST_START_DETERMINANTS) or best
        # Where a start turns late to the state that it leads to, lists of early thresholds are of another.
        elif trials and self._decided(trials[0].reached.overlap(trials[0].early or best) <= OVERLAP):
            best = self._largest_of(trials[0].reached, len(best.keys)) or best
        reports = [trial.report for trial in trials]
        begun = GrowthState(from_keys(best.keys, n), [*best.states], starts=reports)
        self._solve(begun, begun.basis)
        return begun

    def _largest_of(self, reached: Start, count: int) -> Start | None:
        """Up to so many determinants of largest coefficients, to go on from; None where none fit."""
        chosen, _ = self._families.largest(reached.keys, np.abs(reached.states[0]), count)
        state = reached.states[0][chosen]
        return Start(reached.keys[chosen], [state / np.linalg.norm(state)], 0, 0.0) if len(state) else None

    def _tried_alone(self) -> list[Trial]:
        """The best short growths of a single root."""
        problem = replace(self._problem, n_roots=1)
        alone = GrowingList(problem, self._chosen, self._memory_bytes, self._workers, self._say)
        alone._tables = self._tables
        return alone._tried(self._decided(agree(self._ranks, alone._starts)))

    def _tried(self, starts: list[Start]) -> list[Trial]:
        """Short growths from starts, the best first: all grow a little, the best of them further.

        A start that overlaps with what another one led to is left out. Rank 0 decides.
        """
        n = self._problem.integrals.n_orbitals
        trials: list[Trial] = []
        trial_bytes = ROUNDS[0][0] * MADE_BYTES * starts[0].keys.shape[1]
        fitting = max(1, int(self._workers.memory_bytes / trial_bytes))
        for start in starts[: min(STARTS, fitting)]:
            if not self._decided(any(trial.reached.overlap(start) > OVERLAP for trial in trials)):
                trials.append(Trial(start, GrowthState(from_keys(start.keys, n), [*start.states])))
                self._try(trials[-1], ROUNDS[0][0], ROUNDS[0][2])
                trials[-1].early = trials[-1].reached
        for size, count, least_term in ROUNDS:
            for number, trial in enumerate(trials):
                self._try(trial, size, least_term)
                text = f"start {number + 1} of {len(trials)}: {len(trial.state.basis)} determinants, "
                self._say(0, len(self._series), f"{text}with second order {trial.estimate:.8f} Ha", {})
            trials = [trials[at] for at in self._decided(best_trials(trials, count))]
        return trials

    def _decided(self, of_first: Any) -> Any:
        """What rank 0 has."""
        return self._ranks.broadcast_object(of_first, 0)

    def _try(self, trial: Trial, size: int, least_term: float) -> None:
        """Let a short growth reach so many determinants, and correct its energy."""
        state, growth, solved = trial.state, self._problem.growth, not trial.state.energies
        if solved:
            self._solve(state, state.basis)
        while state.n_done < len(self._series) and not state.ended and len(state.basis) < size:
            epsilon = self._series[state.n_done]
            candidates = self._select(state, epsilon, True)
            if candidates is None or len(candidates) <= growth.stable * len(state.basis):
                state.n_done += 1
                continue
            before = len(state.basis)
            state.ended = self._extend(state, candidates, lambda basis: self._solve(state, basis), size)
            if len(state.basis) == before:
                break
            solved = True
        energy, least = state.energies[0] - self._problem.integrals.core, max(growth.least_term, least_term)
        if not solved and trial.least_term <= least:
            return
        trial.least_term = least
        trial.correction = second_order(
            state.basis, state.states[0], energy, least, self._tables, self._workers
        ).energy
        target = self._target
        if target is not None and solved:
            assert self._solved is not None
            square = spin_square(self._solved[0].hamiltonian, state.states[0])
            assert square is not None
            trial.penalty = target.weight * abs(square - target.wanted) ** target.power

    @property
    def _target(self) -> SpinTarget | None:
        """The spin that states are to have, if any."""
        return None if self._problem.penalty is None else ranking_target(self._problem.penalty)

    def _starts(self) -> list[Start]:
        """What rank 0 finds to start from."""
        if self._ranks.rank != 0:
            return []
        search = DeterminantSearch(
            self._problem.integrals, self._tables.energies, self._irrep,
            0 if self._target is None else self._target.least_open, self._workers.memory_bytes,
        )  # fmt: skip
        return start_states(
            search, self._families, self._target, self._problem.n_roots, self._workers.threads
        )

    def _advance(self, state: GrowthState) -> None:
        """Select and solve once, or end a threshold."""
        epsilon = self._series[state.n_done]
        candidates = self._select(state, epsilon, bool(state.iterations))
        # At each threshold: select, solve, repeat while the list grows by more than `stable`; then
        # the second order.
        if candidates is None:
            state.ended = MEMORY
        elif len(candidates) > self._problem.growth.stable * len(state.basis):
            state.ended = self._extend(state, candidates, lambda basis: self._iterate(state, basis, epsilon))
            if not state.ended:
                return
        self._cut(state, epsilon)
        self._correct(state, epsilon)
        state.n_done = len(self._series) if state.ended else state.n_done + 1

    def _keep(self, state: GrowthState, checkpoint: GrowthCheckpoint | None) -> None:
        """Write the checkpoint on rank 0; StoppedRunError where a signal asks to stop."""
        if checkpoint is None:
            return
        agree(self._ranks, lambda: checkpoint.write(state) if self._ranks.rank == 0 else None)
        stop = max(self._ranks.gather_objects(asked()))
        if stop:
            raise StoppedRunError(stop)

    def _select(self, state: GrowthState, epsilon: float, may_end: bool) -> Candidates | None:
        """The determinants to add at a threshold; None where they do not fit and the list may end so."""
        try:
            candidates = select(state.basis, state.weights, epsilon, self._tables, self._workers)
        except InputError as error:
            if error.place != MEMORY or not may_end:
                raise
            return None
        if self._irrep is None:
            return candidates
        return candidates.of_irrep(self._irrep, self._problem.integrals.labels.irreps)

    def _extend(
        self, state: GrowthState, candidates: Candidates, solve_in: Callable[[DeterminantList], None],
        size: int | None = None,
    ) -> str:  # fmt: skip
        """Add determinants, as many as a limit allows, and solve; the limit that was met, or nothing.

        `size` is one more limit, which goes without saying.
        """
        max_determinants, limit = self._limit(state)
        if size is not None and size < max_determinants:
            max_determinants, limit = size, ""
        # Families stay together (see `spin_families`): the list is closed under spin flips, or placements.
        n_free = max_determinants - len(state.basis)
        chosen, is_all = self._families.largest(candidates.keys, candidates.sizes, n_free)
        if not chosen.any():
            return limit
        try:
            keys = self._families.closed(candidates.keys[chosen])
            solve_in(with_keys(state.basis, keys))
        except InputError as error:
            if error.place != MEMORY:
                raise
            return MEMORY
        return "" if is_all else limit

    def _cut(self, state: GrowthState, epsilon: float) -> None:
        """At the end, keep the determinants of largest coefficients, as many as `Growth.determinants`."""
        max_determinants, is_last = self._problem.growth.determinants, state.n_done + 1 == len(self._series)
        if max_determinants is None or len(state.basis) <= max_determinants or not (state.ended or is_last):
            return
        keys = member_keys(state.basis)
        chosen, _ = self._families.largest(keys, state.weights, max_determinants)
        if not chosen.any():
            count = int(self._families.counts(self._families.names(keys[state.weights.argmax()][None]))[0])
            raise ShortListError(
                "--grow-to",
                f"is {max_determinants}, and {count} determinants with the same orbitals belong together",
                f"give {count} determinants or more",
            )  # fmt: skip
        state.states = [x[chosen] for x in state.states]
        state.ended = DETERMINANTS
        keys = keys[chosen]
        self._iterate(state, from_keys(keys, self._problem.integrals.n_orbitals), epsilon)

    def _iterate(self, state: GrowthState, basis: DeterminantList, epsilon: float) -> None:
        """Solve in another list, and say so."""
        begin_s, before = perf_counter(), len(state.basis)
        self._solve(state, basis)
        assert self._solved is not None
        solution, n = self._solved[1], len(state.basis)
        state.iterations.append({
            "epsilon": epsilon, "determinants": n, "added": n - before, "energies_hartree": state.energies,
            "converged": solution.converged, "multiplications": solution.multiplications,
            "time_s": perf_counter() - begin_s,
        })  # fmt: skip
        cut = "cut to " if n < before else ""
        self._tell(state, f"epsilon {epsilon:.3g}: {cut}{n} determinants, energy {state.energies[0]:.10f} Ha")

    def _limit(self, state: GrowthState) -> tuple[int, str]:
        """Determinants at most, and what limits them."""
        most = self._problem.growth.most
        max_determinants, limit = 2**62 if most is None else most, DETERMINANTS
        n, n_words = len(state.basis), state.basis.alpha_strings.words.shape[1]
        fitting = int(self._workers.memory_bytes / (MADE_BYTES * n_words))
        if fitting < max_determinants:
            max_determinants, limit = fitting, MEMORY
        if self._solved is not None and n >= SETTLED:
            setup = self._solved[0]
            assert isinstance(setup.hamiltonian, ListHamiltonian)
            needed = max(self._ranks.gather_objects(setup.predicted_bytes - setup.hamiltonian.elements_bytes))
            fitting = int(n * self._memory_bytes / (LONGER * needed))
            if fitting < max_determinants:
                max_determinants, limit = fitting, MEMORY
        return max_determinants, limit

    def _solve(self, state: GrowthState, basis: DeterminantList) -> None:
        """The lowest states of a list, which holds that of the state first."""
        problem, ranks = self._problem, self._ranks
        self._solved = None
        space = choose_space(problem.integrals, None, None, basis, problem.symmetry)
        listed = space.basis
        assert isinstance(listed, DeterminantList)
        n_roots = min(problem.n_roots, space.size)
        start = []
        # Of several roots one may be of another symmetry than all states of the shorter list.
        for old in state.states if n_roots == 1 else ():
            longer = np.zeros(len(basis), old.dtype)
            longer[: len(old)] = old
            start.append(longer[listed.given])
        penalty = 0
        if problem.penalty is not None:
            penalty = penalty_bytes(-(-len(listed) // ranks.size) * numbers_of(problem.integrals))
        request = SolveRequest(
            n_roots, problem.criteria, max(self._memory_bytes - penalty, 1), self._workers.threads
        )
        setup = set_up_solve(problem.integrals, listed, self._chosen, ranks, request)
        setup = replace(setup, predicted_bytes=setup.predicted_bytes + penalty)
        solution = solve(
            setup.hamiltonian, problem.integrals, n_roots, criteria=setup.criteria, penalty=problem.penalty,
            start=start if ranks.rank == 0 else [], backend=setup.backend,
        )  # fmt: skip
        state.states = ranks.broadcast_object(solution.states if ranks.rank == 0 else None, 0)
        state.energies = [float(energy) for energy in solution.energies]
        state.basis = replace(listed, given=np.arange(len(listed)))
        self._solved = setup, solution, replace(space, basis=state.basis)

    def _correct(self, state: GrowthState, epsilon: float) -> None:
        """The second-order corrections of a list, unless it has them already."""
        problem, n = self._problem, len(state.basis)
        least = problem.growth.epsilon_pt2
        if least is None or (state.points and state.points[-1]["determinants"] == n):
            return
        begin_s, core = perf_counter(), problem.integrals.core
        target = problem.growth.pt2_error
        second_orders = [
            second_order(state.basis, x, energy - core, least, self._tables, self._workers)
            if target is None else sampled_second_order(
                state.basis, x, energy - core, (SUMMED * epsilon, least), target, self._tables, self._workers
            )
            for x, energy in zip(state.states, state.energies, strict=True)
        ]  # fmt: skip
        state.points.append({
            "epsilon": epsilon, "determinants": n, "energies_hartree": state.energies,
            "corrections_hartree": [each.energy for each in second_orders],
            "correction_errors_hartree": [each.error for each in second_orders],
            "outside_determinants": [each.determinants for each in second_orders],
            "time_s": perf_counter() - begin_s,
        })  # fmt: skip
        energy, correction = state.energies[0], second_orders[0].energy
        self._tell(
            state, f"epsilon {epsilon:.3g}: stable, second-order correction {correction:.3e} Ha, "
            f"together {energy + correction:.8f} Ha",
        )  # fmt: skip

    def _tell(self, state: GrowthState, text: str) -> None:
        detail = state.iterations[-1] if state.iterations else {}
        self._say(state.n_done + 1, len(self._series), text, detail)

    def _report(self, state: GrowthState) -> dict[str, Any]:
        """What the report of a solve says of its list."""
        growth, n_roots = self._problem.growth, len(state.energies)
        points = [point for point in state.points if len(point["energies_hartree"]) == n_roots]
        fits = []
        for root in range(n_roots):
            fit = extrapolated(growth, points, root)
            fits.append(None if fit is None else fit.report())
        return {
            "epsilons": list(self._series), "epsilon_pt2": growth.epsilon_pt2, "stable": growth.stable,
            "ended": state.ended or EPSILON, "iterations": state.iterations, "points": state.points,
            "starts": state.starts, "orbital_lists": state.orbital_lists, "extrapolation": fits,
        }  # fmt: skip
