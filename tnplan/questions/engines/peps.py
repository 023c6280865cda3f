"""Expectation values and samples by projected entangled pair states, on the graph of the pairs of the gates.

Truncation is by the simple update, and values are read by belief propagation with loops. The answer is an
estimate, but on trees without truncation, where it is exact. What is cut is measured by a second run with
half the bond. Samples are drawn by messages; they follow the state's probabilities on trees alone.

Ranks hold a part of the sites each; for samples each has the whole state in the end, and draws its share.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import astuple
from importlib import import_module
from math import sqrt
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.gates import PAULI_MATRICES, letters_of
from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.device.protocols.stop_signal import StoppedRunError, asked, keeping
from tnplan.executor.peps.checkpoint import PepsCheckpoint, Saved
from tnplan.executor.peps.levels import DisjointGates, Pair, levels_of
from tnplan.executor.peps.messages import Messages, iterated_messages
from tnplan.executor.peps.regions import LOOP_BOND, RegionValues, WordValue
from tnplan.executor.peps.samples import MessageSampler
from tnplan.executor.peps.state import PepsState
from tnplan.jobs.job import Job, Rank, run_job
from tnplan.planner.networks.of_circuits.wires import light_cone
from tnplan.questions.engines.mps import EXACT_CUTOFF
from tnplan.questions.engines.task_list import (
    ESTIMATE,
    EXACT,
    STATISTICAL,
    Outcome,
    counts_of,
    series,
)
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import CircuitQuery, ExpectationValues, Sample

TOLERANCE = {"fp64": 1e-8, "fp32": 1e-5}
"""Of messages."""
MOST_SWEEPS = 500
MOST_CUT = 0.1
"""Share of its squared weights that an edge may lose where loops are contracted in a state that is cut."""
COPIES = 5
"""Tensors that are there at once, in the memory of the state: batches on their way, and regions."""
DIFFERENCE_TIMES, LEAST_RATIO, LOST_TIMES, RESIDUAL_TIMES = 3.0, 0.03, 0.25, 10.0
"""Of the estimate of an error: fitted to seeds 0 to 239 of tests/support/peps_cases.py; its test has
others."""

Word = tuple[int, int]
"""Masks of X and of Z."""


class _Reading(NamedTuple):
    """The words of a question in a state."""

    bond: int
    fidelity: float
    largest_discarded: float
    messages: Messages
    words: dict[Word, WordValue]


class _Run(NamedTuple):
    """What both runs of a question share."""

    query: CircuitQuery
    pieces: Sequence[Sequence[DisjointGates]]
    options: QuestionOptions
    rank: Rank
    ranks: Communicator | None
    checkpoint: PepsCheckpoint | None


def _document(reading: _Reading) -> list[Any]:
    """A reading for JSON."""
    of_messages = reading.messages.sweeps, reading.messages.residual, reading.messages.is_converged
    words = [[*word, *astuple(value)] for word, value in reading.words.items()]
    return [reading.bond, reading.fidelity, reading.largest_discarded, of_messages, words]


def _reading_of(document: Sequence[Any]) -> _Reading:
    """A reading from JSON; what cannot be one raises ValueError or TypeError."""
    bond, fidelity, discarded, (sweeps, residual, is_converged), words = document
    messages = Messages({}, int(sweeps), float(residual), bool(is_converged))
    values = {
        (int(x), int(z)): WordValue(float(bethe), float(value), float(change), int(loops), int(left_out))
        for x, z, bethe, value, change, loops, left_out in words
    }
    return _Reading(int(bond), float(fidelity), float(discarded), messages, values)


def pieces_of(query: CircuitQuery) -> list[Sequence[Gate]]:
    """The gates up to each stop; where there is none, those in the light cone of what is asked for."""
    gates = query.acting.gates
    if query.stops or not isinstance(query.question, ExpectationValues):
        return query.pieces(gates)
    words = words_of(query.question)
    support = {q for x, z in words for q in range(query.n_qubits) if (x | z) >> q & 1}
    plain = {q for q in support if not any(x >> q & 1 for x, _ in words)}
    return [[gates[number] for number in light_cone(gates, support, plain)]]


def state_bytes(bonds: Mapping[Pair, int], precision: str, owners: Sequence[int] | None = None) -> int:
    """The memory of a state with these bonds, and of what is made of it; of ranks, of the one with the
    most."""
    sizes: dict[int, int] = {}
    for pair, bond in bonds.items():
        for qubit in pair:
            sizes[qubit] = sizes.get(qubit, 2) * bond
    of_ranks: dict[int, int] = {}
    for qubit, size in sizes.items():
        rank = 0 if owners is None else owners[qubit]
        of_ranks[rank] = of_ranks.get(rank, 0) + size
    return COPIES * max(of_ranks.values(), default=0) * (8 if precision == "fp32" else 16)


def check_ranks(n_qubits: int, ranks: int) -> None:
    """Refuse more ranks than there are qubits."""
    if ranks > n_qubits:
        raise InputError(
            "--ranks", f"is {ranks}, and the circuit has {n_qubits} qubits", f"use {n_qubits} ranks or fewer",
            topic="ranks",
        )  # fmt: skip


def answer_by_peps(
    query: CircuitQuery, options: QuestionOptions, checkpoint: PepsCheckpoint | None
) -> Outcome:
    """The answer by a PEPS, of which ranks hold a part each; its expectation values keep a checkpoint."""
    question = query.question
    if isinstance(question, Sample):
        return _samples(query, question, options)
    assert isinstance(question, ExpectationValues)

    pieces = [levels_of([(gate.qubits, gate.matrix) for gate in piece]) for piece in pieces_of(query)]

    def prepare() -> Saved | None:
        if checkpoint is None:
            return None
        (levels,) = pieces
        pairs = [pair for level in levels for pair in level.pairs]

        def check(document: Any) -> bool:
            is_whole = document["first"] is None or {*_reading_of(document["first"]).words} == {*words}
            return is_whole and type(document["done"]) is int and 0 < document["done"] <= len(levels)

        words = words_of(question)
        return checkpoint.open(options.resume, query.n_qubits, pairs, options.dtype, check)

    def work(rank: Rank, saved: Saved | None) -> Outcome:
        with rank.on_stream():
            run = _Run(query, pieces, options, rank, rank.connected(), checkpoint)
            if saved is not None and saved[0]["first"] is not None:
                first = [_reading_of(saved[0]["first"])]
            else:
                first, saved = _readings(run, options.max_bond, saved, None), None
            # What changes with half the bond estimates the error; where nothing was cut there is none.
            second = first
            bond = max(reading.bond for reading in first)
            if first[-1].largest_discarded > EXACT_CUTOFF[options.precision] and bond > 1:
                second = _readings(run, bond // 2, saved, first[0])
        outcomes = [_outcome(question, *both, options.precision) for both in zip(first, second, strict=True)]
        outcome = series(outcomes) if query.stops else outcomes[0]
        outcome.details.update(device=rank.device.name, ranks=rank.world.size)
        return outcome

    job = Job(prepare=prepare, work=work, check_ranks=lambda _, ranks: check_ranks(query.n_qubits, ranks))
    with options.heeding_signals():
        return run_job(job, options)


def _samples(query: CircuitQuery, question: Sample, options: QuestionOptions) -> Outcome:
    """Counts of bit strings that messages draw."""

    def prepare() -> int:
        return secrets.randbits(63) if options.seed is None else options.seed

    def work(rank: Rank, seed: int) -> Outcome:
        size = rank.world.size
        with rank.on_stream():
            (levels,) = [levels_of([(gate.qubits, gate.matrix) for gate in one]) for one in pieces_of(query)]
            pairs = [pair for level in levels for pair in level.pairs]
            state = PepsState(query.n_qubits, pairs, options.dtype, library_of(rank), rank.connected())
            evolve(state, levels, options, options.max_bond, rank)
            messages = iterated_messages(state, TOLERANCE[options.precision], MOST_SWEEPS)
            sampler = MessageSampler(*whole(state, messages.matrices, options.precision, rank.memory_bytes))
            first, last = (question.shots * k // size for k in (rank.world.rank, rank.world.rank + 1))
            # The numbers of one rank, from those of the shots of the ranks before on.
            numbers = np.random.PCG64(seed).advance(first * query.n_qubits)
            drawn = sampler.draw(
                last - first, np.random.Generator(numbers),
                lambda done: rank.say_steps(done, last - first, "shot"),
            )  # fmt: skip
        drawn = np.concatenate(rank.world.gather_objects(drawn))
        is_cut = state.largest_discarded > EXACT_CUTOFF[options.precision]
        is_exact = sampler.is_tree and messages.is_converged and not is_cut
        details = {
            "seed": seed, "shots": question.shots, "device": rank.device.name, "ranks": size,
            "samples": "independent" if is_exact else "independent, of approximate probabilities",
            "max_bond": state.max_bond, "fidelity_estimate": state.fidelity,
            "messages_converged": messages.is_converged,
        }  # fmt: skip
        return Outcome(counts_of(drawn, query.program), None, STATISTICAL if is_exact else ESTIMATE, details)

    return run_job(
        Job(prepare=prepare, work=work, check_ranks=lambda _, ranks: check_ranks(query.n_qubits, ranks)),
        options,
    )


def whole(
    state: PepsState, incoming: Mapping[Pair, Any], precision: str, memory_bytes: float
) -> tuple[PepsState, dict[Pair, Any]]:
    """The state with the tensors and messages of all ranks; refuses what does not fit one."""
    if state.ranks is None:
        return state, dict(incoming)
    bonds = {pair: len(weights) for pair, weights in state.weights.items()}
    if (needed := state_bytes(bonds, precision)) > memory_bytes:
        raise InputError(
            "--ranks", f"need the whole state each here, which takes {size_text(needed)}",
            "allow more memory, give a smaller --max-bond, or ask for expectation values", topic="memory",
        )  # fmt: skip
    return state.fetched(incoming, state.ranks.size * [range(len(state.neighbours))])


def words_of(question: ExpectationValues) -> list[Word]:
    return sorted({(x, z) for observable in question.sums for x, z, _ in observable.masks() if x | z})


def _readings(run: _Run, max_bond: int | None, saved: Saved | None, first: _Reading | None) -> list[_Reading]:
    """The words after each piece of the circuit; `first` is what the run with the larger bond gave."""
    query, pieces, options, rank, ranks, checkpoint = run
    assert isinstance(query.question, ExpectationValues)
    pairs = [pair for levels in pieces for level in levels for pair in level.pairs]
    state = PepsState(query.n_qubits, pairs, options.dtype, library_of(rank), ranks)
    done, total, readings = 0, sum(map(len, pieces)), []
    if saved is not None and checkpoint is not None:
        checkpoint.put(state, saved)
        done = saved[0]["done"]

    def keep(done: int) -> None:
        if checkpoint is None:
            return
        # Clocks and signals differ from rank to rank: all go by the first clock, and by any signal.
        told = rank.world.gather_objects((checkpoint.is_due(), asked()))
        is_due, stop = told[0][0], max(signal for _, signal in told)
        if is_due or stop:
            checkpoint.write(state, {"done": done, "first": None if first is None else _document(first)})
        if stop:
            raise StoppedRunError(stop)

    for number, levels in enumerate(pieces):
        left = levels[done:] if number == 0 else levels
        with nullcontext() if checkpoint is None else keeping():
            evolve(state, left, options, max_bond, rank, (done, total), keep)
        done = sum(map(len, pieces[: number + 1]))
        tolerance = TOLERANCE[options.precision]
        messages = iterated_messages(state, tolerance, MOST_SWEEPS)
        small = None
        cut, share = state.cut(LOOP_BOND)
        # A state that loses more says nothing of loops in this one: these are contracted if they are small.
        if state.max_bond > LOOP_BOND and share < MOST_CUT:
            small = RegionValues(cut, iterated_messages(cut, tolerance, MOST_SWEEPS).matrices)
        values = RegionValues(state, messages.matrices, small)
        words = words_of(query.question)
        matrices = [{q: PAULI_MATRICES[letter] for q, letter in letters_of(*word).items()} for word in words]
        found = dict(zip(words, values.of_words(matrices, rank.memory_bytes), strict=True))
        reached = state.fidelity, state.largest_discarded
        readings.append(_Reading(state.max_bond, *reached, messages, found))
    return readings


def library_of(rank: Rank) -> ModuleType:
    """NumPy or CuPy, as the device has it."""
    return import_module("cupy" if rank.device.name == "gpu" else "numpy")


def evolve(
    state: PepsState, levels: Sequence[DisjointGates], options: QuestionOptions, max_bond: int | None,
    rank: Rank, progress: tuple[int, int] | None = None, keep: Callable[[int], None] | None = None,
) -> None:  # fmt: skip
    """Apply levels of gates; of all in `progress[1]` so many are done. `keep` is told after each."""
    cutoff = EXACT_CUTOFF[options.precision] if options.cutoff is None else options.cutoff
    before, total = progress or (0, len(levels))
    for done, level in enumerate(levels, before + 1):
        _check_memory(state, level, max_bond, options.precision, rank.memory_bytes)
        state.apply(level, max_bond, cutoff)
        rank.say(done, total, f"layer {done} of {total}, bond {state.max_bond}")
        if keep is not None:
            keep(done)


def _check_memory(
    state: PepsState, level: DisjointGates, max_bond: int | None, precision: str, memory_bytes: float
) -> None:
    """Refuse a layer of gates whose bonds outgrow the memory."""
    bonds = {pair: len(weights) for pair, weights in state.weights.items()}
    for a, b in level.pairs:
        pair = min(a, b), max(a, b)
        bonds[pair] = max(bonds[pair], min(4 * bonds[pair], max_bond or 4 * bonds[pair]))
    needed = state_bytes(bonds, precision, state.owners)
    if needed > memory_bytes:
        raise InputError(
            "circuit", f"needs bonds of extent {max(bonds.values())}, and {size_text(needed)} for the state",
            "give a smaller --max-bond, more memory, or another --method", topic="memory",
        )  # fmt: skip


def _outcome(question: ExpectationValues, full: _Reading, half: _Reading, precision: str) -> Outcome:
    """The values of the sums at the larger bond, with the estimates of their errors."""
    is_cut = full.largest_discarded > EXACT_CUTOFF[precision]
    # On trees messages are exact.
    has_loops = any(value.loops for value in full.words.values())
    is_exact = full.messages.is_converged and not (is_cut or has_loops)
    errors = {word: 0.0 if is_exact else _error(word, full, half, precision) for word in full.words}

    def summed(of_word: Mapping[Word, float]) -> Any:
        values = np.array([
            sum(c * of_word[x, z] if x | z else c for x, z, c in observable.masks())
            for observable in question.sums
        ])  # fmt: skip
        if not any(np.iscomplexobj(observable.coefficients) for observable in question.sums):
            values = values.real
        return values[0].item() if question.is_single else values

    error: Any = np.array([
        sum(abs(c) * errors[x, z] for x, z, c in observable.masks() if x | z)
        for observable in question.sums
    ], np.float64)  # fmt: skip
    words = full.words.values()
    details = {
        "max_bond": full.bond, "fidelity_estimate": full.fidelity,
        "largest_discarded_weight": full.largest_discarded if is_cut else 0.0,
        "message_sweeps": full.messages.sweeps, "message_residual": full.messages.residual,
        "messages_converged": full.messages.is_converged and half.messages.is_converged,
        "without_loops": _plain(summed({word: value.bethe for word, value in full.words.items()})),
        "loops": max((value.loops for value in words), default=0),
        "loops_left_out": max((value.loops_left_out for value in words), default=0),
        "largest_loop_correction": max((abs(value.value - value.bethe) for value in words), default=0.0),
    }  # fmt: skip
    if is_cut:
        at_half = summed({word: value.value for word, value in half.words.items()})
        details["at_smaller_bond"] = {"max_bond": half.bond, "value": _plain(at_half)}
    value = summed({word: value.value for word, value in full.words.items()})
    return Outcome(
        value, 0.0 if is_exact else error[0].item() if question.is_single else error,
        EXACT if is_exact else ESTIMATE, details,
    )  # fmt: skip


def _error(word: Word, full: _Reading, half: _Reading, precision: str) -> float:
    """The estimate of the error of a word, 2 at most."""
    loops = max(reading.words[word].change for reading in (full, half))
    residual = max(reading.messages.residual for reading in (full, half))
    lost, more_lost, weight = 1 - full.fidelity, 1 - half.fidelity, (word[0] | word[1]).bit_count()
    ratio = max(LEAST_RATIO, min(1.0, sqrt(lost / more_lost))) if more_lost > 0 else 0.0
    difference = abs(full.words[word].value - half.words[word].value)
    error = loops + RESIDUAL_TIMES * residual + sqrt(np.finfo(f"f{4 if precision == 'fp32' else 8}").eps)
    error += DIFFERENCE_TIMES * ratio * difference + LOST_TIMES * lost * sqrt(weight)
    # Messages that do not converge, loops that are not counted and cuts to a bond of 1 leave nothing to
    # estimate from.
    is_converged = full.messages.is_converged and half.messages.is_converged
    if not is_converged or full.words[word].loops_left_out or (lost > 0 and full.bond == 1):
        error = max(error, 1.0)
    return min(2.0, float(error))


def _plain(value: Any) -> Any:
    """A value as lists of numbers, for JSON; of complex ones the real parts."""
    return np.asarray(value).real.tolist()
