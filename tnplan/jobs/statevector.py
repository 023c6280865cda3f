"""The job of `simulate`: inputs are read and checked, ranks and devices chosen, results written.

The arithmetic is in executor/statevector. What only one kind of state needs is imported where that is opened.

Changelog of `tnplan.statevector`, the JSON of a result:
1 (2026-11-21): first version.
2 (2026-11-26): `gradient`.
3 (2026-12-01): `fidelity`, `bits`, `fidelity_estimate`, `fidelity_bound`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from tnplan.circuits.load import load_program
from tnplan.circuits.pauli_sum import given_sum
from tnplan.circuits.program import (
    CircuitProgram,
    Operation,
    depolarized,
    final_measurements,
    largest_operator,
)
from tnplan.common.arrays import Array
from tnplan.common.checks import check_choice, check_count, is_number
from tnplan.common.errors import InputError
from tnplan.common.files import check_json_name, check_writable, write_json
from tnplan.common.kernels.ahead import compile_soon
from tnplan.common.shown_text import Printed, largest_rows, number_text
from tnplan.common.units import count_text
from tnplan.executor.device.comm.launcher import launched_size
from tnplan.executor.device.cpu.host_memory import host_facts, host_memory, ranks_here
from tnplan.executor.device.protocols.communicator import Communicator, agree
from tnplan.executor.device.protocols.stop_signal import keeping
from tnplan.executor.statevector.gates.multiplexed_gate import LARGEST_TARGETS
from tnplan.executor.statevector.measurement import Answer, Question, answer, can_branch, check_question
from tnplan.executor.statevector.memory_estimate import (
    GRADIENT_STATES,
    LARGEST,
    check_answer_memory,
    predicted_bytes,
)
from tnplan.executor.statevector.prepared_program import prepare_program
from tnplan.executor.statevector.scheduling.qubit_cover import COVERS
from tnplan.executor.statevector.scheduling.tiled_passes import MODES, TILES
from tnplan.executor.statevector.simulator import Simulator, StateVector
from tnplan.executor.statevector.state_file import (
    SavedState,
    check_state_writable,
    load_state,
    remove_index,
    save_index,
    save_part,
    state_of,
)
from tnplan.jobs.compressed_state import (
    LEAST_BITS,
    StateCheckpoint,
    bits_for,
    check_fidelity,
    compressed_needs,
    fidelity_report,
    fidelity_text,
    more_bits,
    open_compressed,
)
from tnplan.jobs.job import Job, Needs, Rank, run_job
from tnplan.jobs.job_options import JobOptions
from tnplan.jobs.outputs import Writes

TOPIC = "state vectors"

DTYPES = {"fp64": "complex128", "fp32": "complex64"}
"""The dtype of amplitudes in each precision."""
FORMAT = "tnplan.statevector"
VERSION = 3
NORM = 1e-2
"""How far from 1 the sum of all probabilities of a saved state may be."""

Start = str | Path | Sequence[complex] | Array
"""A saved state, or amplitudes."""


@dataclass(frozen=True, eq=False, repr=False)
class Simulation(Printed):
    """What `simulate` gives; `print` shows the answers.

    Parameters
    ----------
    answer : Answer
        What was asked for: `counts`, `expectation`, `deviation`, `amplitudes`, `probabilities`, and `norm`.
    simulator : Simulator
        The final state (of the last run). With several ranks in this process it has no more answers to give.
    report : dict
        What the JSON file says (docs/explanation/statevector.md).

    Examples
    --------
    >>> tnplan.simulate(tnplan.GateSequence(2, ()), observable="Z0", precision="fp32", device="cpu")
    Simulation(2 qubits, complex64: expectation)
    """

    answer: Answer
    simulator: Simulator
    report: dict[str, Any]

    def __repr__(self) -> str:
        names = ("counts", "expectation", "amplitudes", "probabilities", "gradient")
        answered = [name for name in names if getattr(self.answer, name) is not None]
        size = f"{self.report['n_qubits']} qubits, {self.report['dtype']}"
        return f"Simulation({size}: {', '.join(answered) or 'no question'})"

    def __str__(self) -> str:
        return "\n".join(_lines(self.report))


def _lines(report: dict[str, Any]) -> Iterator[str]:
    """What a report says, for people; of long lists the largest rows."""
    yield (
        f"{count_text(report['n_qubits'], 'qubit', 'qubits')} in {report['dtype']}, "
        f"{count_text(report['operations'], 'operation', 'operations')} in "
        f"{count_text(report['passes'], 'pass', 'passes')} and "
        f"{count_text(report['exchanges'], 'exchange', 'exchanges')}, {report['time_s']:.3g} s; "
        f"sum of probabilities {report['norm']:.9f}"
    )
    if "bits" in report:
        yield fidelity_text(report)
    if "expectation" in report:
        deviation = report["deviation"]
        more = "" if not deviation else f" +- {deviation:.2g}"
        yield f"expectation value {report['expectation']!r}{more}"
    for entry in report.get("gradient", ()):
        where = f"gate {entry['gate']} ({entry['name']}), angle {entry['parameter']}, {entry['angle']:.6g}"
        yield f"derivative at {where}: {entry['derivative']!r}"
    for bits, (real, imaginary) in report.get("amplitudes", {}).items():
        yield f"amplitude {bits}: {number_text(complex(real, imaginary), '.9e')}"
    if "marginal" in report:
        width = len(report["marginal"]["qubits"])
        rows = [(f"{k:0{width}b}", p) for k, p in enumerate(report["marginal"]["probabilities"])]
        yield from largest_rows("probability", rows)
    if "counts" in report:
        yield from largest_rows("count", report["counts"].items())


@dataclass(frozen=True, eq=False)
class SimulationRequest:
    """The arguments of `simulate` besides the circuit and the job's options."""

    shots: int | None
    observable: Any
    amplitudes: Sequence[str]
    marginal: Sequence[int]
    gradient: bool
    parameters: Mapping[str, Any] | None
    depolarize: float
    mode: str
    seed: int | None
    start: Start | None
    save: str | Path | None
    precision: str
    fidelity: float | None

    @property
    def dtype(self) -> str:
        """That of amplitudes."""
        return DTYPES[self.precision]


