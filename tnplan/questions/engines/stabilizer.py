"""Questions about Clifford circuits, answered by Stim: tableaux for values, Pauli frames for samples.

A Clifford gate takes Pauli words to Pauli words, so that a state is the list of the words that leave it as
it is (Aaronson and Gottesman, PRA 70, 052328, 2004). Gates become Stim's by their matrices, noise by the
probabilities of its Pauli words.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache, reduce
from importlib.util import find_spec
from itertools import product
from threading import Lock
from typing import Any

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.gates import PAULI_MATRICES
from tnplan.circuits.pauli_sum import PauliSum
from tnplan.circuits.program import (
    BitAssignment,
    Channel,
    CircuitProgram,
    Conditional,
    Measurement,
    Operation,
    Reset,
    WhileLoop,
    inner_operations,
    measures,
    without_final_measurements,
)
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.statevector.simulator import MOST_ROUNDS
from tnplan.jobs.job import Job, Needs, Rank, run_job
from tnplan.questions.engines.task_list import EXACT, STATISTICAL, Outcome, TaskCheckpoint, series
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import (
    CircuitQuery,
    ExpectationValues,
    Probabilities,
    ReducedDensityMatrix,
    Sample,
)

LETTERS = "IXYZ"
OFF_DIAGONAL = 1e-9
"""The largest coherence between two Pauli words of a channel that counts as none."""
CLIFFORD = 1e-9
"""How far a gate may be from a Clifford gate."""
SEED_BITS = 63
SHOTS_AT_ONCE = 1 << 16

Line = tuple[str, tuple[int, ...]]
"""The name of a gate of Stim, and which of the qubits given it acts on."""


def why_not_installed() -> str | None:
    """What to install for this method; None where it is there."""
    return None if find_spec("stim") else "needs stim: pip install 'tnplan[qec]'"


def why_not_clifford(operations: Sequence[Operation]) -> tuple[str, str] | None:
    """The first operation that is none of a stabilizer circuit, as the place and the problem of a refusal."""
    for number, operation in enumerate(operations):
        if isinstance(operation, Gate) and clifford_lines(operation.matrix.tobytes()) is None:
            return f"gate {number} ({operation.name})", "is not a Clifford gate"
        if isinstance(operation, Channel) and _word_chances(operation) is None:
            return f"operation {number} (noise)", "is not a mixture of Pauli words"
        if isinstance(operation, Conditional | WhileLoop):
            reason = why_not_clifford(inner_operations(operation))
            if reason is not None:
                return f"operation {number}, inner {reason[0]}", reason[1]
    return None


_first_array = Lock()


def load_stim() -> Any:
    """Stim, once it has made its first array.

    Invariant: one thread makes Stim's first NumPy array. This imports a module of NumPy, which releases the
    GIL, while a static variable of C++ is initialized. A second thread that takes the GIL and needs the
    variable would wait for the first one, and the first one for the GIL.
    """
    with _first_array:
        import stim

        stim.PauliString("X").to_unitary_matrix(endian="little")
    return stim


@lru_cache(4096)
def clifford_lines(matrix: bytes) -> tuple[Line, ...] | None:
    """Stim's gates for a unitary matrix, complex128 row by row; None where it is not a Clifford gate."""
    stim = load_stim()
    side = round((len(matrix) / 16) ** 0.5)
    unitary = np.frombuffer(matrix, np.complex128).reshape(side, side)
    try:
        tableau = stim.Tableau.from_unitary_matrix(unitary, endian="big")
    except ValueError:
        return None
    # Stim takes the nearest tableau, also for a rotation by 0.3. A Clifford gate is U P U^dagger = P' for the
    # words P that make all others.
    for k in range(len(tableau)):
        for letter, image in (("X", tableau.x_output(k)), ("Z", tableau.z_output(k))):
            word = stim.PauliString("_" * k + letter + "_" * (len(tableau) - k - 1))
            before, after = (tableau.to_unitary_matrix(endian="big") for tableau in (word, image))
            if abs(unitary @ before - after @ unitary).max() > CLIFFORD:
                return None
    for name, data in stim.gate_data().items():
        if data.is_unitary and not name.startswith("SPP") and data.tableau == tableau:  # SPP is of any size
            return ((name, tuple(range(len(tableau)))),)
    circuit = tableau.to_circuit("elimination")
    return tuple(
        (line.name, tuple(target.value for target in targets))
        for line in circuit for targets in line.target_groups()
    )  # fmt: skip


def _word_chances(channel: Channel) -> list[tuple[str, float]] | None:
    """The probability of each Pauli word but I of a channel; None where it is no mixture of words.

    With chi_PQ = sum_k tr(P K_k) tr(Q K_k)^* / 4^q, a channel is sum_PQ chi_PQ P rho Q; a mixture has a
    diagonal chi, whose entries are the probabilities.
    """
    q = len(channel.qubits)
    words = ["".join(letters) for letters in product(LETTERS, repeat=q)]
    basis = [reduce(np.kron, (PAULI_MATRICES[LETTERS.index(letter)] for letter in word)) for word in words]
    parts = np.einsum("pij,kji->kp", np.array(basis), np.array(channel.kraus)) / 2**q
    chi = parts.T @ parts.conj()
    chances = np.diagonal(chi).real
    if abs(chi - np.diag(chances)).max() > OFF_DIAGONAL:
        return None
    return [pair for pair in zip(words[1:], chances[1:].tolist(), strict=True) if pair[1] > 0]


