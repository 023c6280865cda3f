"""An einsum equation with shapes as a contraction path, given or found by cotengra's greedy search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath, ssa_from_linear
from tnplan.planner.networks.importers.checks import integer_steps
from tnplan.planner.networks.importers.subscripts import parse_call
from tnplan.planner.networks.network import Network

TOPIC = "contractions in Python"
"""What the errors of this module are about, where one says no topic of its own."""


def parse_equation(equation: str, operands: Sequence[Any]) -> Network:
    """The network of an equation such as `ab,bc->ac`, in all of NumPy's and opt_einsum's syntax.

    `operands` are arrays or shapes. Axes of extent 1 are not broadcast here, since a path says nothing of
    its tensors' axes.
    """
    call = parse_call((equation, *operands))
    for number, (term, operand) in enumerate(zip(call.inputs, operands, strict=True)):
        shape = tuple(getattr(operand, "shape", operand))
        if len(term) < len(shape):
            problem = f"has shape {shape}, of which axes of extent 1 are broadcast"
            raise InputError(f"operand {number}", problem, "leave these axes out of the array and its term")
    return call.network


def from_einsum(
    equation: str,
    operands: Sequence[Any],
    path: Sequence[Sequence[int]] | None = None,
    *,
    dtype: str = "complex64",
    name: str = "",
) -> ContractionPath:
    """Take an einsum equation with a path.

    Parameters
    ----------
    equation : str
        Such as "ab,bc->ac". Without "->" the output is NumPy's: the indices that occur once, sorted.
    operands : sequence of arrays or shapes
        One a term.
    path : sequence of pairs of int, optional
        Positions in the shrinking list of tensors, as opt_einsum has them. Default: cotengra's greedy path.
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
        For an ellipsis, extents that disagree, or a path of another network.

    Examples
    --------
    >>> tnplan.from_einsum("ab,bc->ac", [(4, 8), (8, 2)], [(0, 1)])
    ContractionPath(2 tensors, 3 indices, 1 step, 1 slice, complex64)
    """
    if hasattr(operands, "shape"):
        raise InputError("operands", "is one array", "give a list of arrays or shapes, one a term")
    network = parse_equation(equation, operands)
    if path is None:
        path = _greedy(network)
    steps = integer_steps(path, "path")
    return ContractionPath(network, ssa_from_linear(steps, len(network.inputs)), (), dtype, name)


def _greedy(network: Network) -> Sequence[Sequence[int]]:
    from cotengra import array_contract_path

    path: Sequence[Sequence[int]] = array_contract_path(
        network.inputs, network.output, network.size_dict, optimize="greedy"
    )
    return path
