"""What the arguments of an einsum call say, as a network: all of NumPy's and opt_einsum's syntax.

Imports no library of arrays: of an operand it reads the shape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from types import EllipsisType
from typing import TYPE_CHECKING, Any, NamedTuple

from tnplan.common.errors import InputError
from tnplan.common.units import plural
from tnplan.planner.networks.contraction_path import ContractionPath, ssa_from_linear
from tnplan.planner.networks.importers.checks import index_names, integer_steps
from tnplan.planner.networks.network import Network

if TYPE_CHECKING:
    from tnplan.planner.schedule.schedule import Schedule


TOPIC = "contractions in Python"

Label = Hashable
"""What names an index: a character of an equation, or an element of a list of labels."""


@dataclass(frozen=True)
class BroadcastAxis:
    """The axis of an ellipsis that is `from_last` axes before the last one; the label of its index."""

    from_last: int

    def __str__(self) -> str:
        return f"...{self.from_last}"


class EinsumCall(NamedTuple):
    """What an einsum call contracts.

    `inputs[i]` has the indices of operand i without its axes of extent 1 that are broadcast: the operand is
    reshaped to the extents of these indices. An extent may be 0, which no network allows. `path` or
    `schedule` is there where the caller gave it in place of an equation.
    """

    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    size_dict: dict[str, int]
    operands: tuple[Any, ...]
    path: ContractionPath | None = None
    schedule: Schedule | None = None

    @property
    def network(self) -> Network:
        """The network; raises InputError where an extent is 0."""
        return Network(self.inputs, self.output, self.size_dict)


def parse_call(arguments: Sequence[Any]) -> EinsumCall:
    """The network of `equation, *operands`, or of `operand, labels, operand, labels, ..., [labels]`.

    Operands are arrays or shapes. Raises InputError with the place in the call.
    """
    if not arguments:
        raise InputError("einsum", "has no arguments", "give an equation and its operands")
    if isinstance(arguments[0], str):
        place = f"equation {shortened(arguments[0])!r}"
        terms, output = _split(arguments[0], place)
        operands = tuple(arguments[1:])
    else:
        place = "lists of indices"
        operands, terms, output = _interleaved(arguments, place)
    if len(terms) != len(operands):
        counts = plural(len(terms), "term", "terms"), plural(len(operands), "operand", "operands")
        problem = f"has {counts[0]} for {counts[1]}"
        raise InputError(place, problem, "give one operand per term")
    shapes = [shape_of(operand, number) for number, operand in enumerate(operands)]
    return _call(_expanded(terms, shapes), output, shapes, operands, place)


def shortened(equation: str) -> str:
    """An equation as it is shown in a message."""
    return equation if len(equation) <= 40 else f"{equation[:37]}..."


Term = Sequence[Label | EllipsisType]


def _split(equation: str, place: str) -> tuple[list[Term], Term | None]:
    """The terms of an equation, and its output where there is one."""
    text = "".join(equation.split())
    left, arrow, right = text.partition("->")
    terms: list[Term] = [_characters(term, place) for term in left.split(",")]
    if arrow and "," in right:
        raise InputError(place, "has two outputs", "write the indices of one result after ->")
    return terms, _characters(right, place) if arrow else None


def _characters(term: str, place: str) -> list[Label | EllipsisType]:
    """The labels of a term; `...` becomes Ellipsis."""
    before, dots, after = term.partition("...")
    for character in before + after:
        if character in ".->" or not character.isprintable():
            remedy = "name indices by single characters, the result by -> and other axes by ..."
            raise InputError(place, f"has the character {character!r} in {term!r}", remedy)
    return [*before, *([Ellipsis] if dots else []), *after]


def _interleaved(arguments: Sequence[Any], place: str) -> tuple[tuple[Any, ...], list[Term], Term | None]:
    """Operands, terms and output of lists of labels behind operands."""
    lists = [item.tolist() if hasattr(item, "tolist") else item for item in (*arguments[1::2], arguments[-1])]
    operands, terms = tuple(arguments[:-1:2]), lists[:-1]
    output = lists[-1] if len(arguments) % 2 else None
    if not operands:
        raise InputError(place, "have no operand", "give arrays, each followed by its list of labels")
    for term in (*terms, *([] if output is None else [output])):
        if not isinstance(term, Sequence) or isinstance(term, str | bytes):
            problem = f"have an object of type {type(term).__name__} in place of a list of labels"
            raise InputError(
                place, problem, "give an equation first, or a list of labels behind every operand"
            )
        for label in term:
            if not isinstance(label, Hashable):
                raise InputError(place, f"{label!r} is not a label", "name indices by integers or texts")
        if sum(label is Ellipsis for label in term) > 1:
            raise InputError(place, "a list has two ellipses", "give one ellipsis at most")
    return operands, terms, output


def shape_of(operand: Any, number: int) -> tuple[int, ...]:
    """The extents of an array, or those given in its place."""
    try:
        return tuple(map(index, getattr(operand, "shape", operand)))
    except (TypeError, RuntimeError):  # the second for a nested tensor of torch
        problem = f"is of type {type(operand).__name__}, without a shape"
        raise InputError(f"operand {number}", problem, "give an array, or its extents") from None


def _expanded(terms: Sequence[Term], shapes: Sequence[tuple[int, ...]]) -> list[list[Label]]:
    """The terms with a label for every axis: those that an ellipsis stands for are counted from the last."""
    expanded: list[list[Label]] = []
    for number, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        labels = list(term)
        if len(labels) == len(shape) and Ellipsis not in labels:
            expanded.append(labels)
            continue
        n_named = sum(label is not Ellipsis for label in labels)
        n_broadcast = len(shape) - n_named
        if n_broadcast < 0 or (n_broadcast and n_named == len(labels)):
            problem = f"has shape {shape} for {n_named} indices"
            raise InputError(f"operand {number}", problem, "give an extent for each index")
        if n_named < len(labels):
            at = labels.index(Ellipsis)
            labels[at : at + 1] = [BroadcastAxis(n_broadcast - 1 - axis) for axis in range(n_broadcast)]
        expanded.append(labels)
    return expanded


def _output(terms: Sequence[Sequence[Label]], output: Term | None, place: str) -> list[Label]:
    """The labels of the result's axes: as stated, or the broadcast axes and then what occurs once, sorted."""
    if output is not None and Ellipsis not in output:
        return list(output)
    counts = Counter(label for term in terms for label in term)
    broadcast = sorted(
        (label for label in counts if isinstance(label, BroadcastAxis)), key=lambda axis: -axis.from_last
    )
    if output is not None:
        return [axis for label in output for axis in (broadcast if label is Ellipsis else (label,))]
    once: list[Any] = [label for label, n in counts.items() if n == 1 and label not in broadcast]
    try:
        return [*broadcast, *sorted(once)]
    except TypeError:
        remedy = "give the labels of the result too, or take labels of one type"
        raise InputError(place, "has labels that have no order", remedy) from None