@dataclass(frozen=True, eq=False)
class SimulationProblem:
    """The checked inputs of `simulate`, equal on every rank."""

    program: CircuitProgram
    question: Question
    seed: int
    bits: int | None = None
    """Those of a compressed state's numbers."""


def run_simulation(circuit: Any, request: SimulationRequest, options: JobOptions) -> Simulation:
    """Simulate on the ranks of this process, or on those of mpirun."""
    check_choice("--precision", request.precision, DTYPES)
    if request.fidelity is not None:
        others = {"--gradient": request.gradient, "--start": request.start, "--save": request.save}
        check_fidelity(request.fidelity, others)
    elif options.checkpoint:
        raise InputError(
            "--checkpoint", "is only for compressed states, and --fidelity is not given",
            "leave it out; --save writes the state at the end", topic="checkpoints",
        )  # fmt: skip

    def check_ranks(problem: SimulationProblem, n_ranks: int) -> None:
        _check_ranks(n_ranks, problem.program, request)
        _check_outputs(request, options.output, n_ranks, circuit)

    def writes(problem: SimulationProblem, n_ranks: int) -> Writes | None:
        return None if request.save is None else Writes(Path(request.save), by_all=True)

    job = Job(
        writes=writes, prepare=lambda: _prepare(circuit, request, options),
        work=lambda rank, problem: _work(rank, problem, request, options), check_ranks=check_ranks,
        needs=lambda problem, n_ranks, threads: _needs(problem, request, n_ranks, threads),
    )  # fmt: skip
    with options.heeding_signals():
        return run_job(job, options)


def _prepare(circuit: Any, request: SimulationRequest, options: JobOptions) -> SimulationProblem:
    """Read and check all inputs, on rank 0."""
    if not is_number(request.depolarize):
        raise InputError("--depolarizing", f"is {request.depolarize!r}", "give a probability")
    program = depolarized(load_program(circuit, request.parameters), request.depolarize)
    terms = None if request.observable is None else given_sum(request.observable, program.n_qubits)
    amplitudes = _listed("--amplitudes", request.amplitudes)
    marginal = _listed("--marginal", request.marginal)
    question = Question(request.shots, terms, amplitudes, marginal, request.gradient)
    # A seed that is drawn here is the same on all ranks.
    seed = secrets.randbits(63) if request.seed is None else check_count("--seed", request.seed, 0)
    problem = SimulationProblem(program, question, seed)
    _check(problem, request)
    compile_soon([COVERS])
    if request.fidelity is None:
        return problem
    n_ranks = options.ranks or launched_size()
    _check_ranks(n_ranks, program, request)  # before passes are planned for so many
    bits = bits_for(request.fidelity, program, request.dtype, request.mode, options.device, n_ranks)
    return replace(problem, bits=bits)


