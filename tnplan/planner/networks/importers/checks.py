"""Small checks that importers share. Knows no format."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from tnplan.common.errors import InputError
from tnplan.planner.networks.network import Network

Kind = TypeVar("Kind")


def field(document: Any, key: str, kind: type[Kind], place: str, remedy: str) -> Kind:
    """`document[key]`, which must be there and of that kind."""
    if not isinstance(document, dict) or key not in document:
        raise InputError(f"{place}: {key}", "is missing", remedy)
    value = document[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InputError(f"{place}: {key}", f"is of type {type(value).__name__}, not {kind.__name__}", remedy)
    return value


def index_names(labels: Iterable[Any], place: str) -> dict[Any, str]:
    """A string for every label; labels that differ must not become equal."""
    names: dict[Any, str] = {}
    taken: dict[str, Any] = {}
    for label in labels:
        if not isinstance(label, Hashable):
            raise InputError(
                place, f"{label!r} is not a label of an index", "label indices by text or numbers"
            )
        if label in names:
            continue
        name = str(label)
        if name in taken:
            raise InputError(
                place, f"labels {taken[name]!r} and {label!r} have one name", "rename one of them"
            )
        names[label], taken[name] = name, label
    return names


def relabelled(
    inputs: Iterable[Iterable[Any]], output: Iterable[Any], sizes: Mapping[Any, Any], names: Mapping[Any, str]
) -> Network:
    """The network of tensors with labels, with a name for each label."""
    output = tuple(output)
    for label in output:
        if label not in names:
            problem = f"has index {label!r}, which no tensor has"
            raise InputError("output", problem, "use only indices of the tensors")
    for label in names:
        if label not in sizes:
            raise InputError("sizes", f"have no extent of index {label!r}", "give an extent for each index")
    return Network(
        tuple(tuple(names[label] for label in term) for term in inputs),
        tuple(names[label] for label in output),
        {name: int(sizes[label]) for label, name in names.items()},
    )


def integer_steps(path: Sequence[Any], place: str) -> tuple[tuple[int, ...], ...]:
    """A path as tuples of integers."""
    steps = []
    for number, step in enumerate(path):
        if not isinstance(step, list | tuple) or any(
            isinstance(entry, bool) or not hasattr(entry, "__index__") for entry in step
        ):
            raise InputError(
                f"{place}: path[{number}]",
                f"{step!r} is not a list of integers",
                "give the tensors of each step",
            )
        steps.append(tuple(int(entry) for entry in step))
    return tuple(steps)
