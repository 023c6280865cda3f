"""The predicted work of networks that are contracted in turn: progress counts it, not networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, log10

import numpy as np

from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.progress import Progress
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.search.search_in_proportion import greedy_or_orders, predicted_s

START_S, TENSOR_S = 0.0012, 1.7e-5
"""Seconds to make and simplify a network, and for each of its tensors, where `slowness` is 1."""
DIRECT_TENSOR_S, DIRECT_RUN_S = 1e-4, 2e-4
"""Seconds of a tensor that is left then for its path and its steps by NumPy alone, which contracts a network
whose operations take a core at most so long for each tensor."""
PLAN_S, PLANNED_TENSOR_S = 0.003, 3.8e-4
"""The same to plan and bind others, the path being known, and for each tensor."""
ROW_S = 1e-6
"""Seconds of a row of a step beside its operations and its elements."""
LOOKS = 5
"""Networks of a question that are looked at; to others figures between these are given."""


def preparing_s(n_tensors: int, n_left: int, run_s: float = inf) -> float:
    """Seconds of a reference core to make, simplify, plan and bind a network; `n_left` tensors are left, and
    `run_s` is what its operations take a core. Infinite: it has a schedule, whatever they take."""
    made_s = START_S + TENSOR_S * n_tensors
    if n_left == 1:
        return made_s
    if run_s <= DIRECT_RUN_S * n_left:
        return made_s + DIRECT_TENSOR_S * n_left
    return made_s + PLAN_S + PLANNED_TENSOR_S * n_left


@dataclass(frozen=True)
class NetworkWork:
    """Predicted seconds of a network on a reference core: to prepare it, and of each of its rows."""

    start_s: float
    row_s: float

    def seconds(self, rows: float) -> float:
        """Those of so many rows."""
        return self.start_s + rows * self.row_s


def predicted_work(
    sizes: Sequence[int], look: Callable[[int], tuple[Network, int]],
    has_schedules: bool = False,
) -> list[NetworkWork]:  # fmt: skip
    """The work of networks by their numbers, of which few are made.

    Networks of about the same size are taken to have about the same work.

    Parameters
    ----------
    sizes : sequence of int
        Something of each network that grows with its work.
    look : callable
        Makes network k, simplified and closed; and says how many tensors there were before.
    has_schedules : bool
        Whether each is planned, whatever its operations take.
    """
    if not len(sizes):
        return []
    order = np.argsort(sizes, kind="stable")
    last, profile = len(order) - 1, load_profile("cpu")
    looked = sorted({round(float(at)) for at in np.linspace(0, last, LOOKS)})
    starts_s, logs = [], []
    for at in looked:
        network, n_tensors = look(int(order[at]))
        path = ContractionPath(network, greedy_or_orders(network, "complex128"), (), "complex128")
        run_s = inf if has_schedules else predicted_s(path, profile)
        starts_s.append(preparing_s(n_tensors, len(network.inputs), run_s))
        # A launch is one of all rows, and not of each.
        row_s = predicted_s(path, profile) + len(path.ssa_path) * (ROW_S - profile.launch_s)
        logs.append(log10(max(row_s, 1e-12)))
    where = np.empty(len(order))
    where[order] = np.arange(len(order))
    rows_s = 10.0 ** np.interp(where, looked, logs)
    return [NetworkWork(*figures) for figures in zip(np.interp(where, looked, starts_s), rows_s, strict=True)]


class WorkOfShots:
    """Says how far the networks of samples are. Each has a row for each different beginning of the shots.

    Parameters
    ----------
    options : ContractionOptions
        With the listener, without which nothing is done.
    work : callable
        Predicts the work of all networks.
    shots : int
        The most rows.
    """

    def __init__(
        self, options: ContractionOptions, work: Callable[[], Sequence[NetworkWork]], shots: int
    ) -> None:
        self._listener, self._shots = options.progress, shots
        self._left = [] if options.progress is None else [*work()]
        self._done_s, self._rows = 0.0, 0

    def say(self, rows: int, done: int, total: int, name: str) -> None:
        """That the next network is done, which had so many rows; `done` and `total` are units of a name."""
        if self._listener is None:
            return
        # The rows of later networks are not known: their number is taken to go on growing as it did.
        growth = rows / self._rows if self._rows else self._shots
        self._rows = rows
        if rows:
            self._done_s += self._left.pop(0).seconds(rows)
        left_s, expected = 0.0, float(rows)
        for work in self._left:
            expected = min(self._shots, expected * growth)
            left_s += work.seconds(expected)
        share = self._done_s / (self._done_s + left_s)
        self._listener(Progress(done, total, f"{name} {done} of {total}", share=share))
