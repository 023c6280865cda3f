"""Samples by contraction: a chain of conditional marginals, gate by gate, or rejection among candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from typing import Any

import numpy as np

from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.program import CircuitProgram, as_circuit
from tnplan.common.arrays import Array
from tnplan.common.checks import check_choice, check_count
from tnplan.common.errors import InputError
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.progress import Listener, Progress
from tnplan.planner.networks.of_circuits.sandwich import marginal_network
from tnplan.planner.networks.of_circuits.steps import Step, steps_of
from tnplan.planner.search.sparse_state import distinct_strings
from tnplan.questions.tensor_networks.networks import WorkOfShots, contract_batch
from tnplan.questions.tensor_networks.samples_by_gates import (
    bits_of,
    chain_groups,
    cheaper_way,
    draw_by_gates,
    draw_rows,
    networks_of_chain,
    why_not_by_gates,
    work_of,
)
from tnplan.questions.tensor_networks.samples_by_xeb import draw_bunches, figures_of, predicted_xeb
from tnplan.questions.tensor_networks.sparse_state import SparseState

# What sampling by contraction gives: bit strings, how they depend on each other, and their probabilities.


INDEPENDENT, CORRELATED = "independent", "correlated"


@dataclass(frozen=True, eq=False, repr=False)
class ContractionSamples:
    """Bit strings drawn from a circuit's final state.

    Parameters
    ----------
    bitstrings : array
        uint8, shape (shots, n); column q is qubit q.
    kind : {"independent", "correlated"}
        Whether each string was drawn by itself; of correlated ones, several share the values of most qubits.
    exact : bool
        Whether the strings follow the circuit's distribution without approximation.
    fidelity : float
        Of the state that was sampled: the share of the slices that were summed.
    clipped : float
        By rejection, the share of the probability that is left out, of strings likelier than the bound.
    probabilities : array or None
        The exact probability of each string, float64 [shots]; None where some of the slices were summed.
    candidates : int
        By rejection, how many strings were drawn and taken or not.
    method : {"chain", "gates", "rejection", "bunches"}
        How they were drawn.
    predicted : dict or None
        Where a linear cross-entropy was asked for: `predicted_xeb` and its standard error, both estimates,
        `share_of_slices`, and `best_of`, the strings of which the likeliest one was taken.
    precision : str or None
        Of the amplitudes of bunches, as it was chosen.
    """

    bitstrings: Array
    kind: str
    exact: bool
    fidelity: float = 1.0
    clipped: float = 0.0
    probabilities: Array | None = None
    candidates: int = 0
    method: str = "rejection"
    predicted: dict[str, Any] | None = None
    precision: str | None = None

    def __repr__(self) -> str:
        shots, n_qubits = self.bitstrings.shape
        return f"ContractionSamples({shots} {self.kind} strings of {n_qubits} qubits)"


METHODS = ("auto", "chain", "gates", "rejection")
MOST_CLIPPED = 0.05
"""The share of the probability that may be left out, of strings that are likelier than `BOUND` allows."""
BOUND = 10.0
"""A candidate is taken with probability p 2^n / BOUND. Of a random circuit, e^-10 of them are likelier than
that (Markov et al., arXiv 1807.10749)."""
MOST_CANDIDATES = 1 << 15
MOST_IN_VAIN = 2000
"""Candidates of which none is taken: of a random circuit that happens with a chance of 1e-87."""
MOST_OPEN = 14
MOST_ROUNDS = 64


@dataclass(frozen=True)
class SampleOptions:
    """How samples are drawn.

    Parameters
    ----------
    method : {"auto", "chain", "gates", "rejection"}
        "chain": qubits in turn, each group from its distribution given those before, exact and independent.
        "gates": all bits go through the circuit gate by gate, exact and independent too. It needs amplitudes
        alone, and a circuit of unitary gates. "auto": that of both which takes fewer operations.
        "rejection": candidates are drawn at random and taken by their probability. That is for random
        circuits, whose probabilities are exponentially distributed.
    open_qubits : int
        By rejection, this many qubits of a candidate take all their values, which costs little more. Samples
        are correlated then.
    fidelity : float
        By rejection, the share of the slices that are summed, above 0 and at most 1. The state that is
        sampled has about this fidelity.
    xeb : float, optional
        By rejection, the linear cross-entropy that samples are to reach, in place of both:
        `samples_by_xeb.py`.
    """

    method: str = "auto"
    open_qubits: int = 0
    fidelity: float = 1.0
    xeb: float | None = None

    def __post_init__(self) -> None:
        check_choice("sampling method", self.method, METHODS)
        check_count("open qubits", self.open_qubits, 0, MOST_OPEN)
        if not 0 < self.fidelity <= 1:
            raise InputError("fidelity", f"is {self.fidelity}", "give more than 0 and at most 1")
        if self.method != "rejection" and (self.fidelity < 1 or self.open_qubits):
            name = "fidelity" if self.fidelity < 1 else "open qubits"
            raise InputError(name, "is for samples by rejection", 'leave it out, or use method "rejection"')


def sample(
    circuit: GateSequence | CircuitProgram,
    shots: int,
    seed: int,
    options: ContractionOptions | None = None,
    how: SampleOptions | None = None,
    n_drawn: int | None = None,
) -> ContractionSamples:
    """Bit strings of all qubits, or of the first ones, from the distribution of a circuit's final state.

    Parameters
    ----------
    circuit : GateSequence or CircuitProgram
        By the chain, noise is taken into account; the others are for gates alone.
    shots : int
        How many strings.
    seed : int
        Of all random choices.
    options : ContractionOptions, optional
        How contractions are done; `precision` "fp64", the default, or "fp32".
    how : SampleOptions, optional
        How strings are drawn. Default: "auto".
    n_drawn : int, optional
        How many of the first qubits strings have. Default: all.

    Returns
    -------
    ContractionSamples
        The strings, and whether they are independent and exact.

    Raises
    ------
    InputError
        For no shots, noise where there can be none, or a distribution that rejection does not suit.
    """
    options, how = options or ContractionOptions(), how or SampleOptions()
    check_count("shots", shots)
    check_count("seed", seed, 0)
    generator, n_drawn = np.random.default_rng(seed), n_drawn or circuit.n_qubits
    if how.method != "rejection":
        # Channels and measurements on the way are steps too: a chain needs marginals alone, which
        # density matrices have.
        steps, n_qubits, method = steps_of(circuit, "circuit"), circuit.n_qubits, how.method
        if method == "auto":
            method = cheaper_way(steps, n_qubits, shots, n_drawn)
        if method == "gates" and (problem := why_not_by_gates(steps)) is not None:
            raise InputError("circuit", f"{problem}, and is sampled gate by gate", 'use "chain"')
        draw: Any = _chain if method == "chain" else draw_by_gates
        n_followed = n_drawn if method == "chain" else n_qubits
        bits, chances = draw(steps, n_followed, shots, generator, options)
        drawn = ContractionSamples(bits, INDEPENDENT, True, probabilities=chances, method=method)
    else:
        # Rejection needs amplitudes, and so a pure state of gates.
        gates = as_circuit(circuit, "circuit") if isinstance(circuit, CircuitProgram) else circuit
        by = _by_rejection if how.xeb is None else _by_xeb
        drawn = by(gates, shots, generator, options, how)
    if drawn.bitstrings.shape[1] == n_drawn:
        return drawn
    return replace(drawn, bitstrings=drawn.bitstrings[:, :n_drawn], probabilities=None)


def _chain(
    steps: Sequence[Step],
    n_qubits: int,
    shots: int,
    generator: np.random.Generator,
    options: ContractionOptions,
) -> tuple[Array, Array]:
    """Independent strings, with their probabilities: each group of qubits given all before it, where equal
    beginnings are contracted once."""
    drawn, chances = np.zeros((shots, n_qubits), np.uint8), np.ones(shots)
    # p(x) = prod_g p(x_g | x_before) (chain rule). p(x_before, x_g) is a marginal of the state;
    # later qubits are traced out, and gates that act on them alone are outside the light cone.
    work = WorkOfShots(options, lambda: work_of(networks_of_chain(steps, n_qubits, shots)), shots)
    work.say(0, 0, n_qubits, "qubit")
    for group in chain_groups(n_qubits):
        first = group[0]
        # Shots that agree so far share a contraction: early groups need few, and only late ones as
        # many as there are shots.
        before, inverse = distinct_strings(drawn[:, :first])
        opened = marginal_network(steps, group, range(first))
        leaves = [np.eye(2)[before[:, qubit]] for qubit in range(first)]
        joint = contract_batch(opened, leaves, options).real.reshape(len(before), -1)
        # Rounding makes small probabilities negative.
        joint = np.maximum(joint, 0).astype(np.float64)
        chosen = draw_rows(joint, inverse, generator.random(shots))
        chances *= joint[inverse, chosen] / joint.sum(axis=1)[inverse]
        drawn[:, group] = bits_of(chosen, len(group)).T
        work.say(len(before), group[-1] + 1, n_qubits, "qubit")
    return drawn, chances


def _by_xeb(
    circuit: GateSequence, shots: int, generator: np.random.Generator, options: ContractionOptions,
    how: SampleOptions,
) -> ContractionSamples:  # fmt: skip
    """Strings of a linear cross-entropy: the likeliest of bunches.

    Where there are fewer bunches than shots the state is small: all of it is sampled, by rejection.
    """
    assert how.xeb is not None
    bunches = draw_bunches(circuit, shots, how.xeb, generator, options)
    if bunches is not None:
        predicted = figures_of(bunches.xeb, bunches.error, bunches.share, bunches.best_of)
        return ContractionSamples(
            bunches.bitstrings, INDEPENDENT, False, bunches.fidelity, 0.0, bunches.probabilities,
            shots * bunches.best_of, "bunches", predicted, bunches.precision,
        )  # fmt: skip
    drawn = _by_rejection(circuit, shots, generator, options, how)
    assert drawn.probabilities is not None
    xeb, error = predicted_xeb(drawn.probabilities * 2.0**circuit.n_qubits, 1.0)
    return replace(drawn, predicted=figures_of(xeb, error, 1.0, 1))


def _by_rejection(
    circuit: GateSequence, shots: int, generator: np.random.Generator, options: ContractionOptions,
    how: SampleOptions,
) -> ContractionSamples:  # fmt: skip
    """Strings taken from random candidates by their probability."""
    n_qubits, n_open = circuit.n_qubits, min(how.open_qubits, circuit.n_qubits)
    accepted_strings: list[Array] = []
    chances: list[Array] = []
    n_accepted = candidates = 0
    drawn = lost = 0.0
    expected = sum(expected_rounds(shots))
    # Rejection sampling from uniform candidates, q(x) = 2^-n: x is taken with probability p(x) / (M
    # q(x)), M = BOUND. Of a normalised distribution one candidate in M is taken on average.
    for _ in range(MOST_ROUNDS):
        strings = random_candidates(n_candidates(shots - n_accepted, candidates), n_qubits, n_open, generator)
        of_round = replace(
            options, progress=_of_candidates(options.progress, candidates, len(strings), expected)
        )
        scaled = _probabilities(circuit, strings, of_round, how.fidelity) * 2.0**n_qubits
        accepted = generator.random(len(strings)) * BOUND < scaled
        accepted_strings.append(strings[accepted])
        chances.append(scaled[accepted] / 2.0**n_qubits)
        n_accepted += int(accepted.sum())
        candidates += len(strings)
        drawn += float(scaled.sum())
        # Where p 2^n > M a candidate is taken for certain and still too seldom: the excess is
        # probability that samples lack. For exponentially distributed p 2^n (Porter-Thomas) its
        # share is e^-M, here 5e-5.
        lost += float(np.maximum(scaled - BOUND, 0).sum())
        if lost > MOST_CLIPPED * drawn:
            raise InputError(
                "sampling method", f"rejection would leave out {lost / drawn:.0%} of the probability",
                'use "chain", or the state-vector method: rejection is for random circuits',
            )  # fmt: skip
        if not n_accepted and candidates > MOST_IN_VAIN:
            break
        if n_accepted >= shots:
            chosen = np.concatenate(accepted_strings)
            # Open qubits: candidates come in groups that share the other bits. A random choice
            # among all that were taken keeps the shots from being whole groups.
            order = generator.permutation(len(chosen))[:shots] if n_open else np.arange(shots)
            kind = CORRELATED if n_open else INDEPENDENT
            # With a share of the slices the values are those of an approximate state, and no exact
            # probabilities.
            known = np.concatenate(chances)[order] if how.fidelity == 1 else None
            return ContractionSamples(
                chosen[order], kind, False, how.fidelity, lost / drawn, known, candidates
            )
    raise InputError(
        "sampling method", f"rejection took {n_accepted} of {candidates} candidates for {shots} shots",
        'use "chain", or the state-vector method',
    )  # fmt: skip


def _of_candidates(listener: Listener | None, before: int, count: int, expected: int) -> Listener | None:
    """A listener of the slices of a round, which tells how many of the candidates are done by then."""
    if listener is None:
        return None

    def tell(at: Progress) -> None:
        share = (before + count * at.done / at.total) / max(expected, before + count)
        listener(Progress(at.done, at.total, at.text, share=share))

    return tell


def n_candidates(shots: int, so_far: int) -> int:
    """The candidates of the next round, of which one in BOUND is taken on average, for so many shots more."""
    return min(MOST_CANDIDATES, max(ceil(1.2 * BOUND * shots) + 8, so_far))


def expected_rounds(shots: int) -> list[int]:
    """The candidates of each round, if one in BOUND is taken in every one."""
    rounds: list[int] = []
    while sum(rounds) < BOUND * shots:
        rounds.append(n_candidates(shots - int(sum(rounds) / BOUND), sum(rounds)))
    return rounds


def random_candidates(count: int, n_qubits: int, n_open: int, generator: np.random.Generator) -> Array:
    """Random strings, uint8 [string, qubit], in groups whose last `n_open` qubits have all their values."""
    values = np.array(list(product((0, 1), repeat=n_open)), np.uint8).reshape(2**n_open, n_open)
    strings = generator.integers(0, 2, (ceil(count / len(values)), n_qubits), dtype=np.uint8)
    strings = np.repeat(strings, len(values), axis=0)
    strings[:, n_qubits - n_open :] = np.tile(values, (len(strings) // len(values), 1))
    return strings


def _probabilities(
    circuit: GateSequence, strings: Array, options: ContractionOptions, fidelity: float
) -> Array:
    """The probabilities of strings, of a state of this fidelity with norm 1."""
    distinct, inverse = distinct_strings(strings)
    state = SparseState(circuit, distinct, options)
    if fidelity < 1:
        state.slice_more(ceil(1 / fidelity))
    count = max(1, round(fidelity * state.plan.n_slices))
    values = state.amplitudes(range(count)) if fidelity < 1 else state.amplitudes()
    share = count / state.plan.n_slices
    return (np.abs(values[inverse]) ** 2).astype(np.float64) / share
