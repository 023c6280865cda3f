"""Gates and channels as maps of Pauli words, P to U^dagger P U. Knows no sum of words and no device.

Local words of k qubits are numbered by digits, 0 to 3 for I, X, Z, Y, that of the first qubit least
significant: bit 2 j is x of qubit j, bit 2 j + 1 is z of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, reduce
from itertools import chain

import numpy as np

from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import I2, X, Y, Z
from tnplan.circuits.pauli_sum import masks
from tnplan.common.arrays import Array
from tnplan.common.checks import check_count, is_finite, is_number
from tnplan.common.errors import InputError

EXACT = 1e-14
"""Elements nearer than this to 0 or 1 are 0 or 1: the rounding of a gate's matrix."""
UNITARY_ROUNDING = 1e-9
"""How far U U^dagger of a gate may be from 1."""
MOST_QUBITS = 3
"""Qubits of a gate that is neither diagonal nor a rotation."""
MATRIX_ROUNDING = 1e-12
"""How far the matrix of a gate may be from the rotations that its name stands for."""
NAMED_ROTATIONS: dict[str, tuple[tuple[str, float], ...]] = {
    "rx": (("X", 1),), "ry": (("Y", 1),), "rz": (("Z", 1),), "p": (("Z", 1),), "u1": (("Z", 1),),
    "rxx": (("XX", 1),), "ryy": (("YY", 1),), "rzz": (("ZZ", 1),), "rzx": (("XZ", 1),),
    "cp": (("IZ", 0.5), ("ZI", 0.5), ("ZZ", -0.5)), "cu1": (("IZ", 0.5), ("ZI", 0.5), ("ZZ", -0.5)),
    "crz": (("IZ", 0.5), ("ZZ", -0.5)), "crx": (("IX", 0.5), ("ZX", -0.5)),
    "cry": (("IY", 0.5), ("ZY", -0.5)), "phase": (("Z", 1),),
    "cphase": (("IZ", 0.5), ("ZI", 0.5), ("ZZ", -0.5)),
}  # fmt: skip
"""Gates of one angle: the words on their qubits that they turn about, and the factor of the angle, up to its
sign."""


@dataclass(frozen=True)
class Rotation:
    """exp(-i angle P / 2), P the word of masks `x` and `z`, `angle` in radians."""

    x: int
    z: int
    angle: float


@dataclass(frozen=True, eq=False)
class Clifford:
    """Local word a becomes `signs[a]` (1 or -1) times local word `images[a]`."""

    qubits: tuple[int, ...]
    images: Array
    signs: Array


@dataclass(frozen=True, eq=False)
class TransferMatrix:
    """Local word a becomes the sum over b of matrix[b, a] times local word b; `matrix` is float64."""

    qubits: tuple[int, ...]
    matrix: Array

    @property
    def is_diagonal(self) -> bool:
        """Whether words are only scaled."""
        return not np.any(self.matrix - np.diag(np.diag(self.matrix)))

    @property
    def is_unital(self) -> bool:
        """Whether no other word becomes the identity, so that the channel keeps the maximally mixed state."""
        return not np.any(self.matrix[0, 1:])


PauliStep = Rotation | Clifford | TransferMatrix


def rotation(letters: str, qubits: Sequence[int], angle: float) -> Rotation:
    """exp(-i angle P / 2) with letter k of `letters` on qubit `qubits[k]`."""
    if len(letters) != len(qubits) or not qubits:
        raise InputError(
            "rotation", f"has letters {letters!r} for qubits {qubits}", "give one letter per qubit"
        )
    if not is_finite(angle):
        raise InputError("rotation", f"has the angle {angle!r}", "give a finite angle in radians")
    acted = [check_count("rotation: qubit", qubit, 0) for qubit in qubits]
    return Rotation(*masks(list(zip(letters, acted, strict=True)), None, "rotation"), angle)


def circuit_steps(circuit: GateSequence) -> tuple[PauliStep, ...]:
    """The steps of a circuit in the order in which its gates act."""
    return tuple(chain.from_iterable(steps_of_gates(circuit.gates)))


