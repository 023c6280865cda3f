"""Gradients of a compiled contraction: planned, allocated and bound when they are asked for the first time.

The contraction with its gradients has ranks and memory of its own beside those of plain calls.

Derivatives of the derivatives are sums of derivatives with other tensors. Let S be the contraction's result
R, contracted with a cotangent X_0. It is linear in X_0 and in each of the tensors X_1, ..., X_n. Its
derivatives D_k = dS/dX_k are the result, D_0 = R, and what `vjp` computes. In the direction of V_m, D_k
changes by

    sum_m D_k(X with V_m for X_m),    m != k.

The matrix d^2 S / dX_k dX_m is symmetric, so that the same sum goes back: from weights of the D_k to the X_m.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from operator import index
from secrets import randbits
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from tnplan.common.errors import InputError
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.arrays.ranks import Ranks, open_ranks
from tnplan.planner.hardware.process_grid import group_sizes
from tnplan.planner.hardware.profile import Profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.passes.reverse import reverse
from tnplan.planner.passes.verify import verify
from tnplan.planner.schedule.schedule import GradientSchedule, Schedule, TensorGradient


@dataclass(frozen=True)
class GradientPlan:
    """What the gradients of a contraction are planned from: its path, the machine, and the bytes of a rank
    that they may take, beside what plain calls take; the index of a batch, where there is one."""

    path: ContractionPath
    profile: Profile
    memory_bytes: float
    batch: str | None = None

    def schedule(self, options: ContractionOptions, wrt: Sequence[int]) -> GradientSchedule:
        """The schedule with these gradients, of the first plan that leaves memory for them, or of a part of
        the batch.

        Raises InputError where none does: that of the first.
        """
        refusal: InputError | None = None
        plans = self._plans(options)
        while True:
            try:
                forward = next(plans, None)
                if forward is None:
                    break
                return reverse(forward, wrt, self.memory_bytes)
            except InputError as error:  # ends the plans, or refuses one
                refusal = refusal or error
        network = self.path.network
        length = 1 if self.batch is None else network.size_dict[self.batch]
        if self.batch is not None and length > 1:
            sizes = {**network.size_dict, self.batch: -(-length // 2)}
            half_batch = replace(self.path, network=replace(network, size_dict=sizes))
            return replace(self, path=half_batch).schedule(options, wrt)
        assert refusal is not None
        raise refusal

    def _plans(self, options: ContractionOptions) -> Iterator[Schedule]:
        """Plans of the contraction without early sums, which have no gradients: on a GPU one with chains;
        then without chains the fastest, the one that shares nothing between slices, and those with more
        ranks a slice."""
        # A profile without rates of chains has plans without chains.
        plain = replace(self.profile, fused_flop_per_s={}, fused_tile_bytes_per_s={})

        def planned(share: bool, ranks: int | None = None, profile: Profile = plain) -> Schedule:
            return plan(
                self.path, profile, devices=options.devices, ranks_per_group=ranks,
                memory_bytes=self.memory_bytes, precision=options.precision, share=share, goes_back=True,
            )  # fmt: skip

        if options.device == "gpu" and self.profile.fused_flop_per_s:
            yield planned(share=True, profile=self.profile)
        fastest = planned(share=True)
        yield fastest
        if fastest.outer:
            yield planned(share=False)
        for ranks in group_sizes(options.devices, self.path.n_slices):
            if ranks > fastest.ranks_per_group:
                yield planned(False, ranks)


class GradientCalls:
    """The contraction with the gradients of some inputs, ready to be called.

    - `schedule`: What is carried out.
    - `options`: Where.
    - `constants`: The inputs that never change.
    """

    def __init__(
        self, schedule: GradientSchedule, options: ContractionOptions, constants: Mapping[int, NDArray[Any]]
    ) -> None:
        verify(schedule)
        self.schedule = schedule
        self._ranks: Ranks = open_ranks(schedule, options, constants)
        self._shapes = [_GradientShape(schedule, gradient) for gradient in schedule.gradients]

    def call(
        self, values: Mapping[int, NDArray[Any]], cotangent: NDArray[Any]
    ) -> tuple[NDArray[Any], list[NDArray[Any]]] | None:
        """The result and the gradients, as the network shapes them; None where another process has them."""
        schedule = self.schedule
        results = self._ranks.contract({**values, schedule.cotangent: cotangent})
        if results is None:
            return None
        result, *gradients = results
        return result.reshape(schedule.output_shape).copy(), [
            with_shape(flat) for with_shape, flat in zip(self._shapes, gradients, strict=True)
        ]

    def close(self) -> None:
        """Give the memory back."""
        self._ranks.close()


class _GradientShape:
    """Gives a flat gradient the axes of its tensor: on the diagonal of repeated indices, with equal values
    along those that only the tensor has."""

    def __init__(self, schedule: GradientSchedule, gradient: TensorGradient) -> None:
        leaf, stored = schedule.leaves[gradient.tensor], schedule.buffers[gradient.buffer].modes
        indices = list(dict.fromkeys(leaf))
        modes = [mode for index in indices for mode in schedule.indices[index]]
        self._stored_shape = [schedule.extents[mode] for mode in stored]
        self._order = [stored.index(mode) for mode in modes if mode in stored]
        self._extents = [schedule.extents[mode] for mode in modes]
        present = [schedule.extents[mode] if mode in stored else 1 for mode in modes]
        self._broadcast_shape = None if present == self._extents else present
        self._shape = [schedule.size_dict[index] for index in indices]
        self._full_shape = [schedule.size_dict[index] for index in leaf]
        self._axes = None if len(indices) == len(leaf) else [indices.index(index) for index in leaf]

    def __call__(self, flat: NDArray[Any]) -> NDArray[Any]:
        gradient = flat.reshape(self._stored_shape).transpose(self._order)
        if self._broadcast_shape is not None:
            gradient = np.broadcast_to(gradient.reshape(self._broadcast_shape), self._extents)
        if self._axes is None:
            return np.array(gradient.reshape(self._shape))
        full = np.zeros(self._full_shape, flat.dtype)
        steps = [0] * len(self._shape)
        for axis, step in zip(self._axes, full.strides, strict=True):
            steps[axis] += step
        as_strided(full, self._shape, steps)[...] = gradient.reshape(self._shape)
        return full


def check_wrt(wrt: Sequence[int] | None, variable: Sequence[int]) -> tuple[int, ...]:
    """The numbers of the tensors whose gradients are asked for: each once, and none constant."""
    try:
        numbers = tuple(variable) if wrt is None else tuple(map(index, wrt))
    except TypeError:
        raise InputError("wrt", f"is {wrt!r}", "give a list of numbers of tensors") from None
    for number in numbers:
        if number not in variable:
            problem = f"names tensor {number!r}, which is constant or does not exist"
            raise InputError("wrt", problem, f"choose from {', '.join(map(str, variable))}")
    if not numbers or len(set(numbers)) < len(numbers):
        raise InputError("wrt", "is empty, or names a tensor twice", "name each tensor once")
    return numbers


def check_cotangent(cotangent: NDArray[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The cotangent in the dtype of the contraction; raises InputError where it does not fit the result."""
    if cotangent.shape != shape:
        problem = f"has shape {cotangent.shape}, and the result {shape}"
        raise InputError("cotangent", problem, "give a cotangent of the shape of the result")
    if not np.can_cast(cotangent.dtype, dtype):
        problem = f"has dtype {cotangent.dtype}, and would be rounded to {dtype}"
        raise InputError("cotangent", problem, "convert the cotangent, or compile for a wider dtype")
    return cotangent


