"""What every method needs for a question on each number of devices, and the best one.

Changelog of `tnplan.estimate`:
1 (2026-11-27): first version.
2 (2026-12-01): `fidelity`, and `error_kind` "rounding".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import Any

from tnplan.common.checks import check_count
from tnplan.common.errors import InputError
from tnplan.common.shown_text import html_table, text_table
from tnplan.common.system_calls import cores
from tnplan.common.units import count_text, size_text, time_text
from tnplan.planner.hardware.profile import Profile
from tnplan.questions.engines.compressed import bits_of_state, largest_compressed, may_be_compressed
from tnplan.questions.engines.task_list import ESTIMATE, EXACT, ROUNDING, STATISTICAL, TRUNCATION
from tnplan.questions.estimates.chain_cost import chain_cost, mpo_cost, stabilizer_cost
from tnplan.questions.estimates.contraction_cost import contraction_cost
from tnplan.questions.estimates.cost import Cost, is_gpu, of_threads, room_bytes
from tnplan.questions.estimates.pauli_pilot import pauli_cost
from tnplan.questions.estimates.peps_cost import peps_costs
from tnplan.questions.estimates.state_cost import (
    compressed_cost,
    least_devices,
    profile_of_state,
    state_cost,
)
from tnplan.questions.methods import (
    ANSWERS,
    ON_ONE_RANK,
    ON_REQUEST,
    SMALL,
    check_answerable,
    check_method,
    is_small,
    why_not,
)
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import CircuitQuery, Sample

FORMAT = "tnplan.estimate"
VERSION = 2
NOT_POSSIBLE = "not possible"
PILOT_S = 2.0
"""Seconds of a pilot run, where no time of search is stated."""
SEARCH_IS_CUT = "a longer search may cut this"
LONGEST_PILOT_S = 10.0
"""Seconds for which a matrix product state is tried."""
ON_HOST = "on the host, whose memory suffices"
SURE_FACTOR = 100.0
"""A time that may be off by more is no reason to take a method."""


@dataclass(frozen=True)
class MethodEstimate:
    """A method on a number of devices: what it needs, or why it is not possible.

    Parameters
    ----------
    method : {"contraction", "statevector", "pauli", "mps", "stabilizer", "peps", "mpo"}
        The engine.
    devices : int
        The number of devices that are there.
    cost : Cost or None
        Bytes a device and seconds, and of a compressed state its fidelity; None where the method is not
        possible.
    error_kind : {"exact", "statistical", "truncation", "rounding", "estimate"}
        What the error of the value would come from.
    reason : str
        Why it is not possible.
    needs_devices : int or None
        The least number of devices that it fits on, where that is known; of contraction the least of those
        that the estimate is for, and of a PEPS of these and powers of two.
    remark : str
        What else there is to say: that a longer search may cut the cost, or that the host is meant.

    Examples
    --------
    >>> circuit = tnplan.Circuit(tnplan.GateSequence(2, ()))
    >>> [row.method for row in circuit.estimate(expectation="Z0").rows]
    ['statevector', 'contraction', 'pauli', 'mps', 'stabilizer']
    """

    method: str
    devices: int
    cost: Cost | None
    error_kind: str
    reason: str = ""
    needs_devices: int | None = None
    remark: str = field(default="", repr=False)

    @property
    def cells(self) -> tuple[str, ...]:
        """Method, devices, memory, time, error and what else there is to say, as text."""
        needs = "" if self.needs_devices is None else f"{self.needs_devices:,}"
        if self.cost is None:
            return self.method, str(self.devices), "", "", "", needs, self.reason
        cost = self.cost
        remark = f"range {time_text(cost.shortest_s)} to {time_text(cost.longest_s)}"
        if cost.factor > SURE_FACTOR:
            remark = "any time"
        if self.remark:
            remark += f"; {self.remark}"
        return (
            self.method, str(self.devices), size_text(cost.memory_bytes), time_text(cost.time_s),
            self.error_kind, needs, remark,
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
        The one that `method="auto"` takes, which is chosen in a tenth of its time: mostly the fastest. None
        where none fits, and of an estimate of one method.

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
        sentences = [f"best: {self.method}: {self.reason}" if self.method else f"nothing fits: {self.reason}"]
        return [*sentences, f"auto takes {self.auto}"] if self.auto else sentences


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
    CircuitEstimate(expectation on this machine: statevector)
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
        parts = [
            (choice.method or "nothing fits") + (f" on {choice.devices}" if len(self.choices) > 1 else "")
            for choice in self.choices
        ]
        return f"CircuitEstimate({self.question} on {self.hardware}: {', '.join(parts)})"

    def __str__(self) -> str:
        table = text_table([row.cells for row in self.rows], self.COLUMNS)
        if len(self.choices) == 1:
            ends = self.choices[0].sentences
        else:
            ends = [
                f"{count_text(choice.devices, 'device', 'devices')}: {'; '.join(choice.sentences)}"
                for choice in self.choices
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
            "choices": [asdict(choice) for choice in self.choices],
            "rows": [
                {
                    "method": row.method, "devices": row.devices, "reason": row.reason, "remark": row.remark,
                    "needs_devices": row.needs_devices, "error_kind": row.error_kind,
                    "memory_bytes": None if row.cost is None else min(row.cost.memory_bytes, 1e300),
                    "time_s": None if row.cost is None else min(row.cost.time_s, 1e300),
                    "factor": None if row.cost is None else min(row.cost.factor, 1e300),
                    "fidelity": None if row.cost is None else row.cost.fidelity,
                }
                for row in self.rows
            ],
        }  # fmt: skip


def estimate_question(
    query: CircuitQuery, options: QuestionOptions, profile: Profile, devices: int | Sequence[int],
    search_s: float | None,
) -> CircuitEstimate:  # fmt: skip
    """The estimate of each method that the options allow."""
    from tnplan.questions.chooser import unlisted_choice

    if options.method == "auto":
        check_answerable(query, options)
    else:
        check_method(options.method, query, options)
    counts_given = [devices] if isinstance(devices, int) else devices
    counts = tuple(dict.fromkeys(check_count("--devices", count) for count in counts_given))
    if not counts:
        raise InputError("--devices", "is an empty list", "give one number or more")
    # Refusals are rows too, so that a user sees why a method is not among those compared.
    named = ANSWERS[query.question.name] if options.method == "auto" else (options.method,)
    methods = [method for method in named if method == options.method or method not in ON_REQUEST]
    rows: list[MethodEstimate] = []
    for method in methods:
        refusal = why_not(method, query, options)
        if refusal is None:
            circuits = query.circuits_of(method)
            rows += [
                row if row.cost is None else replace(row, cost=row.cost.of_circuits(circuits))
                for row in method_rows(method, query, options, profile, search_s, *counts)
            ]
        else:
            text = f"{NOT_POSSIBLE}: {refusal[0]} {refusal[1]}"
            rows += [MethodEstimate(method, count, None, EXACT, text) for count in counts]
    choices = []
    for count in counts:
        of_count = [row for row in rows if row.devices == count]
        best, why = best_method(of_count, options.state_fidelity is not None)
        states = [row for row in of_count if row.method == "statevector" and row.cost is not None]
        if is_small(query) and any(row.error_kind != ROUNDING for row in states):
            best, why = "statevector", f"a state of {SMALL} qubits or fewer is taken without a comparison"
        fitting = [row.method for row in of_count if row.cost is not None]
        auto = None
        if best is not None and options.method == "auto":
            auto = unlisted_choice(query, options, fitting, profile, count)
        choices.append(MethodChoice(count, best, why, auto))
    return CircuitEstimate(query.question.name, profile.name, tuple(rows), tuple(choices))


def best_method(rows: Sequence[MethodEstimate], takes_compressed: bool = False) -> tuple[str | None, str]:
    """The method with the least predicted time, and why; a compressed state where nothing exact answers, or
    where one is asked for."""
    from tnplan.questions.chooser import MOST_SEARCHED_S

    fitting = [(row.method, row.cost) for row in rows if row.cost is not None]
    fitting = [pair for pair in fitting if pair[1].factor < inf] or fitting
    if not fitting:
        return None, "; ".join(f"{row.method}: {row.reason}" for row in rows)

    def order(pair: tuple[str, Cost]) -> tuple[bool, float]:
        is_spare = pair[1].fidelity is not None and not takes_compressed
        return is_spare or pair[1].time_s > MOST_SEARCHED_S, pair[1].time_s

    fitting.sort(key=order)
    (best, cost), *others = fitting
    against = [
        f"{method} {time_text(other.time_s)}{'' if other.fidelity is None else ' (compressed)'}"
        for method, other in others
    ]
    refused = (row for row in rows if row.cost is None and not row.reason.startswith(NOT_POSSIBLE))
    against += [f"{row.method} does not fit" for row in refused]
    beside = f"; others: {', '.join(against)}" if against else ""
    rounded = "" if cost.fidelity is None else f", compressed to a fidelity of about {cost.fidelity:.10g}"
    return best, f"predicted {range_text(cost)}{rounded}{beside}"


def range_text(cost: Cost) -> str:
    """A predicted time and the estimated range of the time."""
    if cost.factor > SURE_FACTOR:
        return f"{time_text(cost.time_s)}, or any other time"
    return f"{time_text(cost.time_s)}, range {time_text(cost.shortest_s)} to {time_text(cost.longest_s)}"


def method_rows(
    method: str, query: CircuitQuery, options: QuestionOptions, profile: Profile, search_s: float | None,
    *counts: int,
) -> list[MethodEstimate]:  # fmt: skip
    """What a method that can answer needs on each number of devices.

    No search of a contraction and no pilot of a propagation takes much longer than `search_s`, where that is
    stated.
    """
    pilot_s = PILOT_S if search_s is None else search_s
    threads = 1 if is_gpu(profile) else options.threads or cores()
    limit_bytes = room_bytes(profile)
    is_sample = isinstance(query.question, Sample)
    if method == "statevector":
        kind = STATISTICAL if query.is_random or is_sample else EXACT
        return _state_rows(query, options, profile, kind, counts)
    if method == "peps":
        costs, needs = peps_costs(query, profile, options, min(pilot_s, LONGEST_PILOT_S), counts)
        return [_row(method, count, costs.get(count), ESTIMATE, limit_bytes, needs) for count in counts]
    if method in ON_ONE_RANK:  # on one device, however many are there
        truncates = options.max_bond is not None or options.cutoff is not None
        kind = STATISTICAL if is_sample else ESTIMATE if truncates else EXACT
        cost = stabilizer_cost(query) if method == "stabilizer" else None
        if method == "mpo":
            cost = mpo_cost(query, profile, options)
        elif method == "mps":
            cost = chain_cost(query, profile, options, min(pilot_s, LONGEST_PILOT_S))
        needs = None if cost is None or cost.memory_bytes > limit_bytes else 1
        return [_row(method, count, cost, kind, limit_bytes, needs) for count in counts]
    if method == "pauli":
        cost = pauli_cost(query, profile, options, threads, pilot_s)
        kind = STATISTICAL if options.monte_carlo else TRUNCATION if options.truncation else EXACT
        # Terms are spread over all devices, whose memory adds up.
        needs = None if cost.memory_bytes == inf else max(1, -(-int(cost.memory_bytes) // limit_bytes))
        return [
            _row(method, count, cost if count >= (needs or inf) else None, kind, inf, needs)
            for count in counts
        ]
    kind = STATISTICAL if is_sample else EXACT
    threaded = of_threads(profile, threads)
    costs, is_cut = contraction_cost(query, threaded, options.precision, counts, search_s)
    costs = {count: cost for count, cost in costs.items() if cost.memory_bytes <= limit_bytes}
    least = min(costs, default=None)
    rows = [_row(method, count, costs.get(count), kind, limit_bytes, least) for count in counts]
    return [replace(row, remark=SEARCH_IS_CUT if is_cut and row.cost else "") for row in rows]


def _state_rows(
    query: CircuitQuery, options: QuestionOptions, profile: Profile, kind: str, counts: Sequence[int]
) -> list[MethodEstimate]:
    """A state vector on each number of devices; on one device that is too small, on its host."""
    method = "statevector"
    threads = options.threads or cores()
    own_threads = 1 if is_gpu(profile) else threads
    # State vectors grow by whole qubits: the least number of devices is known without a plan.
    least = least_devices(query, profile, options.precision, own_threads)
    why = "is too large for any number of devices" if least is None else f"needs {least} devices"
    rows = []
    for count in counts:
        host = profile_of_state(query, profile, options, count)
        bits = bits_of_state(query, options, host, count)
        if bits is not None:
            cost = compressed_cost(query, host, options, bits, devices=count)
            assert cost is not None
            assert cost.fidelity is not None
            text = f"compressed to {bits} bits a part, fidelity about {cost.fidelity:.10g}"
            if cost.fidelity < options.least_fidelity:
                rows.append(MethodEstimate(method, count, None, kind, f"the state {why}; {text}", least))
            else:
                text += f"; {ON_HOST}" if host is not profile else ""
                powers = (1 << k for k in range(count.bit_length()))
                needs = next(number for number in powers if bits_of_state(query, options, host, number))
                rows.append(MethodEstimate(method, count, cost, ROUNDING, "", needs, text))
        elif host is not profile:
            cost = state_cost(query, host, options, 1, threads)
            rows.append(MethodEstimate(method, 1, cost, kind, "", 1, ON_HOST))
        elif least is None or least > max(counts):
            reason = f"the state {why}"
            if may_be_compressed(query, options) and (most := largest_compressed(options, host, count)):
                reason += f"; compressed, {most} qubits fit"
            rows.append(MethodEstimate(method, count, None, kind, reason, least))
        else:
            fits = least <= count
            cost = state_cost(query, profile, options, count, own_threads) if fits else None
            rows.append(_row(method, count, cost, kind, room_bytes(profile), least))
    return rows


def _row(
    method: str, count: int, cost: Cost | None, kind: str, limit_bytes: float, needs: int | None
) -> MethodEstimate:
    """A row, where the memory of a device suffices."""
    if cost is None or cost.memory_bytes > limit_bytes:
        shared = f"cannot be shared among {count} devices"
        reason = "does not fit" if needs is None or needs > count else shared
        return MethodEstimate(method, count, None, kind, reason, needs)
    return MethodEstimate(method, count, cost, kind, "", needs)
