"""What a contraction in hand is planned for and where it runs: the options of `contract` and `compile`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tnplan.common.checks import check_count, check_kind, is_number
from tnplan.common.errors import InputError
from tnplan.common.units import size_in_bytes
from tnplan.executor.device.expected_gpu import check_device
from tnplan.jobs.progress import Listener

if TYPE_CHECKING:
    from tnplan.executor.device.cpu.algebra import Algebra
    from tnplan.planner.hardware.profile import Profile
    from tnplan.planner.search.search_in_proportion import SearchLimit


@dataclass(frozen=True)
class ContractionOptions:
    """How a contraction is planned and where it runs, as in `contract`; `gpu` is that of the arrays.

    Of `calls` calls, each has new values of the tensors `changing`; of all where that is None. A path is
    searched for `search_s` seconds, or for as long as it can gain, up to `search_limit`; its random choices
    follow from `seed`.
    With `waits_for_kernels` the kernels of chains are compiled first, whatever the first call gains by that.
    Over an `algebra` other than plus and times it runs without chains, over one of a user's on the CPU.
    """

    optimize: Any = "auto"
    hardware: Profile | str | Path | None = None
    memory: float | None = None
    precision: str | None = None
    device: str = "auto"
    devices: int = 1
    threads: int | None = None
    gpu: int | None = None
    strip_exponent: bool = False
    calls: int = 1
    changing: tuple[int, ...] | None = None
    search_s: float | None = None
    seed: int = 0
    waits_for_kernels: bool = False
    progress: Listener | None = field(default=None, compare=False)
    search_limit: SearchLimit | None = field(default=None, compare=False)
    algebra: Algebra | None = None

    def __post_init__(self) -> None:
        if self.optimize is True or self.optimize is None:  # what NumPy and opt_einsum have for it
            object.__setattr__(self, "optimize", "auto")
        check_device(self.device)
        check_count("devices", self.devices)
        check_count("calls", self.calls)
        check_count("seed", self.seed, 0)
        check_kind("precision", self.precision, str)
        check_kind("strip_exponent", self.strip_exponent, bool)
        if not isinstance(self.hardware, Hashable):
            raise InputError("hardware", f"is {self.hardware!r}", "give a profile, its name or its file")
        if self.search_s is not None and not self.search_s >= 0:
            raise InputError("search time", f"is {self.search_s} seconds", "give 0 or more")
        if self.memory is not None and not (is_number(self.memory) and self.memory > 0):
            raise InputError(
                "memory", f"is {self.memory!r}", "give a positive number of bytes", topic="memory",
            )
        if self.threads is not None:
            check_count("threads", self.threads)
        if self.strip_exponent and self.devices > 1:
            raise InputError("strip_exponent", "is for one device", "leave out one of the two")
        if self.algebra is not None and self.device == "gpu":
            self.algebra.check_gpu()
        if self.algebra is not None and self.strip_exponent:
            problem = f"is for numbers, and the algebra is {self.algebra.name}"
            raise InputError("strip_exponent", problem, "leave out one of the two")

    def changed(self, **values: Any) -> ContractionOptions:
        """These options with other values of some, which are checked already."""
        options = copy(self)
        vars(options).update(values)
        return options


@dataclass(frozen=True)
class CallOptions:
    """What the calls of a compiled contraction are like, as in `compile`."""

    dtype: str | None
    constants: Mapping[int, Any]
    batch: int | None
    batched: Sequence[int] | None
    keep: bool
    calls: int | None


def in_bytes(memory: float | str | None) -> float | None:
    """A limit of memory as a user gives it, in bytes: None where there is none."""
    limit = None if memory is None else size_in_bytes(memory, "memory")
    return None if is_number(limit) and limit == inf else limit