def steps_of_gates(gates: Sequence[Gate], *, rotations: bool = False) -> Iterator[tuple[PauliStep, ...]]:
    """What `gate_steps` gives for each of the gates, which are named by their numbers in errors."""
    # By the identity of a matrix, which gates of one kind and angle share: `gates` keeps them alive.
    local = {} if rotations else _rotations_at_once(gates)
    known: dict[tuple[int, tuple[int, ...]], tuple[PauliStep, ...]] = {}
    for number, gate in enumerate(gates):
        key = id(gate.matrix), gate.qubits
        steps = None if rotations else known.get(key)
        if steps is None:
            turn = local.get(key[0])
            steps = known[key] = (
                gate_steps(gate, f"gate {number} ({gate.name})", rotations=rotations) if turn is None
                else (Rotation(*_moved_masks(turn[0], turn[1], gate.qubits), turn[2]),)
            )  # fmt: skip
        yield steps


def _rotations_at_once(gates: Sequence[Gate]) -> dict[int, tuple[int, int, float]]:
    """Masks and angles of the rotations among gates that are not Clifford, by the identity of their matrices.

    The formulas are those of `_as_rotation`, for all matrices of a size together.
    """
    known: dict[int, tuple[int, int, float]] = {}
    matrices = {id(gate.matrix): gate.matrix for gate in gates}
    for q in range(1, MOST_QUBITS + 1):
        of_size = [matrix for matrix in matrices.values() if len(matrix) == 2**q]
        if not of_size:
            continue
        stack, words = np.array(of_size), local_words(q)
        word_of = [word_masks(range(q), word) for word in range(4**q)]
        coefficients = stack.swapaxes(1, 2).reshape(len(stack), -1) @ words.reshape(4**q, -1).T / 2**q
        are_nonzero = np.abs(coefficients) > EXACT
        chosen = np.flatnonzero(are_nonzero[:, 0] & (are_nonzero[:, 1:].sum(axis=1) == 1))
        turned = np.argmax(are_nonzero[chosen, 1:], axis=1) + 1
        a, b = coefficients[chosen, 0], coefficients[chosen, turned]
        # U U^dagger = (|a|^2 + |b|^2) I + 2 Re(a b*) P for U = a I + b P.
        error = np.maximum(np.abs(np.abs(a) ** 2 + np.abs(b) ** 2 - 1), 2 * np.abs((a * b.conj()).real))
        is_unitary = error <= UNITARY_ROUNDING / 2
        chosen, turned, a, b = chosen[is_unitary], turned[is_unitary], a[is_unitary], b[is_unitary]
        cosines = np.hypot(a.real, a.imag)
        sines = (1j * b * cosines / a).real
        columns = (values.tolist() for values in (chosen, turned, sines, cosines))
        for k, word, sine, cosine in zip(*columns, strict=True):
            angle = 2 * math.atan2(sine, cosine)
            # Nearer ones may be Cliffords.
            if min(abs(math.cos(angle)), abs(math.sin(angle))) > 100 * EXACT:
                known[id(of_size[k])] = (*word_of[word], angle)
    return known


def gate_steps(gate: Gate, place: str = "gate", *, rotations: bool = False) -> tuple[PauliStep, ...]:
    """A gate as one Clifford, one rotation, commuting rotations (diagonal gates) or one transfer.

    With `rotations` a gate that has angles is rotations also where these make it a Clifford, for gradients:
    by its name (`NAMED_ROTATIONS`), else where its matrix says about which words; the identity does not.
    """
    q = len(gate.qubits)
    if q <= MOST_QUBITS:
        steps = _known_steps(gate.name, gate.params, gate.matrix.tobytes(), rotations)
    else:
        steps = _local_steps(replace(gate, qubits=tuple(range(q))), rotations)
    if steps is None:
        raise InputError(place, "is not unitary", "give a unitary matrix or a channel")
    if q > MOST_QUBITS and not gate.is_diagonal:
        raise InputError(
            place, f"acts on {q} qubits", f"split it into gates on {MOST_QUBITS} or fewer, or diagonal ones"
        )
    return tuple(_moved(step, gate.qubits) for step in steps)


