"""Questions answered by the state vector: what is run for each of them, and what is read from the state.

A question becomes one or more programs, each with its final state, or a program with trajectories.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.compose import inverse, pauli_word_gates, widened
from tnplan.circuits.derivatives.dual_number import slopes_of
from tnplan.circuits.derivatives.trigonometric_gate import tangent_gates
from tnplan.circuits.gates import gate
from tnplan.circuits.pauli_sum import PauliSum
from tnplan.circuits.program import CircuitProgram, circuit_program, final_measurements, gates_of
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.common.kernels.ahead import compile_soon
from tnplan.executor.device.comm.launcher import launched_size
from tnplan.executor.device.cpu.host_memory import check_host_memory, host_memory, ranks_here
from tnplan.executor.device.protocols.communicator import agree
from tnplan.executor.pauli.algebra.gates import circuit_steps
from tnplan.executor.pauli.propagate import propagate
from tnplan.executor.statevector.adjoint_sweep import Derivative, adjoint_gradients
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.gate_list import GateList
from tnplan.executor.statevector.measurement import Question as SampleQuestion
from tnplan.executor.statevector.measurement import answer, can_branch, sample_counts, trajectories
from tnplan.executor.statevector.memory_estimate import (
    GRADIENT_STATES,
    check_answer_memory,
    observables_at_once,
)
from tnplan.executor.statevector.prepared_program import prepare_program
from tnplan.executor.statevector.scheduling.qubit_cover import COVERS
from tnplan.executor.statevector.simulator import Simulator, StateVector, words_on_bits
from tnplan.jobs.compressed_state import compressed_needs, fidelity_report
from tnplan.jobs.job import Job, Needs, Rank, run_job
from tnplan.jobs.statevector import check_state_ranks, end_state, free_beside, open_state, state_needs
from tnplan.questions.engines.compressed import as_rounded, bits_here, opened
from tnplan.questions.engines.task_list import (
    EXACT,
    STATISTICAL,
    Outcome,
    Rows,
    TaskCheckpoint,
    TaskList,
    cross_entropy,
    series,
)
from tnplan.questions.methods import is_small, possible_methods
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
    Trace,
)

# Expectation values with their derivatives by parameters, from the state vector: one sweep back for
# as many observables as the memory holds states.


def gradients_by_state(query: CircuitQuery, options: QuestionOptions) -> Outcome:
    """The values and their derivatives; collective under mpirun."""
    question, gates, n = query.question, query.gates, query.n_qubits
    assert isinstance(question, ExpectationValues)
    assert gates is not None
    if _has_no_job(options) and is_small(query, DIRECT_QUBITS):
        angles = np.zeros(len(question.names))
        listed = GateList(n, len(angles), tangent_gates(gates.gates, question.names))
        values, rows = listed.gradients(angles, listed.words(question.sums))
        value = values[0].real.item() if question.is_single else values.real
        return Outcome(value, 0.0, EXACT, {"device": "cpu", "ranks": 1}, rows)

    def prepare() -> None:
        compile_soon([COVERS])

    def needs(_: None, n_ranks: int, threads: int) -> Needs:
        return state_needs(n, options.dtype, n_ranks, threads, GRADIENT_STATES)

    def work(rank: Rank, _: None) -> Outcome:
        values, rows, sums = [], [], question.sums
        # Several observables go back together, each with a state of its own, as many as fit beside
        # the forward state.
        free_bytes = rank.memory_bytes - needs(None, rank.world.size, rank.threads).cpu_bytes
        fitting = observables_at_once(len(sums), free_bytes, n, options.dtype, rank.world.size)
        # Invariant: the least over all ranks, so that all sweep over the same groups.
        together = min(rank.world.gather_objects(fitting))
        with rank.on_stream():
            state = open_state(rank, n, options.dtype, gates.gates, gradient=True)
            simulator = Simulator(state, n, seed=0)
            simulator.run(prepare_program(gates.gates), NO_BITS)
            rank.say_steps(0, len(sums), "observable")
            for first in range(0, len(sums), together):
                observables = sums[first : first + together]
                values += [simulator.expectation(observable).real for observable in observables]
                # Adjoint differentiation (Jones and Gacon, arXiv 2009.02823): one sweep back gives
                # the derivatives by all angles.
                gradients = adjoint_gradients(simulator, gates.gates, observables)
                rows += [by_parameters(derivatives, gates.gates, question.names) for derivatives in gradients]
                if len(sums) > 1:
                    rank.say_steps(len(rows), len(sums), "observable")
        end_state(rank, state)
        details = {"device": rank.device.name, "ranks": rank.world.size}
        value = values[0] if question.is_single else np.array(values)
        return Outcome(value, 0.0, EXACT, details, np.array(rows))

    job = Job(
        prepare=prepare, work=work, needs=needs,
        check_ranks=lambda _, n_ranks: check_state_ranks(n_ranks, n),
    )  # fmt: skip
    return run_job(job, options)


def by_parameters(derivatives: Sequence[Derivative], gates: Sequence[Gate], names: Sequence[str]) -> Array:
    """The derivatives by parameters, float64 [parameter], from those by the angles of gates."""
    row, columns = np.zeros(len(names)), {name: column for column, name in enumerate(names)}
    for derivative in derivatives:
        for name, slope in slopes_of(gates[derivative.gate].params[derivative.parameter]).items():
            row[columns[name]] += slope * derivative.derivative
    return row


DIRECT_QUBITS = 12
"""The most qubits of a state for which nothing is planned."""
DIRECT_SHOTS = 1 << 20
"""The most samples that are drawn without a look at the memory."""
FEW_QUBITS = 2
"""A density matrix of so many qubits is read as Pauli words; a larger one takes copies of the state."""
NO_BITS, NO_ANGLES = np.zeros(0, np.uint8), np.zeros(0)
lists: WeakKeyDictionary[GateSequence, GateList] = WeakKeyDictionary()
"""The tables of circuits that are still in use, whose gates never change."""

Read = Callable[[Simulator], Array]


@dataclass(frozen=True, eq=False)
class StateWork:
    """What is run for a question, and what is read from the state after each program.

    `finish` makes the value of what was read. `copies`: of the whole state, on the host of each rank.
    `table_bits`: the value has a table of 2^table_bits entries.
    """

    n_qubits: int
    programs: tuple[CircuitProgram, ...]
    read: Read
    finish: Callable[[list[Array]], Any] = lambda read: read[0]
    copies: int = 0
    table_bits: int = 0

    def copies_bytes(self, dtype: str) -> int:
        """The bytes of these copies."""
        return self.copies * (np.dtype(dtype).itemsize << self.n_qubits)


def answer_by_state(
    query: CircuitQuery, options: QuestionOptions, checkpoint: TaskCheckpoint | None
) -> Outcome:
    """The answer by the state vector; collective under mpirun."""
    if query.has_gradient:
        return gradients_by_state(query, options)
    # Drawn before the job begins; rank 0 tells it to the others through `prepare`, so that all
    # collapse alike.
    seed = secrets.randbits(63) if options.seed is None else options.seed
    if checkpoint is None and _has_no_job(options) and may_be_direct(query):
        outcome = _direct(query, seed)
        outcome.details.update(device="cpu", ranks=1, seed=seed)
        return outcome
    planned = None if isinstance(query.question, Sample) else planned_work(query)
    n_qubits = query.n_qubits if planned is None else planned.n_qubits
    bits = bits_here(query, options)

    def prepare() -> tuple[int, Rows]:
        compile_soon([COVERS])
        return seed, _done(query, options, checkpoint, bits is not None)

    def needs(_: tuple[int, Rows], n_ranks: int, threads: int) -> Needs:
        if bits is None:
            state = state_needs(n_qubits, options.dtype, n_ranks, threads)
        else:
            state = compressed_needs(n_qubits, bits, options.dtype, threads, n_ranks)
        more = 0 if planned is None else planned.copies_bytes(options.dtype)
        # What a state is too large for may be easy for another method: the refusal names those that can.
        others = [method for method in possible_methods(query, options) if method != "statevector"]
        remedy = state.remedy + "".join(f", or --method {method}" for method in others)
        return replace(state, cpu_bytes=state.cpu_bytes + more, remedy=remedy)

    def work(rank: Rank, request: tuple[int, Rows]) -> Outcome:
        seed, done = request
        free = free_beside(rank, needs(request, rank.world.size, rank.threads).cpu_bytes)
        if planned is not None:
            _check_host(rank, planned, options.dtype, free)
        with rank.on_stream():
            state: StateVector
            if bits is None:
                state = open_state(rank, n_qubits, options.dtype, query.program.operations)
            else:
                state = opened(rank, query, options, bits, seed)
            simulator = Simulator(state, n_qubits, seed=seed)
            if planned is None:
                outcome = as_rounded(_sampled(rank, simulator, query, free), query, options, state)
            elif query.is_random:
                outcome = _mean(rank, simulator, planned, options)
            elif isinstance(query.question, ExpectationValues):
                outcomes = []
                for gates in query.pieces(gates_of(planned.programs[0]).gates):
                    simulator.run(prepare_program(gates), NO_BITS)
                    file = checkpoint if bits is None else None
                    values = _observed(rank, simulator, query.question.sums, done, file)
                    outcome = Outcome(planned.finish([values]), 0.0, EXACT)
                    outcomes.append(as_rounded(outcome, query, options, state))
                outcome = series(outcomes) if query.stops else outcomes[0]
            else:
                outcome = Outcome(planned.finish(_read(simulator, planned)), 0.0, EXACT)
                outcome = as_rounded(outcome, query, options, state)
        end_state(rank, state)
        outcome.details.update(device=rank.device.name, ranks=rank.world.size, seed=seed)
        return outcome

    job = Job(
        prepare=prepare, work=work, needs=needs,
        check_ranks=lambda _, n_ranks: check_state_ranks(n_ranks, n_qubits),
    )  # fmt: skip
    return run_job(job, options)


def _done(
    query: CircuitQuery, options: QuestionOptions, checkpoint: TaskCheckpoint | None, is_compressed: bool
) -> Rows:
    """The values that an interrupted job has left."""
    if checkpoint is None or not isinstance(query.question, ExpectationValues):
        return {}
    if is_compressed:  # values of several compressed states would have several errors: none is kept
        checkpoint.is_there(resume=False)
        return {}
    return checkpoint.rows([2] * len(query.question.sums), options.resume)


def _has_no_job(options: QuestionOptions) -> bool:
    """Whether the options are those of an answer in this thread, on one core in double precision."""
    is_plain = options.precision == "fp64" and options.memory is None and options.progress is None
    return is_plain and options.device == "cpu" and options.ranks in (None, 1) and launched_size() == 1


def may_be_direct(query: CircuitQuery) -> bool:
    """Whether a job and its plans would take longer than the gates one by one, in this thread."""
    shots = query.question.shots if isinstance(query.question, Sample) else 0
    is_plain = not (query.is_random or query.has_gradient or query.stops) and shots <= DIRECT_SHOTS
    return is_plain and query.gates is not None and is_small(query, DIRECT_QUBITS)


def _direct(query: CircuitQuery, seed: int) -> Outcome:
    """What is read from a small state, on one core."""
    question, gates, n = query.question, query.gates, query.n_qubits
    assert gates is not None
    if isinstance(question, Overlap):
        return Outcome(_direct_overlap(gates, question.other), 0.0, EXACT)
    if isinstance(question, Trace):
        return Outcome(_direct_trace(query, gates, question), 0.0, EXACT)
    simulator = Simulator(HostState(n, "complex128"), n, seed=seed)
    simulator.load(_listed(gates).state(NO_ANGLES), simulator.where)
    if isinstance(question, Sample):
        return _counted(simulator, query, sample_counts(simulator, query.program, question.shots))
    planned = planned_work(query)
    return Outcome(planned.finish([planned.read(simulator)]), 0.0, EXACT)


def _listed(gates: GateSequence) -> GateList:
    """The tables of gates, which stay as long as they."""
    if gates not in lists:
        lists[gates] = GateList(gates.n_qubits, 0, gates.gates)
    return lists[gates]


def _direct_overlap(gates: GateSequence, other: GateSequence) -> complex:
    """<other|gates>."""
    try:
        return complex(np.vdot(_listed(other).state(NO_ANGLES), _listed(gates).state(NO_ANGLES)))
    except InputError:
        prepare_program((*gates.gates, *inverse(other).gates))  # says which gate is refused
        raise


def _direct_trace(query: CircuitQuery, gates: GateSequence, question: Trace) -> complex:
    """<s|A U^dagger B U|s> as the overlap of U A^dagger |s> and B U|s>; s as in `_trace`."""
    n = query.n_qubits
    if query.start is None:
        before = GateSequence(2 * n, tuple(operation for pair in _pairs(n) for operation in pair))
        gates = widened(gates, 2 * n)
    else:
        before = query.start.circuit(n)
    listed, where = _listed(gates), range(gates.n_qubits - 1, -1, -1)
    state, left, right = HostState(len(where), "complex128"), *np.empty((2, 1 << len(where)), np.complex128)
    state.load(_listed(before).state(NO_ANGLES))
    state.write_pauli_sum(words_on_bits(question.a.adjoint(), where), left)
    state.load(listed.state(NO_ANGLES, state.amplitudes))
    state.write_pauli_sum(words_on_bits(question.b, where), right)
    return complex(np.vdot(listed.state(NO_ANGLES, left), right))


def _check_host(rank: Rank, planned: StateWork, dtype: str, free: float) -> None:
    """Refuse values for which the host has no room: on a CPU beside the state and copies of it."""
    n_here, copies = ranks_here(rank.world), planned.copies_bytes(dtype)
    answer_bytes = free if rank.device.name == "cpu" else free - copies
    agree(rank.world, lambda: check_answer_memory(None, planned.table_bits, planned.n_qubits, answer_bytes))
    if rank.device.name == "gpu":
        agree(rank.world, lambda: check_host_memory(copies, host_memory()[1], n_here))


def _read(simulator: Simulator, planned: StateWork) -> list[Array]:
    """What is read after each program."""
    values = []
    for number, program in enumerate(planned.programs):
        if number:
            simulator.restart()
        _run(simulator, program)
        values.append(planned.read(simulator))
    return values


def _run(simulator: Simulator, program: CircuitProgram) -> None:
    """The gates of a program, without its final measurements."""
    simulator.run(prepare_program(gates_of(program).gates), NO_BITS)


def _observed(
    rank: Rank, simulator: Simulator, sums: tuple[PauliSum, ...], done: Rows,
    checkpoint: TaskCheckpoint | None,
) -> Array:  # fmt: skip
    """The values of all sums in one state; those that are done are not looked at again."""

    def row_of(number: int) -> Array:
        value = complex(simulator.expectation(sums[number]))
        return np.array([value.real, value.imag])

    # Each word is a pass over the state.
    passes = [max(1, observable.n_terms) for observable in sums]
    table = np.array(TaskList(rank, len(sums), row_of, checkpoint, "sum", passes).together(done))
    if not any(np.iscomplexobj(observable.coefficients) for observable in sums):
        return table[:, 0]
    return table[:, 0] + 1j * table[:, 1]


def _mean(rank: Rank, simulator: Simulator, planned: StateWork, options: QuestionOptions) -> Outcome:
    """The mean over trajectories with its standard deviation."""
    assert options.trajectories is not None
    (program,), runs = planned.programs, options.trajectories
    mean: Any = 0.0
    squares: Any = 0.0
    number = 0
    # Runs that share their states take less than each by itself, and no one knows how much.
    is_even = not can_branch(simulator)
    rank.say_steps(0, runs, "trajectory", is_even)
    for trajectory in trajectories(simulator, program, runs):
        value, number = planned.finish([planned.read(simulator)]), number + trajectory.shots
        # Welford's update of mean and squared deviations with weights (West, Comm. ACM 22, 532,
        # 1979): a trajectory stands for `shots` runs with the same outcomes. Differences of sums of
        # squares would cancel.
        before = value - mean
        mean = mean + before * (trajectory.shots / number)
        # (x - m_before) (x - m_after)^* is real and >= 0: both factors are multiples of the same number.
        squares = squares + (before * np.conj(value - mean)).real * trajectory.shots
        rank.say_steps(number, runs, "trajectory", is_even)
    return Outcome(mean, np.sqrt(squares / (runs - 1)) / sqrt(runs), STATISTICAL, {"trajectories": runs})


def _sampled(rank: Rank, simulator: Simulator, query: CircuitQuery, free: float) -> Outcome:
    """Counts of outcomes."""
    assert isinstance(query.question, Sample)
    shots = query.question.shots
    agree(rank.world, lambda: check_answer_memory(shots, 0, query.n_qubits, free))
    sampled = answer(
        simulator, query.program, SampleQuestion(shots),
        lambda done, shots: rank.say_steps(done, shots, "run", not can_branch(simulator)),
    )  # fmt: skip
    assert sampled.counts is not None
    return _counted(simulator, query, sampled.counts)


def _counted(simulator: Simulator, query: CircuitQuery, counts: dict[str, int]) -> Outcome:
    """Counts with what is known of them. Collective."""
    shots = sum(counts.values())
    details = {"shots": shots, "samples": "independent", **_cross_entropy(simulator, query, counts)}
    return Outcome(counts, None, STATISTICAL, details)


def _cross_entropy(simulator: Simulator, query: CircuitQuery, counts: dict[str, int]) -> dict[str, Any]:
    """The linear cross-entropy of outcomes that have all qubits of a circuit of gates. Collective."""
    measured = final_measurements(query.program)
    if measured is None or fidelity_report(simulator.state):  # the probabilities are those of another state
        return {}
    bit_of = {qubit: bit for bit, qubit in measured.items()} or {q: q for q in range(query.n_qubits)}
    if len(bit_of) < query.n_qubits or max(bit_of.values()) >= len(next(iter(counts))):
        return {}
    rows = np.frombuffer("".join(counts).encode(), np.uint8).reshape(len(counts), -1) - ord("0")
    bits = rows[:, [bit_of[qubit] for qubit in range(query.n_qubits)]]
    chances = np.abs(simulator.amplitudes_at(bits)) ** 2
    return cross_entropy(np.repeat(chances, [*counts.values()]), query.n_qubits, is_independent=True)


def planned_work(query: CircuitQuery) -> StateWork:
    """What is run and read for every question but samples."""
    question, n = query.question, query.n_qubits
    work = partial(StateWork, n, (query.program,))
    if isinstance(question, Amplitudes):
        return work(partial(_amplitudes, bits=question.bits), _first if question.is_single else _all)
    if isinstance(question, OpenAmplitudes):
        m, wanted = len(question.open_qubits), (question.fixed, question.open_qubits)
        return work(
            lambda simulator: simulator.open_amplitudes(*wanted),
            lambda tables: tables[0].reshape((2,) * m), table_bits=m,
        )  # fmt: skip
    if isinstance(question, ExpectationValues):
        return work(
            lambda simulator: np.array([simulator.expectation(observable) for observable in question.sums]),
            _first if question.is_single else _all,
        )
    if isinstance(question, Probabilities):
        m, qubits = len(question.qubits), question.qubits
        return work(
            lambda simulator: simulator.probabilities(qubits),
            lambda tables: tables[0].reshape((2,) * m), table_bits=m,
        )  # fmt: skip
    if isinstance(question, ReducedDensityMatrix):
        copies = 0 if len(question.qubits) <= FEW_QUBITS else 3
        return work(partial(_density, qubits=question.qubits), _all, copies)
    assert query.gates is not None
    if isinstance(question, Overlap):
        # <b|a> = <0|V^dagger U|0>: the amplitude of |0...0> after U and the inverse of V.
        gates = (*query.gates.gates, *inverse(question.other).gates)
        program = circuit_program(GateSequence(n, gates))
        return StateWork(n, (program,), partial(_amplitudes, bits=np.zeros((1, n), np.uint8)), _first)
    assert isinstance(question, Trace)
    if query.start is None:
        return _trace(query.gates, question)
    return _trace_of_input(query.gates, question, query.start.circuit(n))


def _first(read: list[Array]) -> Any:
    """The only value of the only reading."""
    return read[0][0].item()


def _all(read: list[Array]) -> Array:
    """The only reading."""
    return read[0]


def _amplitudes(simulator: Simulator, bits: Array) -> Array:
    return simulator.amplitudes_at(bits)


def _density(simulator: Simulator, qubits: tuple[int, ...]) -> Array:
    """The density matrix, by Pauli words or as a product of the state with its conjugate."""
    if len(qubits) <= FEW_QUBITS:
        return simulator.reduced(qubits)
    state = simulator.array().reshape((2,) * simulator.n_qubits)
    rows = np.moveaxis(state, qubits, range(len(qubits))).reshape(2 ** len(qubits), -1)
    return rows @ rows.conj().T


def _trace(circuit: GateSequence, question: Trace) -> StateWork:
    """Tr(A U^dagger B U) / 2^n from states of 2 n qubits, an input and an output for each.

    With |S> the sum of |i>|i> over sqrt(2^n), <S|P U^dagger Q U|S> is the trace of P U^dagger Q U over 2^n.
    Undoing what made |S> takes P|S> to (-i)^|x & z| |z>|x>: all words P of A are amplitudes of one state.
    """
    n = circuit.n_qubits
    pairs = _pairs(n)
    before = tuple(operation for pair in pairs for operation in pair)
    after = tuple(operation for pair in pairs for operation in reversed(pair))
    words = [(x, z, c * 1j ** ((x & z).bit_count() & 3)) for x, z, c in question.a.masks()]
    bits = np.array([[*_bits(z, n), *_bits(x, n)] for x, z, _ in words], np.uint8)
    return _echoes(2 * n, circuit, question, (before, after), (bits, np.array([c for *_, c in words])))


def _pairs(n_qubits: int) -> list[tuple[Gate, Gate]]:
    """What makes |S>."""
    return [(gate("h", (q,)), gate("cnot", (q, n_qubits + q))) for q in range(n_qubits)]


def _trace_of_input(circuit: GateSequence, question: Trace, start: GateSequence) -> StateWork:
    """<s|A U^dagger B U|s> with |s> = C|0>: words P of C^dagger A C have <0|P = (-i)^|x & z| <x|."""
    n = circuit.n_qubits
    words = list(propagate(circuit_steps(start), question.a).result.masks())
    weights = np.array([c * (-1j) ** ((x & z).bit_count() & 3) for x, z, c in words])
    bits = np.array([_bits(x, n) for x, _, _ in words], np.uint8)
    return _echoes(n, circuit, question, (start.gates, inverse(start).gates), (bits, weights))


def _echoes(
    n_qubits: int, circuit: GateSequence, question: Trace, around: tuple[tuple[Gate, ...], tuple[Gate, ...]],
    wanted: tuple[Array, Array],
) -> StateWork:  # fmt: skip
    """U, a word of B, and U^dagger, for every word; weighted amplitudes of bit strings."""
    (before, after), (bits, weights) = around, wanted
    circuit, back = widened(circuit, n_qubits), inverse(circuit).gates
    # A word of B stands between U and U^dagger in each program: the traces are linear in B, and a
    # state is of one word.
    programs = tuple(
        CircuitProgram(n_qubits, 0, (*before, *circuit.gates, *pauli_word_gates(x, z), *back, *after))
        for x, z, _ in question.b.masks()
    )

    def finish(read: list[Array]) -> complex:
        return complex(np.array([c for *_, c in question.b.masks()]) @ np.array(read) @ weights)

    return StateWork(n_qubits, programs, partial(_amplitudes, bits=bits), finish)


def _bits(mask: int, n_qubits: int) -> list[int]:
    """A mask as 0 or 1 for each qubit."""
    return [mask >> qubit & 1 for qubit in range(n_qubits)]
