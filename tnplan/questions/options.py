"""How a question is answered: the method, the noise, and how the job uses the machine; the same for all."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from tnplan.common.checks import check_choice, check_count, is_number
from tnplan.common.errors import InputError
from tnplan.executor.pauli.repetitions import MonteCarlo
from tnplan.executor.pauli.terms.truncation import Truncation
from tnplan.jobs.job_options import JobOptions, ResumableKeywords, check_keywords
from tnplan.jobs.statevector import DTYPES

METHODS = ("contraction", "statevector", "pauli", "mps", "stabilizer", "peps", "mpo")
"""The engines, by the names that `method` has for them."""
MOST_TRAJECTORIES = 10**9
LARGEST_BOND = 1 << 20
LEAST_FIDELITY = 0.99
"""Of a compressed state, where none is asked for."""


class QuestionKeywords(ResumableKeywords, total=False):
    """The keyword arguments of every question; `QuestionOptions` says what they mean."""

    method: str
    state: Any
    depolarizing: float
    trajectories: int | None
    truncation: Truncation | None
    monte_carlo: MonteCarlo | None
    max_bond: int | None
    cutoff: float | None
    error: float | None
    state_fidelity: float | None
    seed: int | None
    precision: str


def options_of(question: str, keywords: QuestionKeywords) -> QuestionOptions:
    """The options that a question is asked with.

    Raises
    ------
    TypeError
        For a keyword that is no option, as Python does for other calls.
    """
    known = dict.fromkeys((*QuestionOptions.__annotations__, *QuestionKeywords.__annotations__))
    check_keywords(question, keywords, known)
    return QuestionOptions.of(**keywords)


@dataclass(frozen=True)
class QuestionOptions(JobOptions):
    """The options of every question, with one meaning and one default each.

    Parameters
    ----------
    method : {"auto", "contraction", "statevector", "pauli", "mps", "stabilizer", "peps", "mpo"}
        The engine; "auto" takes the one that suits the circuit. "mps" (matrix product states) needs quimb,
        "stabilizer" (Clifford circuits) needs Stim. "peps" (a tensor for each qubit on the graph of the
        gates) and "mpo" (observables as matrix product operators, by quimb) are taken where named, and as
        `error` says.
    state : str, array or list of str, optional
        The state that the circuit begins with, as in `propagate`; default: all 0. A trace without one is the
        mean over all inputs.
    depolarizing : float
        The probability that, after a gate, one of the Pauli words other than I acts on its qubits.
    trajectories : int, optional
        Number of runs over which the state vector takes the mean, for a circuit that measures before its end
        or is noisy.
    truncation : Truncation, optional
        Which terms Pauli propagation drops.
    monte_carlo : MonteCarlo, optional
        Pauli propagation resamples terms past the truncation's `max_terms`, in repetitions.
    max_bond : int, optional
        The largest bond of a matrix product state, a matrix product operator or a PEPS. Default: no limit,
        which is exact.
    cutoff : float, optional
        The share of its squared norm that such a tensor network may lose with each gate. Default: only
        rounding errors.
    error : float, optional
        The largest error of expectation values, overlaps and traces that is wished for. "auto" then takes
        "mps", "mpo" or "peps" where nothing exact is quick: their bond is raised until the measured error is
        as small, or until the time or the memory ends. Default: they are taken only where
        nothing exact fits.
    state_fidelity : float, optional
        If the amplitudes of a state vector do not fit into the memory, they are stored in 16 or 8 bits for
        each real and imaginary part, with at least this estimated fidelity. 1: they are never stored so.
        Default: 0.99, and "auto" takes such a state only where no exact method answers.
    seed : int, optional
        Makes samples and trajectories the same in every run.
    precision : {"fp64", "fp32"}
        Precision of amplitudes and coefficients.
    output : path, optional
        A JSON file for the answer. Expectation values keep a checkpoint beside it.
    """

    method: str = "auto"
    state: Any = None
    depolarizing: float = 0.0
    trajectories: int | None = None
    truncation: Truncation | None = None
    monte_carlo: MonteCarlo | None = None
    max_bond: int | None = None
    cutoff: float | None = None
    error: float | None = None
    state_fidelity: float | None = None
    seed: int | None = None
    precision: str = "fp64"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("--method", self.method, ("auto", *METHODS))
        check_choice("--precision", self.precision, DTYPES)
        if not is_number(self.depolarizing) or not 0 <= self.depolarizing <= 1:
            raise InputError(
                "--depolarizing", f"probability is {self.depolarizing!r}", "give a number from 0 to 1"
            )
        if self.trajectories is not None:
            check_count("--trajectories", self.trajectories, 2, MOST_TRAJECTORIES)
        if self.truncation is not None and not isinstance(self.truncation, Truncation):
            raise InputError("truncation", f"is {self.truncation!r}", "give a tnplan.Truncation")
        if self.monte_carlo is not None and not isinstance(self.monte_carlo, MonteCarlo):
            raise InputError("monte_carlo", f"is {self.monte_carlo!r}", "give a tnplan.MonteCarlo")
        if self.monte_carlo is not None and self.seed is not None:
            raise InputError(
                "--seed", "is given together with monte_carlo, which has one", "leave one of them out"
            )
        if self.max_bond is not None:
            check_count("--max-bond", self.max_bond, 1, LARGEST_BOND)
        if self.cutoff is not None and not (is_number(self.cutoff) and 0 <= self.cutoff < 1):
            raise InputError("--cutoff", f"is {self.cutoff!r}", "give 0 or more and less than 1")
        if self.error is not None and not (is_number(self.error) and 0 < self.error < inf):
            raise InputError("--error", f"is {self.error!r}", "give a number above 0")
        if self.error is not None and self.resume:
            raise InputError(
                "--resume", "is given, but runs for --error keep nothing", "leave one of them out"
            )
        wanted = self.state_fidelity
        if wanted is not None and not (is_number(wanted) and 0 < wanted <= 1):
            raise InputError("--state-fidelity", f"is {wanted!r}", "give more than 0 and at most 1")
        if self.seed is not None:
            check_count("--seed", self.seed, 0)

    @property
    def least_fidelity(self) -> float:
        """The fidelity that a compressed state is to have."""
        return LEAST_FIDELITY if self.state_fidelity is None else self.state_fidelity

    @property
    def dtype(self) -> str:
        """The dtype of amplitudes."""
        return DTYPES[self.precision]
