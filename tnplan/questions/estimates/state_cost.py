"""The state vector's cost: the passes that would run, at the profile's rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from time import process_time

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.program import gates_of
from tnplan.common.system_calls import cores
from tnplan.executor.statevector.adjoint_sweep import plans_back, takes_words, words_of
from tnplan.executor.statevector.cpu.state import JOINT_FROM
from tnplan.executor.statevector.cuda.kernel_defines import JOINT_FROM as GPU_JOINT_FROM
from tnplan.executor.statevector.cuda.kernel_defines import (
    MOST_WORDS,
    PROGRAM_TILES,
    WORD_RUN_BITS,
    WORD_TILE_BITS,
    has_tables,
)
from tnplan.executor.statevector.derivative_segments import derivative_segments
from tnplan.executor.statevector.gates.multiplexed_gate import (
    LARGEST_TARGETS,
    MultiplexedGate,
    from_gate,
    mask_of,
)
from tnplan.executor.statevector.memory_estimate import GRADIENT_STATES, MOST_OBSERVABLES, predicted_bytes
from tnplan.executor.statevector.packed_error import predicted_fidelity
from tnplan.executor.statevector.scheduling.tiled_passes import (
    EMPTY_PRICE,
    TARGET_PRICE,
    TILES,
    Pass,
    PassPlan,
    compile_gates,
    word_groups,
)
from tnplan.jobs.compressed_state import compressed_needs, planned_passes
from tnplan.jobs.statevector import DTYPES
from tnplan.jobs.this_machine import THIS_MACHINE, this_machine
from tnplan.planner.hardware.profile import Profile
from tnplan.questions.engines.compressed import bits_of_state
from tnplan.questions.engines.statevector import may_be_direct, planned_work
from tnplan.questions.estimates.cost import (
    EXACT_FACTOR,
    Cost,
    first_use_s,
    is_gpu,
    of_threads,
    room_bytes,
    slowness,
)
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import CircuitQuery, ExpectationValues, ReducedDensityMatrix, Sample, Trace

START_S, GATE_S = 0.004, 7e-6
"""Seconds of a job beside its passes, and of each of its gates, where `slowness` is 1: opening the device,
preparing, reading."""
READ_S, READ_COPIES = 3e-4, 2.0
"""What reading a word takes: seconds, where `slowness` is 1, and copies of the state."""
DIRECT_S, DIRECT_GATE_S, DIRECT_WORD_S = 2.5e-4, 1.2e-6, 1.5e-4
DIRECT_OUTCOME_S, DIRECT_SHOT_S = 5e-7, 5e-8
DIRECT_TRACE_S, DIRECT_TRACE_GATE_S, DIRECT_DENSITY_WORDS = 8e-4, 6e-6, 4
DIRECT_AMPLITUDE_S, DIRECT_READ_S = 2.8e-9, 5.4e-9
"""Seconds of a small state without a job: of a question, a gate, a word, a distinct outcome and a shot where
`slowness` is 1, and of an amplitude in each gate and each word. What a trace and its gates take more. A
density matrix takes as long as so many words."""
LONG_PLANNING_S = 0.5
FIRST_GATES = 100
"""These are planned before the time is taken, since the first plan of a machine compiles kernels."""
FLOP_A_PART = 4
"""Real operations of an amplitude and a real or imaginary part of an element of a gate's row."""
DIAGONAL_FLOP = 2
"""What a diagonal of a pass costs an amplitude on a CPU: diagonals of a pass are one table."""
PASS_COPIES, GATE_RATE = 2.0, 1.2
"""What a pass takes on a CPU: the time of two copies of the state, beside its operations at so many times the
rate of matrix products. It is above one, since gates that follow each other are fused."""
DERIVATIVE_READS = 4
"""Copies of the state that the derivative by an angle takes on a CPU, which reads two states."""
JOINT_TIMES, JOINT_PLANNING_TIMES = 2.5, 2.0
"""The backward pass over both states at once, in forward passes and in plannings of one. Measured:
2.2 to 2.6 on CPUs, 2.5 and 3.1 on an H100 with 30 and 26 qubits; planning 1.6 to 2."""
TABLE_COPIES, TABLE_TARGET_COPIES, TABLE_DIAGONAL_COPIES = 2.0, 0.5, 0.15
"""Copies that a pass read from tables takes on a GPU, and each of its gates with targets and its diagonals
(H200, 20 to 26 qubits)."""
WORD_COPIES = 0.07
"""Copies that a word takes on a GPU, beside one for all words that share tiles of two states."""
DECODED_S = 5.5e-9
"""Seconds of a core that a word takes more in a compressed state than in a plain one, an amplitude."""
RANDOM_FACTOR = 3.0
"""By how much the time of runs with random operators may be off."""


