"""Expectation values and amplitudes of a circuit by contraction, beside quimb on a CPU, cuTensorNet on a GPU.

    python benchmarks/contraction/questions.py [--device gpu] [--threads 2] [--strings 1000] [--words 20]
           [--theirs-strings 10] [--theirs-words 20] [--longest 120] [--memory 32GiB] [--profile]
           [-o results.json]

The circuit: Haar-random gates on a 7 x 8 lattice, 10 layers, seed 0. The questions: the expectation values of
words on two neighbours each, and the amplitudes of random strings. Seconds go from the circuit in hand to the
values, the search of paths included, in complex64 and with at most 32 GiB; kernels of searches are compiled
before, those of chains on a GPU where no run has kept them. With --profile ours is asked again, and the
functions that took the time are listed.
A rival that would need longer answers the first `--theirs-...` only, or until `--longest` seconds are over,
and its seconds for one more string or word are the mean of those after the first.
cuTensorNet is the `NetworkState` of cuquantum-python-cu13, 8 samples of its path finder; quimb finds paths
as it does by itself ("auto-hq"). Values are compared. Goal: 2 times faster.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from sampled import sampled
from shared import RESULTS

import tnplan
from tnplan.executor.device.cpu.host_memory import host_facts
from tnplan.planner.workloads.lattice import lattice_circuit

GOAL = 2.0
ROWS, COLUMNS, LAYERS, SEED = 7, 8, 10, 0
TOLERANCE = {"expectation": 1e-5, "amplitudes": 1e-4}
"""Between two programs in single precision: of a word's norm, which is 1, and of the largest amplitude."""

Question = tuple[str, list[str]]


def questions(n_words: int, n_strings: int) -> list[Question]:
    """Words on two neighbours of a row each, and bit strings."""
    rng = np.random.default_rng(SEED)
    words = []
    for _ in range(n_words):
        qubit = int(COLUMNS * rng.integers(ROWS) + rng.integers(COLUMNS - 1))
        first, second = rng.choice(list("XYZ"), 2)
        words.append(f"{first}{qubit} {second}{qubit + 1}")
    bits = rng.integers(0, 2, (n_strings, ROWS * COLUMNS))
    return [("expectation", words), ("amplitudes", ["".join(map(str, row)) for row in bits])]


def matrices(circuit: tnplan.GateSequence) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Qubits and the matrix of each gate, as complex64."""
    for gate in circuit.gates:
        yield gate.qubits, gate.matrix.astype(np.complex64)


def ours(
    circuit: tnplan.GateSequence, question: Question, device: str, threads: int, memory: str
) -> tuple[Any, float]:
    """Values, and seconds."""
    begin = time.perf_counter()
    options = {"method": "contraction", "device": device, "memory": memory, "precision": "fp32"}
    if device == "cpu":
        options["threads"] = threads
    asked = getattr(tnplan.Circuit(circuit), question[0])
    found = asked(question[1], **options)
    return np.asarray(found.value), time.perf_counter() - begin


def one_by_one(
    ask: Callable[[str], complex], asked: Sequence[str], longest_s: float
) -> tuple[list[complex], list[float]]:
    """Values and seconds of each, until `longest_s` are over."""
    values, seconds = [], []
    for one in asked:
        begin = time.perf_counter()
        values.append(complex(ask(one)))
        seconds.append(time.perf_counter() - begin)
        if sum(seconds) > longest_s:
            break
    return values, seconds


def letters(word: str) -> dict[int, str]:
    """The letter of each qubit."""
    return {int(factor[1:]): factor[0] for factor in word.split()}


def cutensornet(
    circuit: tnplan.GateSequence, question: Question, longest_s: float, memory: str
) -> tuple[Any, list[float]]:
    """By cuTensorNet's network states: the first second holds what is made once."""
    import cupy
    from cuquantum.tensornet.experimental import NetworkState, TNConfig

    begin = time.perf_counter()
    state = NetworkState(
        (2,) * circuit.n_qubits, dtype="complex64", config=TNConfig(num_hyper_samples=8),
        options={"memory_limit": memory.replace("G", " G")},
    )  # fmt: skip
    with state:
        for qubits, matrix in matrices(circuit):
            tensor = cupy.asarray(matrix.reshape((2,) * (2 * len(qubits))))
            state.apply_tensor_operator(qubits, tensor, unitary=True)
        made_s = time.perf_counter() - begin

        def ask(one: str) -> complex:
            if question[0] == "amplitudes":
                return complex(state.compute_amplitude(one))
            word = letters(one)
            return complex(state.compute_expectation(
                {"".join(word.get(qubit, "I") for qubit in range(circuit.n_qubits)): 1.0}
            ))  # fmt: skip

        values, seconds = one_by_one(ask, question[1], longest_s)
    seconds[0] += made_s
    return values, seconds


