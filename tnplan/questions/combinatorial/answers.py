"""What `count` and `optimize` do and give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from time import perf_counter
from typing import Any

from tnplan.common.checks import check_choice, check_count
from tnplan.common.errors import InputError
from tnplan.common.units import plural
from tnplan.executor.device.comm.launcher import launched_size
from tnplan.executor.device.cpu.host_memory import cores
from tnplan.jobs.arrays.options import ContractionOptions, in_bytes
from tnplan.jobs.progress import Listener, as_listener
from tnplan.questions.combinatorial.counting import count_by_weight, count_model
from tnplan.questions.combinatorial.models import Model
from tnplan.questions.combinatorial.optimum import largest_weight
from tnplan.questions.combinatorial.problems import PROBLEMS

MOST_COLOURS = 64
Worth = Fraction | int


@dataclass(frozen=True)
class Count:
    """What `count` gives; `print` shows the number, and those of each size.

    Parameters
    ----------
    value : int
        The number of configurations, exact.
    by_size : dict or None
        Their number for each size, energy or number of clauses that occurs, where it was asked for; the keys
        are int, or Fraction where weights were no integers.
    report : dict
        The same for JSON, with the instance, the primes and the seconds.

    Examples
    --------
    >>> tnplan.count("independent-sets", "grid 8x8").value
    660647962955
    """

    value: int
    by_size: dict[Worth, int] | None
    report: dict[str, Any]

    def __repr__(self) -> str:
        return f"Count({self.value} {self.report['counted']} of {self.report['instance']})"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        report = self.report
        yield f"{report['instance']}: {self.value} {report['counted']}"
        for size, number in (self.by_size or {}).items():
            yield f"  {report['size']} {size}: {number}"
        primes = report["primes"]
        how = f"modulo {plural(primes, 'prime', 'primes')}" if primes else "exact"
        yield f"{how}, in {report['time_s']:.3g} s"


@dataclass(frozen=True)
class Optimization:
    """What `optimize` gives; `print` shows the optimum, how many have it, and one of them.

    Parameters
    ----------
    value : int or Fraction or None
        The optimum, exact; None where nothing satisfies the constraints.
    n_optima : int or None
        How many configurations attain it, where that was asked for.
    configuration : list or dict or None
        One of them, checked: vertices, edges, a dict of colours or spins, or literals.
    report : dict
        The same for JSON, with the instance, the primes and the seconds.

    Examples
    --------
    >>> tnplan.optimize("independent-sets", [("a", "b"), ("b", "c")]).configuration
    ['a', 'c']
    """

    value: Worth | None
    n_optima: int | None
    configuration: Any
    report: dict[str, Any]

    def __repr__(self) -> str:
        return f"Optimization({self.report['size']} {self.value} of {self.report['instance']})"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        report = self.report
        if self.value is None:
            yield f"{report['instance']}: there are no {report['counted']}"
            return
        yield f"{report['instance']}: {report['best']} {report['size']} {self.value}"
        if self.n_optima is not None:
            yield f"attained by {self.n_optima}"
        shown = self.configuration
        parts = [f"{each}: {shown[each]}" for each in shown] if isinstance(shown, dict) else map(str, shown)
        yield "one: " + (", " if isinstance(shown, dict) else " ").join(parts)
        yield f"checked, in {report['time_s']:.3g} s"


def count_instance(name: str, given: Any, colours: int, by_size: bool, settings: dict[str, Any]) -> Count:
    """What `count` does; the settings are those of contractions and of progress."""
    begin = perf_counter()
    instance, model, options, listener = _read(name, given, colours, by_size, settings)
    problem, sizes = PROBLEMS[name], None
    if name == "ising" and not by_size:
        remedy = "ask for those of each energy: by_size=True, or --by-size"
        raise InputError("ising", f"has 2^{model.n_free} configurations of spins", remedy)
    if by_size:
        weights = count_by_weight(model, options, listener)
        sizes = dict(sorted((model.worth(weight), number) for weight, number in weights.items()))
        value, primes = sum(sizes.values()), 0
    else:
        value, primes = count_model(model, options, listener)
    counted = _soft_name(name) if by_size else problem.counted
    report = {
        "problem": name, "instance": instance.text, "counted": counted, "size": problem.worth_name,
        "count": value, "by_size": None if sizes is None else {str(k): v for k, v in sizes.items()},
        "primes": primes, "time_s": perf_counter() - begin,
    }  # fmt: skip
    return Count(value, sizes, report)


def optimize_instance(
    name: str, given: Any, colours: int, count_optima: bool, settings: dict[str, Any]
) -> Optimization:
    """What `optimize` does; the settings are those of contractions and of progress."""
    begin = perf_counter()
    instance, model, options, listener = _read(name, given, colours, True, settings)
    problem = PROBLEMS[name]
    best = largest_weight(model, options, count_optima, listener)
    value = shown = number = None
    if best is not None:
        value, number = model.worth(best.weight), best.number
        shown = problem.shown(instance, best.values[: model.n_free])
        # Computed anew from the instance: a mistake of the model would be seen here.
        if problem.worth(instance, shown) != value:
            raise RuntimeError(f"what was found is worth {problem.worth(instance, shown)}, not {value}")
    report = {
        "problem": name, "instance": instance.text, "counted": problem.counted, "size": problem.worth_name,
        "best": problem.best, "optimum": None if value is None else str(value), "n_optima": number,
        "configuration": _plain(shown), "primes": 0 if best is None else best.primes,
        "time_s": perf_counter() - begin,
    }  # fmt: skip
    return Optimization(value, number, shown, report)


def _read(
    name: str, given: Any, colours: int, weighs: bool, settings: dict[str, Any]
) -> tuple[Any, Model, ContractionOptions, Listener | None]:
    """The instance, its model, how it is contracted, and who hears of progress.

    Where weights are asked for, constraints that have some are soft.
    """
    check_choice("problem", name, PROBLEMS)
    check_count("--colours", colours, 1, MOST_COLOURS)
    if settings["devices"] > 1 and launched_size() > 1:
        remedy = "start it without mpirun: devices are threads here"
        raise InputError("mpirun", "started several ranks", remedy)
    # One prime stands for the algebra here: what is refused does not depend on it.
    from tnplan.executor.device.cpu.algebra import Residues

    options = ContractionOptions(
        memory=in_bytes(settings["memory"]), device=settings["device"], devices=settings["devices"],
        threads=settings["threads"] or max(1, cores() // settings["devices"]), algebra=Residues(2),
    )  # fmt: skip
    instance = PROBLEMS[name].read(given)
    model = PROBLEMS[name].build(instance, weighs, colours).complete()
    if weighs:
        model.check_weights()
    return instance, model, options.changed(device="cpu", algebra=None), as_listener(settings["progress"])


def _soft_name(name: str) -> str:
    """What is counted by size: all configurations where constraints may be broken."""
    return {"colourings": "colourings, proper or not", "sat": "assignments"}.get(name, PROBLEMS[name].counted)


def _plain(shown: Any) -> Any:
    """A configuration for JSON: labels of vertices as text."""
    if isinstance(shown, dict):
        return {str(vertex): value for vertex, value in shown.items()}
    return None if shown is None else [each if isinstance(each, int) else str(each) for each in shown]
