"""Where the vectors of a solve lie: all on this CPU, or rows on every rank, on its CPU or its GPU.

Knows operators, ranks and their rows; not how a solve goes on. Whole states are host arrays that rank 0 has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.protocols.communicator import Communicator, agree, messages
from tnplan.executor.sbd.lists.qubit_hamiltonian import QubitHamiltonian
from tnplan.executor.sbd.properties.spin_square import PenalizedHamiltonian, SpinTarget
from tnplan.executor.sbd.sigma.distributed import DistributedHamiltonian, DistributedSector, HamiltonianRows
from tnplan.executor.sbd.sigma.product_hamiltonian import ProductHamiltonian
from tnplan.executor.sbd.sigma.sector_hamiltonian import BlockedOperator, SectorHamiltonian
from tnplan.executor.sbd.solver.davidson import Operator
from tnplan.executor.sbd.solver.initial_guess import (
    WIDTH,
    Hamiltonian,
    LowDeterminants,
    LowStates,
    SparseState,
    lowest_determinants,
    lowest_of_all,
    lowest_states,
    random_rows,
)

Array = Any
Host = NDArray[Any]
Result = TypeVar("Result")


class VectorBackend(Protocol):
    """Where vectors lie. All calls are collective over the ranks, of which rank 0 is `first`."""

    first: bool
    target: SpinTarget | None
    """The spin that a penalty of the operator leaves alone, where there is one."""

    @property
    def parities(self) -> tuple[int, ...]:
        """Those that the states looked for may have."""

    def operator(self, dtype: str) -> Operator:
        """The operator that is diagonalized, in a precision; one at a time."""

    def energies(self, states: list[tuple[Array, int]]) -> Host:
        """Expectation values of the Hamiltonian without the penalty, by the operator made last."""

    def spin_squares(self, states: list[tuple[Array, int]]) -> Host:
        """Expectation values of S^2, by the operator made last, which has a penalty."""

    def total(self, values: Host) -> Host:
        """The sum over the ranks of small arrays."""

    def lowest(self, n_roots: int) -> LowStates:
        """The lowest states among the determinants of least energy, of which rank 0 knows the values."""

    def start(self, state: SparseState, low: LowDeterminants, spread: float, seed: int) -> Host:
        """What this rank holds of a sparse state plus a random vector of the norm `spread`."""

    def random(self, low: LowDeterminants, seed: int, width: float) -> Host:
        """What this rank holds of a random vector of norm 1; see `random_rows`."""

    def local(self, state: Host | None) -> Host:
        """What this rank holds of a whole state that rank 0 has."""

    def put(self, rows: Host, dtype: str) -> Array:
        """What this rank holds of a state, as the operator of that precision takes it."""

    def collect(self, vector: Array) -> Host | None:
        """The whole state on rank 0."""

    def on_first(self, work: Callable[[], Result]) -> Result:
        """Do something on rank 0 and hand what it gives to all; all refuse the input where it does."""


class _StartVectors:
    """What both backends do to start: the same on any number of ranks."""

    _hamiltonian: Hamiltonian
    target: SpinTarget | None = None

    @property
    def parities(self) -> tuple[int, ...]:
        """Those that the states looked for may have."""
        present = self._hamiltonian.parities
        return present if self.target is None else self.target.parities(present)

    def _from_all(self, value: Result) -> list[Result]:
        """The values of all ranks."""
        raise NotImplementedError

    def total(self, values: Host) -> Host:
        """The sum over the ranks of small arrays."""
        raise NotImplementedError

    def on_first(self, work: Callable[[], Result]) -> Result:
        """Do something on rank 0 and hand what it gives to all."""
        raise NotImplementedError

    def lowest(self, n_roots: int) -> LowStates:
        """The lowest states among the determinants of least energy on any rank."""
        h, target = self._hamiltonian, self.target
        low = lowest_of_all(self._from_all(lowest_determinants(h, n_roots, target)), n_roots)
        return self.on_first(lambda: lowest_states(h, n_roots, low, target))

    def start(self, state: SparseState, low: LowDeterminants, spread: float, seed: int) -> Host:
        """The local rows of a sparse state plus a random vector of the norm `spread`."""
        rows = self.random(low, seed, WIDTH)
        rows *= spread
        state.add_to(rows, self._hamiltonian.rows[0])
        return rows

    def random(self, low: LowDeterminants, seed: int, width: float) -> Host:
        """The local rows of a random vector of norm 1."""
        rows = random_rows(self._hamiltonian, low, self.target, seed, width)
        rows /= np.sqrt(self.total(np.array([np.vdot(rows, rows).real]))[0])
        return rows


class HostVectors(_StartVectors):
    """All of a state on this process's CPU."""

    first = True

    def __init__(self, hamiltonian: Hamiltonian) -> None:
        self._hamiltonian = hamiltonian

    def operator(self, dtype: str) -> Operator:
        """The Hamiltonian, with its penalty."""
        h = self._hamiltonian
        if isinstance(h, ProductHamiltonian | SectorHamiltonian) and dtype != "float64":
            h = h.as_type(dtype)
        if self.target is None:
            return h
        assert not isinstance(h, QubitHamiltonian)
        return PenalizedHamiltonian(h, self.target)

    def energies(self, states: list[tuple[Array, int]]) -> Host:
        """Expectation values of H."""
        h = self._hamiltonian
        return np.array([np.vdot(state, h.apply(state, parity)).real for state, parity in states])

    def spin_squares(self, states: list[tuple[Array, int]]) -> Host:
        """Expectation values of S^2."""
        h = self._hamiltonian
        assert not isinstance(h, QubitHamiltonian)
        return np.array([np.vdot(state, h.apply_spin_square(state)).real for state, _ in states])

    def total(self, values: Host) -> Host:
        """The values."""
        return values

    def _from_all(self, value: Result) -> list[Result]:
        return [value]

    def local(self, state: Host | None) -> Host:
        """The whole state."""
        assert state is not None
        return state

    def put(self, rows: Host, dtype: str) -> Array:
        """The state in that precision."""
        return np.asarray(rows, rows.dtype if rows.dtype.kind == "c" else dtype)

    def collect(self, vector: Array) -> Host | None:
        """The vector itself."""
        return np.asarray(vector)

    def on_first(self, work: Callable[[], Result]) -> Result:
        """Do it."""
        return work()


