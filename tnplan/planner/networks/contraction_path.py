"""A network together with the order in which to contract it: what path.json holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from tnplan.common.errors import InputError
from tnplan.common.shown_text import html_table
from tnplan.common.units import count_text
from tnplan.planner.networks.network import Network

DTYPES = ("float32", "float64", "complex64", "complex128")


def dtype_name(dtype: Any, place: str) -> str:
    """The name of a dtype of contractions, which may be given in any way that NumPy takes."""
    try:
        name = "" if dtype is None else np.dtype(dtype).name
    except TypeError:
        name = ""
    if name not in DTYPES:
        raise InputError(place, f"{dtype!r} is unknown", f"use one of {', '.join(DTYPES)}")
    return name


@dataclass(frozen=True, repr=False)
class ContractionPath:
    """A network, a contraction path and the indices to slice.

    Parameters
    ----------
    network : Network
        The network.
    ssa_path : tuple of tuples of int
        The steps in static single assignment: the inputs are tensors 0 .. n-1, and the i-th contraction
        creates tensor n+i. A step may name one tensor (nothing to do), two, or more (contracted from left to
        right).
    sliced_inds : tuple of str
        Indices that are fixed to each of their values in turn; the partial results are summed.
    dtype : {"float32", "float64", "complex64", "complex128"}
        That of the tensors while they are contracted.
    name : str
        A short name, also of files.
    tensors : str, optional
        The .npz of the tensors' values.
    meta : dict
        What else is known, such as costs.

    Raises
    ------
    InputError
        For a path that does not contract all tensors to one, each once, or indices that cannot be sliced.

    Examples
    --------
    >>> chain = tnplan.Network((("a", "b"), ("b", "c"), ("c",)), ("a",), {"a": 4, "b": 8, "c": 2})
    >>> tnplan.ContractionPath(chain, ((1, 2), (0, 3)), sliced_inds=("c",))
    ContractionPath(3 tensors, 3 indices, 2 steps, 2 slices, complex64)
    """

    network: Network
    ssa_path: tuple[tuple[int, ...], ...]
    sliced_inds: tuple[str, ...] = ()
    dtype: str = "complex64"
    name: str = ""
    tensors: str | None = None
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype, "path dtype"))
        self._check_path()
        self._check_slices()

    def __repr__(self) -> str:
        name = f"{self.name}: " if self.name else ""
        return f"ContractionPath({name}{', '.join(self._facts.values())})"

    def _repr_html_(self) -> str:
        costs = {key: value for key, value in self.meta.items() if isinstance(value, int | float | str)}
        return html_table(f"Contraction path {self.name}", (self._facts | costs).items())

    @property
    def _facts(self) -> dict[str, str]:
        return {
            "network": self.network.sizes,
            "path": count_text(len(self.ssa_path), "step", "steps"),
            "slices": count_text(self.n_slices, "slice", "slices"),
            "dtype": self.dtype,
        }

    def _check_path(self) -> None:
        available = set(range(len(self.network.inputs)))
        created = len(self.network.inputs)
        for number, step in enumerate(self.ssa_path):
            if not step:
                raise InputError(f"ssa_path[{number}]", "the step is empty", "name the tensors to contract")
            for tensor in step:
                if tensor not in available:
                    known = 0 <= tensor < created
                    raise InputError(
                        f"ssa_path[{number}]",
                        f"tensor {tensor} {'is used a second time' if known else 'does not exist yet'}",
                        "each tensor is contracted exactly once, after it exists",
                    )
                available.remove(tensor)
            available.add(created)
            created += 1
        if len(available) != 1:
            left = sorted(available)
            shown = ", ".join(map(str, left[:5])) + (", ..." if len(left) > 5 else "")
            raise InputError(
                "ssa_path",
                f"{len(left)} tensors are left at its end ({shown})",
                "contract all of them, disconnected parts too, to one tensor",
            )

    def _check_slices(self) -> None:
        present = {index for term in self.network.inputs for index in term}
        seen: set[str] = set()
        for index in self.sliced_inds:
            if index not in present:
                problem = "is on no tensor"
            elif index in self.network.output:
                problem = "is open"
            elif index in seen:
                problem = "stands twice"
            else:
                seen.add(index)
                continue
            raise InputError(
                "sliced_inds", f"index {index!r} {problem}", "slice summed indices of the network, each once"
            )

    @property
    def n_slices(self) -> int:
        """The number of independent slices."""
        return prod(self.network.size_dict[index] for index in self.sliced_inds)


def ssa_from_linear(path: Iterable[Sequence[int]], n_inputs: int) -> tuple[tuple[int, ...], ...]:
    """Turn an opt_einsum path (positions in a shrinking list) into static single assignment.

    Each linear step removes its positions from the list of live tensors and appends the result:
    with 3 inputs, [(0, 1), (0, 1)] becomes ((0, 1), (2, 3)).
    """
    live = list(range(n_inputs))
    ssa: list[tuple[int, ...]] = []
    for number, step in enumerate(path):
        for position in step:
            if not 0 <= position < len(live):
                raise InputError(
                    f"path[{number}]",
                    f"position {position} is outside the {len(live)} tensors that are left",
                    "give an opt_einsum (linear) path of this network",
                )
        if len(set(step)) != len(step):
            raise InputError(
                f"path[{number}]", f"a position stands twice in {list(step)}", "name each tensor once"
            )
        ssa.append(tuple(live[position] for position in step))
        for position in sorted(step, reverse=True):
            del live[position]
        live.append(n_inputs + number)
    return tuple(ssa)
