"""An einsum equation with shapes as a contraction path, given or found by cotengra's greedy search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tnplan.planner.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath, ssa_from_linear
from tnplan.planner.networks.importers.checks import integer_steps
from tnplan.planner.networks.network import Network


def parse_equation(equation: str, operands: Sequence[Any]) -> Network:
    """The network of an equation such as `ab,bc->ac`; `operands` are arrays or shapes.

    Without `->` the output is that of NumPy: the indices that occur once, sorted. A trace (`aab`), a
    hyper-index, a scalar (an empty term) and disconnected terms are legal; an ellipsis is not, and extents
    are not broadcast.
    """
    place = f"equation {_short(equation)!r}"
    text = equation.replace(" ", "")
    if "." in text:
        raise InputError(place, "has an ellipsis", "name every index")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    for letter in left.replace(",", "") + right:
        if not letter.isalpha():
            raise InputError(place, f"has the character {letter!r}", "name indices by letters")
    if len(terms) != len(operands):
        raise InputError(
            place, f"has {len(terms)} terms for {len(operands)} operands", "give one operand a term"
        )
    if not arrow:
        right = "".join(sorted(letter for letter, n in Counter(left.replace(",", "")).items() if n == 1))
    sizes: dict[str, int] = {}
    for number, (term, operand) in enumerate(zip(terms, operands, strict=True)):
        shape = tuple(int(extent) for extent in getattr(operand, "shape", operand))
        if len(shape) != len(term):
            raise InputError(
                f"operand {number}",
                f"has shape {shape} for the indices {term!r}",
                "give an extent for each index",
            )
        for index, extent in zip(term, shape, strict=True):
            if sizes.setdefault(index, extent) != extent:
                raise InputError(
                    f"operand {number}",
                    f"index {index!r} has extent {extent} here and {sizes[index]} before",
                    "give an index one extent",
                )
    return Network(tuple(tuple(term) for term in terms), tuple(right), sizes)


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


def _short(equation: str) -> str:
    return equation if len(equation) <= 40 else f"{equation[:37]}..."