class DistributedVectors(_StartVectors):
    """Rows of a state on every rank, where `make(dtype)` puts the rows of H."""

    def __init__(
        self, hamiltonian: Hamiltonian, ranks: Communicator,
        make: Callable[[str], HamiltonianRows | BlockedOperator], gathers: bool = True,
    ) -> None:  # fmt: skip
        """`hamiltonian` has the tables of all rows and makes this rank's; see `DistributedHamiltonian`."""
        self._hamiltonian, self._partition, self._ranks = hamiltonian, hamiltonian.partition, ranks
        self._make, self._gathers = make, gathers
        self._dtype = "complex128" if hamiltonian.is_complex else "float64"
        self._rows: Any = None
        self._operator: Any = None
        self.first = ranks.rank == 0

    def operator(self, dtype: str) -> Operator:
        """H over the ranks; the one before is given up first, so that there are never two."""
        self._rows = self._operator = None
        self._rows = self._make(dtype)
        if not isinstance(self._rows, BlockedOperator):
            self._operator = DistributedHamiltonian(self._rows, self._partition, self._ranks, self._gathers)
        elif self._ranks.size > 1:
            self._operator = DistributedSector(self._rows, self._partition, self._ranks)
        else:
            # All blocks are here: an operator already.
            self._operator = self._rows
        return self._operator if self.target is None else PenalizedHamiltonian(self._operator, self.target)

    def energies(self, states: list[tuple[Array, int]]) -> Host:
        """Expectation values of H."""
        return self._expectations(states, self._operator.apply)

    def spin_squares(self, states: list[tuple[Array, int]]) -> Host:
        """Expectation values of S^2."""
        return self._expectations(states, lambda state, _: self._operator.apply_spin_square(state))

    def _expectations(self, states: list[tuple[Array, int]], apply: Callable[[Array, int], Array]) -> Host:
        products = [state.conj() * apply(state, parity) for state, parity in states]
        return self.total(np.array([float(product.sum().real) for product in products]))

    def total(self, values: Host) -> Host:
        """The sum over the ranks, in their order."""
        return np.asarray(sum(self._ranks.gather_objects(values)))

    def _from_all(self, value: Result) -> list[Result]:
        return list(self._ranks.gather_objects(value))

    def local(self, state: Host | None) -> Host:
        """Rank 0 sends every rank its rows."""
        ranks, shares, row = self._ranks, self._partition, self._hamiltonian.shape[1:]
        if state is not None and self.first:
            full_state = np.ascontiguousarray(state, self._dtype)
            ranks.exchange(self._parts(full_state), [])
            return full_state[slice(*shares.rows(0))]
        rows = np.empty((shares.count(ranks.rank), *row), self._dtype)
        if rows.size:
            ranks.exchange([], messages(0, [rows]))
        return rows

    def put(self, rows: Host, dtype: str) -> Array:
        """The rows where the operator made last takes them."""
        return self._rows.put(rows)

    def collect(self, vector: Array) -> Host | None:
        """Rank 0 receives the rows of all ranks."""
        ranks, shares = self._ranks, self._partition
        rows = np.ascontiguousarray(self._rows.get(vector), self._dtype)
        if not self.first:
            if rows.size:
                ranks.exchange(messages(0, [rows]), [])
            return None
        full_state = np.empty(self._hamiltonian.shape, self._dtype)
        full_state[slice(*shares.rows(0))] = rows
        ranks.exchange([], self._parts(full_state))
        return full_state

    def _parts(self, state: Host) -> list[tuple[int, Host]]:
        """The rows of a state that other ranks hold, as messages."""
        rows = self._partition.rows
        peers = range(1, self._ranks.size)
        return [message for peer in peers for message in messages(peer, [state[slice(*rows(peer))]])]

    def on_first(self, work: Callable[[], Result]) -> Result:
        """Do it on rank 0."""
        value = agree(self._ranks, lambda: work() if self.first else None)
        result: Result = self._ranks.broadcast_object(value, 0)
        return result
