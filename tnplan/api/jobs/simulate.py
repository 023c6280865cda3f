"""State-vector simulation from a circuit to its answers: `tnplan statevector` and `tnplan.simulate`.

Reads and checks inputs, chooses ranks and devices, writes results; the arithmetic is in executor/statevector.

Changelog of `tnplan.statevector`, the JSON of a result:
1 (2026-11-21): first version.
2 (2026-11-26): `gradient`.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from tnplan.api.jobs.job import TIMEOUT_S, Job, JobOptions, Needs, Rank, run_job
from tnplan.api.jobs.outputs.output_checks import Writes
from tnplan.api.jobs.state import DTYPES, end_state, free_beside, open_state, state_needs
from tnplan.api.progress import Listener
from tnplan.executor.device.cpu.host_facts import host_facts
from tnplan.executor.device.protocols.communicator import Communicator, agree
from tnplan.executor.observables.given_sum import given_sum
from tnplan.executor.statevector.distributed_state import rank_bits
from tnplan.executor.statevector.gates.multiplexed_gate import LARGEST_TARGETS
from tnplan.executor.statevector.measurement import Answer, Question, answer, check_question
from tnplan.executor.statevector.memory_estimate import GRADIENT_STATES, LARGEST, check_answer_memory
from tnplan.executor.statevector.prepared_program import prepare_program
from tnplan.executor.statevector.scheduling.cover_samples import COVERS
from tnplan.executor.statevector.scheduling.tiled_passes import MODES
from tnplan.executor.statevector.simulator import Simulator
from tnplan.executor.statevector.state_file import (
    SavedState,
    check_state_writable,
    load_state,
    remove_index,
    save_index,
    save_part,
    state_of,
)
from tnplan.planner.common.arrays import Array
from tnplan.planner.common.checks import check_choice, check_count, is_number
from tnplan.planner.common.compiled.ahead import compile_soon
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import check_json_name, check_writable, write_json
from tnplan.planner.networks.circuits.load import load_program
from tnplan.planner.networks.circuits.noise import depolarized
from tnplan.planner.networks.circuits.program import CircuitProgram, final_measurements

Start = str | Path | Sequence[complex] | Array
"""A saved state, or amplitudes."""
FORMAT = "tnplan.statevector"
VERSION = 2
NORM = 1e-2
"""How far from 1 the sum of all probabilities of a saved state may be."""


@dataclass(frozen=True, eq=False, repr=False)
class Simulation:
    """What `simulate` gives.

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
        given = [name for name in names if getattr(self.answer, name) is not None]
        size = f"{self.report['n_qubits']} qubits, {self.report['dtype']}"
        return f"Simulation({size}: {', '.join(given) or 'no question'})"


@dataclass(frozen=True, eq=False)
class _Request:
    """The checked inputs of `simulate`, equal on every rank."""

    program: CircuitProgram
    question: Question
    seed: int


@dataclass(frozen=True)
class _Simulation:
    """The arguments of `simulate` besides the circuit, what is asked of it, and the job's options."""

    depolarize: float
    mode: str
    dtype: str
    start: Start | None
    save: str | Path | None


