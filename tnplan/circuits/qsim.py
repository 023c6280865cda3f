"""qsim circuit files: reading and writing. Knows the text format and the gates' names, not their networks.

A line with the number of qubits, then lines `time gate qubits parameters`. Blank lines and lines that start
with # are skipped, spaces at the end of a line too. Times must not decrease on a qubit. Gate names are qsim's
and those of circuit collections (`fsim`, `swap`, `id_1`, ...: see ALIASES). Measurements at the end of a
qubit's line of gates are skipped, since amplitudes are asked for by bits; a gate after one is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from tnplan.circuits.circuit import LARGEST_CIRCUIT, Gate, GateSequence
from tnplan.circuits.gates import KINDS, gate
from tnplan.common.errors import InputError
from tnplan.common.files import write_text

ALIASES = {"fsim": "fs", "swap": "sw", "id_1": "id1", "id_2": "id2", "id": "id1", "cx": "cnot", "iswap": "is"}
MEASUREMENT = "m"
LONGEST_COUNT = 18


def parse_qsim(text: str, place: str) -> GateSequence:
    """Parse a qsim circuit; `place` names it in errors."""
    lines = _lines(text)
    number, words = next(lines, (1, [""]))
    if len(words) != 1 or not _is_count(words[0]) or not 1 <= int(words[0]) <= LARGEST_CIRCUIT:
        raise InputError(
            f"{place}: line {number}",
            f"{' '.join(words)!r} is not a number of qubits",
            f"start with the number of qubits, 1 to {LARGEST_CIRCUIT}",
        )
    reader = _Reader(int(words[0]), place)
    gates = [read for number, words in lines for read in reader.read(number, words)]
    return GateSequence(reader.n_qubits, tuple(gates))


def save_qsim(circuit: GateSequence, path: str | Path) -> None:
    """Write a circuit whose gates all have names of qsim, to a temporary name first."""
    times = [0] * circuit.n_qubits
    lines = [str(circuit.n_qubits)]
    for item in circuit.gates:
        if item.name not in KINDS:
            raise InputError(
                f"gate {item.name}", "has no name in qsim", "write the circuit in another format"
            )
        # Each gate at the earliest time at which all its qubits are free.
        time = max(times[qubit] for qubit in item.qubits)
        for qubit in item.qubits:
            times[qubit] = time + 1
        lines.append(" ".join([str(time), item.name, *map(str, item.qubits), *map(repr, item.params)]))
    write_text(path, "\n".join(lines) + "\n")


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if words and not words[0].startswith("#"):
            yield number, words


def _is_count(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= LONGEST_COUNT


class _Reader:
    """Checks one line after another; remembers the time and the measurement of each qubit."""

    def __init__(self, n_qubits: int, place: str) -> None:
        self.n_qubits = n_qubits
        self.place = place
        self.times = [-1] * n_qubits
        self.measured = [False] * n_qubits

    def read(self, number: int, words: list[str]) -> list[Gate]:
        """The gate of a line, none for a measurement."""
        place = f"{self.place}: line {number}"
        if len(words) < 2 or not _is_count(words[0]):
            raise InputError(
                place, f"{' '.join(words)!r} is not a gate", "write: time gate qubits parameters"
            )
        time, name = int(words[0]), words[1]
        if name == MEASUREMENT:
            qubits = self._qubits(words[2:], f"{place}: measurement")
            self._advance(time, qubits, f"{place}: measurement")
            for qubit in qubits:
                self.measured[qubit] = True
            return []
        kind_name = ALIASES.get(name, name)
        kind = KINDS.get(kind_name)
        if kind is None:
            raise InputError(f"{place}: gate {name}", "is unknown", f"choose from {', '.join(sorted(KINDS))}")
        place = f"{place}: gate {name}"
        expected = kind.n_qubits + kind.n_params
        if len(words) - 2 != expected:
            raise InputError(
                place,
                f"has {len(words) - 2} numbers",
                f"give {kind.n_qubits} qubits and {kind.n_params} parameters",
            )
        qubits = self._qubits(words[2 : 2 + kind.n_qubits], place)
        params = [self._parameter(word, place) for word in words[2 + kind.n_qubits :]]
        self._advance(time, qubits, place)
        return [gate(kind_name, qubits, params)]

    def _qubits(self, words: list[str], place: str) -> list[int]:
        qubits: list[int] = []
        for word in words:
            if not _is_count(word) or int(word) >= self.n_qubits:
                raise InputError(place, f"{word!r} is not a qubit", f"use qubits 0 to {self.n_qubits - 1}")
            if int(word) in qubits:
                raise InputError(place, f"names qubit {word} twice", "name each qubit once")
            qubits.append(int(word))
        if not qubits:
            raise InputError(place, "names no qubit", f"use qubits 0 to {self.n_qubits - 1}")
        return qubits

    @staticmethod
    def _parameter(word: str, place: str) -> float:
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InputError(place, f"the parameter {word!r} is not a number", "write angles in radians")
        return value

    def _advance(self, time: int, qubits: list[int], place: str) -> None:
        for qubit in qubits:
            if self.measured[qubit]:
                raise InputError(
                    place,
                    f"acts on qubit {qubit} after its measurement",
                    "measure only at the end of a circuit",
                )
            if time <= self.times[qubit]:
                raise InputError(
                    place,
                    f"time {time} on qubit {qubit}, which was used at time {self.times[qubit]}",
                    "let times increase on every qubit",
                )
            self.times[qubit] = time
