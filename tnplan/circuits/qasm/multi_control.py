"""A gate on one qubit under many controls, as gates on at most three (Barenco et al. 1995, section 7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.gates import X, controlled


def multi_controlled(controls: Sequence[int], target: int, matrix: np.ndarray) -> Iterator[Gate]:
    """The 2 x 2 unitary `matrix` on `target` where all `controls` are 1 (lemmas 7.3 and 7.5).

    The number of gates grows with the square of the number of controls.
    """
    if not controls:
        yield Gate("u", (target,), matrix)
    elif np.array_equal(matrix, X) and len(controls) <= 2:
        yield from _x(controls, target, ())
    elif len(controls) == 1:
        yield Gate("cu", (controls[0], target), controlled(matrix))
    else:
        *others, last = controls
        root = _root(matrix)
        yield Gate("cu", (last, target), controlled(root))
        yield from _x(others, last, (target,))
        yield Gate("cu", (last, target), controlled(root.conj().T))
        yield from _x(others, last, (target,))
        yield from multi_controlled(others, target, root)


def _x(controls: Sequence[int], target: int, free: Sequence[int]) -> Iterator[Gate]:
    """X under controls; `free` are qubits beside them, which come back as they were."""
    n = len(controls)
    if n <= 2:
        yield Gate("c" * n + "x", (*controls, target), controlled(X, n))
    elif len(free) >= n - 2:
        yield from _ladder(controls, target, free)
    else:  # lemma 7.3: halves that lend each other their qubits
        half = (n + 1) // 2
        first, second = controls[:half], [*controls[half:], free[0]]
        for _ in range(2):
            yield from _x(first, free[0], [*controls[half:], target])
            yield from _x(second, target, first)


def _ladder(controls: Sequence[int], target: int, free: Sequence[int]) -> Iterator[Gate]:
    """Lemma 7.2: n controls and n - 2 free qubits."""
    n = len(controls)
    chain = [*free[: n - 2], target]
    down = [(controls[k + 1], chain[k - 1], chain[k]) for k in range(n - 2, 0, -1)]
    bottom = [(controls[0], controls[1], chain[0])]
    for part in (down + bottom + down[::-1], down[1:] + bottom + down[:0:-1]):
        for qubits in part:
            yield Gate("ccx", qubits, controlled(X, 2))


def _root(matrix: np.ndarray) -> np.ndarray:
    """A square root of a 2 x 2 unitary: (U + r) / t, r^2 the determinant, t^2 = trace + 2 r."""
    for r in (np.sqrt(np.linalg.det(matrix)), -np.sqrt(np.linalg.det(matrix))):
        t = np.sqrt(np.trace(matrix) + 2 * r)
        if abs(t) > 1:
            break
    return np.asarray((matrix + r * np.eye(2)) / t)
