"""A quantum circuit as plain data. Knows no file format, no tensor network and no engine.

Convention: qubit 0 is the first. In a gate's matrix the first of its qubits is the most significant bit of
the row (outgoing) and of the column (incoming): matrix[2*a + b, 2*c + d] takes |c d> to |a b>. In a bit
string, character k is qubit k.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import index

import numpy as np

from tnplan.common.errors import InputError

LARGEST_CIRCUIT = 100_000


@dataclass(frozen=True, eq=False, repr=False)
class Gate:
    """A named linear map of some qubits.

    Parameters
    ----------
    name : str
        The name.
    qubits : tuple of int
        The q qubits that it acts on; the first is the most significant bit of a row and of a column.
    matrix : array of numbers
        Of shape (2^q, 2^q): matrix[2*a + b, 2*c + d] takes |c d> to |a b>. Kept as a copy in complex128,
        which cannot be changed.
    params : tuple of float
        Angles in radians, for people.

    Raises
    ------
    InputError
        For qubits or a matrix that do not go together.

    Examples
    --------
    >>> tnplan.Gate("x", (0,), np.array([[0, 1], [1, 0]]))
    Gate(x on 0)
    """

    name: str
    qubits: tuple[int, ...]
    matrix: np.ndarray
    params: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "qubits", whole_numbers(self.qubits, f"gate {self.name}", "qubits"))
        if not self.qubits or len(set(self.qubits)) != len(self.qubits):
            raise InputError(
                f"gate {self.name}", f"acts on qubits {self.qubits}", "name one qubit or more, each once"
            )
        side, matrix = 2 ** len(self.qubits), np.asarray(self.matrix)
        if matrix.shape != (side, side) or matrix.dtype.kind not in "biufc":
            raise InputError(
                f"gate {self.name}",
                f"has a {matrix.dtype} matrix of shape {matrix.shape} on {len(self.qubits)} qubits",
                f"give a matrix of numbers of shape ({side}, {side})",
            )
        # Invariant: a gate's matrix is complex128 and read-only. One that is both already, as of
        # another gate, is taken as it is.
        if matrix.flags.writeable or matrix.dtype != np.complex128:
            matrix = matrix.astype(np.complex128)  # a copy: what changes the original later changes no gate
            matrix.flags.writeable = False
            if not np.isfinite(matrix).all():
                raise InputError(
                    f"gate {self.name}", "has elements that are infinite or NaN", "give finite numbers"
                )
        object.__setattr__(self, "matrix", matrix)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name} on {', '.join(map(str, self.qubits))})"

    @property
    def is_diagonal(self) -> bool:
        """Whether every element off the diagonal is exactly zero."""
        return bool(np.count_nonzero(self.matrix) == np.count_nonzero(self.matrix.diagonal()))


@dataclass(frozen=True, eq=False, repr=False)
class GlobalPhase(Gate):
    """A factor of the whole state, held as a multiple of the identity on qubit 0. No noise comes after it."""


def global_phase(angle: float) -> GlobalPhase:
    """The factor exp(i angle)."""
    return GlobalPhase("phase", (0,), np.exp(1j * angle) * np.eye(2, dtype=np.complex128))


@dataclass(frozen=True, eq=False, repr=False)
class GateSequence:
    """A quantum circuit on qubits that start in |0...0>.

    Parameters
    ----------
    n_qubits : int
        How many qubits there are; qubit 0 is the first character of a bit string.
    gates : tuple of Gate
        The gates in the order in which they act.

    Raises
    ------
    InputError
        For gates on qubits that are not there.

    Examples
    --------
    >>> tnplan.GateSequence(1, (tnplan.Gate("x", (0,), np.array([[0, 1], [1, 0]], np.complex128)),))
    GateSequence(1 qubits, 1 gates)
    """

    n_qubits: int
    gates: tuple[Gate, ...]

    def __post_init__(self) -> None:
        (n_qubits,) = whole_numbers([self.n_qubits], "circuit", "a number of qubits")
        object.__setattr__(self, "n_qubits", n_qubits)
        if not 1 <= n_qubits <= LARGEST_CIRCUIT:
            raise InputError("circuit", f"has {n_qubits} qubits", f"give 1 to {LARGEST_CIRCUIT}")
        if not isinstance(self.gates, Iterable):
            raise InputError("circuit", f"has {type(self.gates).__name__} as gates", "give a tuple of gates")
        object.__setattr__(self, "gates", tuple(self.gates))
        for number, gate in enumerate(self.gates):
            if not isinstance(gate, Gate):
                raise InputError(f"gate {number}", f"is of type {type(gate).__name__}", "give a tnplan.Gate")
            outside = [qubit for qubit in gate.qubits if not 0 <= qubit < self.n_qubits]
            if outside:
                raise InputError(
                    f"gate {number} ({gate.name})",
                    f"acts on qubit {outside[0]}",
                    f"use qubits 0 to {self.n_qubits - 1}",
                )

    def __repr__(self) -> str:
        return f"GateSequence({self.n_qubits} qubits, {len(self.gates)} gates)"


def whole_numbers(values: Iterable[int], place: str, description: str) -> tuple[int, ...]:
    """Integers of any library as Python's; raises InputError for anything else."""
    try:
        return tuple(map(index, values))
    except TypeError:
        raise InputError(place, f"has {values!r} as {description}", "give whole numbers") from None


def check_qubits(qubits: Sequence[int], n_qubits: int, place: str) -> None:
    """Refuse qubits that the circuit does not have or that stand twice."""
    seen: set[int] = set()
    for qubit in qubits:
        if not 0 <= qubit < n_qubits:
            raise InputError(place, f"names qubit {qubit}", f"use qubits 0 to {n_qubits - 1}")
        if qubit in seen:
            raise InputError(place, f"names qubit {qubit} twice", "name each qubit once")
        seen.add(qubit)