def _needs(problem: SimulationProblem, request: SimulationRequest, n_ranks: int, threads: int) -> Needs:
    if problem.bits is not None:
        return compressed_needs(problem.program.n_qubits, problem.bits, request.dtype, threads, n_ranks)
    states = GRADIENT_STATES if problem.question.gradient else 1
    return state_needs(problem.program.n_qubits, request.dtype, n_ranks, threads, states)


def _needed_bytes(rank: Rank, problem: SimulationProblem, request: SimulationRequest) -> int:
    """Those on the device of a rank."""
    needs = _needs(problem, request, rank.world.size, rank.threads)
    return needs.gpu_bytes if rank.device.name == "gpu" else needs.cpu_bytes


def _work(
    rank: Rank, problem: SimulationProblem, request: SimulationRequest, options: JobOptions
) -> Simulation:
    """One rank: the whole simulation; rank 0 writes the result."""
    world, n, question = rank.world, problem.program.n_qubits, problem.question
    fidelity = request.fidelity
    needed = _needed_bytes(rank, problem, request)
    free = free_beside(rank, needed)
    # Invariant: all ranks refuse or none, before the collective calls of the state begin.
    agree(world, lambda: check_answer_memory(question.shots, len(question.marginal), n, free))
    begin = perf_counter()
    checkpoint = _checkpoint(problem, request, options, world)
    with rank.on_stream():
        with nullcontext() if checkpoint is None else keeping():
            simulator, result = _answered(rank, problem, request, checkpoint, options.resume)
        if fidelity is not None:
            bits = agree(world, lambda: more_bits(simulator.state, fidelity, rank))
            if bits is not None:
                del simulator, result  # the memory of the state is taken by the next
                problem = replace(problem, bits=bits)
                simulator, result = _answered(rank, problem, request)
                agree(world, lambda: more_bits(simulator.state, fidelity, rank))
                needed = _needed_bytes(rank, problem, request)
        time_s = perf_counter() - begin
        if request.save is not None:
            _save(request.save, simulator, world, request.dtype)
    report = {
        "format": FORMAT, "version": VERSION, "n_qubits": n, "operations": len(problem.program.operations),
        "dtype": request.dtype, "mode": request.mode, "device": rank.device.name, "ranks": world.size,
        "threads": rank.threads,
        "seed": problem.seed, "shots": question.shots, **_answer_report(result, question),
        **({} if fidelity is None else {"fidelity": fidelity}),
        **fidelity_report(simulator.state),
        "norm": result.norm, "passes": simulator.passes, "exchanges": simulator.exchanges,
        "predicted_bytes": needed, "time_s": time_s, "energy": rank.energy(), "environment": host_facts(),
    }  # fmt: skip
    if options.output is not None and rank.is_first:
        write_json(options.output, report)
        if checkpoint is not None:
            checkpoint.remove()
    end_state(rank, simulator.state)
    return Simulation(result, simulator, report)


def _answered(
    rank: Rank, problem: SimulationProblem, request: SimulationRequest,
    checkpoint: StateCheckpoint | None = None, resume: bool = False,
) -> tuple[Simulator, Answer]:  # fmt: skip
    """Open a state, run the program and answer; collective."""
    program, question, n = problem.program, problem.question, problem.program.n_qubits
    state: StateVector
    if problem.bits is None:
        state = open_state(rank, n, request.dtype, program.operations, gradient=question.gradient)
    else:
        state = open_compressed(
            rank, program, request.dtype, problem.bits, problem.seed, checkpoint, resume
        )  # fmt: skip
    simulator = Simulator(state, n, request.mode, problem.seed)
    if request.start is not None:
        _continue(simulator, request.start, request.dtype, rank.world)
    return simulator, answer(
        simulator, program, question,
        lambda done, shots: rank.say_steps(done, shots, "run", not can_branch(simulator)),
    )  # fmt: skip