@lru_cache(maxsize=4096)
def _known_steps(
    name: str, params: tuple[float, ...], matrix: bytes, rotations: bool
) -> tuple[PauliStep, ...] | None:  # fmt: skip
    """The same as `_local_steps`: a circuit has few distinct gates, each on many qubits."""
    values = np.frombuffer(matrix, np.complex128)
    q = (len(values).bit_length() - 1) // 2
    return _local_steps(Gate(name, tuple(range(q)), values.reshape(2**q, 2**q), params), rotations)


def _local_steps(gate: Gate, rotations: bool) -> tuple[PauliStep, ...] | None:
    """The steps of a gate on qubits 0, 1, ...; None where it is not unitary, empty where it is too large."""
    q = len(gate.qubits)
    error = gate.matrix @ gate.matrix.conj().T - np.eye(2**q)
    if not np.all(np.abs(error) <= UNITARY_ROUNDING):
        return None
    has_angles = rotations and len(gate.params) > 0
    named = named_rotations(gate) if has_angles else ()
    if named:
        return named
    clifford_map = clifford_or_transfer(gate.qubits, [gate.matrix]) if q <= MOST_QUBITS else None
    if isinstance(clifford_map, Clifford) and not has_angles:
        return (clifford_map,)
    rotation = _as_rotation(gate) if q <= MOST_QUBITS else None
    if rotation is not None:
        return (rotation,)
    if gate.is_diagonal:
        diagonal_steps = _diagonal(gate.qubits, np.angle(np.diag(gate.matrix)))
        return tuple(diagonal_steps) if has_angles else tuple(_simple(step) for step in diagonal_steps)
    return () if clifford_map is None else (clifford_map,)


def _moved(step: PauliStep, qubits: Sequence[int]) -> PauliStep:
    """A step on qubits 0, 1, ... on these qubits instead."""
    if isinstance(step, Rotation):
        return Rotation(*_moved_masks(step.x, step.z, qubits), step.angle)
    acted = tuple(qubits[j] for j in step.qubits)
    if isinstance(step, Clifford):
        return Clifford(acted, step.images, step.signs)
    return TransferMatrix(acted, step.matrix)


def _moved_masks(x: int, z: int, qubits: Sequence[int]) -> tuple[int, int]:
    """Masks of bits 0, 1, ... with these bits instead."""
    if len(qubits) == 1:
        return x << qubits[0], z << qubits[0]
    new_x = new_z = 0
    for j, qubit in enumerate(qubits):
        new_x |= (x >> j & 1) << qubit
        new_z |= (z >> j & 1) << qubit
    return new_x, new_z


def clifford_or_transfer(qubits: tuple[int, ...], kraus: Sequence[Array]) -> Clifford | TransferMatrix:
    """The map P to sum of K^dagger P K, as a Clifford where it takes words to words."""
    matrix = heisenberg_matrix(kraus)
    near = np.abs(np.abs(matrix) - 1) <= EXACT
    if np.all(near.sum(axis=0) == 1) and np.all(near | (np.abs(matrix) <= EXACT)):
        images = np.argmax(near, axis=0)
        signs = np.sign(matrix[images, np.arange(len(images))])
        return Clifford(qubits, images.astype(np.int64), signs.astype(np.int64))
    return TransferMatrix(qubits, np.where(np.abs(matrix) <= EXACT, 0, matrix))


def heisenberg_matrix(kraus: Sequence[Array]) -> Array:
    """[b, a]: the coefficient of local word b in sum of K^dagger P_a K."""
    side = len(kraus[0])
    basis = local_words(side.bit_length() - 1)
    images = np.sum([k.conj().T @ basis @ k for k in kraus], axis=0)
    traces = basis.reshape(len(basis), -1) @ images.transpose(2, 1, 0).reshape(side**2, -1)
    return np.ascontiguousarray(traces.real / side)