def simulate(
    circuit: Any,
    *,
    shots: int | None = None,
    observable: Any = None,
    amplitudes: Sequence[str] = (),
    marginal: Sequence[int] = (),
    gradient: bool = False,
    parameters: Mapping[str, Any] | None = None,
    depolarize: float = 0.0,
    mode: str = "compiled",
    seed: int | None = None,
    start: Start | None = None,
    save: str | Path | None = None,
    precision: str = "fp64",
    device: str = "auto",
    ranks: int | None = None,
    threads: int | None = None,
    memory: float | str | None = None,
    output: str | Path | None = None,
    progress: Listener | bool | None = None,
    timeout: float = TIMEOUT_S,
    allow_mixed_builds: bool = False,
) -> Simulation:
    """Simulate a circuit or a program with all its amplitudes, and answer what is asked.

    A program that measures on its way, resets or is noisy is run once a shot, and values are means. What does
    not fit into memory is refused before anything is allocated. Under mpirun the call is collective.

    Parameters
    ----------
    circuit : CircuitProgram, GateSequence, path or object
        A program, a circuit, a qsim or OpenQASM file, or what else `load_program` reads.
    shots : int, optional
        Count the outcomes of so many runs.
    observable : str, PauliSum or SparsePauliOp, optional
        A sum of Pauli words, or Qiskit's object for one, whose expectation value is asked for.
    amplitudes : sequence of str
        Bit strings whose amplitudes are asked for; character k is qubit k.
    marginal : sequence of int
        Qubits the probabilities of whose values are asked for.
    gradient : bool
        Ask for the derivatives of the expectation value by all angles of the circuit. Takes the memory of
        three states.
    parameters : mapping, optional
        Values of the parameters of a file or of another library's circuit, by their names.
    depolarize : float
        The probability that the qubits of a gate are depolarized after it.
    mode : {"compiled", "stages", "gates"}
        How gates are grouped into passes over the state.
    seed : int, optional
        Makes outcomes the same in every run.
    start : path or array, optional
        A saved state to begin with, or its 2^n amplitudes: qubit q is bit q of the index.
    save : path, optional
        Where to save the final state (.json, and an .npy a rank).
    precision : {"fp64", "fp32"}
        That of amplitudes: complex128 or complex64.
    device, ranks, threads, memory, output, progress, timeout, allow_mixed_builds
        How the job uses the machine, as in `execute`. Ranks share the state: a power of two
        of them. `output` is a JSON file. `progress` hears of shots.

    Returns
    -------
    Simulation
        The answer, the final state (of the last run), and what the JSON file says.

    Raises
    ------
    InputError
        For what cannot be done, or does not fit.

    Examples
    --------
    >>> flip = tnplan.Gate("x", (0,), np.array([[0, 1], [1, 0]], np.complex128))
    >>> tnplan.simulate(tnplan.GateSequence(2, (flip,)), shots=3, device="cpu").answer.counts
    {'10': 3}
    """
    options = JobOptions.given(
        device, ranks, threads, memory, output, progress=progress,
        timeout=timeout, allow_mixed_builds=allow_mixed_builds,
    )  # fmt: skip
    check_choice("--precision", precision, DTYPES)
    asked = _Simulation(depolarize, mode, DTYPES[precision], start, save)

    def prepare() -> _Request:
        if not is_number(depolarize):
            raise InputError("--depolarizing", f"is {depolarize!r}", "give a probability")
        program = depolarized(load_program(circuit, parameters), depolarize)
        terms = None if observable is None else given_sum(observable, program.n_qubits)
        question = Question(
            shots, terms,
            _listed("--amplitudes", amplitudes), _listed("--marginal", marginal), gradient,
        )  # fmt: skip
        request = _Request(program, question, _seed(seed))
        _check(request, asked)
        compile_soon([COVERS])
        return request

    def check_ranks(request: _Request, n_ranks: int) -> None:
        rank_bits(n_ranks, request.program.n_qubits, LARGEST_TARGETS)
        _check_outputs(asked, options.output, n_ranks, circuit)

    def writes(request: Any, n_ranks: int) -> Writes | None:
        return None if asked.save is None else Writes(Path(asked.save), by_all=True)

    job = Job(
        writes=writes,
        prepare=prepare,
        work=lambda rank, request: _work(rank, request, asked, options.output),
        check_ranks=check_ranks,
        needs=lambda request, n, n_threads: _needs(request, asked, n, n_threads),
    )
    return run_job(job, options)


def _needs(request: _Request, asked: _Simulation, n_ranks: int, threads: int) -> Needs:
    states = GRADIENT_STATES if request.question.gradient else 1
    return state_needs(request.program.n_qubits, asked.dtype, n_ranks, threads, states)