def _text(operations: Sequence[Operation]) -> Iterator[str]:
    """The lines of Stim's format for operations without conditions."""
    for operation in operations:
        if isinstance(operation, Gate):
            for name, acted in clifford_lines(operation.matrix.tobytes()) or ():
                yield f"{name} {' '.join(str(operation.qubits[k]) for k in acted)}"
        elif isinstance(operation, Measurement):
            yield f"M {operation.qubit}"
        elif isinstance(operation, Reset):
            yield f"R {operation.qubit}"
        elif isinstance(operation, Channel):
            # At most one word strikes: each has its probability given that none before it did.
            left, kind = 1.0, "E"
            for word, chance in _word_chances(operation) or ():
                factors = zip(word, operation.qubits, strict=True)
                targets = " ".join(f"{letter}{qubit}" for letter, qubit in factors if letter != "I")
                yield f"{kind}({min(1.0, chance / left)}) {targets}"
                left, kind = max(left - chance, 1e-300), "ELSE_CORRELATED_ERROR"


def _circuit(operations: Sequence[Operation], n_qubits: int) -> Any:
    stim = load_stim()
    # The first line makes the circuit have all qubits.
    return stim.Circuit("\n".join([f"I {n_qubits - 1}", *_text(operations)]))


def answer_by_stabilizers(
    query: CircuitQuery, options: QuestionOptions, checkpoint: TaskCheckpoint | None
) -> Outcome:
    """The answer by Stim, on one core."""

    def prepare() -> int:
        return secrets.randbits(SEED_BITS) if options.seed is None else options.seed % (1 << SEED_BITS)

    def work(rank: Rank, seed: int) -> Outcome:
        if isinstance(query.question, Sample):
            outcome = _sampled(query.program, query.question.shots, seed, rank)
        else:
            outcome = _values(query)
        outcome.details.update(device="cpu", ranks=1)
        return outcome

    return run_job(Job(prepare=prepare, work=work, needs=lambda *_: Needs(cpu_only="stabilizers")), options)


def _values(query: CircuitQuery) -> Outcome:
    """The value of every question but samples, at each stop."""
    stim = load_stim()
    assert query.gates is not None
    state, outcomes = stim.TableauSimulator(), []
    for gates in query.pieces(query.gates.gates):
        state.do(_circuit(gates, query.n_qubits))
        outcomes.append(Outcome(_value(query, state), 0.0, EXACT))
    return series(outcomes) if query.stops else outcomes[0]


def _value(query: CircuitQuery, state: Any) -> Any:
    """The value of a question in a state."""
    question, n = query.question, query.n_qubits
    if isinstance(question, ExpectationValues):
        values = np.array([_of_sum(state, observable, n) for observable in question.sums])
        if not any(np.iscomplexobj(observable.coefficients) for observable in question.sums):
            values = values.real
        return values[0].item() if question.is_single else values
    if isinstance(question, Probabilities):
        return _probabilities(state, question.qubits)
    assert isinstance(question, ReducedDensityMatrix)
    return _density(state, question.qubits)


