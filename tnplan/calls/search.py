"""`search`: a network in, a contraction path under the memory of some devices out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, log2
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from tnplan.common.checks import check_count, is_number
from tnplan.common.errors import InputError
from tnplan.common.files import check_json_name, check_writable
from tnplan.executor.device.protocols.stop_signal import interrupting
from tnplan.jobs.arrays.arrays import stated_dtype
from tnplan.jobs.progress import Listener, Progress, as_listener
from tnplan.planner.hardware.profile import Profile, known_profile, load_profile
from tnplan.planner.networks.contraction_path import ContractionPath, dtype_name
from tnplan.planner.networks.importers import read_any, read_network
from tnplan.planner.networks.importers.libraries import from_quimb, is_quimb_network
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import save_path
from tnplan.planner.networks.tensors import TensorNetwork, save_tensors, tensors_beside
from tnplan.planner.search.annealing import Effort
from tnplan.planner.search.changed_network import path_of_changed
from tnplan.planner.search.cotengra_search import Report, SearchInterrupted, search_path
from tnplan.planner.search.path_cost import log10_mnk_planned, path_cost
from tnplan.planner.search.search_in_proportion import worthwhile_s
from tnplan.planner.search.search_options import JOINT, SCHEDULE, SearchOptions

TOPIC = "searches"

LONGEST_S = 1e9
"""The longest search that may be asked for."""
Source = TensorNetwork | Network | ContractionPath | str | Path
"""What `search` takes, besides a network of quimb."""


def search(
    network: Source | Any,
    *,
    devices: int | None = None,
    hardware: Profile | str | Path | None = None,
    max_tensor: int | None = None,
    unlimited: bool = False,
    start: Sequence[ContractionPath | str | Path] = (),
    time: float | str = "auto",
    dtype: str | None = None,
    seed: int = 0,
    minimize: str | None = None,
    precision: str | None = None,
    methods: str | Sequence[str] = (),
    workers: int = 1,
    output: str | Path | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    rounds: int | None = None,
    progress: Listener | bool | None = None,
) -> ContractionPath:
    """Find a contraction path under a memory limit.

    The limit is `max_tensor`, or none with `unlimited`, or else what leaves room for three of the largest
    tensors in the memory of `devices` devices of `hardware`. Tree and slices are searched for together.

    Parameters
    ----------
    network : TensorNetwork, Network, ContractionPath, quimb network or path
        A network; of a path its network is taken. Or a network file, cotengra's network JSON, or any path.
    devices : int, optional
        Devices whose memory a tensor may fill, and for which the schedule is predicted.
    hardware : Profile or path, optional
        A shipped profile by name, a TOML file, or a profile: the memory of a device.
    max_tensor : int, optional
        Elements of the largest tensor. Where the result has more, its open indices are sliced too.
    unlimited : bool
        No limit: nothing is sliced.
    start : sequence of ContractionPath or path
        Paths to start from, perhaps for other limits; several only for the method "joint", which takes the
        four cheapest. Their networks may differ in extents and some tensors, which are matched by their
        indices.
    time : float or "auto"
        Seconds of the whole search, those before `resume` counted. "auto": a share of the time that the
        contraction is predicted to take, from a fraction of a second to a minute.
    dtype : {"float32", "float64", "complex64", "complex128"}, optional
        Default: the network's, complex64 where it has none.
    seed : int
        Seed of all random numbers.
    minimize : {"flops", "write", "size", "combo", "peak", "time", "fused", "schedule"}, optional
        Default: "schedule" with the method "joint" and `devices`, "fused" with "joint", else "flops". "time"
        needs `hardware`, "schedule" `devices` too. All but "flops" are only for "joint".
    precision : str, optional
        The precision whose time is minimized, such as "fp32" or "fp16x3". Default: by the dtype.
    methods : sequence of {"joint", "greedy", "random-greedy", "labels", "kahypar"}, or one of these
        Default: "joint". Others are cotengra's; beside "joint" they give its first tree. "kahypar" needs the
        extra [search].
    workers : int
        Processes that search at once.
    output : path, optional
        A path.json to write.
    checkpoint : path, optional
        Where "joint" keeps its state. Default: OUTPUT.ckpt where there is an `output`. It is deleted when the
        path is written.
    resume : bool
        Continue an interrupted search from its checkpoint; without one, start from the path in `output` too,
        if there is one.
    rounds : int, optional
        Rounds of annealing in place of `time`. The path then depends only on the seed, and not on the clock
        or on `workers`. About 0.4 s of a core each, more for large networks; only "joint".
    progress : bool or callable, optional
        True: a bar (`ProgressBar`). Or a function that is called with a `Progress` when the search begins,
        without a `detail`, and for each better path: seconds so far, of those given, and the path as its
        `detail`. What a large network has before "auto" is known comes with 0 seconds in all.

    Returns
    -------
    ContractionPath
        The best path found; `meta` has its costs.

    Raises
    ------
    InputError
        For what cannot be used, or a network that cannot be contracted under the limit.
    KeyboardInterrupt
        For Ctrl-C and SIGTERM. Its `path` is the best one so far, if there was one. That is written to
        `output`, unless a cheaper one is there.

    Examples
    --------
    >>> matrices = tnplan.Network((("a", "b"), ("b", "c")), ("a", "c"), {"a": 4, "b": 8, "c": 2})
    >>> tnplan.search(matrices, unlimited=True, methods=["greedy"], time=0).ssa_path
    ((0, 1),)
    """
    # docs/explanation/architecture.md#from-path-to-schedule
    began = monotonic()
    structure, values = _read(network)
    dtype = None if dtype is None else dtype_name(dtype, "dtype")
    start = (start,) if isinstance(start, ContractionPath | str | Path) else start
    target = None if output is None else Path(output)
    profile = None if hardware is None else known_profile(hardware)
    _check_limit(devices, profile, max_tensor, unlimited, minimize)
    memory_bytes = None
    if devices is not None and profile is not None and max_tensor is None and not unlimited:
        # A tensor may be distributed over all devices, so that their memory counts together.
        memory_bytes = devices * (profile.memory_bytes - profile.reserved_bytes)
    inputs = (network, *start, hardware)
    if target is not None:
        check_writable(target, values, *inputs)
        check_json_name(target)
        if structure.tensors:
            values = tensors_beside(target)
            check_writable(values)
    known: ContractionPath | None = None
    named = _named(methods) or [JOINT]
    if JOINT in named:
        if checkpoint is None and target is not None:
            checkpoint = target.with_name(f"{target.name}.ckpt")
        if checkpoint is not None:
            check_writable(checkpoint, target, *inputs)
        elif resume:
            raise InputError(
                "--resume",
                "has no checkpoint",
                "name the checkpoint, or the output of the interrupted search",
                topic="checkpoints",
            )
        if minimize is None and devices is not None:
            # With a number of devices the planner's predicted time is minimized, not the count of operations.
            minimize = "schedule"
        if resume and target is not None and not Path(checkpoint or "").exists() and target.exists():
            known = _as_start(target, structure.network)
    elif resume:
        raise InputError("--resume", "is only for --method joint", "leave it out", topic="checkpoints")
    options = SearchOptions(
        max_tensor_elements=max_tensor, memory_bytes=memory_bytes, seed=seed, minimize=minimize,
        profile=profile, precision=precision, methods=named,
        from_paths=[_as_start(item, structure.network) for item in start], goes_on_from=known,
        n_workers=workers, devices=devices, checkpoint=checkpoint, resume=resume,
    )  # fmt: skip
    # All refusals come before the search begins, which may take hours.
    options.check(structure.network, dtype or structure.dtype)
    _check_time(time, rounds, named)
    listener = as_listener(progress)
    if listener is not None:
        listener(Progress(0, 0, "first trees"))
    early = _reporter(listener, 0.0) if listener is not None and unlimited else None
    effort = Effort(time_s=inf, max_rounds=rounds or 0)
    if rounds is None:
        effort = Effort(time_s=_seconds(time, structure, dtype, profile, devices, early))
        began = monotonic() if time == "auto" else began
    options = replace(options, effort=effort)
    report = None if listener is None else _reporter(listener, 0.0 if rounds else effort.time_s)

    output_of = _Output(structure, values, target, options)
    return output_of.of(
        lambda: search_path(structure.network, dtype or structure.dtype, options, report, began)
    )


@dataclass(frozen=True)
class _Output:
    """Where the path of a search goes, with the values of its network."""

    structure: TensorNetwork
    values: str | Path | None
    target: Path | None
    options: SearchOptions

    def of(self, search: Callable[[], ContractionPath]) -> ContractionPath:
        """The path that a search gives, written; also the best one of a search that is interrupted."""
        path: ContractionPath | None = None
        with interrupting():
            try:
                path = self._named(search())
                there = self._cheaper(path) if self.options.resume else None
                self._write(path if there is None else there)
            except KeyboardInterrupt as error:
                if isinstance(error, SearchInterrupted):
                    path = self._named(error.path)
                if path is None:
                    raise
                if self._cheaper(path) is None:
                    self._write(path)
                raise SearchInterrupted(path, *error.args) from None
        if self.target is not None and self.options.checkpoint is not None:
            # Invariant: the checkpoint goes after the path is on disk.
            Path(self.options.checkpoint).unlink(missing_ok=True)
        return path if there is None else there

    def _cheaper(self, path: ContractionPath) -> ContractionPath | None:
        """The path of the same network that the file has, if it is within the limit and costs no more."""
        try:
            there = None if self.target is None else read_any(self.target)[0]
        except InputError:
            return None
        if there is None or there.network != path.network:
            return None
        known, new = there.meta.get("predicted_s"), path.meta.get("predicted_s")
        if isinstance(known, float) and isinstance(new, float):
            is_cheaper = known <= new
        elif self.options.resume and self.options.objective != "flops":
            return None  # the search began with that path, or with its own, and has another measure
        else:
            is_cheaper = log10_mnk_planned(there) <= log10_mnk_planned(path)
        limit = self.options.limit(path.dtype)
        may_exceed = self.options.objective == SCHEDULE and self.options.memory_bytes is not None
        fits = limit is None or may_exceed or path_cost(there).log2_largest <= log2(limit) + 1e-9
        return self._named(there) if is_cheaper and fits else None

    def _named(self, path: ContractionPath) -> ContractionPath:
        tensors = None if self.values is None else os.path.abspath(self.values)
        return replace(path, name=self.structure.name, tensors=tensors)

    def _write(self, path: ContractionPath) -> None:
        if self.target is None:
            return
        if self.structure.tensors and self.values is not None:
            save_tensors(self.structure.tensors, self.values)
        values = None if self.values is None else os.path.relpath(self.values, self.target.parent)
        save_path(replace(path, tensors=values), self.target)


def _check_time(time: float | str, rounds: int | None, methods: Sequence[str]) -> None:
    if rounds is not None:
        check_count("--rounds", rounds)
        if time != "auto":
            raise InputError("--rounds", "is given together with --time", "give either --rounds or --time")
        if JOINT not in methods:
            raise InputError("--rounds", f"is for the method {JOINT}", "leave it out, or give --time")
    if time != "auto" and (isinstance(time, str) or not is_number(time) or not 0 <= time <= LONGEST_S):
        raise InputError("--time", f"is {time!r}", 'give seconds, or "auto"')


def _seconds(
    time: float | str, tensors: TensorNetwork, dtype: str | None, profile: Profile | None,
    devices: int | None, report: Report | None,
) -> float:  # fmt: skip
    """The seconds of a search that were stated, or those that it is worth."""
    if not isinstance(time, str):
        return time
    machine = load_profile("cpu") if profile is None else profile
    return worthwhile_s(tensors.network, dtype or tensors.dtype, machine, devices or 1, report)


def _read(source: Source | Any) -> tuple[TensorNetwork, str | Path | None]:
    """The network with the values that are here, and the file of those that are not."""
    if isinstance(source, TensorNetwork):
        return source, None
    if isinstance(source, ContractionPath):
        return TensorNetwork(source.network, [], source.dtype, source.name), source.tensors
    if isinstance(source, Network):
        return TensorNetwork(source, []), None
    if is_quimb_network(source):
        structure, arrays = from_quimb(source)
        # Values of a network in hand are the caller's: the path names no file of them.
        return TensorNetwork(structure, [], np.result_type(np.float32, *map(stated_dtype, arrays)).name), None
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            "network", f"is of type {type(source).__name__}", "give a network, a path, or a file of one"
        )
    file = Path(source)
    structure, dtype, tensors_file, values = read_network(file)
    return TensorNetwork(structure, values or [], dtype, file.name.removesuffix(".json")), tensors_file


def _as_start(item: ContractionPath | str | Path, network: Network) -> ContractionPath:
    path = item if isinstance(item, ContractionPath) else read_any(item)[0]
    return path_of_changed(path, network)


def _named(methods: Any) -> list[str]:
    """The methods of a list, or the one that a text names."""
    if not isinstance(methods, Iterable):
        raise InputError("--method", f"is {methods!r}", "give a list of methods")
    return [methods] if isinstance(methods, str) else list(methods)


def _check_limit(
    devices: int | None,
    profile: Profile | None,
    max_tensor: int | None,
    unlimited: bool,
    minimize: str | None,
) -> None:
    timed = minimize == "time" and profile is not None
    if (devices is None) != (profile is None) and not timed:
        raise InputError(
            "limit",
            "--devices and --hardware belong together",
            "give both options",
            topic="hardware profiles",
        )
    limits = (max_tensor is not None) + unlimited
    if limits > 1 or (not limits and devices is None):
        raise InputError(
            "limit", "is given twice" if limits else "is not given",
            "give one limit: --devices with --hardware, --max-tensor, or --unlimited",
            topic="hardware profiles",
        )  # fmt: skip


def _reporter(progress: Listener, time_s: float) -> Callable[[float, ContractionPath], None]:
    def report(elapsed_s: float, path: ContractionPath) -> None:
        progress(Progress(round(elapsed_s), round(time_s), f"after {elapsed_s:.0f} s", path))

    return report
