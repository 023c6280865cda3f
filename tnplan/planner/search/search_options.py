"""The options of a search of a contraction path, and the checks that need no search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from math import inf
from pathlib import Path

from tnplan.common.arrays import ITEM_BYTES
from tnplan.common.checks import check_count
from tnplan.common.errors import InputError
from tnplan.common.units import count_text
from tnplan.planner.hardware.cost import FLOPS_PER_PRODUCT
from tnplan.planner.hardware.profile import DEFAULT_PRECISION, Profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.search.annealing import PRICES, Effort
from tnplan.planner.search.ranking import SearchedNetwork, Target

METHODS = ("greedy", "random-greedy", "labels")
PARTITIONER = "kahypar"
"""A further method of cotengra's, which needs a package of its own: the extra [search]."""
JOINT = "joint"
"""The compiled annealing of tree and slices, from the trials of the other methods named, or greedy ones."""
SCHEDULE = "schedule"
"""The predicted time of the schedule that the planner makes of a path; `flops` leads to what it ranks."""
PLANNED = ("flops", "time", "fused", SCHEDULE)
"""Objectives of the joint search that count once what slices share, as the planner does."""
JOINT_OBJECTIVES = (*PLANNED, *PRICES)
FUSED_WEIGHT = 3.5
"""Multiply-adds an element read or written in the objective fused, which suits steps that run in chains."""
TENSORS_AT_ONCE = 3
LARGEST_LIMIT = 2**960
"""The joint search counts sizes in floating point, up to `anneal_state.LARGEST`."""


