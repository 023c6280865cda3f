"""The ground state of lowest energy among the subspaces of one iteration, which groups of ranks diagonalize.

Knows ranks and solves; nothing of samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tnplan.common.errors import InputError
from tnplan.executor.device.protocols.communicator import Communicator, agree
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.basis.space import choose_space
from tnplan.executor.sbd.properties.measure import occupations
from tnplan.executor.sbd.solver.davidson import Criteria
from tnplan.executor.sbd.solver.memory_estimate import numbers_of, penalty_bytes
from tnplan.executor.sbd.solver.setup import keep_symmetry, set_up_solve
from tnplan.executor.sbd.solver.solve import SpinPenalty, solve
from tnplan.jobs.job import Rank
from tnplan.jobs.outputs.diagonalization_result import solver_device
from tnplan.jobs.sqd.recovery import Subspace, SubspaceState


@dataclass(frozen=True)
class Problem:
    """What is the same for all subspaces."""

    integrals: Integrals
    penalty: SpinPenalty | None
    criteria: Criteria


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
        self, subspaces: Sequence[Subspace], problem: Problem
    ) -> tuple[SubspaceState | None, list[float]]:
        """The ground state of lowest energy, on rank 0 alone, and the energies of all subspaces.

        Collective. AgreedError where a subspace cannot be diagonalized.
        """
        mine: dict[int, SubspaceState | None] = {}

        def solved() -> None:
            for number in range(self._number, len(subspaces), self.count):
                mine[number] = self._solve(subspaces[number], problem)

        agree(self._rank.world, solved)
        known = {number: state.energy for number, state in mine.items() if state is not None}
        energies: dict[int, float] = {}
        for part in self._rank.world.gather_objects(known):
            energies.update(part)
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

    def _solve(self, subspace: Subspace, problem: Problem) -> SubspaceState | None:
        """The ground state of a subspace, on the first rank of the group; collective over the group."""
        rank, integrals, penalty = self._rank, problem.integrals, problem.penalty
        alpha, beta = (values.tolist() for values in subspace)
        space = choose_space(integrals, alpha, beta, None)
        share = -(-len(alpha) * len(beta) // self._group.size) * numbers_of(integrals)
        taken_bytes = 0 if penalty is None else penalty_bytes(share)
        with rank.on_stream():
            setup = set_up_solve(
                integrals, space.basis, self._chosen, self._group, 1, problem.criteria,
                max(rank.memory_bytes - taken_bytes, 1), rank.threads,
            )  # fmt: skip
            keep_symmetry(setup, space)
            solution = solve(
                setup.hamiltonian, integrals, criteria=setup.criteria, penalty=penalty, backend=setup.backend
            )
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
