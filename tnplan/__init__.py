"""Tensor-network contractions for many devices, and engines for quantum circuits and molecules.

Everything that the command line does is one call away. Sizes are bytes, as numbers or as text such as
"128MiB"; times are seconds. Under mpirun `execute`, `propagate`, `diagonalize`, `diagonalize_qubits`,
`simulate` and `calibrate` are collective: every rank makes the same call. What cannot be done raises
`InputError`, before any work.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_MODULES = {"compress": "tnplan.compress", "sqd": "tnplan.sqd", "workload": "tnplan.calls.workload"}
_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_ELSEWHERE = {
    alias.name: str(node.module)
    for node in _STUB.body if isinstance(node, ast.ImportFrom)
    for alias in node.names
}  # fmt: skip
"""The module of every public name; the list of them is the stub, which type checkers read."""

__all__ = sorted(_ELSEWHERE)


def __getattr__(name: str) -> Any:
    """Import what is written elsewhere when it is first asked for, so that importing tnplan stays light."""
    if name == "__version__":
        from tnplan.common.release import release

        return release()
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_ELSEWHERE[name]), name)
    return value


def __dir__() -> list[str]:
    """What users may use."""
    return sorted([*__all__, "__version__"])