@dataclass(frozen=True)
class SearchOptions:
    """How a path is to be searched.

    No tensor, after slicing, has more than `max_tensor_elements` elements. With `memory_bytes` instead, three
    such tensors fill that memory, but for `schedule`, whose plans fit it; with neither nothing is sliced.
    `minimize` is `fused` for the method joint and `flops` for the others where it is not given; `time` needs
    a `profile`, `schedule` also the number of `devices`; both are for `precision`, or else for the dtype's
    own. `from_paths` are paths of the same network to start from instead of cotengra's trials, several for
    the method joint alone. The joint search keeps its state in the file `checkpoint` after every round; with
    `resume` it goes on from there, the time used before counted. `shares_slices` says whether what contracts
    the path does once what is the same in several slices.
    """

    max_tensor_elements: int | None = None
    memory_bytes: int | None = None
    effort: Effort = field(default_factory=Effort)
    seed: int = 0
    minimize: str | None = None
    profile: Profile | None = None
    precision: str | None = None
    methods: Sequence[str] = METHODS
    from_paths: Sequence[ContractionPath] = ()
    n_workers: int = 1
    devices: int | None = None
    checkpoint: str | Path | None = None
    resume: bool = False
    shares_slices: bool = True
    goes_on_from: ContractionPath | None = None
    """The path of an interrupted search whose checkpoint is gone: one more to start from."""

    @property
    def starts(self) -> list[ContractionPath]:
        """All paths to start from."""
        return [*self.from_paths, *filter(None, (self.goes_on_from,))]

    @property
    def joint(self) -> bool:
        """Whether the joint search is wanted."""
        return JOINT in self.methods

    @property
    def need_not_wait(self) -> bool:
        """Whether another search may fill the time in which kernels are compiled.

        Time alone ends this one then, nothing is resumed, and multiply-adds compare what both find.
        """
        timed = 0 < self.effort.time_s < inf and self.effort.max_rounds == Effort().max_rounds
        fresh = not self.starts and not self.resume
        return self.joint and timed and fresh and self.objective != SCHEDULE

    @property
    def objective(self) -> str:
        """What is minimized."""
        return self.minimize or ("fused" if self.joint else "flops")

    def limit(self, dtype: str) -> int | None:
        """Elements of the largest tensor of a dtype; None without a limit."""
        if self.memory_bytes is None:
            return self.max_tensor_elements
        return self.memory_bytes // (TENSORS_AT_ONCE * ITEM_BYTES[dtype])

    def check(self, network: Network, dtype: str) -> None:
        """Refuse options that no search of this network can have."""
        # All such options are refused before the first trial, of which one may take
        # minutes.
        if None not in (self.max_tensor_elements, self.memory_bytes):
            raise InputError(
                "--max-tensor",
                "is given together with a memory limit",
                "give either a limit of elements or one of memory",
                topic="memory",
            )
        objectives = JOINT_OBJECTIVES if self.joint else ("flops",)
        if self.objective not in objectives:
            known = f"with{'' if self.joint else 'out'} method {JOINT}"
            raise InputError(
                "--minimize", f"{self.objective!r} is unknown {known}", f"choose from {', '.join(objectives)}"
            )
        self._check_methods()
        if not self.effort.time_s >= 0:
            raise InputError("--time", f"is {self.effort.time_s}", "give 0 or more")
        check_count("--seed", self.seed, 0)
        check_count("--workers", self.n_workers)
        _check_limit(self.limit(dtype), network)
        self._check_result(self.limit(dtype), network)
        if len(self.from_paths) > 1 and not self.joint:
            raise InputError(
                "--from", f"is given {len(self.from_paths)} times", f"give one path, or use --method {JOINT}"
            )
        for other in (path.network for path in self.starts):
            if (other.inputs, other.output) != (network.inputs, network.output):
                raise InputError(
                    "--from", "is a path of another network", "give a path of the network that is searched"
                )
        if self.checkpoint is not None and not self.joint:
            raise InputError(
                "--checkpoint",
                "is for the method joint",
                "leave it out, or use --method joint",
                topic="checkpoints",
            )
        if self.precision is not None and self.objective not in ("time", SCHEDULE):
            raise InputError(
                "--precision", f"{self.precision} does not matter for --minimize {self.objective}",
                "minimize time or schedule, or leave it out",
                topic="precision",
            )  # fmt: skip

    def element_weight(self, dtype: str) -> float:
        """Multiply-adds that take as long as reading or writing one element."""
        if self.objective == "time":
            if self.profile is None:
                raise InputError(
                    "--minimize",
                    "is time, but no machine is named",
                    "name a profile with --hardware",
                    topic="hardware profiles",
                )
            flop_per_s = self.profile.rate(dtype, self.precision or DEFAULT_PRECISION[dtype])
            products_per_s = flop_per_s / FLOPS_PER_PRODUCT[dtype]
            return products_per_s * ITEM_BYTES[dtype] / self.profile.memory_bytes_per_s
        return FUSED_WEIGHT if self.objective == "fused" else 0.0

    def target(self, frame: SearchedNetwork) -> Target | None:
        """The devices for which schedules are planned, where their time is minimized."""
        if self.objective != SCHEDULE:
            return None
        if self.profile is None or self.devices is None:
            raise InputError(
                "--minimize", "is schedule, but no number of devices is given",
                "give --devices and their profile with --hardware",
                topic="hardware profiles",
            )  # fmt: skip
        if self.precision is not None:
            self.profile.rate(frame.dtype, self.precision)
        devices = check_count("--devices", self.devices)
        exceeds, given = self.memory_bytes is not None, bool(self.starts)
        return Target(frame, self.profile, devices, self.precision, exceeds, whole_plans=given)

    def _check_result(self, limit: int | None, network: Network) -> None:
        """Refuse a result over the limit where it is that of the memory, or its indices are not sliced."""
        if limit is None or network.output_size <= limit or (self.joint and self.memory_bytes is None):
            return
        elements = count_text(network.output_size, "element", "elements")
        raise InputError(
            "--max-tensor", f"is {limit}, but the result itself has {elements}",
            f"open fewer indices, or give a limit with {JOINT}, which slices open ones, or allow {elements}",
        )  # fmt: skip

    def _check_methods(self) -> None:
        for method in self.methods:
            if method not in (JOINT, *METHODS, PARTITIONER):
                known = ", ".join((JOINT, *METHODS, PARTITIONER))
                raise InputError("--method", f"{method!r} is unknown", f"choose from {known}")
            if method == PARTITIONER and find_spec(PARTITIONER) is None:
                raise InputError(
                    "--method", f"{method} is not installed",
                    "install the extra: pip install 'tnplan[search]'",
                    topic="installation",
                )  # fmt: skip
        if not self.methods:
            raise InputError("--method", "is empty", f"choose from {', '.join(METHODS)}")


def _check_limit(limit: int | None, network: Network) -> None:
    if limit is None:
        return
    if limit < 1:
        raise InputError("--max-tensor", f"is {limit}", "give one element or more")
    if limit > LARGEST_LIMIT:
        raise InputError(
            "--max-tensor", f"is {count_text(limit, 'element', 'elements')}",
            f"give 2^{LARGEST_LIMIT.bit_length() - 1} or fewer, or no limit",
        )  # fmt: skip