class Differentiable(Protocol):
    """A contraction as torch and JAX differentiate it."""

    @property
    def number(self) -> int:
        """Its name in graphs of torch: see `numbered`."""

    @property
    def devices(self) -> int:
        """Those that share the work."""

    @property
    def dtype(self) -> str:
        """That of the result and of the arrays, which may have another that it holds."""

    def result_shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """The shape of the result for arrays of some shapes."""

    def derivatives(self, arrays: Sequence[Any], cotangent: Any, wrt: Sequence[int]) -> tuple[Any, ...]:
        """D_0, and the D_k for the k of `wrt`, which count the arrays from 1; on all ranks of mpirun. A
        cotangent that is None stands for ones, or is not needed."""

    def mapped(self, batched: Sequence[int], length: int) -> Differentiable | None:
        """The contraction of so many values at once: the arrays of `batched`, counted from 1, and the result
        have one axis more, the first. None where values are contracted one after the other."""


# Graphs that torch keeps on disk have the numbers of another process: no two have the same.
_numbers = count(randbits(40) << 20)
_numbered: WeakValueDictionary[int, Differentiable] = WeakValueDictionary()


def new_number(contraction: Differentiable) -> int:
    """A number by which graphs name a contraction."""
    number = next(_numbers)
    _numbered[number] = contraction
    return number


def numbered(number: int) -> Differentiable:
    """The contraction of a number in a graph.

    Raises InputError where nobody holds it any more.
    """
    contraction = _numbered.get(number)
    if contraction is None:
        problem = "in a graph of torch is gone"
        raise InputError("contraction", problem, "keep what tnplan.compile returned, or trace again")
    return contraction


def directional(
    derivatives: Callable[[Sequence[Any], tuple[int, ...]], Mapping[int, Any]], tensors: Sequence[Any],
    directions: Mapping[int, Any], which: Iterable[int],
) -> dict[int, Any]:  # fmt: skip
    """The changes of some derivatives in the direction of some tensors.

    - `derivatives`: Takes X_0, ..., X_n and the numbers of tensors of the network, from 1, and gives D_0 and
      their D_k.
    - `tensors`: X_0, ..., X_n.
    - `directions`: V_m by m.
    - `which`: The k of the D_k that are wanted.
    - returns: By k; without those that do not change.
    """
    changes: dict[int, Any] = {}
    # The gradients of each choice of tensors are planned anew: the same choice serves all m, m included.
    numbers = tuple(which)
    gradients = tuple(k for k in numbers if k > 0)
    # sum_m D_k(X with V_m for X_m), m != k (head of this file): multilinearity makes each
    # directional derivative one more contraction with a tensor replaced.
    for m, direction in directions.items():
        others = [k for k in numbers if k != m]
        if not others:
            continue
        moved = [*tensors]
        moved[m] = direction
        results = derivatives(moved, () if others == [0] else gradients)
        for k in others:
            changes[k] = changes[k] + results[k] if k in changes else results[k]
    return changes
