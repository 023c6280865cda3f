"""The loop of sample-based quantum diagonalization between two diagonalizations: samples to subspaces.

Configuration recovery, batches and carry-over are those of qiskit-addon-sqd, which is imported here. Every
random number is drawn in the order of its `diagonalize_fermionic_hamiltonian`, so that equal seeds give equal
subspaces. Groups of ranks solve the subspaces; a checkpoint keeps the loop between iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.checkpoint import CheckpointFile
from tnplan.common.checks import check_count, is_number
from tnplan.common.errors import InputError
from tnplan.executor.device.protocols.communicator import Communicator, agree
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.basis.space import choose_space
from tnplan.executor.sbd.basis.string_files import Bitstrings
from tnplan.executor.sbd.properties.measure import occupations
from tnplan.executor.sbd.solver.solve import solve
from tnplan.jobs.diagonalization_result import SolveProblem, set_up, solver_device
from tnplan.jobs.job import Rank

TOPIC = "samples of a molecule"

MOST_ORBITALS = 63
"""Orbitals whose strings are 64-bit integers."""
NEEDED = ("fermion", "configuration_recovery", "subsampling")
"""Modules of qiskit-addon-sqd."""

Subspace = tuple[Array, Array]
"""Alpha and beta strings, rising; bit p of an integer is orbital p."""


@dataclass(frozen=True)
class SqdOptions:
    """How the loop goes, in the words of qiskit-addon-sqd; see `tnplan.sqd.run`."""

    samples_per_batch: int = 300
    num_batches: int = 1
    energy_tol: float = 1e-8
    occupancies_tol: float = 1e-5
    max_iterations: int = 100
    symmetrize_spin: bool = False
    max_dim: int | None = None
    carryover_threshold: float = 1e-4
    spin_sq: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("samples_per_batch", "num_batches", "max_iterations", "max_dim"):
            value = getattr(self, name)
            if value is not None or name != "max_dim":
                check_count(_option(name), value)
        if self.seed is not None:
            check_count("--seed", self.seed, 0)
        for name in ("energy_tol", "occupancies_tol", "carryover_threshold"):
            value = getattr(self, name)
            if not (is_number(value) and 0 <= value < np.inf):
                raise InputError(_option(name), f"is {value!r}", "give a number of 0 or more")


@dataclass(frozen=True)
class SubspaceState:
    """The ground state of one subspace: `amplitudes` [alpha string, beta string].

    `energy` is in Hartree, the core's included; `occupancies` are [spin, orbital].
    """

    energy: float
    strings: Subspace
    amplitudes: Array
    occupancies: Array


@dataclass
class Loop:
    """Where the loop stands after some iterations.

    `iterations` has a report of each; `occupancies` and `carryover` are what the next one begins with, None
    before the first. `best` is the state of lowest energy so far.
    """

    random: np.random.Generator
    iterations: list[dict[str, Any]] = field(default_factory=list)
    occupancies: Array | None = None
    carryover: Subspace = (np.array([], np.int64), np.array([], np.int64))
    best: SubspaceState | None = None
    converged: bool = False


def check_problem(integrals: Integrals, options: SqdOptions) -> None:
    """Refuse what configuration recovery cannot be done for; also where qiskit-addon-sqd is missing."""
    for name in NEEDED:
        _addon(name)
    if integrals.is_general:
        raise InputError(
            "FCIDUMP", "has general spin orbitals, and samples have orbitals of alpha and of beta",
            "give integrals over orbitals of each spin",
        )  # fmt: skip
    if integrals.n_orbitals > MOST_ORBITALS:
        problem = f"has {integrals.n_orbitals} orbitals"
        raise InputError("FCIDUMP", problem, f"give {MOST_ORBITALS} orbitals or fewer")
    if options.symmetrize_spin and integrals.n_alpha != integrals.n_beta:
        raise InputError(
            "--symmetrize-spin", f"needs equal electrons, not {integrals.n_alpha} and {integrals.n_beta}",
            "leave it out",
        )  # fmt: skip


class Recovery:
    """Makes the subspaces of each iteration from samples, and learns from their ground states.

    Rank 0 alone has one.
    """

    def __init__(self, samples: Bitstrings, integrals: Integrals, options: SqdOptions, loop: Loop) -> None:
        self.loop = loop
        self._options = options
        self._n_orbitals = integrals.n_orbitals
        self._electrons = integrals.n_alpha, integrals.n_beta
        self._samples = samples
        self._policy = _addon("fermion").StandardPolicy(carryover_threshold=options.carryover_threshold)

    @property
    def is_done(self) -> bool:
        """Whether the loop ends here."""
        return self.loop.converged or len(self.loop.iterations) >= self._options.max_iterations

    def subspaces(self) -> list[Subspace]:
        """The subspaces of the next iteration, one a batch."""
        fermion, options = _addon("fermion"), self._options
        bits, probabilities = self._configurations()
        batches = _addon("subsampling").subsample(
            bits, probabilities, samples_per_batch=options.samples_per_batch,
            num_batches=options.num_batches, rand_seed=self.loop.random,
        )  # fmt: skip
        return [
            self._limited(
                fermion.batch_to_ci_strings(
                    batch, self._n_orbitals, *self.loop.carryover, symmetrize_spin=options.symmetrize_spin
                )
            )
            for batch in batches
        ]

    def learn(self, state: SubspaceState, report: dict[str, Any]) -> None:
        """Take in the state of lowest energy of an iteration; `report` says what else there was."""
        loop, options = self.loop, self._options
        energy_change = occupancies_change = None
        if loop.occupancies is not None:
            energy_change = abs(loop.iterations[-1]["energy_hartree"] - state.energy)
            occupancies_change = float(np.abs(loop.occupancies - state.occupancies).max())
            loop.converged = (
                energy_change < options.energy_tol and occupancies_change < options.occupancies_tol
            )
        # Energies of subspaces are upper bounds of the ground state's (Rayleigh-Ritz), so that
        # the lowest is the best.
        if loop.best is None or state.energy < loop.best.energy:
            loop.best = state
        changes = {"energy_change_hartree": energy_change, "occupancies_change": occupancies_change}
        loop.iterations.append({"energy_hartree": state.energy, **changes, **report})
        # A converged loop keeps the occupancies and the carry-over that its last iteration began with.
        if not loop.converged:
            loop.occupancies = state.occupancies
            loop.carryover = self._carried(state)

    def _configurations(self) -> tuple[Array, Array]:
        """Samples of the right electrons, or all of them once occupancies are known to recover them by."""
        # qiskit-addon-sqd has the last orbital first, and alpha in the right half.
        bits, weights = self._samples.bits[:, ::-1], self._samples.weights
        probabilities = weights / weights.sum()
        if self.loop.occupancies is not None:
            alpha, beta = self.loop.occupancies
            state: tuple[Array, Array] = _addon("configuration_recovery").recover_configurations(
                bits, probabilities, (alpha, beta), *self._electrons, rand_seed=self.loop.random
            )
            return state
        right, left = self._electrons
        bits, probabilities = _addon("subsampling").postselect_by_hamming_right_and_left(
            bits, probabilities, hamming_right=right, hamming_left=left
        )
        if not len(bits):
            raise InputError(
                self._samples.path, f"holds no sample of {right} alpha and {left} beta electrons",
                "give more samples, with alpha's bits on the right",
            )  # fmt: skip
        return bits, probabilities

    def _limited(self, strings: Subspace) -> Subspace:
        """Distinct strings, at most `max_dim` a spin: the first ones, which matter most. They rise."""

        def few(values: Array) -> Array:
            _, first = np.unique(values, return_index=True)
            return np.sort(values[np.sort(first)][: self._options.max_dim])

        alpha, beta = strings
        return few(alpha), few(beta)

    def _carried(self, state: SubspaceState) -> Subspace:
        """The strings of the large amplitudes, those of most weight first."""
        fermion = _addon("fermion")
        wave_function = fermion.SCIState(state.amplitudes, *state.strings, self._n_orbitals, self._electrons)
        result = fermion.SCIResult(state.energy, wave_function, tuple(state.occupancies))
        carried: Subspace = self._policy.select_carryover(
            result, symmetrize_spin=self._options.symmetrize_spin
        )
        return carried


def _addon(name: str) -> Any:
    """A module of qiskit-addon-sqd."""
    try:
        return import_module(f"qiskit_addon_sqd.{name}")
    except ImportError as error:
        raise InputError(
            "sqd",
            f"needs qiskit-addon-sqd ({error})",
            "install it with: pip install 'tnplan[sqd]'",
            topic="installation",
        ) from None


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


class RankGroups:
    """All ranks in as many groups as there are batches, or ranks if those are fewer; collective.

    Subspaces are dealt to the groups in turn; all ranks of a group diagonalize one together.
    """

    def __init__(self, rank: Rank, n_batches: int) -> None:
        self._rank = rank
        self.count = min(n_batches, rank.world.size)
        self._owners = [number * self.count // rank.world.size for number in range(rank.world.size)]
        self._number = self._owners[rank.world.rank]
        self._group: Communicator = rank.world
        ranks: Communicator = rank.world
        if rank.world.size > 1:
            self._group = rank.world.split(self._number, rank.world.rank)
            ranks = rank.chosen.ranks.split(self._number, rank.world.rank)
        self._chosen = solver_device(rank, ranks)

    def lowest(
        self, subspaces: Sequence[Subspace], problem: SolveProblem
    ) -> tuple[SubspaceState | None, list[float]]:
        """The ground state of lowest energy, on rank 0 alone, and the energies of all subspaces.

        Collective. AgreedError where a subspace cannot be diagonalized.
        """
        mine: dict[int, SubspaceState | None] = {}

        def solved() -> None:
            # Invariant: subspace k is solved by group k mod the number of groups; `best %
            # count` below relies on it.
            for number in range(self._number, len(subspaces), self.count):
                mine[number] = self._solve(subspaces[number], problem)

        agree(self._rank.world, solved)
        own = {number: state.energy for number, state in mine.items() if state is not None}
        energies: dict[int, float] = {}
        for gathered in self._rank.world.gather_objects(own):
            energies.update(gathered)
        # In the order of subspaces: ties go to the first on every rank, whatever group answered first.
        ordered = [energies[number] for number in range(len(subspaces))]
        best = int(np.argmin(ordered))
        return self._on_first(mine.get(best), best % self.count), ordered

    def _on_first(self, state: SubspaceState | None, group: int) -> SubspaceState | None:
        """The state that the first rank of a group holds, on rank 0."""
        world = self._rank.world
        owner = self._owners.index(group)
        if owner == 0:
            return state
        head = None
        if state is not None:
            head = state.energy, state.strings, state.occupancies, state.amplitudes.dtype
        energy, strings, occupancies, dtype = world.broadcast_object(head, owner)
        # Invariant: `exchange` is collective. Amplitudes go as they are in memory, and every
        # other rank calls it with nothing to send or receive.
        if world.rank == owner:
            assert state is not None
            world.exchange([(0, np.ascontiguousarray(state.amplitudes).reshape(-1))], [])
        elif world.rank == 0:
            flat = np.empty(len(strings[0]) * len(strings[1]), dtype)
            world.exchange([], [(owner, flat)])
            amplitudes = flat.reshape(len(strings[0]), len(strings[1]))
            return SubspaceState(energy, strings, amplitudes, occupancies)
        else:
            world.exchange([], [])
        return None

    def _solve(self, subspace: Subspace, problem: SolveProblem) -> SubspaceState | None:
        """The ground state of a subspace, on the first rank of the group; collective over the group."""
        integrals = problem.integrals
        alpha, beta = (values.tolist() for values in subspace)
        space = choose_space(integrals, alpha, beta, None)
        with self._rank.on_stream():
            setup = set_up(self._rank, problem, space, self._chosen, self._group, 1)
            solution = solve(
                setup.hamiltonian, integrals, criteria=setup.criteria, penalty=problem.penalty,
                backend=setup.backend,
            )  # fmt: skip
        if not solution.converged:
            raise InputError(
                "sqd", f"a diagonalization did not converge in {solution.steps} steps",
                "allow more steps, or a larger residual",
            )  # fmt: skip
        if self._group.rank:
            return None
        state = solution.states[0]
        occupancies = np.array(occupations(setup.hamiltonian, state))
        return SubspaceState(float(solution.energies[0]), subspace, state, occupancies)


# The loop on disk after an iteration, so that an interrupted one goes on with the same numbers.
#
# Changelog of `tnplan.sqd.checkpoint`:
# 1 (2026-11-26): first version.
# 2 (2026-11-29): as `tnplan.common.checkpoint`. Version 1 is refused.


class LoopCheckpoint(CheckpointFile):
    """The checkpoint of one run."""

    FORMAT, VERSION = "tnplan.sqd.checkpoint", 2
    ARRAYS = (
        "occupancies", "carryover_alpha", "carryover_beta", "best_alpha", "best_beta", "best_amplitudes",
        "best_occupancies",
    )  # fmt: skip
    JOB, OTHERS = "run", "integrals, samples or options"

    def write(self, loop: Loop) -> None:
        """Replace the file; the loop has been through an iteration."""
        best = loop.best
        assert best is not None
        assert loop.occupancies is not None
        document = {
            "iterations": loop.iterations, "best_energy_hartree": best.energy,
            "random": loop.random.bit_generator.state,
        }  # fmt: skip
        self.replace(
            document, loop.occupancies, *loop.carryover, *best.strings, best.amplitudes, best.occupancies
        )

    def read(self, resume: bool) -> Loop | None:
        """The loop to go on from; None where no checkpoint stands. Refuses one of another run."""
        return self.restored(resume, _loop)


def _loop(document: dict[str, Any], values: dict[str, Array]) -> Loop:
    """The loop of what a checkpoint holds; ValueError where parts do not fit each other."""
    # The state of the bit generator is what makes the resumed loop draw the same numbers; the seed
    # here is replaced.
    random = np.random.default_rng(0)
    random.bit_generator.state = document["random"]
    alpha, beta, amplitudes = (values[f"best_{name}"] for name in ("alpha", "beta", "amplitudes"))
    occupancies = values["occupancies"], values["best_occupancies"]
    fits = amplitudes.shape == (*alpha.shape, *beta.shape) and occupancies[0].shape == occupancies[1].shape
    if not (fits and all(np.isfinite(numbers).all() for numbers in values.values())):
        raise ValueError
    iterations = list(document["iterations"])
    float(iterations[-1]["energy_hartree"])
    best = SubspaceState(float(document["best_energy_hartree"]), (alpha, beta), amplitudes, occupancies[1])
    carryover = values["carryover_alpha"], values["carryover_beta"]
    return Loop(random, iterations, occupancies[0], carryover, best)