def _of_sum(state: Any, observable: PauliSum, n_qubits: int) -> complex:
    """sum_P c_P <P>; a word of a stabilizer state has the value 1, -1 or 0."""
    stim = load_stim()

    def word(x: int, z: int) -> Any:
        bits = [
            np.unpackbits(
                np.frombuffer(mask.to_bytes(-(-n_qubits // 8), "little"), np.uint8), bitorder="little"
            )
            for mask in (x, z)
        ]
        return stim.PauliString.from_numpy(xs=bits[0][:n_qubits] > 0, zs=bits[1][:n_qubits] > 0)

    return sum(c * state.peek_observable_expectation(word(x, z)) for x, z, c in observable.masks())


def _probabilities(state: Any, qubits: Sequence[int]) -> Array:
    """The probability of every value of some qubits, [2] * m.

    The outcomes of a stabilizer state are x + span(rows), each with the same probability. What flips a random
    outcome of a qubit flips a row of others, and none that were measured before it.
    """
    state, start, rows = state.copy(), [], []
    for qubit in qubits:
        outcome, kickback = state.measure_kickback(qubit)
        start.append(int(outcome))
        if kickback is not None:
            flips = kickback.to_numpy()[0]
            rows.append([int(flips[other]) if other < len(flips) else 0 for other in qubits])
    m = len(qubits)
    weights = 1 << np.arange(m)[::-1]
    values = np.array([np.dot(start, weights)])
    for row in rows:
        values = np.concatenate([values, values ^ np.dot(row, weights)])
    table = np.zeros(2**m)
    table[values] = 2.0 ** -len(rows)
    return table.reshape((2,) * m)


def _density(state: Any, qubits: Sequence[int]) -> Array:
    """The density matrix of m qubits, sum_P <P> P / 2^m over the 4^m words on them."""
    stim = load_stim()
    m = len(qubits)
    matrix = np.zeros((2**m, 2**m), np.complex128)
    for letters in product(range(4), repeat=m):
        word = stim.PauliString(max(qubits) + 1)
        for qubit, letter in zip(qubits, letters, strict=True):
            word[qubit] = letter
        value = state.peek_observable_expectation(word)
        if value:
            matrix += value * reduce(np.kron, PAULI_MATRICES[list(letters)])
    return matrix / 2**m


def _sampled(program: CircuitProgram, shots: int, seed: int, rank: Rank) -> Outcome:
    """Counts of the classical bits, or of all qubits where none is measured."""
    conditions = Conditional | WhileLoop | BitAssignment
    has_conditions = any(isinstance(operation, conditions) for operation in program.operations)
    draw = _one_by_one if has_conditions else _together
    counts: Counter[str] = Counter()
    for row, number in draw(program, shots, seed, rank):
        counts[row] += number
    details = {"seed": seed, "shots": shots, "samples": "independent"}
    return Outcome(dict(sorted(counts.items())), None, STATISTICAL, details)


def _shown_bits(program: CircuitProgram) -> int:
    """How many classical bits an outcome has; 0 where it has the qubits."""
    measured = measures(program.operations)
    return program.n_bits - program.n_scratch if measured else 0


def _together(program: CircuitProgram, shots: int, seed: int, rank: Rank) -> Iterator[tuple[str, int]]:
    """Outcomes without classical control: by Pauli frames, many shots at once."""
    n, n_shown = program.n_qubits, _shown_bits(program)
    operations = [*program.operations]
    if not n_shown:
        operations = [*without_final_measurements(operations)[0], *(Measurement(q, q) for q in range(n))]
    measured = [operation for operation in operations if isinstance(operation, Measurement)]
    column = {operation.bit: number for number, operation in enumerate(measured)}
    width = n_shown or n
    start = np.zeros(width, np.uint8)
    if n_shown:
        start[: len(program.start)] = program.start[:width]
    shown = [bit for bit in column if bit < width]
    sampler = _circuit(operations, n).compile_sampler(seed=seed)
    for first in range(0, shots, SHOTS_AT_ONCE):
        drawn = sampler.sample(min(SHOTS_AT_ONCE, shots - first))
        rows = np.repeat(start[None], len(drawn), axis=0)
        rows[:, shown] = drawn[:, [column[bit] for bit in shown]]
        packed = np.packbits(rows, axis=1)
        distinct, where, numbers = np.unique(
            packed.view(f"V{packed.shape[1]}").ravel(), return_index=True, return_counts=True
        )
        texts = (rows[where] + ord("0")).tobytes().decode()
        for k, number in enumerate(numbers.tolist()):
            yield texts[k * width : (k + 1) * width], number
        del distinct
        rank.say_steps(first + len(drawn), shots, "shot")


def _one_by_one(program: CircuitProgram, shots: int, seed: int, rank: Rank) -> Iterator[tuple[str, int]]:
    """Outcomes of a program with classical control: each shot with a tableau of its own."""
    stim = load_stim()
    n_shown = _shown_bits(program)
    pieces: dict[int, Any] = {}
    seeds = np.random.default_rng(seed).integers(1 << SEED_BITS, size=shots)
    for shot, shot_seed in enumerate(seeds.tolist()):
        state = stim.TableauSimulator(seed=shot_seed)
        state.set_num_qubits(program.n_qubits)
        bits = [*program.start, *[0] * (program.n_bits - len(program.start))]
        _run(program.operations, state, bits, pieces)
        if n_shown:
            yield "".join(map(str, bits[:n_shown])), 1
        else:
            yield "".join(str(int(bit)) for bit in state.measure_many(*range(program.n_qubits))), 1
        rank.say_steps(shot + 1, shots, "shot")


def _run(operations: Sequence[Operation], state: Any, bits: list[int], pieces: dict[int, Any]) -> None:
    """The operations on a tableau; `bits` are read and written, `pieces` keeps Stim's form of each
    operation."""

    def value(read: Sequence[int]) -> int:
        return sum(bits[bit] << k for k, bit in enumerate(read))

    for operation in operations:
        if isinstance(operation, Measurement):
            bits[operation.bit] = int(state.measure(operation.qubit))
        elif isinstance(operation, Conditional):
            is_taken = value(operation.bits) == operation.value
            _run(operation.body if is_taken else operation.otherwise, state, bits, pieces)
        elif isinstance(operation, WhileLoop):
            rounds = 0
            while value(operation.bits) == operation.value:
                if (rounds := rounds + 1) > MOST_ROUNDS:
                    problem = f"is still true after {MOST_ROUNDS} rounds"
                    raise InputError("while", problem, "let its body make it false")
                _run(operation.body, state, bits, pieces)
        elif isinstance(operation, BitAssignment):
            bits[operation.bit] = int(operation.table[value(operation.bits)])
        else:
            if id(operation) not in pieces:
                pieces[id(operation)] = load_stim().Circuit("\n".join(_text([operation])))
            state.do(pieces[id(operation)])
