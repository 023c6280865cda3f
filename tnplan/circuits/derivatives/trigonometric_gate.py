"""Gates whose matrices are sums of exponentials of linear functions of a circuit's parameters.

Every gate with a name is a trigonometric polynomial in halves of its angles (`generators`). Where the angles
are linear in the parameters p, the matrix is U(p) = sum_t C_t exp(i f_t . p), up to a phase of the whole
gate: for new values no circuit is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import pi
from typing import Any

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.derivatives.dual_number import Varied, VariedGate, slopes_of
from tnplan.circuits.derivatives.generators import ORDER, generators, kind_of
from tnplan.circuits.gates import Kind
from tnplan.common.errors import InputError

SAME = 1e-9
"""How far a matrix may be from the one that the circuit itself has, with angles of up to a few thousand."""
ZERO = 1e-14
"""Coefficients that are rounding."""
SMALL_ANGLES, LARGE_ANGLES = (0.2, 2.9), (100.0, 1000.0)
"""Where a circuit is read to find its form, and to check it: there with both signs."""


@dataclass(frozen=True, eq=False)
class TrigonometricGate:
    """A gate with the matrix sum_t coefficients[t] exp(i frequencies[t] . p), up to a phase.

    - `qubits`: The q qubits, the first most significant.
    - `parameters`: The numbers of the parameters p that it depends on.
    - `frequencies`: float64 [term, parameter].
    - `coefficients`: complex128 [term, 2^q, 2^q].
    """

    qubits: tuple[int, ...]
    parameters: tuple[int, ...]
    frequencies: np.ndarray
    coefficients: np.ndarray

    def matrix(self, values: np.ndarray) -> np.ndarray:
        """The matrix for values of all parameters of the circuit, complex128."""
        phases = self.frequencies @ values[list(self.parameters)]
        return np.tensordot(np.exp(1j * phases), self.coefficients, 1)


def trigonometric_gates(
    read: Callable[[Mapping[str, Any]], Sequence[Gate]], names: Sequence[str]
) -> tuple[Gate | TrigonometricGate, ...] | None:
    """The gates that `read` gives for values of named parameters; None where they have no such form.

    The form is found at one point, and compared with what `read` gives at two others that are far away: there
    angles that are no linear functions, such as absolute values and remainders, differ.
    """
    random, numbers = np.random.default_rng(0), {name: number for number, name in enumerate(names)}
    point = random.uniform(*SMALL_ANGLES, len(names))
    far = random.uniform(*LARGE_ANGLES, len(names)) * random.choice([-1.0, 1.0], len(names))
    try:
        gates = read(_varied(names, point))
        forms = tuple(_form(gate, names, numbers, point) for gate in gates)
        has_form = not names or all(_agree(forms, read(_varied(names, at)), at) for at in (far, -far))
    except InputError:  # values that no reader takes for these parameters, or a gate that is not known
        return None
    return forms if has_form else None


def tangent_gates(gates: Sequence[Gate], names: Sequence[str]) -> Iterator[Gate | TrigonometricGate]:
    """Gates that have, where all parameters are 0, the matrices and the derivatives of some `VariedGate`s."""
    numbers = {name: number for number, name in enumerate(names)}
    for gate in gates:
        if isinstance(gate, VariedGate) and gate.tangents:
            # U - i T (exp(i p) - 1) is U at p = 0, and its derivative there is T.
            turns = [-1j * tangent for tangent in gate.tangents.values()]
            yield TrigonometricGate(
                gate.qubits, tuple(numbers[name] for name in gate.tangents),
                np.eye(len(turns) + 1, len(turns), -1), np.array([gate.matrix - sum(turns), *turns]),
            )  # fmt: skip
        else:
            yield gate


def _varied(names: Sequence[str], values: np.ndarray) -> dict[str, Varied]:
    """Values with slopes: readers may divide a gate otherwise where it has none."""
    return {name: Varied(value) for name, value in zip(names, values.tolist(), strict=True)}


def _form(
    gate: Gate, names: Sequence[str], numbers: Mapping[str, int], point: np.ndarray
) -> Gate | TrigonometricGate:  # fmt: skip
    """A gate that was read with slopes at a point; `numbers` are those of the names."""
    slopes = [slopes_of(angle) for angle in gate.params]
    if not any(slopes):
        return gate
    frequencies, coefficients = _by_angles(gate)
    used = sorted({numbers[name] for by_name in slopes for name in by_name})
    table = np.array([[by_name.get(names[number], 0.0) for number in used] for by_name in slopes])
    # angle_j = b_j + sum_p slope_jp p. The constants b go into the coefficients.
    constants = np.array([float(angle) for angle in gate.params]) - table @ point[used]
    factors = np.exp(1j * (frequencies @ constants))
    return TrigonometricGate(
        gate.qubits, tuple(used), frequencies @ table, coefficients * factors[:, None, None]
    )


def _by_angles(gate: Gate) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies, float64 [term, angle], and coefficients of a gate's matrix as a function of its angles."""
    kind = kind_of(gate)
    if kind is not None:
        return _fourier(kind)
    if len(gate.params) > 1:
        raise InputError(
            f"gate {gate.name}", "has angles whose meaning is not known", "use gates of the standard names"
        )
    # dU/da = G U with a constant G = i H: U(a) = sum_w P_w U(a_0) exp(i w (a - a_0)), P_w being the projector
    # of H on its eigenvalue w.
    (generator,) = generators(gate, of_qsim=False)
    eigenvalues, vectors = np.linalg.eigh(-1j * generator)
    distinct = np.unique(np.round(eigenvalues, 9))
    coefficients = []
    for eigenvalue in distinct:
        basis = vectors[:, np.abs(eigenvalues - eigenvalue) < SAME]
        projected = basis @ basis.conj().T @ gate.matrix
        coefficients.append(projected * np.exp(-1j * eigenvalue * float(gate.params[0])))
    return distinct[:, None], np.array(coefficients)


@cache
def _fourier(kind: Kind) -> tuple[np.ndarray, np.ndarray]:
    """The Fourier series of the matrix of a kind of gate, whose elements have the period 4 pi."""
    n, count = kind.n_params, 2 * ORDER + 1
    nodes = np.indices((count,) * n).reshape(n, -1).T * (4 * pi / count)
    matrices = np.array([kind.matrix(*node) for node in nodes.tolist()], np.complex128)
    side = matrices.shape[-1]
    series = np.fft.fftn(matrices.reshape((count,) * n + (side, side)), axes=range(n), norm="forward")
    numbers = np.indices((count,) * n).reshape(n, -1).T
    orders = np.where(numbers > ORDER, numbers - count, numbers)
    flat = series.reshape(-1, side, side)
    flat[np.abs(flat) < ZERO] = 0
    nonzero = np.flatnonzero(np.abs(flat).max(axis=(1, 2)))
    return orders[nonzero] / 2, flat[nonzero]


def _agree(forms: Sequence[Gate | TrigonometricGate], gates: Sequence[Gate], values: np.ndarray) -> bool:
    """Whether these are the gates of a circuit with some values, phases of whole gates apart."""
    if len(forms) != len(gates):
        return False
    for form, gate in zip(forms, gates, strict=True):
        if form.qubits != gate.qubits:
            return False
        matrix = form.matrix if isinstance(form, Gate) else form.matrix(values)
        # tr(A^dagger B) has the phase between two matrices that are equal up to one.
        overlap = np.vdot(matrix, gate.matrix)
        phase = overlap / abs(overlap) if abs(overlap) > SAME else 1.0
        if np.abs(phase * matrix - gate.matrix).max() > SAME:
            return False
    return True
