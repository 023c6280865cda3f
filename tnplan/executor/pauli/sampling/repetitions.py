"""Independent repetitions of a propagation that resamples its terms, each on a thread or a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from tnplan.circuits.observables.pauli_sum import PauliSum
from tnplan.common.checks import check_choice, check_count
from tnplan.common.errors import InputError
from tnplan.executor.pauli.algebra.expectation import overlap, value_in
from tnplan.executor.pauli.algebra.first_steps import after_first_steps
from tnplan.executor.pauli.algebra.gates import Clifford, PauliStep, Rotation, simple_steps
from tnplan.executor.pauli.algebra.states import ProductState, State
from tnplan.executor.pauli.cuda.terms import GpuTerms
from tnplan.executor.pauli.propagate import Propagator, prepared
from tnplan.executor.pauli.sampling.echo import EchoParts
from tnplan.executor.pauli.sampling.resampling import StratifiedResampler, letter_factor
from tnplan.executor.pauli.terms.protocol import Terms
from tnplan.executor.pauli.terms.sharded import ShardedTerms
from tnplan.executor.pauli.terms.truncation import Truncation

BY = {"magnitude": 1, "letters": 1, "square": 2}
"""In proportion to what terms stay: the power of magnitudes."""
MOST_SEED = 2**63 - 1
Found = TypeVar("Found")
"""What is read from the terms at the end."""


@dataclass(frozen=True)
class MonteCarlo:
    """Resample the terms where they would pass `Truncation.max_terms`, in independent repetitions.

    Parameters
    ----------
    repetitions : int
        How many, 2 or more; their mean is the estimate.
    seed : int
        Repetition r depends on the seed and r alone.
    by : {"magnitude", "letters", "square"}
        In proportion to what small terms stay. By magnitude every value is unbiased, echoes too. By letters
        too: every letter X or Y takes most of a word's weight, which has less noise in states of 0 and 1. By
        square is for echoes (docs/explanation/pauli.md): the noise is far smaller, and the value is biased,
        since words that are resampled apart do not interfere.

    Raises
    ------
    InputError
        For values that cannot be.

    Examples
    --------
    >>> tnplan.MonteCarlo(repetitions=8, seed=3).by
    'magnitude'
    """

    repetitions: int = 16
    seed: int = 0
    by: str = "magnitude"

    def __post_init__(self) -> None:
        object.__setattr__(self, "repetitions", check_count("--repetitions", self.repetitions, 2))
        object.__setattr__(self, "seed", check_count("--seed", self.seed, 0, MOST_SEED))
        check_choice("--resample-by", self.by, BY)


class Repetition(NamedTuple):
    """One repetition: its value, how often terms were resampled, and the most terms at any time."""

    value: float
    resampled: int
    largest: int


class LinearTask(NamedTuple):
    """The value of one sum after steps, which is linear in the coefficients."""

    steps: Sequence[PauliStep]
    start: PauliSum
    state: str | State | None
    device: str = "cpu"

    @property
    def letter_factor(self) -> float:
        """By what a letter X or Y multiplies the weight of a word, where letters are looked at."""
        return letter_factor(np.array([step.angle for step in self.steps if isinstance(step, Rotation)]))

    def run(self, most: int, resampler: StratifiedResampler) -> Repetition:
        """One repetition with at most so many terms."""

        def value(terms: Terms) -> complex:
            if self.state is None or isinstance(self.state, str):
                return terms.in_bits(self.state)
            if isinstance(self.state, ProductState):
                return terms.in_product(self.state.bloch)
            return value_in(terms.local_terms(), self.state)

        found, largest = _resampled(self.steps, self.start, most, resampler, self.device, value)
        return Repetition(float(found.real), resampler.events, largest)


class EchoTask(NamedTuple):
    """tr(A V^dagger A V) / 2^n: `back` gives A, and the middle V is linear in the second A.

    By magnitudes the two are independent samples, and the value is unbiased. By squares they are the same.
    """

    back: Sequence[PauliStep]
    start: PauliSum
    middle: Sequence[PauliStep]
    device: str = "cpu"

    def run(self, most: int, resampler: StratifiedResampler) -> Repetition:
        """One repetition with at most so many terms."""
        half, largest = _resampled(self.back, self.start, most, resampler, self.device, local_terms)
        other, linear = half, StratifiedResampler(resampler.random)
        if resampler.events and resampler.power == 1:
            other, again = _resampled(self.back, self.start, most, resampler, self.device, local_terms)
            largest = max(largest, again)
        most = max(most, other.n_terms)
        turned, grown = _resampled(self.middle, other, most, linear, self.device, local_terms)
        value = overlap(half, turned)
        return Repetition(float(value.real), resampler.events + linear.events, max(largest, grown))


def linear_task(
    steps: Sequence[PauliStep], observable: PauliSum, state: str | State | None, device: str = "cpu",
    *, keep_cliffords: bool = False,
) -> LinearTask:  # fmt: skip
    """What each repetition does for a value that is linear in the coefficients.

    Where letters are looked at, `keep_cliffords`: words are then those of the circuit's own qubits. First
    steps on one qubit each go into the state: what the last terms would be split for is then exact.
    """
    left, turned = after_first_steps(simple_steps(steps), state, observable.n_qubits)
    return LinearTask(*prepared(left, observable, keep_cliffords), turned, device)


def echo_task(parts: EchoParts, observable: PauliSum, device: str = "cpu") -> EchoTask:
    """What each repetition does for an echo of `observable`."""
    back, start = prepared(parts.back, observable, keep_cliffords=False)
    keep = any(isinstance(step, Clifford) for step in parts.middle)
    middle, _ = prepared(parts.middle, observable, keep_cliffords=True) if keep else (parts.middle, None)
    return EchoTask(back, start, middle, device)


def repetition(task: LinearTask | EchoTask, plan: MonteCarlo, most: int, number: int) -> Repetition:
    """Repetition `number`; the same wherever and with whatever others it runs."""
    random = np.random.default_rng(np.random.SeedSequence(plan.seed, spawn_key=(number,)))
    factor = task.letter_factor if isinstance(task, LinearTask) and plan.by == "letters" else 1.0
    return task.run(most, StratifiedResampler(random, BY[plan.by], factor))


def check_sampling(observable: PauliSum, truncation: Truncation) -> int:
    """The terms that a repetition may have; refuses what resampling cannot do."""
    if truncation.max_terms is None:
        raise InputError("--repetitions", "need a limit of terms", "give --max-terms")
    if Truncation(max_terms=truncation.max_terms, every=truncation.every) != truncation:
        raise InputError("--repetitions", "resample terms and cut none", "leave the cuts out")
    if np.iscomplexobj(observable.coefficients):
        raise InputError("--repetitions", "take real coefficients", "give the two parts one by one")
    return truncation.max_terms


def local_terms(terms: Terms) -> PauliSum:
    """The terms themselves, of a lone rank."""
    return terms.local_terms()


def _resampled(
    steps: Sequence[PauliStep], start: PauliSum, most: int, resampler: StratifiedResampler, device: str,
    read: Callable[[Terms], Found],
) -> tuple[Found, int]:  # fmt: skip
    """What is read from at most `most` terms after steps, and the most terms that there were."""
    terms = GpuTerms(start) if device == "gpu" else ShardedTerms(start)
    try:
        Propagator(terms, Truncation(max_terms=most), resampler=resampler).run(steps)
        grown = terms.ledger.record().grown
        return read(terms), max((start.n_terms, *grown))
    finally:
        terms.close()
