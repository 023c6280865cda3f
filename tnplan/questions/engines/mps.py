"""Questions answered by a matrix product state: quimb applies the gates, and the values are read from its
sites.

The state is sum_x A_0[x_0] A_1[x_1] ... A_{n-1}[x_{n-1}] |x> with a matrix A_q[x] of at most `max_bond` rows
and columns for each qubit q (Schollwoeck, Ann. Phys. 326, 96, 2011). A gate on two qubits multiplies a bond
by the gate's operator Schmidt rank; a singular value decomposition then drops what is below the cutoff.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from math import sqrt
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.gates import PAULI_MATRICES, letters_of
from tnplan.circuits.known_qubits import acting_gates
from tnplan.circuits.pauli_sum import PauliSum
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.jobs.job import Job, Needs, Rank, run_job
from tnplan.questions.engines.task_list import (
    ESTIMATE,
    EXACT,
    STATISTICAL,
    Outcome,
    TaskCheckpoint,
    counts_of,
    series,
)
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import (
    Amplitudes,
    CircuitQuery,
    ExpectationValues,
    OpenAmplitudes,
    Overlap,
    Probabilities,
    ReducedDensityMatrix,
    Sample,
)

EXACT_CUTOFF = {"fp64": 1e-30, "fp32": 1e-14}
"""The discarded weight, relative to the norm, of a decomposition that drops rounding errors alone: the square
of a unit in the last place or some. More would drop small gates that follow each other, and their sum."""
SHOT_BYTES = 256 << 20
"""Memory of the left vectors of shots that are drawn at once."""
TELL_S = 1.0
DECOMPOSITION_S = 2e-9
"""Seconds of the singular values of a matrix in the cube of its rows, on a fast core."""
CHECKED_GROWTH = 1.25
"""A bond that grew by so much since memory was counted last has the memory of all sites counted."""


def why_not_installed() -> str | None:
    """What to install for this method; None where it is there."""
    return None if find_spec("quimb") else "needs quimb: pip install 'tnplan[mps]'"


@dataclass(frozen=True, eq=False)
class Sites:
    """A matrix product state of norm 1 whose sites are right-canonical.

    `tensors[k]` is [left bond, 2, right bond]; `position[q]` is the site of qubit q. `fidelity` is the
    squared norm that truncation left: an estimate of |<exact|state>|^2, since what each truncation drops is
    nearly orthogonal to what others drop (Zhou, Stoudenmire and Waintal, PRX 10, 041038, 2020). `xp` is
    NumPy or CuPy.
    """

    tensors: list[Any]
    position: tuple[int, ...]
    fidelity: float
    xp: ModuleType

    # Invariant: sum_x A_k[x] A_k[x]^dagger = 1 for every site, so that what stands to the right of the last
    # site that a value depends on is the unit matrix.

    @property
    def max_bond(self) -> int:
        """The largest bond."""
        return max(tensor.shape[2] for tensor in self.tensors)

    def amplitudes(self, bits: Array) -> Array:
        """<bits|psi> for uint8 [string, qubit]."""
        rows = self.xp.ones((len(bits), 1), self.tensors[0].dtype)
        for tensor, column in zip(self.tensors, self._columns(bits), strict=True):
            rows = self._times_site(rows, tensor, column)
        return self._on_host(rows[:, 0])

    def sampled(self, shots: int, generator: np.random.Generator, say: Callable[[int], None]) -> Array:
        """Independent strings, uint8 [shot, qubit]: each qubit given all before it."""
        at_once = max(1, SHOT_BYTES // (3 * self.tensors[0].dtype.itemsize * self.max_bond))
        drawn = np.zeros((shots, len(self.tensors)), np.uint8)
        say(0)
        for first in range(0, shots, at_once):
            rows = drawn[first : first + at_once]
            self._draw(rows, generator)
            say(first + len(rows))
        return drawn[:, list(self.position)]

    def _draw(self, drawn: Array, generator: np.random.Generator) -> None:
        """Fill uint8 [shot, site]; shots that agree so far share their left vector."""
        xp = self.xp
        left, of_shot = xp.ones((1, 1), self.tensors[0].dtype), np.zeros(len(drawn), np.int64)
        for site, tensor in enumerate(self.tensors):
            # p(x_k | x_before) is |left A_k[x_k]|^2, all sites to the right being right-canonical.
            branches = xp.tensordot(left, tensor, axes=(1, 0))
            weights = self._on_host((abs(branches) ** 2).sum(axis=2))
            ones = generator.random(len(drawn)) * weights.sum(axis=1)[of_shot] >= weights[of_shot, 0]
            drawn[:, site] = ones
            distinct, of_shot = np.unique(2 * of_shot + ones, return_inverse=True)
            left = branches.reshape(-1, tensor.shape[2])[xp.asarray(distinct)]
            left = left / xp.linalg.norm(left, axis=1, keepdims=True)

    def density(self, qubits: Sequence[int]) -> Array:
        """The density matrix of some qubits, complex [2^m, 2^m], the first qubit most significant."""
        xp, sites = self.xp, sorted(self.position[qubit] for qubit in qubits)
        # [open rows, open columns, bond of the state, bond of its conjugate]
        block = xp.ones((1, 1, 1, 1), self.tensors[0].dtype)
        for site in range(sites[-1] + 1):
            tensor = self.tensors[site]
            half = xp.einsum("abij,ipk->abpjk", block, tensor)
            if site not in sites:
                block = xp.einsum("abpjk,jpl->abkl", half, tensor.conj())
                continue
            opened = xp.einsum("abpjk,jql->apbqkl", half, tensor.conj())
            rows, _, columns, _, right, _ = opened.shape
            block = opened.reshape(2 * rows, 2 * columns, right, right)
        matrix = self._on_host(xp.einsum("abkk->ab", block))
        # Sites stand in the order of the chain, the question's qubits in its own.
        m = len(sites)
        axes = [sites.index(self.position[qubit]) for qubit in qubits]
        return matrix.reshape((2,) * 2 * m).transpose(*axes, *(m + axis for axis in axes)).reshape(2**m, -1)

    def probabilities(self, qubits: Sequence[int]) -> Array:
        """The probability of every value of some qubits, [2] * m in their order."""
        xp, sites = self.xp, sorted(self.position[qubit] for qubit in qubits)
        block = xp.ones((1, 1, 1), self.tensors[0].dtype)  # [value, bond of the state, bond of its conjugate]
        for site in range(sites[-1] + 1):
            tensor = self.tensors[site]
            half = xp.einsum("aij,ipk->apjk", block, tensor)
            is_open = site in sites
            block = xp.einsum("apjk,jpl->apkl" if is_open else "apjk,jpl->akl", half, tensor.conj())
            block = block.reshape(-1, *block.shape[-2:])
        table = self._on_host(xp.einsum("akk->a", block)).real.reshape((2,) * len(sites))
        return table.transpose([sites.index(self.position[qubit]) for qubit in qubits])

    def expectations(self, sums: Sequence[PauliSum]) -> Array:
        """The value of each sum of Pauli words."""
        xp, lefts = self.xp, [self.xp.ones((1, 1), self.tensors[0].dtype)]
        known: dict[tuple[int, int], complex] = {}

        def value(x: int, z: int) -> complex:
            letters = {self.position[q]: PAULI_MATRICES[letter] for q, letter in letters_of(x, z).items()}
            if not letters:
                return 1.0
            first, last = min(letters), max(letters)
            while len(lefts) <= first:
                tensor = self.tensors[len(lefts) - 1]
                lefts.append(_through(xp, lefts[-1], tensor, tensor))
            block = lefts[first]
            for site in range(first, last + 1):
                tensor = acted = self.tensors[site]
                if site in letters:
                    letter = xp.asarray(letters[site].astype(tensor.dtype))
                    acted = xp.einsum("pq,iqk->ipk", letter, tensor)
                block = _through(xp, block, acted, tensor)
            return complex(xp.trace(block))

        for word in sorted({(x, z) for observable in sums for x, z, _ in observable.masks()}):
            known[word] = value(*word)
        return np.array([sum(c * known[x, z] for x, z, c in observable.masks()) for observable in sums])

    def overlap(self, other: Sites) -> complex:
        """<other|self>; both have the same order of qubits."""
        block = self.xp.ones((1, 1), self.tensors[0].dtype)
        for tensor, conjugated in zip(self.tensors, other.tensors, strict=True):
            block = _through(self.xp, block, tensor, conjugated)
        return complex(block[0, 0])

    def opened(self, fixed: dict[int, int], qubits: Sequence[int]) -> Array:
        """All amplitudes of some open qubits, complex [2] * m in their order; the others have fixed
        values."""
        xp, sites = self.xp, {site: qubit for qubit, site in enumerate(self.position)}
        rows, order = xp.ones((1, 1), self.tensors[0].dtype), []
        for site, tensor in enumerate(self.tensors):
            if sites[site] in fixed:
                rows = rows @ tensor[:, fixed[sites[site]]]
            else:
                order.append(sites[site])
                rows = xp.tensordot(rows, tensor, axes=(1, 0)).reshape(-1, tensor.shape[2])
        table = self._on_host(rows[:, 0]).reshape((2,) * len(order))
        return table.transpose([order.index(qubit) for qubit in qubits])

    def _columns(self, bits: Array) -> list[Array]:
        """The bits of each site."""
        columns = np.empty_like(bits)
        columns[:, list(self.position)] = bits
        return list(columns.T)

    def _times_site(self, rows: Any, tensor: Any, column: Array) -> Any:
        """Row k times the matrix of the site for the value `column[k]`."""
        result = self.xp.empty((len(rows), tensor.shape[2]), tensor.dtype)
        for value in (0, 1):
            chosen = self.xp.asarray(np.flatnonzero(column == value))
            result[chosen] = rows[chosen] @ tensor[:, value]
        return result

    def _on_host(self, array: Any) -> Array:
        return array.get() if self.xp is not np else array


def _through(xp: ModuleType, block: Any, tensor: Any, conjugated: Any) -> Any:
    """sum_x A[x]^T block B[x]^*: the block [bond, conjugate's bond] one site further to the right."""
    return xp.tensordot(xp.tensordot(block, tensor, axes=(0, 0)), conjugated.conj(), axes=((0, 1), (0, 1)))


def sites_after(
    pieces: Sequence[Sequence[Gate]], order: Sequence[int], options: QuestionOptions, rank: Rank
) -> Iterator[Sites]:
    """The state after each piece of the gates in turn, with qubit order[k] at site k."""
    n, n_gates = len(order), sum(map(len, pieces))
    xp: ModuleType = import_module("cupy" if rank.device.name == "gpu" else "numpy")
    begin = perf_counter()

    def report(number: int, bond: int) -> None:
        nonlocal begin
        if perf_counter() - begin > TELL_S:
            begin = perf_counter()
            rank.say(number, n_gates, f"gate {number} of {n_gates}, bond {bond}")

    position = tuple(sorted(range(n), key=order.__getitem__))
    for state in _evolved(pieces, position, options, xp, rank.memory_bytes, report):
        state.right_canonize()
        state.permute_arrays("lpr")
        # `state.arrays` is in another order than the sites.
        tensors = [state[site].data for site in range(max(n, 2))]
        tensors[0], tensors[-1] = tensors[0][None], tensors[-1][:, :, None]
        norm = float(xp.linalg.norm(tensors[0]))
        if n == 1:
            tensors = [xp.tensordot(tensors[0], tensors[1][:, 0], axes=(2, 0))]
        tensors[0] = tensors[0] / norm
        yield Sites(tensors, position, min(1.0, norm**2), xp)


def pilot_s(
    query: CircuitQuery, options: QuestionOptions, memory_bytes: float, limit_s: float
) -> float | None:  # fmt: skip
    """The seconds of all gates on a CPU; None where they take longer than `limit_s` or more than the
    memory."""
    import quimb.tensor  # noqa: F401  (its import is no part of the time)

    begin = perf_counter()

    def report(number: int, bond: int) -> None:
        if perf_counter() - begin > limit_s:
            raise TimeoutError

    # One gate between distant sites may take longer than all others: it is not begun.
    def begin_gate(state: Any, sites: Sequence[int]) -> None:
        if perf_counter() - begin + _gate_s(state, sites) > limit_s:
            raise TimeoutError

    position = tuple(sorted(range(query.n_qubits), key=query.chain[0].__getitem__))
    try:
        next(_evolved([query.acting.gates], position, options, np, memory_bytes, report, begin_gate))
    except (InputError, TimeoutError):
        return None
    return perf_counter() - begin


def _evolved(
    pieces: Sequence[Sequence[Gate]], position: Sequence[int], options: QuestionOptions, xp: ModuleType,
    memory_bytes: float, report: Callable[[int, int], None],
    begin_gate: Callable[[Any, Sequence[int]], None] | None = None,
) -> Iterator[Any]:  # fmt: skip
    """quimb's state after each piece of the gates, a copy, qubit q at site position[q].

    `report` gets the gate and the bond; `begin_gate` the state before a gate, and its sites.
    """
    import quimb.tensor as qtn

    n, dtype = len(position), options.dtype
    cutoff = EXACT_CUTOFF[options.precision] if options.cutoff is None else options.cutoff
    # A chain of one site is no matrix product for quimb: a qubit that no gate touches stands beside it.
    circuit = qtn.CircuitMPS(
        max(n, 2), max_bond=options.max_bond, cutoff=cutoff, dtype=dtype, convert_eager=False,
        gate_opts={"cutoff_mode": "rsum2"}, to_backend=None if xp is np else xp.asarray,
    )  # fmt: skip
    if xp is not np:
        circuit._psi.apply_to_arrays(xp.asarray)  # gates are converted one by one, the first state is not
    counted = 16
    check_memory(circuit._psi, 1, dtype, "circuit", memory_bytes)
    numbers = count()
    for piece in pieces:
        for gate in piece:
            number = next(numbers)
            matrix = xp.asarray(gate.matrix.astype(dtype).reshape((2,) * (2 * len(gate.qubits))))
            sites = [position[qubit] for qubit in gate.qubits]
            if begin_gate is not None:
                begin_gate(circuit._psi, sites)
            circuit.apply_gate_raw(matrix, sites)
            if len(sites) > 1:
                bond = max(circuit._psi.bond_size(k, k + 1) for k in range(min(sites), max(sites)))
                if bond > CHECKED_GROWTH * counted:
                    counted = bond
                    where = f"gate {gate.name} on {gate.qubits}"
                    check_memory(circuit._psi, bond, dtype, where, memory_bytes)
            report(number, counted)
        yield circuit.psi


def _gate_s(state: Any, sites: Sequence[int]) -> float:
    """An estimate of the seconds of a gate: quimb brings distant sites together and back by swaps."""
    crossed = range(min(sites), max(sites))
    return sum(2 * DECOMPOSITION_S * (2.0 * state.bond_size(k, k + 1)) ** 3 for k in crossed)


def check_memory(state: Any, bond: int, dtype: str, place: str, memory_bytes: float) -> None:
    """Refuse a state that outgrows the memory: its sites twice, and the decomposition of two of them."""
    item = np.dtype(dtype).itemsize
    needed = item * (2 * sum(array.size for array in state.arrays) + 6 * (2 * bond) ** 2)
    if needed > memory_bytes:
        raise InputError(
            place, f"needs bonds of extent {bond}, and {size_text(needed)} for the state",
            "give --max-bond, more memory, or another --method", topic="memory",
        )  # fmt: skip


def answer_by_mps(
    query: CircuitQuery, options: QuestionOptions, checkpoint: TaskCheckpoint | None
) -> Outcome:
    """The answer by a matrix product state, on one device."""
    seed = options.seed

    def work(rank: Rank, seed: int) -> Outcome:
        with rank.on_stream():
            order = query.chain[0]
            outcomes = []
            for sites in sites_after(query.pieces(query.acting.gates), order, options, rank):
                outcomes.append(_value(query, sites, order, options, rank, seed))
            outcome = series(outcomes) if query.stops else outcomes[0]
        outcome.details.update(
            device=rank.device.name, ranks=1, max_bond=sites.max_bond, fidelity_estimate=sites.fidelity
        )
        return outcome

    def prepare() -> int:
        return secrets.randbits(63) if seed is None else seed

    return run_job(Job(prepare=prepare, work=work, needs=lambda *_: Needs()), options)


def _value(
    query: CircuitQuery, sites: Sites, order: Sequence[int], options: QuestionOptions, rank: Rank, seed: int
) -> Outcome:
    """The value of a question, with what truncation may have changed."""
    question = query.question
    lost = 1 - sites.fidelity if options.max_bond is not None or options.cutoff is not None else 0.0
    if isinstance(question, Sample):
        drawn = sites.sampled(
            question.shots, np.random.default_rng(seed),
            lambda done: rank.say_steps(done, question.shots, "shot"),
        )  # fmt: skip
        return Outcome(
            counts_of(drawn, query.program), None, STATISTICAL,
            {"seed": seed, "shots": question.shots, "samples": "independent"},
        )  # fmt: skip
    error: Any = sqrt(max(lost, 0.0))  # the trace distance of two pure states of this fidelity
    value: Any
    if isinstance(question, ExpectationValues):
        value = sites.expectations(question.sums)
        if not any(np.iscomplexobj(observable.coefficients) for observable in question.sums):
            value = value.real
        # |Tr((rho - sigma) O)| <= 2 D(rho, sigma) |O|, and |O| is at most the sum of all |c|.
        error = 2 * error * np.array([np.abs(observable.coefficients).sum() for observable in question.sums])
        if question.is_single:
            value, error = value[0].item(), error[0].item()
    elif isinstance(question, Amplitudes):
        value = sites.amplitudes(question.bits)
        value = value[0].item() if question.is_single else value
        error *= sqrt(2)
    elif isinstance(question, OpenAmplitudes):
        value = sites.opened(question.fixed, question.open_qubits)
        error *= sqrt(2)
    elif isinstance(question, Overlap):
        (other,) = sites_after([acting_gates(question.other).gates], order, options, rank)
        value = sites.overlap(other)
        error = sqrt(2) * (error + sqrt(max(1 - other.fidelity, 0.0) if lost else 0.0))
    else:
        assert isinstance(question, Probabilities | ReducedDensityMatrix)
        is_table = isinstance(question, Probabilities)
        value = (sites.probabilities if is_table else sites.density)(question.qubits)
    is_exact = options.max_bond is None and options.cutoff is None
    return Outcome(value, 0.0 if is_exact else error, EXACT if is_exact else ESTIMATE)
