"""Operators of Qiskit, PennyLane, OpenFermion and Cirq as sums of Pauli words, and sums as these.

Fermions become qubits by the transform of Jordan and Wigner: mode p is qubit p, occupied where it is 1.
"""

from __future__ import annotations

from cmath import isfinite
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tnplan.circuits.circuit import LARGEST_CIRCUIT
from tnplan.circuits.pauli_sum import (
    PauliSum,
    letters,
    masks,
    merge,
    multiplied,
    n_words,
    pack_all,
    pauli_sum,
)
from tnplan.common.arrays import Array
from tnplan.common.checks import check_count
from tnplan.common.errors import InputError

PLACE = "--observable"
WORDS_AT_ONCE = 1 << 20
"""Words that fermions become at once, of up to 64 qubits: about 200 MiB."""
LONGEST_PRODUCT = 20
"""Ladder operators of a product, each of which doubles the words."""

_Term = tuple[Iterable[tuple[str, Any]], Any]
"""Letters on qubits, and the coefficient."""


def of_library(operator: Any, n_qubits: int | None, labels: Sequence[Any] | None = None) -> PauliSum | None:
    """The sum that an operator of another library is; None for anything else.

    `n_qubits` counts where the operator does not say how many it has; None: as many as it needs. `labels` are
    the library's qubits in the order of ours.
    """
    for kind in type(operator).__mro__:
        reader = READERS.get(kind.__module__.partition(".")[0])
        if reader is not None:
            return reader(operator, n_qubits, labels)
    return None


def _of_qiskit(operator: Any, n_qubits: int | None, labels: Sequence[Any] | None) -> PauliSum | None:
    from qiskit.quantum_info import Pauli, SparsePauliOp

    terms = SparsePauliOp(operator) if isinstance(operator, Pauli) else operator
    if not hasattr(terms, "to_sparse_list"):
        return None
    listed = [(zip(*term[:2], strict=True), term[2]) for term in terms.to_sparse_list()]
    return _sum(listed, int(terms.num_qubits))


def _of_pennylane(operator: Any, n_qubits: int | None, labels: Sequence[Any] | None) -> PauliSum | None:
    sentence = operator if hasattr(operator, "to_mat") else getattr(operator, "pauli_rep", None)
    if sentence is None:
        problem = f"{type(operator).__name__} is not a sum of Pauli words"
        raise InputError(PLACE, problem, "use qml.pauli_decompose")
    items = sentence.items() if hasattr(sentence, "simplify") else [(sentence, 1.0)]
    return _sum([([(a, wire) for wire, a in word.items()], value) for word, value in items], n_qubits, labels)


def _of_cirq(operator: Any, n_qubits: int | None, labels: Sequence[Any] | None) -> PauliSum | None:
    if not hasattr(operator, "expectation_from_state_vector"):
        return None
    words = [operator] if hasattr(operator, "coefficient") else operator
    terms = [([(str(a), qubit) for qubit, a in word.items()], word.coefficient) for word in words]
    return _sum(terms, n_qubits, labels)


def _of_openfermion(operator: Any, n_qubits: int | None, labels: Sequence[Any] | None) -> PauliSum | None:
    name = type(operator).__name__
    if name == "QubitOperator":
        terms = [([(a, qubit) for qubit, a in word], value) for word, value in operator.terms.items()]
        return _sum(terms, n_qubits)
    if name in ("FermionOperator", "MajoranaOperator"):
        return jordan_wigner(operator.terms, n_qubits, is_majorana=name == "MajoranaOperator")
    raise InputError(PLACE, f"is OpenFermion's {name}", "convert it with openfermion.get_fermion_operator")


READERS: dict[str, Callable[[Any, int | None, Sequence[Any] | None], PauliSum | None]] = {
    "qiskit": _of_qiskit, "pennylane": _of_pennylane, "cirq": _of_cirq, "openfermion": _of_openfermion,
}  # fmt: skip
"""The reader of each library, by the first part of its modules' names."""


def _sum(terms: Iterable[_Term], n_qubits: int | None, labels: Sequence[Any] | None = None) -> PauliSum:
    """The sum of letters on qubits with their coefficients, real where all of these are."""
    numbers = None if labels is None else {label: number for number, label in enumerate(labels)}
    listed = [
        (masks([(a, _qubit(label, numbers)) for a, label in word], n_qubits, PLACE), _value(coefficient))
        for word, coefficient in terms
    ]
    is_real = all(value.imag == 0 for _, value in listed)
    n = n_qubits or _checked_size(max([1, *((x | z).bit_length() for (x, z), _ in listed)]))
    return pauli_sum([(x, z, value.real if is_real else value) for (x, z), value in listed], n)


def _checked_size(n_qubits: int) -> int:
    return check_count(f"{PLACE}: qubits", n_qubits, 1, LARGEST_CIRCUIT)


def _qubit(label: Any, numbers: dict[Any, int] | None) -> int:
    """The number of another library's qubit."""
    if numbers is not None and label in numbers:
        return numbers[label]
    number = getattr(label, "x", label)  # the number of a LineQubit
    if numbers is None and isinstance(number, int | np.integer):
        return int(number)
    raise InputError(PLACE, f"acts on {label!r}"[:60], "list all its qubits in PauliSum.of(qubits=)")


def _value(coefficient: Any) -> complex:
    """A coefficient as a number."""
    try:
        value = complex(coefficient)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        value = complex("nan")
    if not isfinite(value):
        raise InputError(PLACE, "has coefficients that are not finite numbers", "bind its parameters")
    return value