def state_cost(
    query: CircuitQuery, profile: Profile, options: QuestionOptions, devices: int, threads: int,
    most_gates: int | None = None,
) -> Cost | None:  # fmt: skip
    """What a question takes on so many devices; None where the number of devices cannot share the state.

    With `most_gates` the first gates stand for all, and are planned once.
    """
    precision = options.precision
    n_qubits, all_gates, runs = state_work(query, options.trajectories or 1)
    gates = all_gates[:most_gates]
    repeats = len(all_gates) / max(1, len(gates))
    if not can_share(n_qubits, devices):
        return None
    bits, profile = devices.bit_length() - 1, of_threads(profile, threads)
    dtype, gpu = DTYPES[precision], is_gpu(profile)
    if devices == 1 and precision == "fp64" and not gpu and may_be_direct(query):
        return _direct_cost(query, n_qubits, runs * len(all_gates))
    tile = (PROGRAM_TILES if gpu else TILES)[dtype]
    # Qubit 0 is the most significant bit of an index at the start; passes move qubits, and
    # `plan.after` says where to.
    before = [n_qubits - 1 - qubit for qubit in range(n_qubits)]

    def planned(gates: Sequence[Gate]) -> PassPlan:
        return compile_gates([from_gate(gate) for gate in gates], before, tile, n_inside=n_qubits - bits)

    if most_gates is None:
        planned(gates[:FIRST_GATES])
    planning_s = inf
    # Planning is measured and not predicted; the lesser of two times is the steadier.
    for _ in range(2 if most_gates is None else 1):
        begin = process_time()
        plan = planned(gates)
        planning_s = min(planning_s, process_time() - begin)
        if planning_s > LONG_PLANNING_S:
            break
    local_bytes = np.dtype(dtype).itemsize * 2.0 ** (n_qubits - bits)
    # A copy reads and writes every amplitude once.
    copy_s = 2 * local_bytes / profile.memory_bytes_per_s
    rate = GATE_RATE * profile.rate(dtype, precision)
    copies = _table_copies if devices == 1 and has_tables(n_qubits, local_bytes) else _gpu_copies

    def passes_s(plan: PassPlan, shares: Sequence[float] = ()) -> float:
        # GPUs: passes are bound by memory and counted in copies. CPUs: a fixed number of copies
        # beside the operations.
        if gpu:
            busy_s = sum(map(copies, plan.passes)) * copy_s
        else:
            amplitudes = local_bytes / np.dtype(dtype).itemsize
            busy_s = sum(
                share * (PASS_COPIES * copy_s + amplitudes * _flops(step) / rate)
                for step, share in zip(plan.passes, shares or [1.0] * len(plan.passes), strict=True)
            )
        return busy_s + _exchange_s(plan, profile, local_bytes, devices)

    # From |0...0> early passes meet tiles that are all zero, which are skipped.
    shares = _shares_of_tiles(plan.passes, n_qubits) if devices == 1 else ()
    if repeats > 1:  # the first passes meet more tiles of zeros than all
        shares = ()
    reads_s = _reads(query) * (slowness() * READ_S + READ_COPIES * copy_s)
    run_s = repeats * (planning_s + passes_s(plan, shares)) + reads_s
    start_s = slowness() * (START_S + GATE_S * len(all_gates)) + first_use_s(local_bytes, profile)
    total_s = start_s + runs * run_s
    n_sums = _n_differentiated(query)
    # Observables go back in groups of MOST_OBSERVABLES, and the plan is made once a group.
    sweeps = -(-n_sums // MOST_OBSERVABLES)
    if n_sums and devices == 1 and n_qubits >= (GPU_JOINT_FROM if gpu else JOINT_FROM) and takes_words(gates):
        back_s = JOINT_PLANNING_TIMES * sweeps * planning_s + JOINT_TIMES * n_sums * passes_s(plan)
        total_s += repeats * back_s
    elif n_sums:
        begin = process_time()
        segments = derivative_segments(gates)
        plans = plans_back(gates, segments, plan.after, tile, "compiled", n_qubits - bits)
        planning_s = process_time() - begin
        words_s = sum(_word_copies(words_of(segment), n_qubits, dtype, gpu) for segment in segments) * copy_s
        back_s = sweeps * planning_s + (n_sums + sweeps) * sum(map(passes_s, plans)) + n_sums * words_s
        total_s += repeats * back_s
    memory = predicted_bytes(n_qubits, dtype, tile, threads, devices, _states(query))
    if query.is_random:  # runs with equal outcomes share their states: all may be one
        return Cost(devices, memory, float(total_s), RANDOM_FACTOR, (start_s + run_s) / RANDOM_FACTOR)
    return Cost(devices, memory, float(total_s), EXACT_FACTOR)


def compressed_cost(
    query: CircuitQuery, profile: Profile, options: QuestionOptions, bits: int,
    most_gates: int | None = None, devices: int = 1,
) -> Cost | None:  # fmt: skip
    """What a question takes with a compressed state: a pass, or an exchange, takes as long as a plain one."""
    n, dtype, gates = query.n_qubits, options.dtype, gates_of(query.program).gates
    first, gpu, threads = gates[:most_gates], is_gpu(profile), options.threads or cores()
    plain = state_cost(query, profile, options, devices, 1 if gpu else threads, most_gates)
    if plain is None:
        return None
    n_passes = planned_passes(first, n, dtype, gpu, n_ranks=devices) * len(gates) / max(1, len(first))
    needs = compressed_needs(n, bits, dtype, threads, devices)
    memory = needs.gpu_bytes if gpu else needs.cpu_bytes
    words = _reads(query) if isinstance(query.question, ExpectationValues) and not gpu else 0
    time_s = plain.time_s + words * DECODED_S * 2.0**n / (threads * devices)
    time_s -= first_use_s(plain.memory_bytes - memory, of_threads(profile, threads))
    fidelity = predicted_fidelity(bits, n_passes)
    return replace(plain, memory_bytes=memory, time_s=time_s, fidelity=fidelity)


def _direct_cost(query: CircuitQuery, n_qubits: int, n_gates: int) -> Cost:
    """The cost of a small state without a job."""
    question = query.question
    words = _reads(query) if isinstance(question, ExpectationValues) else 0
    words = DIRECT_DENSITY_WORDS if isinstance(question, ReducedDensityMatrix) else words
    shots = question.shots if isinstance(question, Sample) else 0
    amplitudes_s = 2.0**n_qubits * (DIRECT_AMPLITUDE_S * n_gates + DIRECT_READ_S * words)
    start_s = DIRECT_S + DIRECT_GATE_S * n_gates + DIRECT_WORD_S * words
    start_s += DIRECT_OUTCOME_S * min(shots, 2**n_qubits) + DIRECT_SHOT_S * shots
    start_s += DIRECT_TRACE_S + DIRECT_TRACE_GATE_S * n_gates if isinstance(question, Trace) else 0.0
    return Cost(1, 32.0 * 2.0**n_qubits, slowness() * start_s + amplitudes_s, EXACT_FACTOR)


def can_share(n_qubits: int, devices: int) -> bool:
    """Whether so many devices can share a state: a power of two, each with the qubits of the largest gate."""
    bits = devices.bit_length() - 1
    return devices == 1 << bits and n_qubits - bits >= min(LARGEST_TARGETS, n_qubits)


def profile_of_state(
    query: CircuitQuery, profile: Profile, options: QuestionOptions, devices: int
) -> Profile:  # fmt: skip
    """That of this machine's host, where its GPU is too small for a state, is not named and the host's memory
    suffices; otherwise the profile itself."""
    is_here = profile.name == THIS_MACHINE and is_gpu(profile) and options.device == "auto"
    if not is_here or devices > 1 or least_devices(query, profile, options.precision, 1) == 1:
        return profile
    host = this_machine(replace(options, device="cpu"))
    if least_devices(query, host, options.precision, options.threads or cores()) == 1:
        return host
    on_gpu, on_host = (bits_of_state(query, options, device) for device in (profile, host))
    return host if on_gpu is None and on_host is not None else profile


def least_devices(query: CircuitQuery, profile: Profile, precision: str, threads: int) -> int | None:
    """The least number of devices whose memory holds the state; None where no number does."""
    (n_qubits, _, _), states = state_work(query, 1), _states(query)
    dtype = DTYPES[precision]
    tile = (PROGRAM_TILES if is_gpu(profile) else TILES)[dtype]
    for bits in range(max(1, n_qubits - LARGEST_TARGETS)):
        if predicted_bytes(n_qubits, dtype, tile, threads, 1 << bits, states) <= room_bytes(profile):
            return 1 << bits
    return None


def state_work(query: CircuitQuery, trajectories: int) -> tuple[int, tuple[Gate, ...], int]:
    """The qubits of the state, the gates of one run, and how many runs there are."""
    if isinstance(query.question, Sample):
        program, n_qubits, runs = query.program, query.n_qubits, 1
    else:
        planned = planned_work(query)
        program, n_qubits, runs = planned.programs[0], planned.n_qubits, len(planned.programs)
    if query.is_random:
        runs = query.question.shots if isinstance(query.question, Sample) else trajectories
    return n_qubits, gates_of(program).gates, runs


def _gpu_copies(state_pass: Pass) -> float:
    """The time of a pass with a kernel of its own on a GPU, in copies of the state."""
    return EMPTY_PRICE + TARGET_PRICE * _n_targeted(state_pass)


def _table_copies(state_pass: Pass) -> float:
    """The same for a pass that is read from tables."""
    n_targeted = _n_targeted(state_pass)
    n_diagonals = len(state_pass.steps) - n_targeted
    return TABLE_COPIES + TABLE_TARGET_COPIES * n_targeted + TABLE_DIAGONAL_COPIES * n_diagonals


def _n_targeted(state_pass: Pass) -> int:
    return sum(isinstance(step, MultiplexedGate) and bool(step.targets) for step in state_pass.steps)


def _flops(state_pass: Pass) -> float:
    """The real operations of a pass on a CPU, an amplitude."""
    return sum(
        FLOP_A_PART * _parts(step) if isinstance(step, MultiplexedGate) and step.targets else DIAGONAL_FLOP
        for step in state_pass.steps
    )


def _shares_of_tiles(passes: Sequence[Pass], n_bits: int) -> list[float]:
    """The shares of the tiles that passes do on a CPU, from |0...0> on: tiles of zeros stay as they are."""
    shares, varying = [], 0
    for state_pass in passes:
        held_mask = mask_of(state_pass.held_bits)
        shares.append(2.0 ** ((varying & ~held_mask).bit_count() - (n_bits - len(state_pass.held_bits))))
        varying |= held_mask
    return shares


def _parts(gate: MultiplexedGate) -> float:
    """The real and imaginary parts of a row of a gate that are not zero, on average."""
    matrices = gate.matrices
    parts = np.count_nonzero(matrices.real) + np.count_nonzero(matrices.imag)
    return parts / (matrices.size / matrices.shape[-1])


def _word_copies(words: Sequence[tuple[int, int]], n_bits: int, dtype: str, gpu: bool) -> float:
    """The time of the inner products about words, in copies of the state."""
    if not gpu:
        return DERIVATIVE_READS * len(words)
    tile_bits = min(n_bits, WORD_TILE_BITS[dtype])
    groups = word_groups(words, n_bits, tile_bits, min(tile_bits, WORD_RUN_BITS[dtype]), MOST_WORDS)
    return len(groups) + WORD_COPIES * len(words)


def _exchange_s(plan: PassPlan, profile: Profile, local_bytes: float, devices: int) -> float:
    """The seconds of all exchanges: of m qubits, all but one in 2^m of the amplitudes move."""
    tier, seconds = profile.link(devices), 0.0
    for step in plan.steps:
        if not isinstance(step, Pass):
            seconds += tier.messages_s(1, local_bytes * (1 - 2.0 ** -len(step.pairs)))
    return seconds


def _states(query: CircuitQuery) -> int:
    """How many states are held at once."""
    return GRADIENT_STATES if query.has_gradient else 1


def _n_differentiated(query: CircuitQuery) -> int:
    """For how many observables a state goes back through the circuit."""
    question = query.question
    return len(question.sums) if isinstance(question, ExpectationValues) and question.names else 0


def _reads(query: CircuitQuery) -> int:
    """How often the state is read for the values that are asked for."""
    if isinstance(query.question, ExpectationValues):
        return sum(observable.n_terms for observable in query.question.sums)
    if isinstance(query.question, ReducedDensityMatrix):
        return int(4 ** min(2, len(query.question.qubits)))
    return 1