def _checkpoint(
    problem: SimulationProblem, request: SimulationRequest, options: JobOptions, world: Communicator
) -> StateCheckpoint | None:
    """That of a compressed state; none of one that is made again with more bits."""
    if options.checkpoint_file is None or problem.bits is None:
        return None
    return StateCheckpoint(
        options.checkpoint_file, problem.program, problem.bits, request.dtype, request.mode, world
    )  # fmt: skip


def _save(target: str | Path, simulator: Simulator, world: Communicator, dtype: str) -> None:
    """Write the final state: every rank its amplitudes, rank 0 the index; collective."""
    agree(world, lambda: remove_index(target) if world.rank == 0 else None)
    checksums = world.gather_objects(
        agree(world, lambda: save_part(target, world.rank, simulator.state.shard()))
    )
    if world.rank == 0:
        save_index(target, checksums, dtype, simulator.where)


def _check(problem: SimulationProblem, request: SimulationRequest) -> None:
    """Refuse what cannot be done, before any work."""
    check_question(problem.question, problem.program)
    check_count("qubits", problem.program.n_qubits, 1, LARGEST)
    check_choice("--mode", request.mode, MODES)
    if (request.start is not None or request.save) and final_measurements(problem.program) is None:
        raise InputError(
            "--start" if request.start is not None else "--save",
            "is given, but the program ends in a different state in each run", "leave it out",
        )  # fmt: skip
    prepare_program(problem.program.operations)


def _listed(place: str, values: Any) -> tuple[Any, ...]:
    """The values of a list; anything else is refused, text too."""
    try:
        if not isinstance(values, str):
            return tuple(values)
    except TypeError:
        pass
    raise InputError(place, f"is {values!r}", "give a list")


def _check_outputs(request: SimulationRequest, output: Path | None, n_ranks: int, circuit: Any) -> None:
    inputs = [circuit]
    if isinstance(request.start, str | Path):
        inputs += [request.start, *load_state(request.start).files]
    if output is not None:
        check_writable(output, *inputs)
    if request.save is not None:
        check_state_writable(request.save, n_ranks, output, *inputs)
    if output is not None:
        check_json_name(output)


def _continue(simulator: Simulator, start: Start, dtype: str, ranks: Communicator) -> None:
    """Begin with a saved state, or with amplitudes."""

    place = str(start) if isinstance(start, str | Path) else "start"

    def read() -> SavedState:
        saved = load_state(start) if isinstance(start, str | Path) else state_of(start, dtype)
        if len(saved.where) != simulator.n_qubits or saved.dtype != dtype:
            raise InputError(
                place, f"is a state of {len(saved.where)} qubits in {saved.dtype}",
                f"give a state of {simulator.n_qubits} qubits in {dtype}",
            )  # fmt: skip
        saved.check(ranks.rank, ranks.size)
        return saved

    # Each rank reads its own slice of the saved state: rank r holds the amplitudes from r 2^n_bits
    # on, in the order of qubits that `where` names.
    saved = agree(ranks, read)
    count = 1 << simulator.state.n_bits
    simulator.load(saved.read(ranks.rank * count, count), saved.where)
    # Invariant: the norm is a sum over all ranks, so that the check is the same on each.
    norm = simulator.norm()
    agree(ranks, lambda: _check_norm(norm, place))


def _check_norm(norm: float, place: str) -> None:
    if not abs(norm - 1) < NORM:
        raise InputError(place, f"has probabilities whose sum is {norm:.6g}", "give a state of norm 1")


def _answer_report(result: Answer, question: Question) -> dict[str, Any]:
    """The answer as plain JSON; complex numbers are pairs."""
    report: dict[str, Any] = {}
    if result.counts is not None:
        report["counts"] = result.counts
    if result.expectation is not None:
        value = result.expectation
        report["expectation"] = [value.real, value.imag] if isinstance(value, complex) else value
        report["deviation"] = result.deviation
    if result.amplitudes is not None:
        values = np.stack([result.amplitudes.real, result.amplitudes.imag], axis=1).tolist()
        report["amplitudes"] = dict(zip(question.amplitudes, values, strict=True))
    if result.probabilities is not None:
        report["marginal"] = {
            "qubits": list(question.marginal), "probabilities": result.probabilities.tolist()
        }  # fmt: skip
    if result.gradient is not None:
        report["gradient"] = [asdict(derivative) for derivative in result.gradient]
    return report


