"""How much the arithmetic of a pass on a GPU rounds: bounds in units of the unit roundoff u. Knows no GPU.

Each step multiplies by a matrix A, a multiple of a unitary one. A bound of k units says that the norm of a
step's error is at most k u times the norm of A x, to first order in u; `packed_error` adds up steps.

- A sum of m products of real numbers, one factor of each rounded, has an error of at most (m + 1) u times the
  sum of their magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, 2002, eq. 3.5); a product
  and a sum in one instruction round less. The matrix of magnitudes of a multiple of a real orthogonal matrix
  of side m has a norm of at most sqrt(m) times that of the matrix. That is `of_matrix`.
- A product of two complex numbers has an error of at most 3 u (lemma 3.5 there), a rounded factor one of 1 u.
- A turn by an angle a in three shears x -= t y, y += s x, x -= t y, with t = tan(a / 2), s = sin(a), takes
  (x, y) of norm 1. Let r = sqrt(1 + t^2). Two operations and a rounded slope make errors of at most 3 u times
  the sum of both magnitudes. After the first shear |x| <= r, so that its error is 3 u r at most; those after
  it turn that error, 1 - t s being cos(a). |s| r <= 2, so that the second error is 9 u at most, and the third
  shear makes it 9 u r. |y| <= 1 after the second, so that the third error is 6 u r at most. That is 18 r
  units in all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.statevector.codegen.pass_program import PassProgram
from tnplan.executor.statevector.scheduling.pass_tables import GATE, PHASES, PassTables

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
