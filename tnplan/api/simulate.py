"""State-vector simulation from a circuit to its answers: `tnplan statevector` and `tnplan.simulate`.

Reads and checks inputs, chooses ranks and devices, writes results; the arithmetic is in executor/statevector.

Changelog of `tnplan.statevector`, the JSON of a result:
1 (2026-11-21): first version.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from tnplan.executor.device.comm.launcher import world_communicator
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu.host_facts import cores, host_facts, ranks_here
from tnplan.executor.device.cpu.host_memory import host_memory
from tnplan.executor.device.protocols.communicator import Communicator, agree, ending_together
from tnplan.executor.observables.pauli_sum import PauliSum, parse
from tnplan.executor.statevector.cpu.state import TILES, HostState
from tnplan.executor.statevector.distributed_state import DistributedState, rank_bits
from tnplan.executor.statevector.gates.multiplexed_gate import LARGEST_TARGETS
from tnplan.executor.statevector.measurement import Answer, Question, answer, check_question
from tnplan.executor.statevector.memory_estimate import (
    LARGEST,
    check_answer_memory,
    check_memory,
    predicted_bytes,
)
from tnplan.executor.statevector.prepared_program import prepare_program
from tnplan.executor.statevector.scheduling.tiled_passes import MODES
from tnplan.executor.statevector.simulator import Simulator, StateVector
from tnplan.executor.statevector.state_file import (
    SavedState,
    check_state_writable,
    load_state,
    remove_index,
    save_index,
    save_part,
)
from tnplan.planner.common.checks import check_count, is_number
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.files import check_writable, file_path, write_text
from tnplan.planner.networks.circuits.circuit import Circuit
from tnplan.planner.networks.circuits.load import load_program
from tnplan.planner.networks.circuits.noise import depolarized
from tnplan.planner.networks.circuits.program import Program, circuit_program, final_measurements

FORMAT = "tnplan.statevector"
VERSION = 1
DEVICES = ("cpu", "gpu")
NORM = 1e-2
"""How far from 1 the sum of all probabilities of a saved state may be."""


@dataclass(frozen=True, eq=False)
class Simulation:
    """The answer, the final state (of the last trajectory), and what the JSON file says.

    With several ranks in this process the state has no more answers to give.
    """

    answer: Answer
    simulator: Simulator
    report: dict[str, Any]


@dataclass(frozen=True, eq=False)
class _Request:
    """The checked arguments of `simulate`, equal on every rank."""

    program: Program
    question: Question
    dtype: str
    mode: str
    device: str
    seed: int
    threads: int | None
    memory_bytes: float
    start: str | Path | None
    save: str | Path | None
    output: str | Path | None
    ranks: int


def simulate(
    circuit: Program | Circuit | str | Path,
    *,
    shots: int | None = None,
    observable: PauliSum | str | None = None,
    amplitudes: Sequence[str] = (),
    marginal: Sequence[int] = (),
    depolarize: float = 0.0,
    dtype: str = "complex64",
    mode: str = "compiled",
    device: str = "cpu",
    seed: int | None = None,
    threads: int | None = None,
    ranks: int = 1,
    memory_bytes: float | None = None,
    start: str | Path | None = None,
    save: str | Path | None = None,
    output: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Simulation:
    """Simulate a circuit or a program densely, and answer what is asked.

    `shots` outcomes are counted; `observable` is a sum of Pauli words; `amplitudes` lists bit strings,
    `marginal` qubits whose values' probabilities are wanted. After each gate its qubits are depolarized with
    probability `depolarize`. A program that measures on its way, resets or is noisy is run once a shot, and
    values are means. `device` is cpu, or gpu for a GPU a rank. `start` is a saved state to begin with, `save`
    the name of the final one (.json).
    Refuses, before anything is allocated, what needs more than `memory_bytes` a rank or than is free. `ranks`
    in this process share the state, a power of two; under mpirun its ranks do, and the call is collective.
    Raises InputError for what cannot be done.
    """
    world = world_communicator()
    if world is not None and ranks not in (1, world.size):
        raise InputError(
            "--ranks", f"is {ranks}, but mpirun started {world.size}", "leave it out under mpirun"
        )

    def prepare() -> _Request:
        if not is_number(depolarize):
            raise InputError("--depolarizing", f"is {depolarize!r}", "give a probability")
        if memory_bytes is not None and not (is_number(memory_bytes) and memory_bytes > 0):
            raise InputError("--memory", f"is {memory_bytes!r}", "give a positive number of bytes")
        program = depolarized(_program(circuit), depolarize)
        question = Question(
            shots, _observable(observable, program.n_qubits),
            _listed("--amplitudes", amplitudes), _listed("--marginal", marginal),
        )  # fmt: skip
        request = _Request(
            program, question, dtype, mode, device, _seed(seed), threads,
            float("inf") if memory_bytes is None else memory_bytes, start, save, output,
            ranks if world is None else world.size,
        )  # fmt: skip
        _check(request)
        _check_outputs(request, circuit)
        return request

    if world is None:
        request = prepare()
        done = run_ranks(request.ranks, lambda own: _work(request, own, progress))[0]
        if isinstance(done.simulator.state, DistributedState):
            done.simulator.state.end()
        return done
    with ending_together(world):
        agreed: _Request = world.broadcast_object(
            agree(world, lambda: prepare() if world.rank == 0 else None), 0
        )
        return _work(agreed, world, progress)


def _work(request: _Request, ranks: Communicator, progress: Callable[[int, int], None] | None) -> Simulation:
    """One rank: the whole simulation; rank 0 writes the result."""
    program, n = request.program, request.program.n_qubits
    inside = n - (ranks.size.bit_length() - 1)
    host_ranks = ranks_here(ranks)
    threads = request.threads or max(1, cores() // host_ranks)
    needed = predicted_bytes(n, request.dtype, TILES[request.dtype], threads, ranks.size)
    room = request.memory_bytes
    free = host_memory()[1] / host_ranks
    if request.device == "cpu":
        room = min(room, free)
        free = room - needed
    agree(ranks, lambda: check_memory(needed, room, n, request.dtype))
    question = request.question
    agree(ranks, lambda: check_answer_memory(question.shots, len(question.marginal), n, free))
    begin = perf_counter()
    state: StateVector
    if request.device == "gpu":
        state = _gpu_state(inside, request.dtype, needed, ranks)
    else:
        own = HostState(inside, request.dtype, threads, ranks.rank)
        state = own if ranks.size == 1 else DistributedState(own, ranks)
    simulator = Simulator(state, n, request.mode, request.seed)
    if request.start is not None:
        _continue(simulator, request.start, request.dtype, ranks)
    given = answer(simulator, program, question, progress if ranks.rank == 0 else None)
    time_s = perf_counter() - begin
    if request.save is not None:
        target = request.save
        agree(ranks, lambda: remove_index(target) if ranks.rank == 0 else None)
        agree(ranks, lambda: save_part(target, ranks.rank, state.part()))
        if ranks.rank == 0:
            save_index(target, ranks.size, request.dtype, simulator.where)
    report = {
        "format": FORMAT, "version": VERSION, "n_qubits": n, "operations": len(program.operations),
        "dtype": request.dtype, "mode": request.mode, "device": request.device, "ranks": ranks.size,
        "threads": threads,
        "seed": request.seed, "shots": question.shots, **_answer_report(given, question),
        "norm": given.norm, "passes": simulator.passes, "exchanges": simulator.exchanges,
        "predicted_bytes": needed, "time_s": time_s, "environment": host_facts(),
    }  # fmt: skip
    if request.output is not None and ranks.rank == 0:
        write_text(request.output, json.dumps(report, indent=1) + "\n")
    return Simulation(given, simulator, report)


def _gpu_state(n_bits: int, dtype: str, needed_bytes: int, ranks: Communicator) -> StateVector:
    """A state on a GPU of each rank that has room; raises InputError where there is none."""
    from tnplan.executor.device.selection.select import find_gpu

    number = agree(ranks, lambda: find_gpu(ranks, needed_bytes))
    from tnplan.executor.statevector.cuda.state import open_state

    own = open_state(number, n_bits, dtype, ranks.rank)
    if ranks.size == 1:
        return own
    from tnplan.executor.statevector.cuda.bit_swap import StateSwap
    from tnplan.executor.statevector.cuda.state import between_gpus

    connected = between_gpus(ranks)
    return DistributedState(own, connected, StateSwap(own.amplitudes, connected))


def _check(request: _Request) -> None:
    """Refuse what cannot be done, before any work."""
    check_question(request.question, request.program)
    n = request.program.n_qubits
    check_count("qubits", n, 1, LARGEST)
    if request.dtype not in TILES:
        raise InputError("--dtype", f"is {request.dtype!r}", f"use {' or '.join(TILES)}")
    if request.mode not in MODES:
        raise InputError("--mode", f"is {request.mode!r}", f"use {', '.join(MODES)}")
    if request.device not in DEVICES:
        raise InputError("--device", f"is {request.device!r}", f"use {' or '.join(DEVICES)}")
    if request.threads is not None:
        check_count("--threads", request.threads, 1)
    rank_bits(check_count("--ranks", request.ranks, 1), n, LARGEST_TARGETS)
    if (request.start or request.save) and final_measurements(request.program) is None:
        raise InputError(
            "--start" if request.start else "--save",
            "stands beside a program that ends in another state in each run", "leave it out",
        )  # fmt: skip
    prepare_program(request.program.operations)


def _seed(seed: int | None) -> int:
    """The seed given, or one drawn now: all ranks use the same."""
    return secrets.randbits(63) if seed is None else check_count("--seed", seed, 0)


def _program(circuit: Program | Circuit | str | Path) -> Program:
    if isinstance(circuit, Program):
        return circuit
    return circuit_program(circuit) if isinstance(circuit, Circuit) else load_program(file_path(circuit))


def _observable(observable: PauliSum | str | None, n_qubits: int) -> PauliSum | None:
    if isinstance(observable, str):
        return parse(observable, n_qubits)
    if observable is not None and not isinstance(observable, PauliSum):
        raise InputError("--observable", f"is {observable!r}", "give its text or a PauliSum")
    return observable


def _listed(place: str, values: Any) -> tuple[Any, ...]:
    """The values of a list; anything else is refused, text too."""
    try:
        if not isinstance(values, str):
            return tuple(values)
    except TypeError:
        pass
    raise InputError(place, f"is {values!r}", "give a list")


def _check_outputs(request: _Request, circuit: Any) -> None:
    inputs = [circuit] if isinstance(circuit, str | Path) else []
    if request.start is not None:
        inputs += [request.start, *load_state(request.start).files]
    if request.output is not None:
        check_writable(request.output, *inputs)
    if request.save is not None:
        check_state_writable(request.save, request.ranks, request.output, *inputs)


def _continue(simulator: Simulator, start: str | Path, dtype: str, ranks: Communicator) -> None:
    """Begin with a saved state."""

    def read() -> SavedState:
        saved = load_state(start)
        if len(saved.where) != simulator.n_qubits or saved.dtype != dtype:
            raise InputError(
                str(start), f"is a state of {len(saved.where)} qubits in {saved.dtype}",
                f"give one of {simulator.n_qubits} in {dtype}",
            )  # fmt: skip
        return saved

    saved = agree(ranks, read)
    count = 1 << simulator.state.n_bits
    simulator.load(saved.read(ranks.rank * count, count), saved.where)
    norm = simulator.norm()
    agree(ranks, lambda: _check_norm(norm, start))


def _check_norm(norm: float, start: str | Path) -> None:
    if not abs(norm - 1) < NORM:
        raise InputError(str(start), f"has probabilities whose sum is {norm:.6g}", "give a state of norm 1")


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
    return report
