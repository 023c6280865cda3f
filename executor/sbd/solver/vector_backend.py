"""Where the vectors of a solve lie: all on this CPU, or rows on every rank, on its CPU or its GPU.

Knows operators, ranks and their rows; not how a solve goes on. Whole states are host arrays that rank 0 has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.protocols.communicator import Communicator, agree, messages
from tnplan.executor.sbd.basis.determinants import ListHamiltonian
from tnplan.executor.sbd.properties.spin_square import PenalizedHamiltonian
from tnplan.executor.sbd.sigma.distributed import DistributedHamiltonian, HamiltonianRows
from tnplan.executor.sbd.sigma.product_hamiltonian import ProductHamiltonian
from tnplan.executor.sbd.solver.davidson import Operator
from tnplan.executor.sbd.solver.initial_guess import (
    SparseState,
    count_at_start,
    lowest,
    lowest_determinants,
    lowest_of_list,
    lowest_states,
)

Array = Any
Host = NDArray[Any]
Result = TypeVar("Result")


class VectorBackend(Protocol):
    """Where vectors lie. All calls are collective over the ranks, of which rank 0 is `first`."""

    first: bool

    def operator(self, dtype: str) -> Operator:
        """The operator that is diagonalized, in a precision; one at a time."""

    def lowest(self, n_roots: int) -> list[tuple[Array, int]]:
        """Vectors to start from, in fp64 of the host, with their parities."""

    def local(self, state: Host | None) -> Host:
        """What this rank holds of a whole state that rank 0 has."""

    def put(self, part: Host, dtype: str) -> Array:
        """What this rank holds of a state, as the operator of that precision takes it."""

    def collect(self, vector: Array) -> Host | None:
        """The whole state on rank 0."""

    def on_first(self, work: Callable[[], Result]) -> Result:
        """Do something on rank 0 and hand what it gives to all; all refuse the input where it does."""


class HostVectors:
    """All of a state on this process's CPU."""

    first = True

    def __init__(
        self, hamiltonian: ProductHamiltonian | ListHamiltonian, penalized: PenalizedHamiltonian | None = None
    ) -> None:
        self._hamiltonian, self._penalized = hamiltonian, penalized

    def operator(self, dtype: str) -> Operator:
        """The Hamiltonian, with its penalty."""
        if self._penalized is not None:
            return self._penalized
        return self._hamiltonian.as_type(dtype) if dtype != "float64" else self._hamiltonian  # type: ignore[union-attr]

    def lowest(self, n_roots: int) -> list[tuple[Array, int]]:
        """The lowest states among the determinants of least energy."""
        h = self._hamiltonian
        if isinstance(h, ListHamiltonian):
            return lowest_of_list(h, n_roots)
        chosen, _ = lowest_determinants(h, n_roots, self._penalized)
        few = lowest_states(h, n_roots, chosen, self._penalized)
        return [(state.rows(0, *h.shape), state.parity) for state in few]

    def local(self, state: Host | None) -> Host:
        """The whole state."""
        assert state is not None
        return state

    def put(self, part: Host, dtype: str) -> Array:
        """The state in that precision."""
        return np.asarray(part, part.dtype if part.dtype.kind == "c" else dtype)

    def collect(self, vector: Array) -> Host | None:
        """The vector itself."""
        return np.asarray(vector)

    def on_first(self, work: Callable[[], Result]) -> Result:
        """Do it."""
        return work()


class DistributedVectors:
    """Rows of a state on every rank, where `make(dtype)` puts the rows of H."""

    def __init__(
        self, hamiltonian: ProductHamiltonian, ranks: Communicator, make: Callable[[str], HamiltonianRows],
        gathers: bool = True,
    ) -> None:  # fmt: skip
        """`hamiltonian` has the tables of all strings and this rank's rows; see `DistributedHamiltonian`."""
        self._hamiltonian, self._partition, self._ranks = hamiltonian, hamiltonian.partition, ranks
        self._make, self._gathers = make, gathers
        self._dtype = "complex128" if hamiltonian.integrals.is_complex else "float64"
        self._rows: Any = None
        self.first = ranks.rank == 0

    def operator(self, dtype: str) -> Operator:
        """H over the ranks; the one before is given up first, so that there are never two."""
        self._rows = None
        self._rows = self._make(dtype)
        return DistributedHamiltonian(self._rows, self._partition, self._ranks, self._gathers)

    def lowest(self, n_roots: int) -> list[tuple[Array, int]]:
        """The lowest states among the determinants of least energy on any rank."""
        h = self._hamiltonian
        found = self._ranks.gather_objects(lowest_determinants(h, n_roots))
        numbers, energies = (np.concatenate([part[side] for part in found]) for side in (0, 1))

        def states() -> list[SparseState]:
            return lowest_states(h, n_roots, numbers[lowest(energies, count_at_start(n_roots))])

        few: list[SparseState] = self.on_first(states)
        return [(state.rows(*h.rows, h.shape[1]), state.parity) for state in few]

    def local(self, state: Host | None) -> Host:
        """Rank 0 sends every rank its rows."""
        ranks, shares, n_beta = self._ranks, self._partition, self._hamiltonian.shape[1]
        if state is not None and self.first:
            whole = np.ascontiguousarray(state, self._dtype)
            ranks.exchange(self._parts(whole), [])
            return whole[slice(*shares.rows(0))]
        part = np.empty((shares.count(ranks.rank), n_beta), self._dtype)
        if part.size:
            ranks.exchange([], messages(0, [part]))
        return part

    def put(self, part: Host, dtype: str) -> Array:
        """The rows where the operator made last takes them."""
        return self._rows.put(part)

    def collect(self, vector: Array) -> Host | None:
        """Rank 0 receives the rows of all ranks."""
        ranks, shares = self._ranks, self._partition
        rows = np.ascontiguousarray(self._rows.get(vector), self._dtype)
        if not self.first:
            if rows.size:
                ranks.exchange(messages(0, [rows]), [])
            return None
        whole = np.empty(self._hamiltonian.shape, self._dtype)
        whole[slice(*shares.rows(0))] = rows
        ranks.exchange([], self._parts(whole))
        return whole

    def _parts(self, whole: Host) -> list[tuple[int, Host]]:
        """The rows of a state that other ranks hold, as messages."""
        rows = self._partition.rows
        peers = range(1, self._ranks.size)
        return [one for peer in peers for one in messages(peer, [whole[slice(*rows(peer))]])]

    def on_first(self, work: Callable[[], Result]) -> Result:
        """Do it on rank 0."""
        done = agree(self._ranks, lambda: work() if self.first else None)
        result: Result = self._ranks.broadcast_object(done, 0)
        return result
