"""A contraction path under a memory limit: checks, workers and the choice of a search. Knows no layouts.

The joint search is compiled; the other is cotengra's hyper-optimizer, whose trials are scored after slicing,
and rounds of its annealing. Slicing is part of both.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from math import log2
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.planner.common.checks import check_count
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.units import count_text
from tnplan.planner.hardware.cost import FLOPS_PER_PRODUCT, ITEM_BYTES
from tnplan.planner.hardware.profile import DEFAULT_PRECISION, Profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.search.annealing import Effort, Found, Task, search_tree
from tnplan.planner.search.checkpoint import SearchCheckpoint, described
from tnplan.planner.search.driver import search_joint
from tnplan.planner.search.path_cost import log10_mnk_planned, path_cost
from tnplan.planner.search.ranking import SearchedNetwork, Target

__all__ = ["JOINT_OBJECTIVES", "METHODS", "OBJECTIVES", "Effort", "search_path"]

METHODS = ("greedy", "random-greedy", "labels")
PARTITIONER = "kahypar"
"""A further method of cotengra's, which needs a package of its own: the extra [search]."""
JOINT = "joint"
"""The compiled annealing of tree and slices, from the trials of the other methods named, or greedy ones."""
OBJECTIVES = ("flops", "write", "size", "combo")
SCHEDULE = "schedule"
"""The predicted time of the schedule that the planner makes of a path; `fused` leads to what it ranks."""
JOINT_OBJECTIVES = ("flops", "time", "fused", SCHEDULE)
FUSED_WEIGHT = 3.5
"""Multiply-adds an element read or written in the objective fused, which suits steps that run in chains."""
TENSORS_AT_ONCE = 3
LARGEST_LIMIT = 2**960
"""The joint search counts sizes in floating point, up to `anneal_state.LARGEST`."""

Report = Callable[[float, ContractionPath], None]


def search_path(
    network: Network,
    dtype: str,
    *,
    max_tensor_elements: int | None = None,
    memory_bytes: int | None = None,
    effort: Effort | None = None,
    seed: int = 0,
    minimize: str | None = None,
    profile: Profile | None = None,
    precision: str | None = None,
    methods: Sequence[str] = METHODS,
    from_paths: Sequence[ContractionPath] = (),
    n_workers: int = 1,
    devices: int | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    report: Report | None = None,
) -> ContractionPath:
    """Search a path none of whose tensors, after slicing, has more than `max_tensor_elements` elements.

    With `memory_bytes` instead, three such tensors of `dtype` fill that memory; with neither nothing is
    sliced. `minimize` is `fused` for the method joint and `flops` for the others where it is not given;
    `time` needs a `profile`, `schedule` also the number of `devices`, whose memory then limits what is held
    at the waist too (`Target.waist_limit`); both are for `precision`, or else for the dtype's own.
    `from_paths` are paths of the same network to start from instead of cotengra's trials, several for the
    method joint alone. The time may be
    exceeded by one of those trials, or by planning a schedule; a round of annealing is given up when it is
    up. Where trials and rounds, not the time, end the search, the same seed and one worker find
    the same path. Workers of the joint search share their trees; of cotengra's, each searches on its own
    from its own seed. The joint search keeps its state in the file `checkpoint` after every round; with
    `resume` it goes on from there, the time used before counted. The file is left there. `report` is called
    with the seconds so far and each better path (of the first worker).
    """
    effort = effort or Effort()
    limit = _limit(max_tensor_elements, memory_bytes, dtype)
    joint = JOINT in methods
    if minimize is None:
        minimize = "fused" if joint else "flops"
    _check(network, limit, effort, seed, minimize, methods, from_paths, n_workers)
    if checkpoint is not None and not joint:
        raise InputError("--checkpoint", "is for the method joint", "leave it out, or use --method joint")
    if precision is not None and minimize not in ("time", SCHEDULE):
        raise InputError(
            "--precision", f"{precision} has no part in --minimize {minimize}",
            "minimize time or schedule, or leave it out",
        )  # fmt: skip
    started = time.monotonic()
    weight = _element_weight(minimize, profile, dtype, precision)
    forced = _forced_slices(network, limit)
    trials = tuple(method for method in methods if method != JOINT) or METHODS[:1]
    asked = Task((), (), {}, limit, minimize, trials, seed, effort, (), weight)
    task, names = _with_network(asked, network, forced, from_paths)
    frame = SearchedNetwork(network, dtype, names, frozenset(forced))

    def tell(found: Found) -> None:
        if report is not None:
            report(time.monotonic() - started, frame.path(found))

    if joint:
        target = _target(minimize, frame, profile, devices, precision)
        if target is not None:
            task = replace(task, waist_limit=target.waist_limit(limit))
        kept = None
        if checkpoint is not None:
            kept = SearchCheckpoint(Path(checkpoint), described(task, target))
            kept.check(resume)
        found = search_joint(task, n_workers=n_workers, target=target, checkpoint=kept, tell=tell)
    else:
        tasks = [replace(task, seed=seed + i) for i in range(1, n_workers)]
        with ProcessPoolExecutor(n_workers, mp_context=get_context("spawn")) as pool:
            others = [pool.submit(search_tree, other) for other in tasks]
            results = [search_tree(task, tell), *(other.result() for other in others)]
        found = min(results, key=lambda one: one.score)
    path = frame.path(found)
    figures = _meta(path, limit, task, joint, n_workers, time.monotonic() - started)
    stated = {} if precision is None else {"precision": precision}
    return replace(path, meta={**figures, **stated, **path.meta})


