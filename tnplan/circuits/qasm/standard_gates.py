"""The gates of qelib1.inc and stdgates.inc, and U, CX and gphase, which need no file. Matrices alone.

Phases are those of Qiskit: U(theta, phi, lambda) is [[cos, -e^(i lambda) sin], [e^(i phi) sin,
e^(i (phi + lambda)) cos]] of theta / 2, also under controls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import cos, pi, sin, sqrt

import numpy as np

from tnplan.circuits.gates import I2, SWAP, Kind, X, Y, Z, controlled, diagonal, phase, rz, turn

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