def _call(
    terms: Sequence[Sequence[Label]], output: Term | None, shapes: Sequence[tuple[int, ...]],
    operands: tuple[Any, ...], place: str,
) -> EinsumCall:  # fmt: skip
    sizes: dict[Label, int] = {}
    is_plain = True
    for term, shape in zip(terms, shapes, strict=True):
        for label, extent in zip(term, shape, strict=True):
            known = sizes.setdefault(label, extent)
            if known != extent:
                is_plain = False
                sizes[label] = extent if known == 1 else known
    if not is_plain:
        _check_extents(terms, shapes, sizes)
    are_names = all(type(label) is str for label in sizes)
    names = {} if are_names else index_names(sizes, place)
    axes = _output(terms, output, place)
    for label in axes:
        if label not in sizes:
            problem = f"index {str(label)!r} of the output does not belong to any operand"
            raise InputError(place, problem, "list only indices of the operands")
        if axes.count(label) > 1:
            problem = f"has the index {str(label)!r} {axes.count(label)} times in its output"
            raise InputError(place, problem, "list each open index once")
    if is_plain and are_names:
        plain: Any = tuple(map(tuple, terms))
        return EinsumCall(plain, tuple(axes), sizes, operands)  # type: ignore[arg-type]
    names = names or index_names(sizes, place)
    inputs = tuple(
        tuple(names[label] for label, extent in zip(term, shape, strict=True) if extent == sizes[label])
        for term, shape in zip(terms, shapes, strict=True)
    )
    size_dict = {names[label]: extent for label, extent in sizes.items()}
    return EinsumCall(inputs, tuple(names[label] for label in axes), size_dict, operands)


def _check_extents(
    terms: Sequence[Sequence[Label]], shapes: Sequence[tuple[int, ...]], sizes: Mapping[Label, int]
) -> None:
    """Raise InputError where an index has two extents, other than 1 on another operand."""
    for number, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        extents: dict[Label, int] = {}
        for label, extent in zip(term, shape, strict=True):
            if extents.setdefault(label, extent) != extent or extent not in (1, sizes[label]):
                other = extents[label] if extents[label] != extent else sizes[label]
                problem = f"index {str(label)!r} has the extents {other} and {extent}"
                remedy = "equal indices have equal extents, or 1 on another operand"
                raise InputError(f"operand {number}", problem, remedy)


def parse_equation(equation: str, operands: Sequence[Any]) -> Network:
    """The network of an equation such as `ab,bc->ac`, in all of NumPy's and opt_einsum's syntax.

    `operands` are arrays or shapes. Axes of extent 1 are not broadcast here, since a path says nothing of
    its tensors' axes.
    """
    call = parse_call((equation, *operands))
    for number, (term, operand) in enumerate(zip(call.inputs, operands, strict=True)):
        shape = shape_of(operand, number)
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
    # An array is a sequence too, of its rows, which would be taken for operands.
    if hasattr(operands, "shape") or not isinstance(operands, Sequence):
        problem = f"is {'one array' if hasattr(operands, 'shape') else type(operands).__name__}"
        raise InputError("operands", problem, "give a list of arrays or shapes, one per term")
    network = parse_equation(equation, operands)
    if path is None:
        path = _greedy(network)
    if not isinstance(path, Sequence):
        raise InputError("path", f"is of type {type(path).__name__}", "give a list of pairs of positions")
    steps = integer_steps(path, "path")
    return ContractionPath(network, ssa_from_linear(steps, len(network.inputs)), (), dtype, name)


def _greedy(network: Network) -> Sequence[Sequence[int]]:
    from cotengra import array_contract_path

    path: Sequence[Sequence[int]] = array_contract_path(
        network.inputs, network.output, network.size_dict, optimize="greedy"
    )
    return path