@cache
def local_words(n_qubits: int) -> Array:
    """The matrices of all local words, [4^k, 2^k, 2^k]; the first qubit is the most significant bit."""
    letters: tuple[Array, ...] = (I2, X, Z, Y)
    return np.array(
        [
            reduce(np.kron, [letters[word >> 2 * j & 3] for j in range(n_qubits)])
            for word in range(4**n_qubits)
        ]
    )


def quarter_turns(angle: float) -> int | None:
    """How many times pi/2 an angle is, modulo 4, and None where it is farther than EXACT from a multiple."""
    cosine, sine = math.cos(angle), math.sin(angle)
    if min(abs(cosine), abs(sine)) > EXACT:
        return None
    return round(math.atan2(sine, cosine) / (math.pi / 2)) % 4


def acted_mask(step: PauliStep) -> int:
    """The qubits that a step acts on, as bits."""
    return step.x | step.z if isinstance(step, Rotation) else sum(1 << qubit for qubit in step.qubits)


def set_bits(mask: int) -> tuple[int, ...]:
    """The numbers of the bits of a mask that are 1."""
    return tuple(bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def word_masks(qubits: Sequence[int], word: int) -> tuple[int, int]:
    """The two masks of a local word."""
    x = sum((word >> 2 * j & 1) << qubit for j, qubit in enumerate(qubits))
    z = sum((word >> 2 * j + 1 & 1) << qubit for j, qubit in enumerate(qubits))
    return x, z


def named_rotations(gate: Gate) -> tuple[Rotation, ...]:
    """The rotations that a gate's name stands for, the first of them acting first; none for other names, and
    where the gate's matrix is not theirs up to its phase. Their angles are linear in those of the gate."""
    for word_angles in _candidates(gate.name, gate.params):
        if any(len(letters) != len(gate.qubits) for letters, _ in word_angles):
            continue
        unitary = np.eye(len(gate.matrix))
        for letters, angle in word_angles:
            word = sum("IXZY".index(letter) << 2 * j for j, letter in enumerate(letters))
            unitary = rotation_matrix(local_words(len(letters))[word], angle) @ unitary
        phase = np.vdot(unitary, gate.matrix) / len(unitary)
        if np.allclose(phase * unitary, gate.matrix, rtol=0, atol=MATRIX_ROUNDING):
            return tuple(rotation(letters, gate.qubits, angle + 0.0) for letters, angle in word_angles)
    return ()


def _candidates(name: str, params: Sequence[float]) -> list[list[tuple[str, float]]]:
    """What a gate of a name may be: words and angles, one after another. qsim's gates of one angle turn one
    way or the other."""
    if name in ("u", "u3", "U") and len(params) == 3:
        theta, phi, lam = params
        return [[("Z", lam), ("Y", theta), ("Z", phi)]]
    if name == "u2" and len(params) == 2:
        return [[("Z", params[1]), ("Y", math.pi / 2), ("Z", params[0])]]
    if name not in NAMED_ROTATIONS or len(params) != 1:
        return []
    words = NAMED_ROTATIONS[name]
    return [[(letters, factor * sign * params[0]) for letters, factor in words] for sign in (1, -1)]


def rotation_matrix(word: Array, angle: float) -> Array:
    """The matrix of exp(-i angle P / 2)."""
    return math.cos(angle / 2) * np.eye(len(word)) - 1j * math.sin(angle / 2) * word


def _as_rotation(gate: Gate) -> Rotation | None:
    """The rotation that a gate is up to its phase: cos(angle / 2) - i sin(angle / 2) P."""
    side = len(gate.matrix)
    words = local_words(len(gate.qubits))
    coefficients = words.reshape(len(words), -1) @ gate.matrix.T.ravel() / side
    nonzero = np.flatnonzero(np.abs(coefficients[1:]) > EXACT) + 1
    if len(nonzero) != 1:
        return None
    angle = math.pi
    if abs(coefficients[0]) > EXACT:
        cosine = abs(coefficients[0])
        angle = 2 * math.atan2((1j * coefficients[nonzero[0]] * cosine / coefficients[0]).real, cosine)
    return Rotation(*word_masks(gate.qubits, int(nonzero[0])), angle)


def _diagonal(qubits: tuple[int, ...], phases: Array) -> list[Rotation]:
    """Rotations about words of Z whose product is diag(exp(i phases)) up to its phase."""
    q = len(qubits)
    rotations = []
    for chosen in range(1, 2**q):
        signs = np.array([1 - 2 * ((bits & chosen).bit_count() & 1) for bits in range(2**q)])
        angle = -2 * float(signs @ phases) / 2**q
        z = sum((chosen >> q - 1 - j & 1) << qubit for j, qubit in enumerate(qubits))
        if abs(angle) > EXACT:
            rotations.append(Rotation(0, z, angle))
    return rotations


@lru_cache(maxsize=4096)
def _simple(step: Rotation) -> PauliStep:
    """A rotation by a multiple of pi/2 on at most two qubits as a Clifford."""
    qubits = set_bits(acted_mask(step))
    quarters = quarter_turns(step.angle)
    if quarters is None or not 1 <= len(qubits) <= 2:
        return step
    word = sum(((step.x >> q & 1) + 2 * (step.z >> q & 1)) << 2 * j for j, q in enumerate(qubits))
    unitary = rotation_matrix(local_words(len(qubits))[word], quarters * math.pi / 2)
    return clifford_or_transfer(qubits, [unitary])


def simple_steps(steps: Sequence[PauliStep]) -> tuple[PauliStep, ...]:
    """The same steps, with rotations that are Clifford gates on one or two qubits as Cliffords."""
    return tuple([
        _simple(step) if isinstance(step, Rotation) and quarter_turns(step.angle) is not None else step
        for step in steps
    ])  # fmt: skip


TRACE_ROUNDING = 1e-10
"""How far the sum of K^dagger K of a channel may be from 1."""


def depolarizing(qubits: Sequence[int], probability: float) -> TransferMatrix:
    """With `probability` one of the 4^k - 1 words other than I strikes, each alike; k is 1 to 3."""
    probability, acted = _probability(probability), _qubits(qubits)
    k = len(acted)
    if not 1 <= k <= MOST_QUBITS:
        raise InputError("depolarizing", f"acts on {k} qubits", f"give 1 to {MOST_QUBITS}")
    scale = 1 - probability * 4**k / (4**k - 1)
    return TransferMatrix(acted, np.diag([1.0] + [scale] * (4**k - 1)))


def kraus_channel(qubits: Sequence[int], kraus: Sequence[Array]) -> TransferMatrix:
    """The channel of Kraus operators, [2^k, 2^k] each, the first qubit being the most significant bit."""
    acted = _qubits(qubits)
    side = 2 ** len(acted)
    try:
        operators = [np.asarray(k, dtype=np.complex128) for k in kraus]
    except (TypeError, ValueError):
        operators = []
    if not 1 <= len(acted) <= MOST_QUBITS or not operators or any(k.shape != (side, side) for k in operators):
        raise InputError(
            "channel",
            f"has no operators for {len(acted)} qubits",
            f"give {side} x {side} matrices for 1 to {MOST_QUBITS} qubits",
        )
    total = sum(k.conj().T @ k for k in operators)
    if not np.allclose(total, np.eye(side), rtol=0, atol=TRACE_ROUNDING):
        raise InputError("channel", "does not keep the trace", "give K with sum of K^dagger K = 1")
    return TransferMatrix(acted, heisenberg_matrix(operators))


def _qubits(qubits: Sequence[int]) -> tuple[int, ...]:
    if not isinstance(qubits, Iterable):
        raise InputError("channel", f"acts on {qubits!r}", "give a list of qubits")
    acted = tuple(check_count("channel: qubit", qubit, 0) for qubit in qubits)
    if len(set(acted)) < len(acted):
        raise InputError("channel", f"acts on qubits {acted}", "name each qubit once")
    return acted


def _probability(value: float) -> float:
    """The value, what is rounding cut off."""
    if not is_number(value) or not -1e-15 <= value <= 1 + 1e-12:
        raise InputError("channel", f"probability is {value!r}", "give a number from 0 to 1")
    return min(1.0, max(0.0, float(value)))
