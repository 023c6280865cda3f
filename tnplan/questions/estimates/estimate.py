"""What every method needs for a question on each number of devices, and the best one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from tnplan.common.checks import check_count
from tnplan.common.errors import InputError
from tnplan.common.shown_text import html_table, text_table
from tnplan.common.units import count_text, size_text, time_text
from tnplan.executor.device.cpu.host_memory import cores
from tnplan.planner.hardware.profile import Profile
from tnplan.questions.engines.task_list import EXACT, STATISTICAL, TRUNCATION
from tnplan.questions.estimates.contraction_cost import contraction_cost
from tnplan.questions.estimates.cost import Cost, is_gpu, room_bytes
from tnplan.questions.estimates.pauli_pilot import pauli_cost
from tnplan.questions.estimates.state_cost import least_devices, state_cost
from tnplan.questions.methods import ANSWERS, SMALL, check_answerable, check_method, is_small, why_not
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import AskedCircuit, Sample

FORMAT = "tnplan.estimate"
VERSION = 1
ENOUGH_S = 0.15
"""Predicted seconds of a method up to which `auto` looks at no further one: that takes as long."""
SURE_FACTOR = 100.0
"""A time that may be off by more is no reason to take a method."""


@dataclass(frozen=True)
class MethodEstimate:
    """A method on a number of devices: what it needs, or why it is not possible.

    Parameters
    ----------
    method : {"contraction", "statevector", "pauli"}
        The engine.
    devices : int
        The number of devices that are there.
    cost : Cost or None
        Bytes a device and seconds; None where the method is not possible.
    error_kind : {"exact", "statistical", "truncation"}
        What the error of the value would come from.
    reason : str
        Why it is not possible.
    needs_devices : int or None
        The least number of devices that it fits on, where that is known; of contraction the least of those
        that the estimate is for.

    Examples
    --------
    >>> circuit = tnplan.Circuit(tnplan.GateSequence(2, ()))
    >>> [row.method for row in circuit.estimate(expectation="Z0").rows]
    ['statevector', 'contraction', 'pauli']
    """

    method: str
    devices: int
    cost: Cost | None
    error_kind: str
    reason: str = ""
    needs_devices: int | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """Method, devices, memory, time, error and what else there is to say, as text."""
        needs = "" if self.needs_devices is None else f"{self.needs_devices:,}"
        if self.cost is None:
            return self.method, str(self.devices), "", "", "", needs, self.reason
        off = "any" if self.cost.factor > SURE_FACTOR else f"{self.cost.factor:.2g}"
        return (
            self.method, str(self.devices), size_text(self.cost.memory_bytes), time_text(self.cost.time_s),
            self.error_kind, needs, f"time within a factor of {off}",
        )  # fmt: skip


@dataclass(frozen=True)
class MethodChoice:
    """What the rows of one number of devices come to.

    Parameters
    ----------
    devices : int
        The number.
    method : str or None
        The fastest of the methods there; None where none fits.
    reason : str
        Why.
    auto : str or None
        The one that `method="auto"` takes: the fastest, or one before it that answers in 0.15 seconds.

    Examples
    --------
    >>> tnplan.Circuit(tnplan.GateSequence(2, ())).estimate(expectation="Z0").choices[0].method
    'statevector'
    """

    devices: int
    method: str | None
    reason: str
    auto: str | None

    @property
    def sentences(self) -> list[str]:
        """The choice, and that of auto if there is one."""
        made = [f"best: {self.method}: {self.reason}" if self.method else f"nothing fits: {self.reason}"]
        if self.auto:
            at_once = "" if self.auto == self.method else f": it needs at most {ENOUGH_S} s"
            made.append(f"auto takes {self.auto}{at_once}")
        return made


@dataclass(frozen=True, eq=False, repr=False)
class CircuitEstimate:
    """What `Circuit.estimate` gives.

    Parameters
    ----------
    question : str
        The name of the question.
    hardware : str
        The name of the profile.
    rows : tuple of MethodEstimate
        Each method on each number of devices.
    choices : tuple of MethodChoice
        What they come to on each number of devices. `method`, `reason` and `auto` are those of the first.

    Examples
    --------
    >>> tnplan.Circuit(tnplan.GateSequence(2, ())).estimate(expectation="Z0")
    CircuitEstimate(expectation on cpu: statevector)
    """

    question: str
    hardware: str
    rows: tuple[MethodEstimate, ...]
    choices: tuple[MethodChoice, ...]

    COLUMNS = ("method", "devices", "memory", "time", "error", "devices needed", "remark")

    @property
    def method(self) -> str | None:
        """The fastest method on the first number of devices; None where none fits there."""
        return self.choices[0].method

    @property
    def reason(self) -> str:
        """Why it is taken, or why none fits."""
        return self.choices[0].reason

    @property
    def auto(self) -> str | None:
        """The one that `method="auto"` takes on the first number of devices."""
        return self.choices[0].auto

    def __repr__(self) -> str:
        made = [
            (one.method or "nothing fits") + (f" on {one.devices}" if len(self.choices) > 1 else "")
            for one in self.choices
        ]
        return f"CircuitEstimate({self.question} on {self.hardware}: {', '.join(made)})"

    def __str__(self) -> str:
        table = text_table([row.cells for row in self.rows], self.COLUMNS)
        if len(self.choices) == 1:
            ends = self.choices[0].sentences
        else:
            ends = [
                f"{count_text(one.devices, 'device', 'devices')}: {'; '.join(one.sentences)}"
                for one in self.choices
            ]
        return "\n".join((f"{self.question} on {self.hardware}", table, *ends))

    def _repr_html_(self) -> str:
        return html_table(str(self.question), [row.cells for row in self.rows], self.COLUMNS)

    @property
    def document(self) -> dict[str, Any]:
        """The estimate as plain JSON."""
        return {
            "format": FORMAT, "version": VERSION, "question": self.question, "hardware": self.hardware,
            "method": self.method, "reason": self.reason, "auto": self.auto,
            "choices": [asdict(one) for one in self.choices],
            "rows": [
                {
                    "method": row.method, "devices": row.devices, "reason": row.reason,
                    "needs_devices": row.needs_devices, "error_kind": row.error_kind,
                    "memory_bytes": None if row.cost is None else min(row.cost.memory_bytes, 1e300),
                    "time_s": None if row.cost is None else min(row.cost.time_s, 1e300),
                    "factor": None if row.cost is None else min(row.cost.factor, 1e300),
                }
                for row in self.rows
            ],
        }  # fmt: skip


def estimate_question(
    asked: AskedCircuit,
    options: QuestionOptions,
    profile: Profile,
    devices: int | Sequence[int],
    search_s: float,
) -> CircuitEstimate:
    """The estimate of each method that the options allow."""
    if options.method == "auto":
        check_answerable(asked, options)
    else:
        check_method(options.method, asked, options)
    given = [devices] if isinstance(devices, int) else devices
    counts = tuple(dict.fromkeys(check_count("--devices", count) for count in given))
    if not counts:
        raise InputError("--devices", "is an empty list", "give one number or more")
    # Refusals are rows too, so that a user sees why a method is not among those compared.
    methods = ANSWERS[asked.question.name] if options.method == "auto" else (options.method,)
    rows: list[MethodEstimate] = []
    for method in methods:
        refusal = why_not(method, asked, options)
        if refusal is None:
            rows += method_rows(method, asked, options, profile, search_s, *counts)
        else:
            text = f"not possible: {refusal[0]} {refusal[1]}"
            rows += [MethodEstimate(method, count, None, EXACT, text) for count in counts]
    choices = (choice([row for row in rows if row.devices == count], is_small(asked)) for count in counts)
    return CircuitEstimate(asked.question.name, profile.name, tuple(rows), tuple(choices))


def choice(rows: Sequence[MethodEstimate], small: bool) -> MethodChoice:
    """What the methods on one number of devices come to; a state of a `small` circuit is taken untimed."""
    best, why = best_method(rows)
    if small and any(row.method == "statevector" and row.cost is not None for row in rows):
        best, why = "statevector", f"a state of {SMALL} qubits or fewer takes less time than a comparison"
    auto = best if small else at_once(rows) or best
    return MethodChoice(rows[0].devices, best, why, auto)


def at_once(rows: Sequence[MethodEstimate]) -> str | None:
    """The first method that answers before others could be compared, if one does."""
    return next((row.method for row in rows if row.cost and row.cost.longest_s < ENOUGH_S), None)


def best_method(rows: Sequence[MethodEstimate]) -> tuple[str | None, str]:
    """The method whose time is the least as far as one can say, and why."""
    fitting = [row for row in rows if row.cost is not None]
    # Methods are compared by what they take at most, time times factor: an estimate that may be far
    # off has to be much lower to win.
    sure = [row for row in fitting if row.cost is not None and row.cost.longest_s < inf] or fitting
    if not sure:
        return None, "; ".join(f"{row.method}: {row.reason}" for row in rows)
    order = sorted(sure, key=lambda row: row.cost.longest_s if row.cost else inf)
    best, cost = order[0], order[0].cost
    assert cost is not None
    others = [
        f"{row.method} {time_text(row.cost.longest_s)}" for row in order[1:] if row.cost is not None
    ] + [f"{row.method} does not" for row in rows if row.cost is None]
    against = f" ({', '.join(others)})" if others else ""
    return best.method, f"it answers in {time_text(cost.longest_s)} at most{against}"


def method_rows(
    method: str, asked: AskedCircuit, options: QuestionOptions, profile: Profile, search_s: float,
    *counts: int,
) -> list[MethodEstimate]:  # fmt: skip
    """What a method that can answer needs on each number of devices.

    No search of a contraction and no pilot of a propagation takes much longer than `search_s`.
    """
    threads = 1 if is_gpu(profile) else options.threads or cores()
    room = room_bytes(profile)
    if method == "statevector":
        kind = STATISTICAL if asked.is_random or isinstance(asked.question, Sample) else EXACT
        # State vectors grow by whole qubits: the least number of devices is known without a plan.
        least = least_devices(asked, profile, options.precision, threads)
        if least is None or least > max(counts):
            why = "is too large for any number of devices" if least is None else f"needs {least} devices"
            return [MethodEstimate(method, count, None, kind, f"the state {why}", least) for count in counts]
        found = {
            count: state_cost(asked, profile, options.precision, count, threads, options.trajectories or 1)
            for count in counts if count >= least
        }  # fmt: skip
        return [_row(method, count, found.get(count), kind, room, least) for count in counts]
    if method == "pauli":
        cost = pauli_cost(asked, profile, options, threads, search_s)
        kind = STATISTICAL if options.monte_carlo else TRUNCATION if options.truncation else EXACT
        # Terms are spread over all devices, whose memory adds up.
        needs = None if cost.memory_bytes == inf else max(1, -(-int(cost.memory_bytes) // room))
        return [
            _row(method, count, cost if count >= (needs or inf) else None, kind, inf, needs)
            for count in counts
        ]
    kind = STATISTICAL if isinstance(asked.question, Sample) else EXACT
    costs = contraction_cost(asked, profile, options.precision, counts, search_s)
    costs = {count: cost for count, cost in costs.items() if cost.memory_bytes <= room}
    return [_row(method, count, costs.get(count), kind, room, min(costs, default=None)) for count in counts]


def _row(
    method: str, count: int, cost: Cost | None, kind: str, room: float, needs: int | None
) -> MethodEstimate:
    """A row, where the memory of a device suffices."""
    if cost is None or cost.memory_bytes > room:
        shared = f"cannot be shared among {count} devices"
        reason = "does not fit" if needs is None or needs > count else shared
        return MethodEstimate(method, count, None, kind, reason, needs)
    return MethodEstimate(method, count, cost, kind, "", needs)
