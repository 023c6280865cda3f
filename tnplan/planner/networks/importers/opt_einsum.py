"""What opt_einsum and NumPy return as a path, for an equation and its operands. Imports neither."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.importers.subscripts import from_einsum


def from_opt_einsum(
    equation: str, operands: Sequence[Any], path: Any, *, dtype: str = "complex64", name: str = ""
) -> ContractionPath:
    """Take an einsum equation with the path that opt_einsum or NumPy found.

    Parameters
    ----------
    equation, operands
        As in `from_einsum`.
    path
        A list of steps, the pair (path, PathInfo) of `opt_einsum.contract_path`, its PathInfo alone, or what
        `numpy.einsum_path` returns.
    dtype : {"float32", "float64", "complex64", "complex128"}
        That of the tensors while they are contracted.
    name : str
        A short name.

    Returns
    -------
    ContractionPath
        The network and the path.

    Raises
    ------
    InputError
        For what `from_einsum` refuses.

    Examples
    --------
    >>> matrices = np.ones((4, 8)), np.ones((8, 2))
    >>> tnplan.from_opt_einsum("ab,bc->ac", matrices, np.einsum_path("ab,bc->ac", *matrices)).ssa_path
    ((0, 1),)
    """
    return from_einsum(equation, operands, _steps(path), dtype=dtype, name=name)


def _steps(path: Any) -> Sequence[Sequence[int]]:
    if hasattr(path, "path"):
        path = path.path
    elif (
        isinstance(path, tuple) and len(path) == 2 and (hasattr(path[1], "path") or isinstance(path[1], str))
    ):
        path = path[0]
    if len(path) > 0 and path[0] == "einsum_path":
        path = path[1:]
    return list(path)
