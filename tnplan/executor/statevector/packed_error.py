"""What quantised amplitudes cost: errors of all encodings, summed to a bound and an estimate of the fidelity.

Let psi be the exact state and phi_t what is stored after pass t. A pass computes phi' = U phi_(t-1) + a,
where a is the rounding of its arithmetic, and stores phi_t = phi' + e. Where U is unitary

    ||phi_t - psi_t|| <= ||phi_(t-1) - psi_(t-1)|| + ||a_t|| + ||e_t||

and the sum d of these norms bounds the error of the last state. Its fidelity F is |<psi|phi>|^2 / <phi|phi>.
Of all multiples of phi the projection c phi is nearest to psi, and ||psi - c phi||^2 = 1 - F. So
1 - F <= d^2, also for phi divided by its norm.

Gates are accepted that are not quite unitary; psi is the product of the matrices as they are given, divided
by its norm. Let D be the sum of ||G^dagger G - 1|| over all gates, less than 1. The singular values of a
product of any of them lie between 1 - D and 1 + D. Errors grow by 1 + D at most, the norm of psi before it is
divided is 1 - D at least, and where the preparation of a pass takes a nearly unitary matrix as a unitary one,
that is a change of at most ||G^dagger G - 1||. So d (1 + D) / (1 - D), with D among the terms of d, takes the
place of d.

||e_t|| is measured. Stochastic rounding gives e_t the mean 0 for any state before it (to 1/8192 of a step).
So errors of different passes are uncorrelated, as increments of a martingale are: the mean of
||phi_T - psi_T||^2 is the sum S of the means of ||e_t||^2. Little of the error points along psi. With
<psi|phi> = 1 and <phi|phi> = 1 + S the fidelity is estimated to be 1 / (1 + S).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.common.units import count_text, size_text
from tnplan.executor.device.cpu.host_memory import host_memory
from tnplan.executor.statevector.codegen.pass_program import PassProgram
from tnplan.executor.statevector.cpu.vector_tables import LANE_EXCHANGE, MULTIPLY, VectorPass
from tnplan.executor.statevector.gates.phase_polynomial import PhasePolynomial
from tnplan.executor.statevector.scheduling.fusion import PassStep
from tnplan.executor.statevector.scheduling.pass_tables import DIAGONAL, FIELDS, GATE, PHASES, PassTables

BITS = (8, 16)
"""Of the whole numbers that parts of amplitudes are stored as."""
PEAK = 6.9
"""The mean of the largest square of 64 normal numbers of variance 1. A scale has that square over the largest
number's; rounding to a neighbour at random has a variance of 1/6 on average."""
PREPARED = 1e-13
"""An allowance for the numbers of a step, which are made in double precision from the gates."""
CODED = 4.0
"""Units of decoding (1), and of the division by the scale (3)."""


SUMMED = 64
"""Squares of a block are summed in the precision of its tile: their sum is wrong by so many units at most."""


@dataclass
class EncodingErrors:
    """The errors so far: the sum of their norms, that of their squares, and the norm of what is stored.

    `departure` is D, the sum over all gates of how far they are from unitary ones.
    """

    departure: float = 0.0
    total: float = 0.0
    squares: float = 0.0
    norm: float = 1.0

    @staticmethod
    def restored(document: dict[str, float]) -> EncodingErrors:
        """Those that a checkpoint has; ValueError where one is not finite."""
        errors = EncodingErrors(**document)
        if not np.isfinite(astuple(errors)).all():
            raise ValueError
        return errors

    def add(self, encoding: float, arithmetic: float, unit: float) -> None:
        """A pass: the norm of its encoding's error, a bound of its arithmetic's, and the unit roundoff."""
        self.total += encoding + arithmetic
        self.squares += encoding**2 + arithmetic * unit

    def add_pass(self, ranks: Sequence[tuple[Array, float]], unit: float) -> None:
        """Add a pass, of which each rank has the squares of its rounding errors and of what it stores,
        float64 [2], and a bound of its arithmetic's error in a state of norm 1.
        """
        squares, norm = np.sum([sums for sums, _ in ranks], axis=0).tolist()
        # What a rank's arithmetic errs by is so much of its own norm: of all, the largest such part at most.
        arithmetic = max(bound for _, bound in ranks)
        # A millionth of a millionth of the sums is wrong by their own order at most.
        encoding = sqrt(squares) * (1 + SUMMED * unit + 1e-10)
        self.add(encoding, arithmetic * self.norm * (1 + self.departure), unit)
        self.norm = sqrt(norm)

    @property
    def fidelity_bound(self) -> float:
        """The fidelity is at least so much."""
        if self.departure >= 1:
            return 0.0
        distance = (self.total + self.departure) * (1 + self.departure) / (1 - self.departure)
        return max(0.0, 1 - distance**2)

    @property
    def fidelity_estimate(self) -> float:
        """What it is expected to be."""
        return 1 / (1 + self.squares)