def jordan_wigner(terms: dict[Any, Any], n_qubits: int | None, *, is_majorana: bool) -> PauliSum:
    """The sum of products of ladder operators, (mode, 1 if it creates), or of Majorana operators, by index.

    With Z on qubits 0 to p - 1 the Majorana operators of mode p are X (index 2 p) and Y (2 p + 1), and a mode
    is emptied by a = (X + i Y) / 2.
    """
    used = [index if is_majorana else 2 * index[0] for word in terms for index in word]
    n = n_qubits or _checked_size(max(used, default=0) // 2 + 1)
    if max(used, default=0) >= 2 * n:
        raise InputError(PLACE, f"names mode {max(used) // 2}", f"use modes 0 to {n - 1}")
    chains = pack_all([(1 << p, (1 << p + y) - 1) for p in range(n) for y in (0, 1)], n)
    lengths: dict[int, list[Any]] = {}
    for word in terms:
        lengths.setdefault(len(word), []).append(word)
    blocks = [(np.zeros((0, 2 * n_words(n)), np.uint64), np.zeros(0, np.complex128))]
    for length, words in lengths.items():
        if length > LONGEST_PRODUCT and not is_majorana:
            raise InputError(
                PLACE, f"has a product of {length} operators", f"use at most {LONGEST_PRODUCT} operators"
            )
        at_once = max(1, WORDS_AT_ONCE // n_words(n) >> (0 if is_majorana else length))
        for start in range(0, len(words), at_once):
            chosen = words[start : start + at_once]
            values = np.array([_value(terms[word]) for word in chosen])
            factors = np.array(chosen, np.int64).reshape(len(chosen), length, 1 if is_majorana else 2)
            blocks.append(merge(*_products(chains, factors, values)))
    return PauliSum(n, *map(np.concatenate, zip(*blocks, strict=True))).simplify()


def _products(chains: Array, factors: Array, values: Array) -> tuple[Array, Array]:
    """Products of operators [term, factor, index (and 1 if it creates)] as words with their coefficients."""
    width = chains.shape[1]
    keys, coefficients = np.zeros((len(values), 1, width), np.uint64), values[:, None]
    for factor in factors.transpose(1, 0, 2):
        if factor.shape[1] == 1:
            new_keys, new_values = chains[factor], np.ones((len(values), 1))
        else:
            new_keys = chains[2 * factor[:, :1] + [0, 1]]
            new_values = np.where(factor[:, 1:] == 1, [0.5, -0.5j], [0.5, 0.5j])
        keys, coefficients, _ = multiplied(
            keys[:, :, None], coefficients[:, :, None], new_keys[:, None], new_values[:, None]
        )
        keys, coefficients = keys.reshape(len(values), -1, width), coefficients.reshape(len(values), -1)
    return keys.reshape(-1, width), coefficients.reshape(-1)


@contextmanager
def _installed(package: str) -> Iterator[None]:
    """Inside, a package that is missing is a refusal."""
    try:
        yield
    except ModuleNotFoundError:
        raise InputError(
            "sum of Pauli words", f"needs {package} to become one of its operators",
            f"install it with: pip install {package}", topic="installation",
        ) from None  # fmt: skip


def to_qiskit(terms: PauliSum) -> Any:
    """Qiskit's `SparsePauliOp`, which has a term at least."""
    with _installed("qiskit"):
        from qiskit.quantum_info import PauliList, SparsePauliOp

    if not len(terms):
        return SparsePauliOp.from_sparse_list([("", [], 0.0)], terms.n_qubits)
    x, z = (_bits(words, terms.n_qubits) for words in (terms.x, terms.z))
    return SparsePauliOp(PauliList.from_symplectic(z, x), terms.coefficients.astype(np.complex128))


def _bits(words: Array, n_qubits: int) -> Array:
    """Rows of 64-bit words as booleans [row, qubit]."""
    data = np.ascontiguousarray(words, "<u8").view(np.uint8)
    return np.unpackbits(data, axis=1, count=n_qubits, bitorder="little").astype(bool)


def to_pennylane(terms: PauliSum, wires: Sequence[Any] | None) -> Any:
    """An operator of PennyLane."""
    with _installed("pennylane"):
        from pennylane.pauli import PauliSentence, PauliWord

    order = _order(wires, range(terms.n_qubits))
    sentence = {PauliWord({order[q]: a for a, q in word}): value for word, value in _words(terms)}
    return PauliSentence(sentence).operation(wire_order=list(order))


def to_openfermion(terms: PauliSum) -> Any:
    """OpenFermion's `QubitOperator`."""
    with _installed("openfermion"):
        from openfermion import QubitOperator

    operator = QubitOperator()
    operator.terms = {tuple((q, a) for a, q in word): value for word, value in _words(terms)}
    return operator


def to_cirq(terms: PauliSum, qubits: Sequence[Any] | None) -> Any:
    """Cirq's `PauliSum`."""
    with _installed("cirq"):
        import cirq

    order = _order(qubits, cirq.LineQubit.range(terms.n_qubits))
    return cirq.PauliSum.from_pauli_strings(
        [cirq.PauliString({order[q]: a for a, q in word}, coefficient=v) for word, v in _words(terms)]
    )


def _order(labels: Sequence[Any] | None, default: Sequence[Any]) -> Sequence[Any]:
    if labels is not None and len(set(labels)) != len(default):
        problem = f"are {len(set(labels))}, and the sum has {len(default)}"
        raise InputError("qubits", problem, f"name {len(default)} qubits, each once")
    return default if labels is None else labels


def _words(terms: PauliSum) -> Iterator[tuple[list[tuple[str, int]], complex]]:
    """The letters on qubits of every term, and its coefficient."""
    return ((letters(x, z), value) for x, z, value in terms.simplify().masks())