def _target(
    minimize: str, frame: SearchedNetwork, profile: Profile | None, devices: int | None, precision: str | None
) -> Target | None:
    if minimize != SCHEDULE:
        return None
    if profile is None or devices is None:
        raise InputError(
            "--minimize", "is schedule, without devices", "give --devices and their profile with --hardware"
        )
    if precision is not None:
        profile.rate(frame.dtype, precision)
    return Target(frame, profile, check_count("--devices", devices), precision)


def _limit(max_tensor_elements: int | None, memory_bytes: int | None, dtype: str) -> int | None:
    if max_tensor_elements is not None and memory_bytes is not None:
        raise InputError("--max-tensor", "stands beside a memory limit", "give one of the two")
    if memory_bytes is not None:
        return memory_bytes // (TENSORS_AT_ONCE * np.dtype(dtype).itemsize)
    return max_tensor_elements


def _check(
    network: Network,
    limit: int | None,
    effort: Effort,
    seed: int,
    minimize: str,
    methods: Sequence[str],
    from_paths: Sequence[ContractionPath],
    n_workers: int,
) -> None:
    objectives = JOINT_OBJECTIVES if JOINT in methods else OBJECTIVES
    if minimize not in objectives:
        known = f"with method {JOINT}" if JOINT in methods else f"without method {JOINT}"
        raise InputError(
            "--minimize", f"{minimize!r} is unknown {known}", f"use one of {', '.join(objectives)}"
        )
    for method in methods:
        if method not in (JOINT, *METHODS, PARTITIONER):
            known = ", ".join((JOINT, *METHODS, PARTITIONER))
            raise InputError("--method", f"{method!r} is unknown", f"use some of {known}")
        if method == PARTITIONER and find_spec(PARTITIONER) is None:
            raise InputError(
                "--method", f"{method} is not installed", "install the extra: pip install 'tnplan[search]'"
            )
    if not methods:
        raise InputError("--method", "is empty", f"use some of {', '.join(METHODS)}")
    for place, value, least in (
        ("--time", effort.time_s, 0),
        ("--seed", seed, 0),
        ("--workers", n_workers, 1),
    ):
        if not value >= least:
            raise InputError(place, f"is {value}", f"give {least} or more")
    if limit is not None and limit < 1:
        raise InputError("--max-tensor", f"is {limit}", "give one element or more")
    if limit is not None and limit > LARGEST_LIMIT:
        raise InputError(
            "--max-tensor", f"is {count_text(limit, 'element', 'elements')}",
            f"give 2^{LARGEST_LIMIT.bit_length() - 1} or fewer, or no limit",
        )  # fmt: skip
    if limit is not None and network.output_size > limit:
        raise InputError(
            "--max-tensor",
            f"is {limit}, but the result alone has {count_text(network.output_size, 'element', 'elements')}",
            "allow larger tensors or open fewer indices; open indices cannot be sliced",
        )
    if len(from_paths) > 1 and JOINT not in methods:
        raise InputError("--from", f"is given {len(from_paths)} times", f"give one path, or use {JOINT}")
    for other in (path.network for path in from_paths):
        if (other.inputs, other.output) != (network.inputs, network.output):
            raise InputError(
                "--from", "is a path of another network", "give a path of the network that is searched"
            )


