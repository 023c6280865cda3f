"""Gates that a file calls: standard ones, those that it defines, and modifiers; their matrices and parts.

A definition on at most `LARGEST_FUSED` qubits is one gate, whose matrix is made once for its angles; a larger
one is expanded. Modifiers of a definition that is expanded go to each gate in it. Knows no variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import cos, pi, sin, sqrt
from typing import Any, NoReturn

import numpy as np

from tnplan.circuits.circuit import Gate, global_phase
from tnplan.circuits.derivatives.dual_number import has_slopes
from tnplan.circuits.gates import I2, SWAP, Kind, X, Y, Z, controlled, diagonal, phase, rz, turn
from tnplan.circuits.qasm.values import Mistake

Matrix = np.ndarray


def u(theta: float, phi: float, lam: float) -> Matrix:
    """A unitary of one qubit by its angles."""
    c, s = cos(theta / 2), sin(theta / 2)
    return np.array(
        [[c, -np.exp(1j * lam) * s], [np.exp(1j * phi) * s, np.exp(1j * (phi + lam)) * c]], np.complex128
    )


def _rzz(angle: float) -> Matrix:
    a, b = np.exp(-0.5j * angle), np.exp(0.5j * angle)
    return diagonal([a, b, b, a])


def _rccx() -> Matrix:
    """The Toffoli gate up to phases, as `rccx` of qelib1.inc."""
    result = np.diag([1, 1, 1, 1, 1, -1, 0, 0]).astype(np.complex128)
    result[6, 7], result[7, 6] = -1j, 1j
    return result


def _rc3x() -> Matrix:
    """The Toffoli gate of three controls up to phases, as `rc3x` of qelib1.inc."""
    result = np.eye(16, dtype=np.complex128)
    result[12, 12], result[13, 13] = 1j, -1j
    result[14, 14] = result[15, 15] = 0
    result[14, 15], result[15, 14] = 1, -1
    return result


H = (X + Z) / sqrt(2)
S = np.diag([1, 1j]).astype(np.complex128)
T = phase(pi / 4)
SX = np.array([[1 + 1j, 1 - 1j], [1 - 1j, 1 + 1j]]) / 2

BUILT_IN: dict[str, Kind] = {
    "U": Kind(1, 3, u),
    "CX": Kind(2, 0, lambda: controlled(X)),
    "gphase": Kind(0, 1, lambda angle: np.array([[np.exp(1j * angle)]])),
}
"""What a file has without including any."""

_ONE = {"id": I2, "x": X, "y": Y, "z": Z, "h": H, "s": S, "t": T, "sx": SX}
_ANGLED: dict[str, Callable[[float], Matrix]] = {
    "p": phase, "rx": lambda a: turn(X, a), "ry": lambda a: turn(Y, a), "rz": rz,
}  # fmt: skip
INCLUDED: dict[str, Kind] = {
    **{name: Kind(1, 0, lambda m=matrix: m) for name, matrix in _ONE.items()},
    **{f"{name}dg": Kind(1, 0, lambda m=_ONE[name]: m.conj().T) for name in ("s", "t", "sx")},
    **{name: Kind(1, 1, matrix) for name, matrix in _ANGLED.items()},
    **{f"c{name}": Kind(2, 0, lambda m=_ONE[name]: controlled(m)) for name in ("x", "y", "z", "h", "sx")},
    **{f"c{name}": Kind(2, 1, lambda a, m=matrix: controlled(m(a))) for name, matrix in _ANGLED.items()},
    "u": Kind(1, 3, u), "u3": Kind(1, 3, u), "u1": Kind(1, 1, phase), "phase": Kind(1, 1, phase),
    "u2": Kind(1, 2, lambda phi, lam: u(pi / 2, phi, lam)), "u0": Kind(1, 1, lambda _: I2),
    "cu": Kind(2, 4, lambda theta, phi, lam, gamma: controlled(np.exp(1j * gamma) * u(theta, phi, lam))),
    "cu3": Kind(2, 3, lambda theta, phi, lam: controlled(u(theta, phi, lam))),
    "cu1": Kind(2, 1, lambda a: controlled(phase(a))), "cphase": Kind(2, 1, lambda a: controlled(phase(a))),
    "swap": Kind(2, 0, lambda: SWAP), "rxx": Kind(2, 1, partial(turn, np.kron(X, X))),
    "rzz": Kind(2, 1, _rzz), "ccx": Kind(3, 0, lambda: controlled(X, 2)),
    "cswap": Kind(3, 0, lambda: controlled(SWAP)), "ccz": Kind(3, 0, lambda: controlled(Z, 2)),
    "rccx": Kind(3, 0, _rccx), "rc3x": Kind(4, 0, _rc3x), "c3x": Kind(4, 0, lambda: controlled(X, 3)),
    "c3sqrtx": Kind(4, 0, lambda: controlled(SX, 3)), "c4x": Kind(5, 0, lambda: controlled(X, 4)),
}  # fmt: skip
"""What `include "qelib1.inc"` or `include "stdgates.inc"` adds, under the names of both."""

TURNS = frozenset(name for name, kind in INCLUDED.items() if kind.n_params == 1 and name != "u0") | {"gphase"}
"""Gates whose matrix for an angle a is the power a of one matrix."""

DEFINITIONS = """OPENQASM 3.0;
include "stdgates.inc";
gate CX a, b { ctrl @ x a, b; }
gate cx a, b { ctrl @ x a, b; }
gate cy a, b { ctrl @ y a, b; }
gate cz a, b { ctrl @ z a, b; }
gate ch a, b { ctrl @ h a, b; }
gate csx a, b { ctrl @ sx a, b; }
gate cp(t) a, b { ctrl @ p(t) a, b; }
gate cu1(t) a, b { ctrl @ p(t) a, b; }
gate cphase(t) a, b { ctrl @ p(t) a, b; }
gate crx(t) a, b { ctrl @ rx(t) a, b; }
gate cry(t) a, b { ctrl @ ry(t) a, b; }
gate crz(t) a, b { ctrl @ rz(t) a, b; }
gate cu3(t, p, l) a, b { ctrl @ U(t, p, l) a, b; }
gate cu(t, p, l, g) a, b { ctrl @ gphase(g) a; ctrl @ U(t, p, l) a, b; }
gate swap a, b { ctrl @ x a, b; ctrl @ x b, a; ctrl @ x a, b; }
gate rzz(t) a, b { ctrl @ x a, b; rz(t) b; ctrl @ x a, b; }
gate rxx(t) a, b { h a; h b; ctrl @ x a, b; rz(t) b; ctrl @ x a, b; h a; h b; }
gate ccx a, b, c { ctrl(2) @ x a, b, c; }
gate ccz a, b, c { ctrl(2) @ z a, b, c; }
gate cswap a, b, c { ctrl @ x c, b; ctrl(2) @ x a, b, c; ctrl @ x c, b; }
gate rccx a, b, c { ctrl @ z a, c; ctrl(2) @ x a, b, c; ctrl(2) @ gphase(pi / 2) a, b; }
gate rc3x a, b, c, d {
  ctrl(3) @ x a, b, c, d; ctrl(3) @ gphase(-pi / 2) a, b, c;
  ctrl(2) @ z a, b, d; ctrl(2) @ gphase(pi / 2) a, b;
}
gate c3x a, b, c, d { ctrl(3) @ x a, b, c, d; }
gate c3sqrtx a, b, c, d { ctrl(3) @ sx a, b, c, d; }
gate c4x a, b, c, d, e { ctrl(4) @ x a, b, c, d, e; }
"""
"""Standard gates on several qubits by gates on one and controls, for where a matrix would be too large."""


# A gate on one qubit under many controls, as gates on at most three (Barenco et al. 1995, section 7).


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
        # Lemma 7.5, with V^2 = U: C(V), then X on the last control under the others, C(V^dagger), X
        # again, and V under the others. V V^dagger = 1 where the last control and the others
        # disagree, V^2 = U where all are 1.
        *others, last = controls
        # For X on `last` the target is a borrowed qubit: in any state before, and in the same one after.
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
    for sweep in (down + bottom + down[::-1], down[1:] + bottom + down[:0:-1]):
        for qubits in sweep:
            yield Gate("ccx", qubits, controlled(X, 2))


def _root(matrix: np.ndarray) -> np.ndarray:
    """A square root of a 2 x 2 unitary: (U + r) / t, r^2 the determinant, t^2 = trace + 2 r."""
    for r in (np.sqrt(np.linalg.det(matrix)), -np.sqrt(np.linalg.det(matrix))):
        t = np.sqrt(np.trace(matrix) + 2 * r)
        if abs(t) > 1:
            break
    return np.asarray((matrix + r * np.eye(2)) / t)


LARGEST_FUSED = 3
"""Qubits of a definition that becomes one gate."""
LARGEST_GATE = 6
"""Qubits of a gate of a program; a circuit, which other engines take too, has `LARGEST_OF_CIRCUIT`."""
LARGEST_OF_CIRCUIT = 3
LARGEST_EXPANSION = 1_000_000
"""Statements that definitions, subroutines and loops of a file may run, all together."""
CACHED_BODIES = 4096
"""Bodies of definitions for their angles that are remembered."""
SAME = 1e-9
"""How far what a unitary's eigenvectors give back may be from it."""

