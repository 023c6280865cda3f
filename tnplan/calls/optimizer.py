"""tnplan's search as `optimize=` of quimb, cotengra and opt_einsum: their interface for optimizers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any

from cotengra import ContractionTree
from cotengra.oe import PathOptimizer

from tnplan.common.checks import check_count
from tnplan.common.errors import InputError
from tnplan.planner.hardware.profile import Profile, known_profile
from tnplan.planner.networks.contraction_path import ContractionPath, dtype_name
from tnplan.planner.networks.importers.checks import index_names, relabelled
from tnplan.planner.search.annealing import Effort
from tnplan.planner.search.cotengra_search import search_jointly
from tnplan.planner.search.search_in_proportion import search_as_long, search_in_proportion

TOPIC = "contractions in Python"


class Optimizer(PathOptimizer):
    """Finds contraction paths for quimb, cotengra and opt_einsum.

    Parameters
    ----------
    time : float or "auto"
        Seconds of search. "auto": as many as the contraction can gain. Paths are kept on disk: a search that
        was made as long before is not made again. Of few tensors the cheapest path is known at once.
    max_tensor : int, optional
        The most elements of a tensor. Indices are sliced until all are within it, and every slice costs the
        whole tree, as in cotengra; opt_einsum knows no slices and is refused then.
    dtype : str
        Of the values that will be contracted.
    hardware : Profile, name or path
        The machine whose rates decide how long "auto" searches.
    seed : int
        Of the search.
    rounds : int, optional
        Rounds of annealing in place of `time`, without clock and cache: a seed gives the same path each time.

    Examples
    --------
    >>> import cotengra
    >>> shapes = [(2, 3), (3, 4)]
    >>> cotengra.array_contract_path(["ab", "bc"], "ac", shapes=shapes, optimize=tnplan.Optimizer())
    [(0, 1)]
    """

    def __init__(
        self,
        time: float | str = "auto",
        *,
        max_tensor: int | None = None,
        dtype: str = "complex128",
        hardware: Profile | str = "cpu",
        seed: int = 0,
        rounds: int | None = None,
    ) -> None:
        number = isinstance(time, int | float) and not isinstance(time, bool) and 0 < time < inf
        if time != "auto" and not number:
            raise InputError("time", f"is {time!r}", 'give seconds, or "auto"')
        if max_tensor is not None:
            check_count("max_tensor", max_tensor)
        self.time, self.max_tensor, self.seed = time, max_tensor, check_count("seed", seed, 0)
        if rounds is not None:
            check_count("rounds", rounds)
            if time != "auto":
                raise InputError("rounds", "is given together with time", "give either rounds or time")
        self.rounds = rounds
        self.dtype = dtype_name(dtype, "dtype")
        self.hardware = known_profile(hardware)

    def __repr__(self) -> str:
        limit = "" if self.max_tensor is None else f", max_tensor={self.max_tensor}"
        return f"Optimizer(time={self.time!r}{limit}, dtype={self.dtype!r})"

    def search(
        self,
        inputs: Sequence[Collection[Any]],
        output: Collection[Any],
        size_dict: Mapping[Any, int],
        **_: Any,
    ) -> ContractionTree:
        """The contraction tree of a network, with its sliced indices: cotengra's interface."""
        path, names = self._found(inputs, output, size_dict)
        labels = {name: label for label, name in names.items()}
        tree = ContractionTree.from_path(inputs, output, size_dict, ssa_path=path.ssa_path)
        for name in path.sliced_inds:
            tree.remove_ind_(labels[name])
        return tree

    def __call__(
        self,
        inputs: Sequence[Collection[Any]],
        output: Collection[Any],
        size_dict: Mapping[Any, int],
        memory_limit: int | None = None,
    ) -> list[tuple[int, ...]]:
        """The path of a network, in positions of a shrinking list: opt_einsum's interface."""
        path, _ = self._found(inputs, output, size_dict)
        if path.sliced_inds:
            problem = f"is {self.max_tensor}, which needs slices, and opt_einsum cannot slice"
            raise InputError("max_tensor", problem, "leave it out here, or contract with cotengra or tnplan")
        return path.to_opt_einsum()

    def _found(
        self, inputs: Sequence[Collection[Any]], output: Collection[Any], size_dict: Mapping[Any, int]
    ) -> tuple[ContractionPath, dict[Any, str]]:
        """The path, and the name of each label in it."""
        names = index_names((label for term in inputs for label in term), "optimize")
        network = relabelled(inputs, output, size_dict, names)
        # cotengra contracts every slice in full.
        if self.rounds is not None:
            effort = Effort(time_s=inf, max_rounds=self.rounds)
            return search_jointly(network, self.dtype, effort, self.max_tensor, self.seed, False), names
        limit = inf if self.max_tensor is None else self.max_tensor
        if self.time == "auto":
            path = search_in_proportion(
                network, self.dtype, self.hardware, max_elements=limit, seed=self.seed, shares_slices=False
            )
        else:
            path = search_as_long(
                network, self.dtype, float(self.time), max_elements=limit, seed=self.seed, shares_slices=False
            )
        return path, names