def _element_weight(minimize: str, profile: Profile | None, dtype: str, precision: str | None) -> float:
    """Multiply-adds that take as long as reading or writing one element."""
    if minimize == "time":
        if profile is None:
            raise InputError("--minimize", "is time, without a machine", "name a profile with --hardware")
        products_per_s = profile.rate(dtype, precision or DEFAULT_PRECISION[dtype]) / FLOPS_PER_PRODUCT[dtype]
        return products_per_s * ITEM_BYTES[dtype] / profile.memory_bytes_per_s
    return FUSED_WEIGHT if minimize in ("fused", SCHEDULE) else 0.0


def _forced_slices(network: Network, limit: int | None) -> set[str]:
    """Indices to slice because an input alone is over the limit: the largest ones of that input."""
    forced: set[str] = set()
    for term in network.inputs if limit is not None else ():
        closed = sorted(set(term) - set(network.output) - forced, key=lambda i: (network.size_dict[i], i))
        size = int(np.prod([network.size_dict[i] for i in set(term) - forced], dtype=object))
        while limit is not None and size > limit:
            index = closed.pop()
            size //= network.size_dict[index]
            forced.add(index)
    return forced


def _with_network(
    asked: Task, network: Network, forced: set[str], from_paths: Sequence[ContractionPath]
) -> tuple[Task, dict[str, str]]:
    """What is asked, of this network in cotengra's terms, and the index name of each symbol.

    Repeats on one tensor, and indices that one tensor alone has and that are summed, change no path and are
    dropped; forced slices have extent 1.
    """
    from cotengra import get_symbol

    count = Counter(index for term in network.inputs for index in set(term))
    count.update(network.output)
    symbols: dict[str, str] = {}
    for term in network.inputs:
        for index in term:
            if count[index] > 1:
                symbols.setdefault(index, get_symbol(len(symbols)))
    inputs = tuple(
        tuple(symbols[index] for index in dict.fromkeys(term) if index in symbols) for term in network.inputs
    )
    sizes = {symbol: 1 if index in forced else network.size_dict[index] for index, symbol in symbols.items()}
    starts = tuple(
        (_pairs(path), tuple(symbols[i] for i in path.sliced_inds if i in symbols and i not in forced))
        for path in from_paths
    )
    output = tuple(symbols[index] for index in network.output)
    task = replace(asked, inputs=inputs, output=output, sizes=sizes, starts=starts)
    return task, {symbol: index for index, symbol in symbols.items()}


def _pairs(path: ContractionPath) -> tuple[tuple[int, ...], ...]:
    """The path with steps of two tensors only: single ones left out, larger ones split from left to right."""
    names = list(range(len(path.network.inputs)))
    pairs: list[tuple[int, ...]] = []
    for step in path.ssa_path:
        result = names[step[0]]
        for other in step[1:]:
            pairs.append((result, names[other]))
            result = len(path.network.inputs) + len(pairs) - 1
        names.append(result)
    return tuple(pairs)


def _meta(
    path: ContractionPath, limit: int | None, task: Task, joint: bool, n_workers: int, time_s: float
) -> dict[str, Any]:
    from cotengra import __version__

    given = f"{len(task.starts)} given paths" if len(task.starts) > 1 else "given path"
    first = given if task.starts else ", ".join(task.methods)
    return {
        "search": f"cotengra {__version__}: {first}; {'joint ' if joint else ''}annealing",
        "objective": task.minimize,
        "log2_limit": None if limit is None else round(log2(limit), 4),
        **path_cost(path).document(),
        "log10_mnk_planned": round(log10_mnk_planned(path), 4),
        "seed": task.seed,
        "workers": n_workers,
        "time_s": round(time_s, 1),
    }
