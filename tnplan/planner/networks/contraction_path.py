"""A network together with the order in which to contract it: what path.json holds."""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.common.checks import check_kind
from tnplan.common.errors import InputError
from tnplan.common.shown_text import html_table
from tnplan.common.units import count_text
from tnplan.planner.networks.network import Network

BLOCK = 4096
MANY_TENSORS = 1000
"""From so many on a path of pairs is checked by NumPy."""
DTYPES = ("float32", "float64", "complex64", "complex128")


def dtype_name(dtype: Any, place: str) -> str:
    """The name of a dtype of contractions, which may be given in any way that NumPy takes."""
    try:
        name = "" if dtype is None else np.dtype(dtype).name
    except (TypeError, ValueError):
        name = ""
    if name not in DTYPES:
        raise InputError(place, f"{dtype!r} is unknown", f"choose from {', '.join(DTYPES)}")
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
        Indices that are fixed to each of their values in turn. The results of summed ones are added; that of
        a value of an open one is its part of the result.
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
        check_kind("path tensors", self.tensors, str)
        for name, kind in (("network", Network), ("name", str), ("meta", dict)):
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise InputError(f"path {name}", f"is {value!r}", f"give a {kind.__name__}")
        try:
            steps = tuple(tuple(map(operator.index, step)) for step in self.ssa_path)
        except TypeError:
            problem = f"is {self.ssa_path!r}"
            raise InputError("ssa_path", problem, "give the numbers of the tensors of each step") from None
        object.__setattr__(self, "ssa_path", steps)
        self._check_path()
        try:
            object.__setattr__(self, "sliced_inds", tuple(self.sliced_inds))
            self._check_slices()
        except TypeError:
            problem = f"are {self.sliced_inds!r}"
            raise InputError("sliced_inds", problem, "give a tuple of names of indices") from None

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
        if _is_path_of_pairs(self.ssa_path, len(self.network.inputs)):
            return
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
                        "contract each tensor exactly once, after it exists",
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
        if not self.sliced_inds:
            return
        present = {index for term in self.network.inputs for index in term}
        seen: set[str] = set()
        for index in self.sliced_inds:
            if index not in present:
                problem = "is on no tensor"
            elif index in seen:
                problem = "stands twice"
            else:
                seen.add(index)
                continue
            raise InputError(
                "sliced_inds", f"index {index!r} {problem}", "slice indices of the network, each once"
            )

    @cached_property
    def n_slices(self) -> int:
        """The number of independent slices."""
        return prod(self.network.size_dict[index] for index in self.sliced_inds)

    def save(self, path: str | Path) -> None:
        """Write a path.json, which `tnplan.load_path` and every call that takes a path read.

        Examples
        --------
        >>> tnplan.from_cotengra(tree).save("path.json")  # doctest: +SKIP
        """
        from tnplan.planner.networks.path_file import save_path

        save_path(self, path)

    def to_opt_einsum(self) -> list[tuple[int, ...]]:
        """The path in positions of the shrinking list of tensors: `optimize=` of opt_einsum and NumPy.

        For NumPy write "einsum_path" before it.

        Returns
        -------
        list of tuple of int
            The steps.

        Raises
        ------
        InputError
            For a path with slices, which neither library knows.
        """
        if self.sliced_inds:
            problem = f"has {count_text(len(self.sliced_inds), 'sliced index', 'sliced indices')}"
            raise InputError("path", problem, "contract with tnplan or cotengra, or search without a limit")
        # A lone tensor is a step there: what it sums, and the order of its axes.
        return linear_from_ssa(self.ssa_path or ((0,),), len(self.network.inputs))

    def to_cotengra(self) -> Any:
        """The path as a tree of cotengra, with its sliced indices.

        Returns
        -------
        cotengra.ContractionTree
            Its steps are pairs; larger ones go from left to right. Its indices are the `characters` of the
            network: cotengra's are single characters.
        """
        from cotengra import ContractionTree

        network, names = self.network, self.network.characters
        inputs = [[names[index] for index in term] for term in network.inputs]
        output = [names[index] for index in network.output]
        sizes = {names[index]: extent for index, extent in network.size_dict.items() if index in names}
        pairs = ssa_pairs(self.ssa_path, len(inputs))
        tree = ContractionTree.from_path(inputs, output, sizes, ssa_path=pairs)
        for index in self.sliced_inds:
            tree.remove_ind_(names[index])
        return tree

    def to_cutensornet(self) -> dict[str, Any]:
        """The path and the slices as `optimize=` of cuTensorNet, or of its `Network.contract_path`.

        Returns
        -------
        dict
            "path": pairs of positions in the shrinking list; "slicing": pairs of a mode and the extent 1.
        """
        n_inputs = len(self.network.inputs)
        path = linear_from_ssa(ssa_pairs(self.ssa_path, n_inputs), n_inputs)
        return {"path": path, "slicing": [(index, 1) for index in self.sliced_inds]}

    def to_omeinsum(self, file: str | Path) -> dict[str, int]:
        """Write the JSON that `readjson` of OMEinsumContractionOrders.jl reads.

        Returns
        -------
        dict
            The extents by label, which the file has not. Labels are the `characters` of the network.

        Examples
        --------
        >>> extents = path.to_omeinsum("order.json")  # doctest: +SKIP
        >>> tnplan.load_omeinsum("order.json", sizes=extents)  # doctest: +SKIP
        """
        from tnplan.planner.networks.importers.omeinsum import save_omeinsum

        return save_omeinsum(self, file)


