"""Values after several parts of a circuit by as few sweeps back as there can be. Knows operations alone.

A sweep takes an observable O back through a circuit U = s_m ... s_1, from s_m on. After k operations it has
V^dagger O V, V = s_m ... s_{m-k+1}. Where the circuit begins with V as well, as one of equal layers does, the
value of this sum in the state is that after V.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.program import Channel, Measurement, Operation, Reset, touched


@dataclass(frozen=True, eq=False)
class Sweep:
    """One sweep back, and the beginnings of a circuit whose values it meets, by their numbers, rising.

    `operations` are those of the longest, whose first `n_first` go into the state. Those of the k-th are
    these first ones, and the last `lengths[k]`.
    """

    operations: Sequence[Operation]
    n_first: int
    numbers: tuple[int, ...]
    lengths: tuple[int, ...]


def sweeps_of(beginnings: Sequence[Sequence[Operation]], has_product: bool) -> list[Sweep]:
    """The sweeps for all beginnings of a circuit, the longest first.

    First operations on one qubit each, such as those that prepare a state, may be others than those of a
    layer where the state is a product (`has_product`).
    """
    known: dict[Hashable, int] = {}
    contents = [
        np.array([known.setdefault(_content(operation), len(known)) for operation in each], np.int64)
        for each in beginnings
    ]
    left, sweeps = [*range(len(beginnings))], []
    while left:
        longest, whole = beginnings[left[-1]], contents[left[-1]]
        n_local = next((k for k, each in enumerate(longest) if len(touched(each)[0]) > 1), len(longest))
        own = {k: _unequal(contents[k], whole) for k in left}
        own = {k: n for k, n in own.items() if n <= (n_local if has_product else 0)}
        n_first = max(own.values())
        # Final measurements are left out of each, so that shorter ones may begin in another way.
        numbers = tuple(k for k in own if np.array_equal(contents[k][:n_first], whole[:n_first]))
        sweeps.append(Sweep(longest, n_first, numbers, tuple(len(contents[k]) - n_first for k in numbers)))
        left = [k for k in left if k not in numbers]
    return sweeps


def _unequal(own: np.ndarray, whole: np.ndarray) -> int:
    """How many first elements are to be left out, so that the rest is the end of the whole."""
    differs = np.flatnonzero(own != whole[len(whole) - len(own) :])
    return 1 + int(differs[-1]) if len(differs) else 0


def _content(operation: Operation) -> Hashable:
    """What is equal for operations that do the same."""
    if isinstance(operation, Gate):
        return operation.qubits, operation.matrix.tobytes()
    if isinstance(operation, Channel):
        return operation.qubits, *(matrix.tobytes() for matrix in operation.kraus)
    return (type(operation), operation.qubit) if isinstance(operation, Measurement | Reset) else id(operation)
