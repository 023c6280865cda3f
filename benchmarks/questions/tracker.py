"""Circuits of the Quantum Advantage Tracker by PEPS and by matrix product operators, with bond limits.

    OMP_NUM_THREADS=1 python benchmarks/questions/tracker.py FILE --value echo --word "Z52 Z59 Z72" --bond 32
    OMP_NUM_THREADS=1 python benchmarks/questions/tracker.py FILE --value mag --method mpo --bond 64

FILE is a circuit in OpenQASM. `--value echo` is the operator Loschmidt echo Tr(B U^dagger B U) / 2^n of the
word B; `mag` is the mean of Z over all qubits; `zz2` and `zz3` are the means of Z Z over the pairs of qubits
whose distance on the graph of the gates is 2 and 3. A PEPS takes an echo as an expectation value: each qubit
begins in a Bell pair with a copy of its own, and the value is that of B on the qubits times the transpose of
B on the copies. Qubits that no gate acts on are left out. Published values are in the notes; there is no
goal.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import tnplan
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate


def moved(given: Gate, names: dict[int, int]) -> Gate:
    """A gate on other qubits."""
    return Gate(given.name, tuple(names[qubit] for qubit in given.qubits), given.matrix)


def question(path: Path, options: argparse.Namespace) -> tuple[GateSequence, str, float]:
    """The circuit on the qubits that have gates, the sum of words, and what its value is divided by."""
    given = tnplan.load_circuit(path)
    used = sorted({qubit for one in given.gates for qubit in one.qubits})
    names = {qubit: number for number, qubit in enumerate(used)}
    gates, n = tuple(moved(one, names) for one in given.gates), len(used)
    if options.value == "echo":
        letters = [(part[0], names[int(part[1:])]) for part in options.word.split()]
        return GateSequence(n, gates), " ".join(f"{letter}{qubit}" for letter, qubit in letters), 1
    if options.value == "mag":
        return GateSequence(n, gates), " + ".join(f"Z{qubit}" for qubit in range(n)), n
    pairs = distant_pairs(n, gates, int(options.value[-1]))
    return GateSequence(n, gates), " + ".join(f"Z{a} Z{b}" for a, b in pairs), len(pairs)


def distant_pairs(n: int, gates: tuple[Gate, ...], distance: int) -> list[tuple[int, int]]:
    """Pairs of qubits so far from each other on the graph of the gates."""
    near: list[set[int]] = [set() for _ in range(n)]
    for one in gates:
        for qubit in one.qubits:
            near[qubit].update(set(one.qubits) - {qubit})
    pairs = []
    for first in range(n):
        seen, shell = {first}, {first}
        for _ in range(distance):
            shell = set().union(*(near[qubit] for qubit in shell)) - seen
            seen |= shell
        pairs += [(first, other) for other in sorted(shell) if other > first]
    return pairs


def of_bell_pairs(circuit: GateSequence, word: str) -> tuple[GateSequence, str]:
    """The circuit on one half of Bell pairs, and the word on both halves; Y^T = -Y."""
    n, letters = circuit.n_qubits, [(part[0], int(part[1:])) for part in word.split()]
    bell = [one for q in range(n) for one in (gate("h", (q,)), gate("cnot", (q, n + q)))]
    both = [f"{letter}{qubit + copy}" for copy in (0, n) for letter, qubit in letters]
    sign = "-" if sum(letter == "Y" for letter, _ in letters) % 2 else ""
    return GateSequence(2 * n, (*bell, *circuit.gates)), sign + " ".join(both)


def main() -> None:
    """Print a line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--value", choices=["echo", "mag", "zz2", "zz3"], default="echo")
    parser.add_argument("--word", default="Z52 Z59 Z72", help="of an echo, by the qubits of the file")
    parser.add_argument("--method", choices=["peps", "mpo"], default="peps")
    parser.add_argument("--bond", type=int, default=32)
    parser.add_argument("--precision", choices=["fp64", "fp32"], default="fp32")
    options = parser.parse_args()
    circuit, words, count = question(options.file, options)
    job: dict[str, Any] = {"device": "cpu", "threads": 1, "method": options.method}
    job |= {"max_bond": options.bond, "precision": options.precision}
    begin, begin_cpu = time.perf_counter(), time.process_time()
    if options.value == "echo" and options.method == "mpo":
        found = tnplan.Circuit(circuit).trace(words, words, **job)
    else:
        circuit, words = of_bell_pairs(circuit, words) if options.value == "echo" else (circuit, words)
        found = tnplan.Circuit(circuit).expectation(words, **job)
    details = {key: value for key, value in found.details.items() if not isinstance(value, dict)}
    half = found.details.get("at_smaller_bond", {"value": found.value * 1.0})["value"]
    print(
        f"{options.file.name}, {options.value}, {options.method}, bond {options.bond}, {options.precision}: "
        f"{found.value / count:.6f}, estimate {found.error / count:.2g}, half bond {half / count:.6f}; "
        f"{time.perf_counter() - begin:.0f} s, processor {time.process_time() - begin_cpu:.0f} s\n{details}",
        flush=True,
    )  # fmt: skip


if __name__ == "__main__":
    main()