Modifier = tuple[str, Any]
"""ctrl or negctrl and how many; inv and None; pow and the exponent."""


@dataclass(frozen=True, eq=False)
class Definition:
    """A gate that a file defines; `number` counts definitions, and a body has earlier ones alone."""

    name: str
    params: tuple[str, ...]
    qubits: tuple[str, ...]
    body: Sequence[Any]
    place: str
    number: int


@dataclass(frozen=True)
class Call:
    """A gate with modifiers, the outermost first, on qubits: those of controls come first."""

    name: str
    target: Kind | Definition
    params: tuple[float, ...]
    modifiers: tuple[Modifier, ...]
    qubits: tuple[int, ...]


def _is_fused(target: Definition, params: tuple[float, ...]) -> bool:
    """Whether a definition becomes one gate: its parts alone have angles with known derivatives."""
    return len(target.qubits) <= LARGEST_FUSED and not has_slopes(params)


def n_controls(modifiers: Sequence[Modifier]) -> int:
    """How many qubits modifiers add."""
    return sum(count for word, count in modifiers if word in ("ctrl", "negctrl"))


def n_qubits(target: Kind | Definition) -> int:
    """The qubits of a gate without modifiers."""
    return target.n_qubits if isinstance(target, Kind) else len(target.qubits)