def departure(matrices: Iterable[Array]) -> float:
    """D: the sum over matrices of the norm (Frobenius's, which is larger) of G^dagger G - 1."""
    total = 0.0
    counts: Counter[bytes] = Counter(matrix.tobytes() for matrix in matrices)
    for values, count in counts.items():
        matrix = np.frombuffer(values, np.complex128)
        side = 1 << (len(matrix).bit_length() - 1) // 2
        matrix = matrix.reshape(side, side)
        total += count * float(np.linalg.norm(matrix.conj().T @ matrix - np.eye(side)))
    return total


def angle_error(steps: Iterable[PassStep]) -> float:
    """What all phases of some steps, each a sum of angles in double precision, are wrong by at most."""
    forms = [step for step in steps if isinstance(step, PhasePolynomial)]
    angles = [abs(form.constant) + np.abs(form.linear).sum() + np.abs(form.pairs).sum() / 2 for form in forms]
    return float(sum((form.n_terms + 1) * size for form, size in zip(forms, angles, strict=True))) * 2.0**-53


def bound_of(units: float, n_steps: int, unit: float, angles: float = 0.0) -> float:
    """A bound for steps that round by so many units in all, whose numbers were made in double precision."""
    # The errors e_k of steps in a row make at most prod(1 + e_k) - 1 <= exp(sum e_k) - 1.
    return float(np.expm1(1.001 * (units + CODED) * unit + n_steps * PREPARED + angles))


def arithmetic_bound(tables: VectorPass, unit: float, angles: float = 0.0) -> float:
    """The norm of the error that a pass's arithmetic makes in a state of norm 1 is at most this, on a CPU.

    `unit` is the unit roundoff, 2^-24 or 2^-53, `angles` as `angle_error` gives it. Each step multiplies by a
    unitary matrix A whose elements are rounded. A sum of k products of real numbers has an error of at most
    (k + 1) unit times the sum of their magnitudes (Higham, Accuracy and Stability of Numerical Algorithms,
    2002, eq. 3.5), and the matrix of magnitudes of a real orthogonal matrix of side k has a norm of at most
    sqrt(k). A product of two complex numbers has an error of at most 3 units (lemma 3.5 there), a rounded
    factor one.
    """
    kinds, counts = np.unique(tables.flat.actions[:, 0], return_counts=True)
    units = 4.0  # a tile's factor
    n_bits = len(tables.flat.tile_bits) + len(tables.flat.beyond)
    for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True):
        units += count * _units_of_action(kind, n_bits)
    for row in tables.flat.steps.reshape(-1, FIELDS).tolist():
        if row[0] == GATE:
            units += of_matrix(2 << row[1])
        elif row[0] == DIAGONAL:
            units += 4
    return bound_of(units, len(tables.flat.actions) + len(tables.flat.steps), unit, angles)


def _units_of_action(kind: int, n_bits: int) -> float:
    """Units of an action: a phase, which is a product of at most n_bits + 3 rounded factors, and a matrix."""
    if kind == LANE_EXCHANGE:
        return 0.0
    return of_matrix(8) if kind == MULTIPLY else 4 * (n_bits + 3) + 3 + of_matrix(2)


def predicted_fidelity(bits: int, n_passes: float) -> float:
    """The fidelity to be expected after so many passes over a state whose amplitudes are normal numbers."""
    errors = EncodingErrors(squares=n_passes * PEAK / (6 * largest_number(bits) ** 2))
    return errors.fidelity_estimate


def largest_number(bits: int) -> int:
    """The largest of the whole numbers of so many bits."""
    return (1 << bits - 1) - 1


def fewest_bits(fidelity: float, n_passes: int) -> int:
    """The fewest bits that a fidelity needs, as predicted; InputError where none has enough."""
    for bits in BITS:
        if predicted_fidelity(bits, n_passes) >= fidelity:
            return bits
    raise InputError(
        "--fidelity",
        f"is {fidelity!r}, and {BITS[-1]} bits reach about {predicted_fidelity(BITS[-1], n_passes):.10g} in "
        f"{count_text(n_passes, 'pass', 'passes')}",
        "ask for a lower fidelity, or leave it out: the state is then not compressed",
    )


