"""The baseline of speedups: what one device takes, along the paths given and along one searched for it.

A speedup says nothing without a good path for one device. So the projection searches for one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from tnplan.common.checks import is_finite
from tnplan.common.errors import InputError
from tnplan.common.units import figure_text, size_text, time_text
from tnplan.planner.hardware.cost import ITEM_BYTES, memory_limit
from tnplan.planner.hardware.profile import Profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network, structure_key
from tnplan.planner.search.annealing import Effort
from tnplan.planner.search.search_options import JOINT, SCHEDULE, TENSORS_AT_ONCE, SearchOptions

DEFAULT_S = 10.0
"""Seconds of the search by default."""
LEAST_S = 1.0
"""A path that takes less on one device is searched no better in more time."""
SEED = 0
ATTEMPTS, LEAST_SHARE = 4, 0.1
"""Where nothing fits, tensors are allowed a fourth, so often at most, and a search takes this share of the
time at least."""
UNLIMITED_BYTES = 2**512
"""The memory of a device with `--memory unlimited`: more than any tensor takes."""
SAVED = "baseline"
"""What `meta` of a saved path has the conditions of its search under."""
HERE, BEFORE = "searched here", "searched before"
"""The names of a searched path, and of one from a file."""


@dataclass(frozen=True)
class Baseline:
    """What is known of the time on one device.

    `search_s` are the seconds of the search, 0 where none was made. `path` is the position of the searched
    path among those of the projection. `given_s` and `searched_s` are T_1 along the fastest of the paths
    given and along that one; None where there is none that fits.
    """

    search_s: float = 0.0
    path: int | None = None
    given_s: float | None = None
    searched_s: float | None = None

    @property
    def is_searched(self) -> bool:
        """Whether a path for one device was looked for and found: else no speedup is worth a headline."""
        return self.searched_s is not None

    @property
    def ratio(self) -> float | None:
        """The time along the given path in that along the searched one."""
        if self.given_s is None or not self.searched_s:
            return None
        return self.given_s / self.searched_s

    def text(self, base: int, label: str, origin: str) -> str:
        """Where T on `base` devices, along the path `label`, comes from; `origin` is "here" or "before"."""
        taken = f"{origin} in {time_text(self.search_s)}"
        if not self.search_s:
            return (
                f"T_{base} is that of {label}, the fastest of the paths given; none was searched, so S_P, "
                "E_P and R_P only compare the paths given."
            )
        if self.searched_s is None:
            return (
                f"No path that fits 1 device was found {taken}: S_P, E_P and R_P, from T_{base}, only "
                "compare the paths given."
            )
        if self.given_s is None:
            return f"T_1 is that of a path found {taken}; no path given fits 1 device."
        if self.searched_s < self.given_s:
            return (
                f"T_1 is that of a path found {taken}; the fastest path given takes "
                f"{_times_text(self.given_s, self.searched_s)} on 1 device."
            )
        return (
            f"T_1 is that of the fastest of the paths given; a path found {taken} takes "
            f"{_times_text(self.searched_s, self.given_s)}."
        )


def _times_text(time_s: float, other_s: float) -> str:
    """How much longer a time is than another one."""
    ratio = figure_text(time_s / other_s) if other_s else "1.00"
    return "as long" if ratio == "1.00" else f"{ratio} times as long"


@dataclass(frozen=True)
class BaselineSearch:
    """A search of `time_s` seconds for a path for one device, or what an earlier one `saved`."""

    time_s: float = DEFAULT_S
    saved: ContractionPath | None = None

    @property
    def label(self) -> str:
        """What the path is called in tables."""
        return HERE if self.saved is None else BEFORE

    def find(
        self, paths: Sequence[ContractionPath], profile: Profile, memory_bytes: float | None,
        precision: str | None, given_s: float,
    ) -> ContractionPath | None:  # fmt: skip
        """The path, with the seconds of its search in `meta`; None where nothing fits one device.

        `given_s` is the time along the best of `paths`: a search takes no longer than that. What is found in
        half of the time begins the other half, together with the paths given. The seed is fixed, but the
        time ends the search: another one may find another path. Raises InputError where the saved path is
        not of this network, machine, memory and precision.
        """
        network, dtype = paths[0].network, paths[0].dtype
        limit_bytes = memory_limit(profile, memory_bytes)
        conditions = {
            "hardware": profile.name, "memory": size_text(limit_bytes), "dtype": dtype,
            "precision": precision,
        }  # fmt: skip
        if self.saved is not None:
            _check_saved(self.saved, network_of=paths[0], conditions=conditions)
            return self.saved
        room_bytes = UNLIMITED_BYTES if limit_bytes == inf else int(limit_bytes)
        machine = replace(profile, memory_bytes=room_bytes + profile.reserved_bytes)
        _compile_kernels()
        began = time.monotonic()
        # A search for as long as the contraction takes would not be worth it.
        ends = began + min(self.time_s, max(given_s, LEAST_S))
        options = SearchOptions(
            max_tensor_elements=max(room_bytes // (TENSORS_AT_ONCE * ITEM_BYTES[dtype]), 1), seed=SEED,
            minimize=SCHEDULE, profile=machine, precision=precision, methods=(JOINT,), devices=1,
        )  # fmt: skip

        def searched(until: float) -> ContractionPath | None:
            time_s = max(until - time.monotonic(), LEAST_SHARE * (ends - began))
            return _searched(replace(options, effort=Effort(time_s=time_s)), network, dtype)

        # Half of the time from scratch, so that the baseline is no variation of a path for many devices; the
        # other half goes on from that and from the paths given.
        fresh = searched((began + ends) / 2)
        for _ in range(ATTEMPTS):
            elements = options.max_tensor_elements or 1
            if fresh is not None or elements < 4:
                break
            # Nothing fits: steps of these tensors need more than the memory. A tighter limit on a tensor
            # leaves memory for them.
            options = replace(options, max_tensor_elements=elements // 4)
            fresh = searched((began + ends) / 2)
        starts = [path for path in paths if path.network == network]
        options = replace(options, from_paths=starts if fresh is None else [fresh, *starts])
        candidates = [path for path in (fresh, searched(ends)) if path is not None]
        if not candidates:
            return None
        path = min(candidates, key=lambda candidate: float(candidate.meta["predicted_s"]))
        search = {"search_s": max(round(time.monotonic() - began, 3), 0.001), **conditions}
        return replace(path, name=paths[0].name, meta={**path.meta, SAVED: search})


def search_seconds(path: ContractionPath) -> float:
    """The seconds in which a path was searched as a baseline."""
    return float(path.meta[SAVED]["search_s"])


def _searched(options: SearchOptions, network: Network, dtype: str) -> ContractionPath | None:
    """What a search finds, if it fits."""
    from tnplan.planner.search.cotengra_search import search_path

    try:
        return search_path(network, dtype, options)
    except InputError:  # too large for one device: steps of these tensors, or open indices
        return None


def _compile_kernels() -> None:
    """Have the kernels of the search compiled, so that this takes nothing of its time."""
    from tnplan.common.kernels.ahead import compile_soon, still_compiling
    from tnplan.planner.search.orders.uncompiled import KERNELS, are_compiled

    if not are_compiled():
        compile_soon(KERNELS)
        while still_compiling(KERNELS):
            time.sleep(0.05)


def _check_saved(saved: ContractionPath, *, network_of: ContractionPath, conditions: dict[str, Any]) -> None:
    known = saved.meta.get(SAVED)
    search_s: Any = known.get("search_s") if isinstance(known, dict) else None
    if not isinstance(known, dict) or not is_finite(search_s) or not search_s > 0:
        raise InputError(
            "--baseline", "is not the path of an earlier report",
            "give it as one of the paths, and here the name of a new file",
        )  # fmt: skip
    if structure_key(saved.network) != structure_key(network_of.network):
        raise InputError("--baseline", "is a path of another network", "give another name")
    for name, value in conditions.items():
        if known.get(name) != value:
            raise InputError(
                "--baseline", f"was searched for {name} {known.get(name)}, not {value}", "give another name"
            )
