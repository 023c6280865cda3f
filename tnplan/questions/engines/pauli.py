"""Questions answered by Pauli propagation: all are values of words taken backwards through the circuit.

Noise, measurements and resets without conditions are channels, so that values are no means of runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.derivatives.dual_number import VariedGate, slopes_of
from tnplan.circuits.pauli_sum import PauliSum, pauli_sum
from tnplan.circuits.program import Channel, Measurement, Operation, Reset, without_final_measurements
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.executor.pauli.algebra.expectation import farthest
from tnplan.executor.pauli.algebra.gates import (
    PauliStep,
    circuit_steps,
    gate_steps,
    kraus_channel,
    local_words,
    named_rotations,
    steps_of_gates,
    word_masks,
)
from tnplan.executor.pauli.algebra.states import AfterOperator, OverlapWith, State, after_first_steps
from tnplan.executor.pauli.estimate import Estimate
from tnplan.executor.pauli.gradient import gradient, on_cpu_alone
from tnplan.executor.pauli.propagate import Progress, Propagation, propagate_all
from tnplan.executor.pauli.repetitions import check_sampling
from tnplan.executor.pauli.resources import Resources, term_bytes
from tnplan.executor.pauli.terms.truncation import Truncation
from tnplan.jobs.job import Job, Needs, Rank, run_job
from tnplan.jobs.pauli_sampling import SampledValue, estimate_of_values, sample, sampling_needs
from tnplan.questions.engines.task_list import (
    BIASED,
    EXACT,
    STATISTICAL,
    TRUNCATION,
    Outcome,
    Rows,
    TaskCheckpoint,
    TaskList,
    series,
)
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import (
    CircuitQuery,
    ExpectationValues,
    Probabilities,
    ReducedDensityMatrix,
    Trace,
)

# Pauli propagation of a circuit as a job: the steps of its operations, and what it needs of a rank.


ZERO, ONE = np.diag([1.0, 0.0]).astype(np.complex128), np.diag([0.0, 1.0]).astype(np.complex128)
LOWER = np.array([[0, 1], [0, 0]], np.complex128)
"""|0><1|."""


def program_steps(operations: Sequence[Operation]) -> tuple[PauliStep, ...]:
    """The steps of gates, channels, measurements and resets; final measurements are left out."""
    body, _ = without_final_measurements(operations)
    return tuple(step for number, operation in enumerate(body) for step in operation_steps(operation, number))


def operation_steps(operation: Operation, number: int) -> tuple[PauliStep, ...]:
    """The steps of operation `number`."""
    if isinstance(operation, Gate):
        return gate_steps(operation, f"gate {number} ({operation.name})")
    if isinstance(operation, Channel):
        return (kraus_channel(operation.qubits, operation.kraus),)
    if isinstance(operation, Measurement):
        return (kraus_channel((operation.qubit,), (ZERO, ONE)),)
    if isinstance(operation, Reset):
        return (kraus_channel((operation.qubit,), (ZERO, LOWER)),)
    raise InputError(f"operation {number}", "depends on measured bits", "use --method statevector")


def resources_of(rank: Rank, precision: str) -> Resources:
    """What a propagation may use of a rank."""
    return Resources(
        device=rank.device.name, threads=rank.threads, precision=precision,
        memory_bytes=rank.memory_bytes, ranks=rank.connected(),
    )  # fmt: skip


def pauli_needs(sums: Sequence[PauliSum]) -> Needs:
    """What the terms take that sums start with."""
    words = max(observable.n_terms for observable in sums)
    size_bytes = words * term_bytes(sums[0].n_qubits, 8)
    return Needs(size_bytes, size_bytes, "give an observable of fewer words")


def check_power_of_two(n_ranks: int) -> None:
    """Refuse a number of ranks that cannot share terms."""
    if n_ranks & (n_ranks - 1):
        raise InputError("ranks", f"are {n_ranks}", "start a power of two")


# What Pauli propagation does for a question: the sums that it takes through a circuit's steps.


@dataclass(frozen=True, eq=False)
class PauliWork:
    """The steps of a circuit, the sums that are taken through them, and what their values are measured in.

    `lengths`: how many of the last steps a sum has gone through at each value, rising; none: all. `stops`:
    the numbers of the stops whose values these are.
    """

    steps: tuple[PauliStep, ...]
    sums: tuple[PauliSum, ...]
    state: str | State | None
    lengths: tuple[int, ...] = ()
    stops: tuple[int, ...] = (0,)

    @property
    def pieces(self) -> list[tuple[PauliStep, ...]]:
        """The steps from each value to the next, the last steps first."""
        n = len(self.steps)
        ends = [0, *(self.lengths or [n])]
        return [self.steps[n - end : n - begin] for begin, end in pairwise(ends)]


def planned_sums(query: CircuitQuery) -> PauliWork:
    """The steps, and the sums whose values the question needs."""
    gates, question, n = query.circuit_gates, query.question, query.n_qubits
    steps = program_steps(query.circuit_operations) if gates is None else circuit_steps(gates)
    state = None if query.start is None else query.start.measured
    if isinstance(question, ExpectationValues):
        return PauliWork(steps, question.sums, state)
    if isinstance(question, Trace):
        return PauliWork(steps, (question.b,), _measured_in(question.a, state))
    assert isinstance(question, Probabilities | ReducedDensityMatrix)
    words = [word_masks(question.qubits, word) for word in words_of(question)]
    return PauliWork(steps, tuple(pauli_sum([(x, z, 1.0)], n) for x, z in words), state)


def planned_sweeps(query: CircuitQuery) -> list[PauliWork]:
    """What gives the values of the question, or those at all stops."""
    if not query.stops:
        return [planned_sums(query)]
    assert isinstance(query.question, ExpectationValues)
    state = None if query.start is None else query.start.measured
    works = []
    for sweep in query.sweeps:
        steps = (
            [*steps_of_gates(sweep.operations)] if query.gates is not None  # type: ignore[arg-type]
            else [operation_steps(operation, k) for k, operation in enumerate(sweep.operations)]
        )  # fmt: skip
        first, later = steps[: sweep.n_first], steps[sweep.n_first :]
        rest, own_state = after_first_steps([*chain(*first)], state, query.n_qubits)
        assert not rest
        ends = np.cumsum([0, *map(len, reversed(later))])
        lengths = tuple(int(ends[length]) for length in sweep.lengths)
        works.append(PauliWork(tuple(chain(*later)), query.question.sums, own_state, lengths, sweep.numbers))
    return works


def _measured_in(a: PauliSum, state: str | State | None) -> State:
    """What gives words W the values Tr(A W) / 2^n; in a state those of A W."""
    if state is not None:
        return AfterOperator(a, state)
    return OverlapWith(PauliSum(a.n_qubits, a.keys, np.conj(a.coefficients)))


def words_of(question: Probabilities | ReducedDensityMatrix) -> list[int]:
    """The local words that the question needs: of Z alone, or all."""
    words = range(4 ** len(question.qubits))
    if isinstance(question, ReducedDensityMatrix):
        return [*words]
    has_x = sum(1 << 2 * k for k in range(len(question.qubits)))
    return [word for word in words if not word & has_x]


# Expectation values with their derivatives by parameters, by Pauli propagation: a sweep back for each.


@dataclass(frozen=True, eq=False)
class _Planned:
    """The steps, and by the number of a rotation the slopes of its angle, where it has some."""

    steps: tuple[PauliStep, ...]
    slopes: dict[int, Mapping[str, float]]


def gradients_by_pauli(query: CircuitQuery, options: QuestionOptions) -> Outcome:
    """The values and their derivatives; collective under mpirun.

    With a truncation they are the derivatives of the truncated value: what was dropped stays dropped.
    """
    question, truncation = query.question, options.truncation or Truncation()
    assert isinstance(question, ExpectationValues)
    state = None if query.start is None else query.start.measured

    def prepare() -> _Planned:
        steps: list[PauliStep] = []
        slopes: dict[int, Mapping[str, float]] = {}
        body, _ = without_final_measurements(query.circuit_operations)
        for number, operation in enumerate(body):
            if not isinstance(operation, VariedGate):
                steps += operation_steps(operation, number)
                continue
            # A varied gate becomes rotations exp(-i angle P / 2), whose angles carry their slopes by the
            # parameters. The chain rule d<O>/dp = sum_steps (d<O>/dangle) (dangle/dp) is applied at the end.
            for turn in named_rotations(operation):
                # The number of the step that is appended next: `gradient` gives derivatives by
                # numbers of steps.
                if slopes_of(turn.angle):
                    slopes[len(steps)] = slopes_of(turn.angle)
                steps.append(replace(turn, angle=float(turn.angle)))
        return _Planned(tuple(steps), slopes)

    def work(rank: Rank, planned: _Planned) -> Outcome:
        results = []
        with rank.on_stream():
            # All ranks share the terms of one sum; sums follow each other, so that one tape is in
            # memory at a time.
            use = resources_of(rank, options.precision)
            for number, observable in enumerate(question.sums, 1):
                results.append(gradient(
                    planned.steps, observable, truncation, use, state=state, wanted=[*planned.slopes]
                ))  # fmt: skip
                if len(question.sums) > 1:
                    rank.say(number, len(question.sums), f"sum {number} of {len(question.sums)}")
        values = np.array([result.value.real for result in results])
        # A dropped term c P changes a value by |c| at most: the rest of the circuit takes P to an
        # operator of norm 1 or less. So the l1 norm of all that was dropped bounds the error.
        bounds = np.array([result.dropped.l1 for result in results])
        rows = [_by_parameters(planned, result.derivatives, question.names) for result in results]
        value, error = (values[0].item(), float(bounds[0])) if question.is_single else (values, bounds)
        is_cut = options.truncation is not None
        details = {
            "device": rank.device.name, "ranks": rank.world.size,
            "terms": max(result.n_terms for result in results),
            "tape_bytes": max(result.tape_bytes for result in results),
        }  # fmt: skip
        kind = TRUNCATION if is_cut else EXACT
        return Outcome(value, error if is_cut else 0.0, kind, details, np.array(rows))

    job = Job(
        prepare=prepare, work=work,
        needs=lambda planned, n_ranks, threads: replace(
            pauli_needs(question.sums), cpu_only=on_cpu_alone(planned.steps, question.sums, n_ranks)
        ),
        check_ranks=lambda _, n_ranks: check_power_of_two(n_ranks),
    )  # fmt: skip
    return run_job(job, options)


def _by_parameters(planned: _Planned, derivatives: Array, names: Sequence[str]) -> Array:
    """The derivatives by parameters, float64 [parameter], from those by the angles of rotations."""
    row, columns = np.zeros(len(names)), {name: column for column, name in enumerate(names)}
    for number, slopes in planned.slopes.items():
        for name, slope in slopes.items():
            row[columns[name]] += slope * derivatives[number].real
    return row


def answer_by_pauli(
    query: CircuitQuery, options: QuestionOptions, checkpoint: TaskCheckpoint | None
) -> Outcome:
    """The answer by Pauli propagation; collective under mpirun."""
    if query.has_gradient:
        return gradients_by_pauli(query, options)
    if options.monte_carlo is not None:
        return estimates_by_pauli(query, options, checkpoint)
    truncation = options.truncation or Truncation()

    def work(rank: Rank, request: tuple[list[PauliWork], Rows]) -> Outcome:
        planned, done = request
        tasks = [(sweep, number) for sweep in planned for number in range(len(sweep.sums))]
        use = resources_of(rank, options.precision)

        def row_of(task: int) -> Array:
            return np.ravel([*map(_row, _propagated(rank, tasks, task, truncation, use))])

        with rank.on_stream():
            # Invariant: all ranks propagate one sum together, so that every rank makes the same
            # calls in the same order.
            rows = TaskList(rank, len(tasks), row_of, checkpoint).together(done)
        tables = np.empty((max(1, len(query.stops)), len(planned[0].sums), ROW))
        for (sweep, number), row in zip(tasks, rows, strict=True):
            tables[[*sweep.stops], number] = row.reshape(-1, ROW)
        details = {"device": rank.device.name, "ranks": rank.world.size}
        if query.stops:
            details["sweeps"] = len(planned)
        is_cut = options.truncation is not None
        outcomes = [_outcome_of(query, table, details, is_cut) for table in tables]
        return series(outcomes) if query.stops else outcomes[0]

    job = Job(
        prepare=lambda: _with_done(planned_sweeps(query), checkpoint, options.resume), work=work,
        needs=lambda request, n_ranks, threads: pauli_needs(request[0][0].sums),
        check_ranks=lambda _, n_ranks: check_power_of_two(n_ranks),
    )  # fmt: skip
    return run_job(job, options)


def _with_done(
    planned: list[PauliWork], checkpoint: TaskCheckpoint | None, resume: bool
) -> tuple[list[PauliWork], Rows]:
    """The work with the rows that an interrupted job has left of it; none where there are several values."""
    return planned, {} if checkpoint is None else checkpoint.rows([ROW] * len(planned[0].sums), resume)


def _outcome_of(query: CircuitQuery, table: Array, details: dict[str, Any], is_cut: bool) -> Outcome:
    """The value with its error, from the numbers of all sums."""
    value, error = _finished(query, table)
    details = {**details, "terms": int(table[:, 3].max()), "largest_terms": int(table[:, 4].max())}
    if not is_cut:
        return Outcome(value, 0.0, EXACT, details)
    error, is_vacuous = _capped(query, value, error)
    return Outcome(value, error, TRUNCATION, {**details, "error_bound_is_vacuous": is_vacuous})


ROW = 5
"""The numbers of `_row`."""


def _row(propagation: Propagation) -> Array:
    """The numbers of a propagation: its value, the bound of its error, its terms and the most of them."""
    value = complex(propagation.value)
    lost = propagation.dropped.l1
    return np.array([value.real, value.imag, lost, propagation.n_terms, propagation.largest])


def _finished(query: CircuitQuery, table: Array) -> tuple[Any, Any]:
    """The value and the bound of its error, from the numbers of all propagations."""
    question = query.question
    values, bounds = table[:, 0], table[:, 2]
    if isinstance(question, Trace):
        # Tr(A X) / 2^n = sum_P a_P x_P: errors of X weigh the largest |a_P| at most. With an input
        # state every <s|P Q|s> may be 1 in size, and the sum of |a_P| bounds them.
        sizes = np.abs(question.a.coefficients)
        size = sizes.max(initial=0.0) if query.start is None else sizes.sum()
        return complex(values[0], table[0, 1]), float(bounds[0] * size)
    if isinstance(question, ExpectationValues):
        if any(np.iscomplexobj(observable.coefficients) for observable in question.sums):
            values = values + 1j * table[:, 1]
        return (values[0].item(), float(bounds[0])) if question.is_single else (values, bounds)
    assert isinstance(question, Probabilities | ReducedDensityMatrix)
    m = len(question.qubits)
    # rho = 2^-m sum_P <P> P over the 4^m words on m qubits. The elements of P have modulus 0 or 1,
    # so that each element of rho is off by the sum of the bounds over 2^m at most.
    matrices = local_words(m)[words_of(question)]
    density = np.einsum("w,wij->ij", values, matrices) / 2**m
    bound = float(bounds.sum()) / 2**m
    if isinstance(question, Probabilities):
        return np.diag(density).real.reshape((2,) * m), bound
    return density, bound


def _capped(query: CircuitQuery, value: Any, bound: Any) -> tuple[Any, bool]:
    """The bound as far as a value can be wrong at all, and whether it says nothing of any value."""
    question = query.question
    if not isinstance(question, ExpectationValues):
        return bound, False
    most = [*map(farthest, question.sums, np.atleast_1d(value))]
    capped = np.minimum(bound, most)
    is_vacuous = bool(np.all((np.atleast_1d(bound) >= most) & (np.array(most) > 0)))
    return (capped[0].item() if question.is_single else capped), is_vacuous


def _propagated(
    rank: Rank, tasks: Sequence[tuple[PauliWork, int]], task: int, truncation: Truncation, use: Resources
) -> list[Propagation]:
    """One sum, taken through all steps; how it stands at each value."""
    planned, number = tasks[task]

    def heard(at: Progress) -> None:
        text = f"sum {task + 1} of {len(tasks)}: {at.terms} terms, {size_text(at.size_bytes)}"
        rank.say(task * at.steps + at.step, len(tasks) * at.steps, text)

    return propagate_all(
        planned.pieces, planned.sums[number], truncation, use, state=planned.state, keep="none",
        progress=heard,
    )  # fmt: skip


# Expectation values and traces by Monte Carlo propagation: repetitions for each sum, and their errors.


Given = tuple[tuple[SampledValue, ...], Rows]


def estimates_by_pauli(
    query: CircuitQuery, options: QuestionOptions, checkpoint: TaskCheckpoint | None
) -> Outcome:  # fmt: skip
    """The means of repetitions with their standard errors; collective under mpirun.

    Repetition r of every sum has the same random numbers, those of `propagate` with the same `MonteCarlo`.
    """
    plan, truncation = options.monte_carlo, options.truncation or Truncation()
    assert plan is not None

    def prepare() -> Given:
        sampled = sampled_values(query, planned_sums(query), options)
        # A row of the checkpoint: two figures, then the value of each repetition. The estimate is
        # made of the values again, so that resumed jobs give the same one.
        widths = [2 + plan.repetitions] * len(sampled)
        done = {} if checkpoint is None else checkpoint.rows(widths, options.resume)
        return sampled, done

    def needs(request: Given, n_ranks: int, threads: int) -> Needs:
        largest = max(request[0], key=lambda sampled: sampled.terms.n_terms)
        return sampling_needs(largest, threads, options.device)

    def work(rank: Rank, request: Given) -> Outcome:
        sampled, done = request
        use = Resources(
            device=rank.device.name, threads=rank.threads, precision=options.precision,
            ranks=rank.world if rank.world.size > 1 else None,
        )  # fmt: skip

        def row_of(number: int) -> Array:
            def say(repetition: int, n: int) -> None:
                text = f"sum {number + 1} of {len(sampled)}: repetition {repetition} of {n}"
                rank.say(number * n + repetition, len(sampled) * n, text)

            estimate, figures = sample(rank, sampled[number], use, None, say)
            # Where nothing is resampled one repetition is exact, and stands for all.
            values = np.broadcast_to(estimate.values, plan.repetitions)
            return np.concatenate([[figures["resampled"], figures["largest_terms"]], values])

        with rank.on_stream():
            rows = TaskList(rank, len(sampled), row_of, checkpoint).together(done)
        estimates = [
            estimate_of_values(row[2:].tolist(), row[0] > 0, value)
            for row, value in zip(rows, sampled, strict=True)
        ]
        return _outcome(query, estimates, {
            "device": rank.device.name, "ranks": rank.world.size, "terms": truncation.max_terms,
            "largest_terms": int(max(row[1] for row in rows)), "monte_carlo": asdict(plan),
            "estimates": [asdict(estimate) for estimate in estimates],
        })  # fmt: skip

    return run_job(Job(prepare=prepare, work=work, needs=needs), options)


def sampled_values(
    query: CircuitQuery, planned: PauliWork, options: QuestionOptions
) -> tuple[SampledValue, ...]:  # fmt: skip
    """What is estimated; refuses sums and truncations that cannot be resampled."""
    plan, truncation = options.monte_carlo, options.truncation or Truncation()
    assert plan is not None
    if isinstance(query.question, Trace):
        check_sampling(query.question.a, truncation)
    steps, state = planned.steps, planned.state
    return tuple(SampledValue(steps, observable, state, plan, truncation) for observable in planned.sums)


def _outcome(query: CircuitQuery, estimates: Sequence[Estimate], details: dict[str, Any]) -> Outcome:
    """The means and their standard errors; exact where nothing was resampled, biased where a mean is not."""
    question = query.question
    values = np.array([estimate.value for estimate in estimates])
    errors = np.array([estimate.standard_error for estimate in estimates])
    kinds = {estimate.kind for estimate in estimates}
    kind = EXACT if kinds == {"exact"} else BIASED if BIASED in kinds else STATISTICAL
    if isinstance(question, ExpectationValues) and not question.is_single:
        return Outcome(values, 0.0 if kind == EXACT else errors, kind, details)
    value = complex(values[0]) if isinstance(question, Trace) else float(values[0])
    return Outcome(value, float(errors[0]), kind, details)