@dataclass
class GateCalls:
    """The gates that a file knows, and what their calls become.

    `body` gives the calls in a definition for its angles; their qubits are numbers of the definition's.
    `standard` gives the definition of a standard gate on several qubits. A gate has a matrix for at most
    `largest` qubits.
    """

    body: Callable[[Definition, tuple[float, ...]], tuple[Call, ...]]
    standard: Callable[[str], Definition]
    largest: int = LARGEST_GATE
    kinds: dict[str, Kind] = field(default_factory=lambda: dict(BUILT_IN))
    definitions: dict[str, Definition] = field(default_factory=dict)
    spent: int = 0

    def __post_init__(self) -> None:
        self._cached_body = lru_cache(CACHED_BODIES)(self.body)
        self._cached_matrix = lru_cache(CACHED_BODIES)(self._new_matrix)

    def include(self) -> None:
        """Add the gates of the standard files."""
        self.kinds.update(INCLUDED)

    def find(self, name: str, before: int | None) -> Kind | Definition | None:
        """A gate by its name; in a definition, `before` is its number."""
        definition = self.definitions.get(name)
        if definition is not None and (before is None or definition.number < before):
            return definition
        return self.kinds.get(name)

    def spend(self) -> None:
        """Count a statement of a definition, a subroutine or a loop."""
        self.spent += 1
        if self.spent > LARGEST_EXPANSION:
            self.refuse()

    def has_room(self, count: int) -> bool:
        """Whether so many more statements may run."""
        return self.spent + count <= LARGEST_EXPANSION

    def refuse(self) -> NoReturn:
        """Refuse a file that runs too many statements."""
        raise Mistake(
            f"runs more than {LARGEST_EXPANSION} statements of loops and definitions",
            "use fewer rounds or smaller definitions",
        )

    def standard_gate(
        self, name: str, kind: Kind, params: tuple[float, ...], qubits: tuple[int, ...]
    ) -> Gate:
        """A standard gate that is not split."""
        name, params, matrix = self._matrix(name, kind, params, ())
        return Gate(name, qubits, matrix, params)

    def gates(self, call: Call) -> Iterator[Gate]:
        """The gates that a call becomes."""
        n, target = len(call.qubits), call.target
        # A gate that is small enough keeps its name and one matrix; only what is larger is taken apart.
        if n <= self.largest and (isinstance(target, Kind) or _is_fused(target, call.params)):
            name, params, matrix = self._matrix(call.name, target, call.params, call.modifiers)
            phase = None if n else float(np.angle(matrix[0, 0]))
            yield Gate(name, call.qubits, matrix, params) if phase is None else global_phase(phase)
            return
        if isinstance(target, Kind):
            if target.n_qubits <= 1:
                yield from self._many_controls(call)
                return
            call = replace(call, target=self.standard(call.name))
        # `spend` counts against LARGEST_EXPANSION: definitions that call others twice grow
        # exponentially with their depth.
        for inner in self._expanded(call):
            self.spend()
            yield from self.gates(inner)

    def _body(self, target: Definition, params: tuple[float, ...]) -> tuple[Call, ...]:
        """The calls in a definition. Those whose angles depend on parameters are equal, and have others."""
        return (self.body if has_slopes(params) else self._cached_body)(target, params)

    def _matrix(
        self, name: str, target: Kind | Definition, params: tuple[float, ...], modifiers: tuple[Modifier, ...]
    ) -> tuple[str, tuple[float, ...], np.ndarray]:
        """The name, the angles and the matrix of a gate with its modifiers, kept for the next call."""
        make = self._new_matrix if has_slopes(params) else self._cached_matrix
        return make(name, target, params, modifiers)

    def _new_matrix(
        self, name: str, target: Kind | Definition, params: tuple[float, ...], modifiers: tuple[Modifier, ...]
    ) -> tuple[str, tuple[float, ...], np.ndarray]:
        """The name, the angles and the matrix of a gate with its modifiers."""
        if modifiers:
            # OpenQASM 3, "Quantum gate modifiers": the modifier next to the gate acts first, so
            # that the first in the text is the outermost and is done last.
            (word, value), inner = modifiers[0], modifiers[1:]
            name, params, matrix = self._matrix(name, target, params, inner)
            if word in ("inv", "pow"):
                exponent = -1 if word == "inv" else value
                # Powers of rotations are rotations by multiples of the angle, which keeps the name
                # and the derivative by it. Under further modifiers that holds for integers alone:
                # other powers are those of the matrix, on the principal branch.
                turn = name in TURNS and (exponent == int(exponent) or not inner)
                if turn and not inner and isinstance(target, Kind):
                    return self._matrix(name, target, (exponent * params[0],), ())
                if abs(exponent) > LARGEST_EXPANSION:
                    raise Mistake(
                        f"takes the power {exponent:g}", f"use at most {LARGEST_EXPANSION}, of either sign"
                    )
                matrix = power(matrix, exponent)
                if turn:
                    return name, (exponent * params[0],), matrix
                return f"{name}dg" if word == "inv" else f"{name}^{value:g}", params, matrix
            # Controls come before the gate's own qubits: the block of the matrix where they have
            # the value is the gate.
            prefix = "c" * value if word == "ctrl" else "n" * value
            return prefix + name, params, controlled(matrix, value, int(word == "ctrl"))
        if isinstance(target, Kind):
            matrix = np.array(target.matrix(*map(float, params)), np.complex128)
        else:
            matrix = self._product(self._body(target, params), len(target.qubits))
            # Products of many matrices drift from unitarity by rounding.
            if not np.allclose(matrix @ matrix.conj().T, np.eye(len(matrix)), rtol=0, atol=SAME):
                raise Mistake(
                    "contains so many gates that rounding errors become too large", "use fewer gates"
                )
        matrix.flags.writeable = False  # so that gates share it
        return _NAMES.get(name, name), params, matrix

    def _product(self, calls: Sequence[Call], n: int) -> np.ndarray:
        """The matrix of calls, one after another, on n qubits."""
        result: np.ndarray = np.eye(2**n, dtype=np.complex128).reshape((2,) * n + (2**n,))
        for call in calls:
            q = len(call.qubits)
            matrix = self._matrix(call.name, call.target, call.params, call.modifiers)[2]
            result = np.tensordot(matrix.reshape((2,) * (2 * q)), result, (range(q, 2 * q), call.qubits))
            result = np.moveaxis(result, range(q), call.qubits)
        return np.ascontiguousarray(result.reshape(2**n, 2**n))

    def _expanded(self, call: Call) -> Iterator[Call]:
        """The calls inside a definition, each with the modifiers of its call."""
        assert isinstance(call.target, Definition)
        if any(word == "pow" and value != int(value) for word, value in call.modifiers):
            yield self._with_power(call)
            return
        yield from self._modified(call, call.modifiers, call.qubits)

    def _modified(
        self, call: Call, modifiers: tuple[Modifier, ...], qubits: tuple[int, ...], inverse: bool = False
    ) -> Iterator[Call]:
        """The calls of a definition under modifiers; `inverse` asks for those of the inverse."""
        assert isinstance(call.target, Definition)
        if not modifiers:
            calls = self._body(call.target, call.params)
            # (A B)^dagger = B^dagger A^dagger: the inverse of a sequence is that of each gate in
            # reverse order.
            for inner in reversed(calls) if inverse else calls:
                yield Call(
                    inner.name, inner.target, inner.params, (*((("inv", None),) * inverse), *inner.modifiers),
                    tuple(qubits[k] for k in inner.qubits),
                )  # fmt: skip
            return
        (word, value), inner_modifiers = modifiers[0], modifiers[1:]
        if word == "inv":
            yield from self._modified(call, inner_modifiers, qubits, not inverse)
        elif word == "pow":
            # A power of a sequence is no sequence of powers: the whole is repeated. A negative one
            # repeats the inverse.
            for _ in range(abs(int(value))):
                yield from self._modified(call, inner_modifiers, qubits, inverse != (value < 0))
        else:
            # A controlled sequence is a sequence of controlled gates, global phases included, which
            # become relative ones.
            controls, others = qubits[:value], qubits[value:]
            for inner in self._modified(call, inner_modifiers, others, inverse):
                yield Call(
                    inner.name, inner.target, inner.params, ((word, value), *inner.modifiers),
                    controls + inner.qubits,
                )  # fmt: skip

    def _with_power(self, call: Call) -> Call:
        """A call whose power is no integer: of the one gate in its definition, or by its matrix."""
        assert isinstance(call.target, Definition)
        body, n = self._body(call.target, call.params), len(call.qubits)
        if len(body) == 1:
            # A definition of one gate: the power may go to that gate itself, whatever its size.
            first = n_controls(call.modifiers)
            on = (*call.qubits[:first], *(call.qubits[first + k] for k in body[0].qubits))
            return replace(body[0], modifiers=(*call.modifiers, *body[0].modifiers), qubits=on)
        if n > self.largest:
            raise Mistake(
                f"takes a power that is not an integer of a gate on {n} qubits",
                f"give an integer, or a gate on {self.largest} qubits or fewer",
            )
        name, _, matrix = self._matrix(call.name, call.target, call.params, call.modifiers)
        return Call(name, Kind(n, 0, lambda: matrix), (), (), call.qubits)

    def _many_controls(self, call: Call) -> Iterator[Gate]:
        """A gate on one qubit, or a phase, under so many controls that its matrix would be too large."""
        inner = tuple(modifier for modifier in call.modifiers if modifier[0] in ("inv", "pow"))
        values = [
            int(word == "ctrl") for word, count in call.modifiers if word in ("ctrl", "negctrl")
            for _ in range(count)
        ]  # fmt: skip
        matrix = self._matrix(call.name, call.target, call.params, inner)[2]
        if len(matrix) == 1:
            # A phase under controls: diag(1, e^ig) on the last control under the others.
            matrix = np.diag([1, matrix[0, 0]])
        # negctrl is ctrl between two X.
        negative = [
            Gate("x", (qubit,), X) for qubit, value in zip(call.qubits, values, strict=False) if not value
        ]
        yield from negative
        for gate in multi_controlled(call.qubits[:-1], call.qubits[-1], matrix):
            self.spend()
            yield gate
        yield from negative