# The state of a rank: what it needs, and how it is opened on the device of the rank.


def state_needs(n_qubits: int, dtype: str, n_ranks: int, threads: int, states: int = 1) -> Needs:
    """What a rank needs for its part of so many states."""
    size_bytes = predicted_bytes(n_qubits, dtype, TILES[dtype], threads, n_ranks, states)
    other = "" if dtype == DTYPES["fp32"] else "--precision fp32, "
    return Needs(size_bytes, size_bytes, f"use {other}more ranks, more memory or fewer qubits")


def _check_ranks(n_ranks: int, program: CircuitProgram, request: SimulationRequest) -> None:
    """Refuse ranks that cannot share the state."""
    least = LARGEST_TARGETS if request.fidelity is None else LEAST_BITS
    check_state_ranks(n_ranks, program.n_qubits, least)


def check_state_ranks(n_ranks: int, n_qubits: int, least: int = LARGEST_TARGETS) -> None:
    """Refuse ranks that cannot share a state: each holds the qubits of the largest gate or more."""
    if n_ranks & (n_ranks - 1):
        raise InputError("--ranks", f"is {n_ranks}", "give a power of two")
    n_bits = n_qubits - (n_ranks.bit_length() - 1)
    if n_ranks > 1 and n_bits < least:
        raise InputError(
            "--ranks",
            f"is {n_ranks} for a state of {n_qubits} qubits, {max(0, n_bits)} per rank",
            f"use fewer ranks: each needs {least} qubits or more",
        )  # fmt: skip


def free_beside(rank: Rank, state_bytes: int) -> float:
    """The bytes that the host has for a rank's answers: on a CPU beside its state. Collective."""
    free = host_memory()[1] / ranks_here(rank.world)
    return rank.memory_bytes - state_bytes if rank.device.name == "cpu" else free


def open_state(
    rank: Rank, n_qubits: int, dtype: str, operations: Iterable[Operation], *, gradient: bool = False
) -> StateVector:  # fmt: skip
    """The amplitudes of this rank on its device, connected with those of other ranks.

    Kernels are compiled for what is to be done with it: `operations`, and derivatives with `gradient`.
    """
    n_bits = n_qubits - (rank.world.size.bit_length() - 1)
    if rank.device.name == "cpu":
        return _on_cpu(rank, n_bits, dtype, largest_operator(operations), gradient=gradient)
    return _on_gpu(rank, n_bits, dtype, largest_operator(operations))


def _on_cpu(rank: Rank, n_bits: int, dtype: str, targets: int, *, gradient: bool) -> StateVector:
    from tnplan.executor.statevector.cpu.state import HostState

    world = rank.world
    if rank.is_first:  # processes of every rank would only take each other's cores
        from tnplan.executor.statevector.cpu.kernel_samples import gradient_kernels, state_kernels

        kernels = state_kernels(dtype, n_bits, targets)
        compile_soon(kernels + (gradient_kernels(dtype, n_bits, world.size) if gradient else []))
    local = HostState(n_bits, dtype, rank.threads, world.rank)
    if world.size == 1:
        return local
    from tnplan.executor.statevector.distributed_state import DistributedState

    return DistributedState(local, world)


def _on_gpu(rank: Rank, n_bits: int, dtype: str, targets: int) -> StateVector:
    from tnplan.executor.statevector.cuda.state import open_state as open_gpu_state

    number: int = rank.device.device_id  # type: ignore[attr-defined]
    local = open_gpu_state(number, n_bits, dtype, rank.world.rank, rank.world.size, targets)
    # None where this rank is alone; then all qubits are local, and no gate needs an exchange.
    connected = rank.connected()
    if connected is None:
        return local
    from tnplan.executor.statevector.cuda.bit_swap import StateSwap
    from tnplan.executor.statevector.distributed_state import DistributedState

    return DistributedState(local, connected, StateSwap(local.amplitudes, connected))


def end_state(rank: Rank, state: StateVector) -> None:
    """Nothing more is asked of a state whose other ranks end with the job."""
    if rank.world.size > 1 and (rank.world.name == "threads" or rank.device.name == "gpu"):
        from tnplan.executor.statevector.distributed_state import DistributedState

        assert isinstance(state, DistributedState)
        state.end()
