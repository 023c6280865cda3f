"""Random circuits of several families, and what repetitions estimate of them, with dense values."""

from __future__ import annotations

from collections.abc import Callable
from math import comb, exp, log, log1p
from typing import NamedTuple

import numpy as np

from tests.support import dense_answers as dense
from tests.support.circuits import unitary
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import KINDS, gate
from tnplan.circuits.pauli_sum import PauliSum, parse
from tnplan.executor.pauli.algebra.gates import circuit_steps
from tnplan.executor.pauli.algebra.states import OverlapWith, ProductState, State
from tnplan.executor.pauli.estimate import Estimate
from tnplan.executor.pauli.propagate import propagate
from tnplan.executor.pauli.repetitions import MonteCarlo, repetition
from tnplan.executor.pauli.resources import Resources
from tnplan.executor.pauli.terms.truncation import Truncation
from tnplan.jobs.pauli_sampling import SampledValue, estimate_of_values, sampling_task

Random = np.random.Generator
QUESTIONS = ("bits", "product", "overlap", "echo")


class SampledCase(NamedTuple):
    """What is asked of a circuit, its dense value, and how many terms there are without a limit."""

    sampled: SampledValue
    exact: float
    largest: int
    family: str


def sampled_case(
    question: str, by: str, seed: int, most_qubits: int = 7, share: float | None = None
) -> SampledCase | None:
    """A random circuit and a limit of its terms; None where it has too few.

    `question` is one of QUESTIONS. `share` is the limit as a part of the terms that there are without one;
    default: random, from the terms of the observable to all.
    """
    random = np.random.default_rng([seed, QUESTIONS.index(question)])
    n = int(random.integers(3, most_qubits + 1))
    family = FAMILIES[int(random.integers(len(FAMILIES)))]
    gates, observable = family(n, random), random_observable(n, random)
    state: str | State | None = None if random.random() < 0.5 else "".join(random.choice([*"01"], n))
    if question == "product":
        vectors = random.normal(size=(n, 3))
        state = ProductState(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    if question == "echo":
        state, there = OverlapWith(observable), gates[:60]
        turned = random.choice(n, int(random.integers(1, 4)), replace=False)
        middle = [rotation_gate(str(random.choice([*"XYZ"])), (q,), random.uniform(0.1, 1.2)) for q in turned]
        gates = [*there, *middle, *(adjoint_gate(one) for one in reversed(there))]
    circuit = GateSequence(n, tuple(gates))
    steps, least = circuit_steps(circuit), observable.n_terms
    done = propagate(steps, observable)
    largest = done.largest
    if largest < 4 * least:
        return None
    if question == "overlap":
        state = OverlapWith(some_words(done.result, random))
    most = int(np.exp(random.uniform(np.log(least), np.log(largest))))
    most = most if share is None else int(share * largest)
    repetitions = int(np.exp(random.uniform(np.log(2), np.log(33))))
    plan, truncation = MonteCarlo(repetitions, seed, by), Truncation(max_terms=most)
    sampled = SampledValue(steps, observable, state, plan, truncation)
    return SampledCase(sampled, dense_value(circuit, observable, state), largest, family.__name__)


def estimated(case: SampledCase) -> Estimate:
    """The estimate from all repetitions."""
    sampled = case.sampled
    task, plan = sampling_task(sampled, Resources()), sampled.plan
    done = [repetition(task, plan, sampled.most_terms, r) for r in range(plan.repetitions)]
    assert len({one.resampled > 0 for one in done}) == 1
    return estimate_of_values([one.value for one in done], done[0].resampled > 0, sampled)


def chance_of_fewer(hits: int, trials: int, probability: float) -> float:
    """The probability of at most so many hits. Logarithms, since binomials pass the largest float."""
    each, other = log(probability), log1p(-probability)
    return sum(exp(log(comb(trials, k)) + k * each + (trials - k) * other) for k in range(hits + 1))


def dense_value(circuit: GateSequence, observable: PauliSum, state: str | State | None) -> float:
    """What repetitions estimate, by matrices."""
    n, matrix = circuit.n_qubits, unitary(circuit.gates, circuit.n_qubits)
    found = matrix.conj().T @ dense.matrix_of(observable) @ matrix
    if isinstance(state, OverlapWith):
        return float(np.vdot(dense.matrix_of(state.other), found).real / 2**n)
    if isinstance(state, ProductState):
        rho = np.eye(1)
        for vector in state.bloch:
            letters = sum(v * dense.LETTERS[name] for v, name in zip(vector, "XYZ", strict=True))
            rho = np.kron(rho, (np.eye(2) + letters) / 2)
        return float(np.trace(rho @ found).real)
    assert state is None or isinstance(state, str)
    number = int(state or "0", 2)
    return float(found[number, number].real)


def random_observable(n: int, random: Random) -> PauliSum:
    """One word of Z, a pair, the magnetization, or a sum of random words."""
    first, second = random.choice(n, 2, replace=False)
    words = ["".join(random.choice([*"IIXYZ"], n - 1)) + "Y" for _ in range(int(random.integers(1, 5)))]
    texts = (
        f"Z{first}", f"Z{first} Z{second}", " + ".join(f"Z{q}" for q in range(n)),
        " + ".join(f"{random.uniform(0.1, 1):.5f}*{word}" for word in words),
    )  # fmt: skip
    return parse(texts[int(random.integers(4))], n)


def some_words(terms: PauliSum, random: Random) -> PauliSum:
    """A sum of a few of the words of another sum."""
    chosen = random.permutation(terms.n_terms)[: int(random.integers(1, 33))]
    return PauliSum(terms.n_qubits, terms.keys[chosen], random.uniform(-1, 1, len(chosen)))


def rotation_gate(letters: str, qubits: tuple[int, ...], angle: float) -> Gate:
    """exp(-i angle P / 2)."""
    word = np.eye(1)
    for letter in letters:
        word = np.kron(word, dense.LETTERS[letter])
    matrix = np.cos(angle / 2) * np.eye(len(word)) - 1j * np.sin(angle / 2) * word
    return Gate(f"r{letters.lower()}", tuple(int(q) for q in qubits), matrix)


def adjoint_gate(one: Gate) -> Gate:
    """The inverse of a gate."""
    return Gate(f"{one.name}_adjoint", one.qubits, one.matrix.conj().T)


def random_edges(n: int, random: Random) -> list[tuple[int, int]]:
    """A chain, a ring, a ladder, or a random graph."""
    half = n // 2
    rungs = [(q, half + q) for q in range(half)]
    graph = [(a, b) for a in range(n) for b in range(a) if random.random() < 0.5]
    return (
        [(q, q + 1) for q in range(n - 1)], [(q, (q + 1) % n) for q in range(n)],
        [(q, q + 1) for q in range(2 * half - 1) if q != half - 1] + rungs, graph or [(0, 1)],
    )[int(random.integers(4))]  # fmt: skip


def named_gates(names: str, n: int, random: Random) -> list[Gate]:
    """Gates on random qubits by random angles."""
    kinds = random.choice(names.split(), int(random.integers(5, 14)) * n).tolist()
    return [
        gate(name, random.choice(n, KINDS[name].n_qubits, replace=False).tolist(),
             random.uniform(-3, 3, KINDS[name].n_params).tolist())
        for name in kinds
    ]  # fmt: skip


def cliffords_and_t(n: int, random: Random) -> list[Gate]:
    """Random Cliffords and T."""
    return named_gates("h s t t cnot cz", n, random)


def mixed(n: int, random: Random) -> list[Gate]:
    """Random Cliffords, T and rotations by any angles."""
    return named_gates("h s t rx ry rz cz cnot cp", n, random)


def brickwork(n: int, random: Random) -> list[Gate]:
    """Layers of rotations by any angles, and CZs."""
    gates = []
    for layer in range(int(random.integers(2, 7))):
        gates += [gate(name, (q,), [random.uniform(-3, 3)]) for q in range(n) for name in ("rx", "rz")]
        gates += [gate("cz", (q, q + 1)) for q in range(layer % 2, n - 1, 2)]
    return gates


def trotter(n: int, random: Random) -> list[Gate]:
    """Steps of a spin model on a lattice in a field."""
    edges, field, couplings = random_edges(n, random), *random.uniform(0.05, 0.7, (2, 3))
    words = [word for word in ("ZZ", "XX", "YY") if random.random() < 0.6] or ["ZZ"]
    layer = [
        rotation_gate(word, edge, angle)
        for word, angle in zip(words, couplings.tolist(), strict=False) for edge in edges
    ]  # fmt: skip
    layer += [rotation_gate("X", (q,), field[0]) for q in range(n)]
    return layer * int(random.integers(2, 8))


def kicked(n: int, random: Random) -> list[Gate]:
    """Kicked Ising: Cliffords of the edges, and kicks by one angle."""
    layer = [rotation_gate("X", (q,), angle) for q, angle in enumerate([random.uniform(0.1, 1.2)] * n)]
    layer += [rotation_gate("ZZ", edge, -np.pi / 2) for edge in random_edges(n, random)]
    return layer * int(random.integers(2, 9))


def qaoa(n: int, random: Random) -> list[Gate]:
    """From all +, phases on edges and mixers."""
    edges, gates = random_edges(n, random), [gate("h", (q,)) for q in range(n)]
    for _ in range(int(random.integers(1, 5))):
        phase, turn = random.uniform(0.1, 1.0, 2)
        gates += [rotation_gate("ZZ", edge, phase) for edge in edges]
        gates += [rotation_gate("X", (q,), turn) for q in range(n)]
    return gates


FAMILIES: tuple[Callable[[int, Random], list[Gate]], ...] = (
    cliffords_and_t, mixed, brickwork, trotter, kicked, qaoa,
)  # fmt: skip