MACRO = re.compile(r"\b([A-Z]+)\(")
FACTOR = 4
"""Units of a product with a rounded factor."""
TURN = 9
"""Those of a factor of a tile: three rounded factors and two products."""
FREE = frozenset({"LOAD", "STORE", "MOVE", "PARITY", "THREAD", "FAR"})
"""Macros that round nothing: what codes round is counted where they are made."""


class Rounding(NamedTuple):
    """The units of a pass, and of how many steps its numbers were made."""

    units: float
    n_steps: int


def of_matrix(side: int) -> float:
    """Units of a real matrix of this side."""
    return (side + 1) * sqrt(side)


def of_turn(slopes: Array) -> float:
    """Units of turns by shears with these slopes t + i s, at most."""
    return float(18 * np.sqrt(1 + np.max(slopes.real**2, initial=0.0)))


def rounding_of_program(program: PassProgram, register_bits: int) -> Rounding:
    """That of a compiled pass. Steps of which an amplitude meets one at most are counted as if it met all."""
    units, n_steps = 0.0, 0
    for macro in MACRO.finditer(program.steps):
        if macro[1] not in FREE:
            given = program.steps[macro.end() :].split(")", 1)[0].split(",")
            units += _of_macro(macro[1], given, program.values, register_bits)
            n_steps += 1
    return Rounding(units, n_steps)


def _of_macro(name: str, given: Sequence[str], values: Array, register_bits: int) -> float:
    """Units of one macro of program.cu."""
    if name == "SHEAR":
        return of_turn(values[int(given[0])])
    if name == "SHEARS":
        mask, first, at = (int(text) for text in given[:3])
        return of_turn(values[at : at + (1 << mask.bit_count()) - first])
    # Factors of registers are multiplied with each other and into an amplitude; a tile's into those.
    return {
        "ONE": of_matrix(4), "TWO": of_matrix(8), "SIGNED": of_matrix(4), "ROTATE": of_matrix(4),
        "PHASES": FACTOR, "TIMES": FACTOR, "TABLE": FACTOR, "SIGNS": 2,
        "FACTORS": FACTOR * (register_bits + 1), "TWIST": 2 * TURN + 10 + register_bits * (TURN + 7),
    }[name]  # fmt: skip


def rounding_of_tables(tables: PassTables) -> Rounding:
    """That of a pass read from tables: matrices, diagonals, and phases as products of two rounded factors."""
    units = 0.0
    for kind, n_targets, *_ in tables.steps.tolist():
        if kind == GATE:
            units += of_matrix(2 << n_targets)
        else:
            units += 2 * FACTOR if kind == PHASES else FACTOR
    return Rounding(units, len(tables.steps))


BLOCK_BITS = 5
"""Amplitudes of a block are the shortest runs of tiles."""
ONE = 64, 2.0**-6
"""The amplitude 1: a whole number and a scale."""


def codes_bytes(n_bits: int, bits: int) -> int:
    """The bytes of 2^n_bits amplitudes."""
    return (2 * bits // 8 << n_bits) + (4 << max(0, n_bits - BLOCK_BITS))


def exchanged(codes: Array, scales: Array) -> list[tuple[Array, int]]:
    """What exchanges move, as `DistributedState.arrays` has it: numbers in words of 8 bytes."""
    amplitudes = 4 // codes.itemsize  # of a word
    return [(codes.view(np.uint64), amplitudes.bit_length() - 1), (scales, BLOCK_BITS)]


def amplitudes_of(codes: Array, scales: Array, norm: float) -> Array:
    """The amplitudes of whole blocks divided by a norm, complex128."""
    parts = codes.reshape(len(scales), 2, -1) * (scales.astype(np.float64) / norm)[:, None, None]
    return np.asarray(parts[:, 0] + 1j * parts[:, 1]).reshape(-1)


def check_room(n_bits: int, dtype: str) -> None:
    """Raise InputError where the host has no room for all amplitudes."""
    needed, free = np.dtype(dtype).itemsize << n_bits, host_memory()[1]
    if 2 * needed > free:
        raise InputError(
            "array", f"takes {size_text(2 * needed)} decoded, and {size_text(free)} are free",
            "ask for single amplitudes, samples or values", topic="memory",
        )  # fmt: skip


def refuse_load() -> None:
    """Raise InputError: the error of what is loaded is not known."""
    raise InputError("load", "cannot be used on a state with a fidelity", "leave out the fidelity")