_NAMES = {"U": "u", "CX": "cx", "phase": "p", "cphase": "cp"}
"""One name for gates that have several."""


def power(matrix: np.ndarray, exponent: float) -> np.ndarray:
    """A power of a unitary; phases of its eigenvalues are in (-pi, pi], -1 being exp(i pi)."""
    if exponent == int(exponent):
        return np.linalg.matrix_power(matrix if exponent >= 0 else matrix.conj().T, abs(int(exponent)))
    # Eigenvectors of a unitary U are those of the Hermitian e^ia U + h.c., whose eigenvalues are 2
    # cos(t + a) for the phases t. Two phases t with one cosine would mix; at another a they differ.
    for angle in (0.7390851, 2.2118673, 1.3023469):
        mixed = np.exp(1j * angle) * matrix
        vectors = np.linalg.eigh(mixed + mixed.conj().T)[1]
        eigenvalues = np.einsum("ji,jk,ki->i", vectors.conj(), matrix, vectors)
        if np.allclose((vectors * eigenvalues) @ vectors.conj().T, matrix, rtol=0, atol=SAME):
            phases = np.angle(eigenvalues)
            # -1 is exp(i pi), also where rounding puts it just below the branch cut.
            phases = np.where(phases < -np.pi + SAME, phases + 2 * np.pi, phases)
            return np.asarray((vectors * np.exp(1j * exponent * phases)) @ vectors.conj().T)
    raise Mistake("takes a power of something that is not unitary", "let all angles inside it be finite")