def quimb(
    circuit: tnplan.GateSequence, question: Question, longest_s: float, memory: str
) -> tuple[Any, list[float]]:
    """By quimb's circuits and cotengra's paths."""
    import quimb
    import quimb.tensor

    begin = time.perf_counter()
    theirs = quimb.tensor.Circuit(circuit.n_qubits, dtype="complex64")
    for qubits, matrix in matrices(circuit):
        theirs.apply_gate_raw(matrix, qubits)
    made_s = time.perf_counter() - begin

    def ask(one: str) -> complex:
        if question[0] == "amplitudes":
            return complex(theirs.amplitude(one, dtype="complex64"))
        word = letters(one)
        operator = np.array([[1]], dtype=np.complex64)
        for letter in word.values():
            operator = np.kron(operator, quimb.pauli(letter)).astype(np.complex64)
        return complex(theirs.local_expectation(operator, tuple(word), dtype="complex64"))

    values, seconds = one_by_one(ask, question[1], longest_s)
    seconds[0] += made_s
    return values, seconds


def in_all(seconds: list[float], count: int) -> float:
    """Seconds for `count`, where those that were not asked take the mean of those after the first."""
    later = seconds[1:] or seconds
    return sum(seconds) + (count - len(seconds)) * sum(later) / len(later)


def row(circuit: tnplan.GateSequence, question: Question, given: argparse.Namespace) -> dict[str, Any]:
    """One question by both."""
    theirs_of = {"expectation": given.theirs_words, "amplitudes": given.theirs_strings}
    rival = cutensornet if given.device == "gpu" else quimb
    values, ours_s = ours(circuit, question, given.device, given.threads, given.memory)
    print(f"{question[0]:12} {len(question[1])} in {ours_s:.1f} s", flush=True)
    if given.profile:
        (_, again_s), table = sampled(
            lambda: ours(circuit, question, given.device, given.threads, given.memory)
        )  # fmt: skip
        print(f"{'':12} again, sampled, in {again_s:.1f} s\n{table}", flush=True)
    part = (question[0], question[1][: theirs_of[question[0]]])
    theirs, seconds = rival(circuit, part, given.longest, given.memory)
    theirs_s = in_all(seconds, len(question[1]))
    largest = 1.0 if question[0] == "expectation" else np.max(np.abs(values))
    apart = float(np.max(np.abs(values[: len(theirs)] - theirs)) / largest)
    print(
        f"{'':12} {rival.__name__}: {len(theirs)} in {sum(seconds):.1f} s, all in {theirs_s:.1f} s, "
        f"{theirs_s / ours_s:.2f} times ours; values {apart:.1e} apart", flush=True,
    )  # fmt: skip
    if apart > TOLERANCE[question[0]]:
        raise SystemExit(f"{question[0]}: values are {apart} apart")
    return {
        "question": question[0], "count": len(question[1]), "ours_s": ours_s, "rival": rival.__name__,
        "answered": len(theirs), "answered_s": seconds, "theirs_s": theirs_s, "ratio": theirs_s / ours_s,
        "apart": apart,
    }  # fmt: skip


def main() -> None:
    """Ask both questions, and write their rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--words", type=int, default=20)
    parser.add_argument("--strings", type=int, default=1000)
    parser.add_argument("--theirs-words", type=int, default=20)
    parser.add_argument("--theirs-strings", type=int, default=10)
    parser.add_argument("--longest", type=float, default=120.0)
    parser.add_argument("--memory", default="32GiB", help="of ours, and of cuTensorNet; quimb has no limit")
    parser.add_argument("--question", choices=("expectation", "amplitudes"))
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    circuit = lattice_circuit("rectangular", ROWS, COLUMNS, LAYERS, SEED)
    tnplan.warmup(device="cpu")
    small = lattice_circuit("rectangular", 2, 3, 4, SEED)
    for question in (("expectation", ["X0 Z1"]), ("amplitudes", ["010101", "110011"])):
        ours(small, question, given.device, given.threads, given.memory)
    rows = [
        row(circuit, question, given) for question in questions(given.words, given.strings)
        if given.question in (None, question[0])
    ]  # fmt: skip
    document = {
        "date": date.today().isoformat(), "environment": {**host_facts(), "device": given.device},
        "goal": GOAL, "memory": given.memory,
        "circuit": f"lattice {ROWS} x {COLUMNS}, {LAYERS} layers, seed {SEED}", "rows": rows,
    }  # fmt: skip
    output = given.output or RESULTS / f"questions_{given.device}.json"
    output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