def _work(rank: Rank, request: _Request, asked: _Simulation, output: Path | None) -> Simulation:
    """One rank: the whole simulation; rank 0 writes the result."""
    world, n, question = rank.world, request.program.n_qubits, request.question
    needed = _needs(request, asked, world.size, rank.threads).cpu_bytes
    free = free_beside(rank, needed)
    agree(world, lambda: check_answer_memory(question.shots, len(question.marginal), n, free))
    begin = perf_counter()
    with rank.on_stream():
        state = open_state(rank, n, asked.dtype, request.program.operations, gradient=question.gradient)
        simulator = Simulator(state, n, asked.mode, request.seed)
        if asked.start is not None:
            _continue(simulator, asked.start, asked.dtype, world)
        given = answer(
            simulator, request.program, question,
            lambda done, shots: rank.say(done, shots, f"run {done} of {shots}"),
        )  # fmt: skip
        time_s = perf_counter() - begin
        if asked.save is not None:
            _save(asked.save, simulator, world, asked.dtype)
    report = {
        "format": FORMAT, "version": VERSION, "n_qubits": n, "operations": len(request.program.operations),
        "dtype": asked.dtype, "mode": asked.mode, "device": rank.device.name, "ranks": world.size,
        "threads": rank.threads,
        "seed": request.seed, "shots": question.shots, **_answer_report(given, question),
        "norm": given.norm, "passes": simulator.passes, "exchanges": simulator.exchanges,
        "predicted_bytes": needed, "time_s": time_s, "environment": host_facts(),
    }  # fmt: skip
    if output is not None and rank.is_first:
        write_json(output, report)
    end_state(rank, state)
    return Simulation(given, simulator, report)


def _save(target: str | Path, simulator: Simulator, world: Communicator, dtype: str) -> None:
    """Write the final state: every rank its amplitudes, rank 0 the index; collective."""
    agree(world, lambda: remove_index(target) if world.rank == 0 else None)
    agree(world, lambda: save_part(target, world.rank, simulator.state.part()))
    if world.rank == 0:
        save_index(target, world.size, dtype, simulator.where)


def _check(request: _Request, asked: _Simulation) -> None:
    """Refuse what cannot be done, before any work."""
    check_question(request.question, request.program)
    check_count("qubits", request.program.n_qubits, 1, LARGEST)
    check_choice("--mode", asked.mode, MODES)
    if (asked.start is not None or asked.save) and final_measurements(request.program) is None:
        raise InputError(
            "--start" if asked.start is not None else "--save",
            "stands beside a program that ends in another state in each run", "leave it out",
        )  # fmt: skip
    prepare_program(request.program.operations)


def _seed(seed: int | None) -> int:
    """The seed given, or one drawn now: all ranks use the same."""
    return secrets.randbits(63) if seed is None else check_count("--seed", seed, 0)


def _listed(place: str, values: Any) -> tuple[Any, ...]:
    """The values of a list; anything else is refused, text too."""
    try:
        if not isinstance(values, str):
            return tuple(values)
    except TypeError:
        pass
    raise InputError(place, f"is {values!r}", "give a list")


def _check_outputs(asked: _Simulation, output: Path | None, n_ranks: int, circuit: Any) -> None:
    inputs = [circuit]
    if isinstance(asked.start, str | Path):
        inputs += [asked.start, *load_state(asked.start).files]
    if output is not None:
        check_writable(output, *inputs)
    if asked.save is not None:
        check_state_writable(asked.save, n_ranks, output, *inputs)
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
                f"give one of {simulator.n_qubits} in {dtype}",
            )  # fmt: skip
        return saved

    saved = agree(ranks, read)
    count = 1 << simulator.state.n_bits
    simulator.load(saved.read(ranks.rank * count, count), saved.where)
    norm = simulator.norm()
    agree(ranks, lambda: _check_norm(norm, place))


def _check_norm(norm: float, place: str) -> None:
    if not abs(norm - 1) < NORM:
        raise InputError(place, f"has probabilities whose sum is {norm:.6g}", "give a state of norm 1")


def _answer_report(given: Answer, question: Question) -> dict[str, Any]:
    """The answer as plain JSON; complex numbers are pairs."""
    report: dict[str, Any] = {}
    if given.counts is not None:
        report["counts"] = given.counts
    if given.expectation is not None:
        value = given.expectation
        report["expectation"] = [value.real, value.imag] if isinstance(value, complex) else value
        report["deviation"] = given.deviation
    if given.amplitudes is not None:
        values = np.stack([given.amplitudes.real, given.amplitudes.imag], axis=1).tolist()
        report["amplitudes"] = dict(zip(question.amplitudes, values, strict=True))
    if given.probabilities is not None:
        report["marginal"] = {
            "qubits": list(question.marginal), "probabilities": given.probabilities.tolist()
        }  # fmt: skip
    if given.gradient is not None:
        report["gradient"] = [asdict(derivative) for derivative in given.gradient]
    return report