def _is_path_of_pairs(ssa_path: Sequence[Sequence[int]], n_inputs: int) -> bool:
    """Whether it is a long one of pairs that makes and uses each tensor once, but for the last."""
    if n_inputs < MANY_TENSORS or len(ssa_path) != n_inputs - 1 or {*map(len, ssa_path)} != {2}:
        return False
    pairs = np.array(ssa_path)
    if pairs.dtype != np.int64 or (pairs.max(axis=1) >= np.arange(n_inputs, 2 * n_inputs - 1)).any():
        return False
    return bool(pairs.min() >= 0 and (np.bincount(pairs.ravel(), minlength=2 * n_inputs - 2) == 1).all())


def ssa_pairs(ssa_path: Iterable[Sequence[int]], n_inputs: int) -> tuple[tuple[int, int], ...]:
    """The path with steps of two tensors only: single ones left out, larger ones split from left to right."""
    names = list(range(n_inputs))
    pairs: list[tuple[int, int]] = []
    for step in ssa_path:
        result = names[step[0]]
        for other in step[1:]:
            pairs.append((result, names[other]))
            result = n_inputs + len(pairs) - 1
        names.append(result)
    return tuple(pairs)


def linear_from_ssa(ssa_path: Iterable[Sequence[int]], n_inputs: int) -> list[tuple[int, ...]]:
    """Turn static single assignment into an opt_einsum path, the inverse of `ssa_from_linear`."""
    live = list(range(n_inputs))  # sorted at all times: results have the largest numbers
    path = []
    for number, step in enumerate(ssa_path, n_inputs):
        path.append(tuple(bisect_left(live, tensor) for tensor in step))
        for tensor in step:
            del live[bisect_left(live, tensor)]
        live.append(number)
    return path


def ssa_from_linear(path: Iterable[Sequence[int]], n_inputs: int) -> tuple[tuple[int, ...], ...]:
    """Turn an opt_einsum path (positions in a shrinking list) into static single assignment.

    Each linear step removes its positions from the list of live tensors and appends the result:
    with 3 inputs, [(0, 1), (0, 1)] becomes ((0, 1), (2, 3)).
    """
    live, n_live = _LiveTensors(n_inputs), n_inputs
    ssa: list[tuple[int, ...]] = []
    for number, step in enumerate(path):
        for position in step:
            if not 0 <= position < n_live:
                raise InputError(
                    f"path[{number}]",
                    f"position {position} is outside the {n_live} tensors that are left",
                    "give an opt_einsum (linear) path of this network",
                )
        if len(set(step)) != len(step):
            raise InputError(
                f"path[{number}]", f"a position appears twice in {list(step)}", "name each tensor once"
            )
        taken = {position: live.pop(position) for position in sorted(step, reverse=True)}
        ssa.append(tuple([taken[position] for position in step]))
        live.append(n_inputs + number)
        n_live += 1 - len(step)
    return tuple(ssa)


class _LiveTensors:
    """The tensors that are left, in blocks: taking one moves those of its block, and not all behind it."""

    def __init__(self, count: int) -> None:
        self._blocks = [list(range(at, min(at + BLOCK, count))) for at in range(0, count, BLOCK)]

    def pop(self, position: int) -> int:
        """Take the one at a position."""
        for number, block in enumerate(self._blocks):
            if position < len(block):
                tensor = block.pop(position)
                if not block:
                    del self._blocks[number]
                return tensor
            position -= len(block)
        raise IndexError(position)

    def append(self, tensor: int) -> None:
        """Add one behind the others."""
        if not self._blocks or len(self._blocks[-1]) >= BLOCK:
            self._blocks.append([])
        self._blocks[-1].append(tensor)
