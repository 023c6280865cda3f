"""What `count` and `optimize` do and give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext
from fractions import Fraction
from math import prod
from time import perf_counter
from typing import Any

from tnplan.common.checks import check_choice, check_count
from tnplan.common.errors import InputError
from tnplan.common.shown_text import Printed
from tnplan.common.system_calls import cores
from tnplan.common.units import plural
from tnplan.executor.device.comm.launcher import launched_size
from tnplan.jobs.arrays.options import ContractionOptions, in_bytes
from tnplan.jobs.progress import Listener, as_listener
from tnplan.questions.combinatorial.counting import count_by_weight, count_grid, count_model, count_products
from tnplan.questions.combinatorial.formulas import Formula
from tnplan.questions.combinatorial.models import Model, whole_products
from tnplan.questions.combinatorial.optimum import largest_weight
from tnplan.questions.combinatorial.problems import PROBLEMS

MOST_COLOURS, SUM = 64, "weight"
SHORT_BITS, MOST_SHOWN, SHOWN_DIGITS = 10_000, 40, 15
"""Bits of an integer in JSON, characters of a fraction in a line, and digits of what it is rounded to."""
Worth = Fraction | int


@dataclass(frozen=True)
class Count(Printed):
    """What `count` gives; `print` shows the number, and those of each size.

    Parameters
    ----------
    value : int or Fraction
        The number of configurations, or the sum of the products of their weights, exact.
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

    value: Worth
    by_size: dict[Worth, int] | None
    report: dict[str, Any]

    def __repr__(self) -> str:
        return f"Count({self._statement()} of {self.report['instance']})"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _statement(self) -> str:
        counted = self.report["counted"]
        return f"{_text(self.value)} {'is the ' if counted.startswith(SUM) else ''}{counted}"

    def _lines(self) -> Iterator[str]:
        report = self.report
        yield f"{report['instance']}: {self._statement()}"
        for size, number in (self.by_size or {}).items():
            yield f"  {report['size']} {size}: {_text(number)}"
        primes = report["primes"]
        how = f"modulo {plural(primes, 'prime', 'primes')}" if primes else "exact"
        yield f"{how}, in {report['time_s']:.3g} s"


@dataclass(frozen=True)
class Optimization(Printed):
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
        if report["falsified"]:
            yield f"falsified: {report['falsified']}"
        if self.n_optima is not None:
            yield f"attained by {_text(self.n_optima)}"
        shown = self.configuration
        parts = [f"{each}: {shown[each]}" for each in shown] if isinstance(shown, dict) else map(str, shown)
        yield "one: " + (", " if isinstance(shown, dict) else " ").join(parts)
        yield f"checked, in {report['time_s']:.3g} s"


def count_instance(
    name: str, given: Any, colours: int, by_size: bool, weights: Any, settings: dict[str, Any]
) -> Count:
    """What `count` does; the settings are those of contractions and of progress."""
    begin = perf_counter()
    instance, model, options, listener = _read(name, given, colours, by_size, settings)
    problem, sizes = PROBLEMS[name], None
    counted = _soft_name(name) if by_size else problem.counted
    if weights is not None and weights is not False:
        if by_size or problem.products is None:
            other = "by_size=True" if by_size else name
            raise InputError("weights", f"are given together with {other}", "leave them out")
        pairs, units = whole_products(problem.products(instance, weights))
        total, primes = count_products(model, pairs, options, listener)
        # One fraction at the end: each takes a common divisor of long numbers.
        value: Worth = Fraction(
            total * prod(unit.numerator for unit in units), prod(unit.denominator for unit in units)
        )
        value = int(value) if value.denominator == 1 else value
        counted = f"{SUM} of all {counted}"
    elif name == "ising" and not by_size:
        remedy = "ask for those of each energy: by_size=True, or --by-size"
        raise InputError("ising", f"has 2^{model.n_free} configurations of spins", remedy)
    elif by_size:
        numbers = count_by_weight(model, options, listener)
        sizes = dict(sorted((model.worth(weight), number) for weight, number in numbers.items()))
        value, primes = sum(sizes.values()), 0
    elif options.device == "gpu" and name == "independent-sets" and instance.grid is not None:
        value, primes = count_grid(instance.grid, listener)
    else:
        value, primes = count_model(model, options, listener)
    report = {
        "problem": name, "instance": instance.text, "counted": counted, "size": _size_name(name, instance),
        "count": _plain_number(value),
        "by_size": None if sizes is None else {str(k): _plain_number(v) for k, v in sizes.items()},
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
        "problem": name, "instance": instance.text, "counted": problem.counted,
        "size": _size_name(name, instance), "best": problem.best,
        "optimum": None if value is None else str(value),
        "n_optima": None if number is None else _plain_number(number),
        "falsified": None, "configuration": _plain(shown), "primes": 0 if best is None else best.primes,
        "time_s": perf_counter() - begin,
    }  # fmt: skip
    if value is not None and isinstance(instance, Formula):
        report["falsified"] = instance.most_satisfied - int(value)
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
    device = "gpu" if options.device == "gpu" else "cpu"
    return instance, model, options.changed(device=device, algebra=None), as_listener(settings["progress"])


def _size_name(name: str, instance: Any) -> str:
    """What a configuration is worth."""
    is_weighted = isinstance(instance, Formula) and instance.clause_weights is not None
    return "weight of satisfied clauses" if is_weighted else PROBLEMS[name].worth_name


def _soft_name(name: str) -> str:
    """What is counted by size: all configurations where constraints may be broken."""
    return {"colourings": "colourings, proper or not", "sat": "assignments"}.get(name, PROBLEMS[name].counted)


def _plain(shown: Any) -> Any:
    """A configuration for JSON: labels of vertices as text."""
    if isinstance(shown, dict):
        return {str(vertex): value for vertex, value in shown.items()}
    return None if shown is None else [each if isinstance(each, int) else str(each) for each in shown]


def _plain_number(value: Worth) -> int | str:
    """A number for JSON: fractions, and integers of more digits than Python writes by default, as text."""
    return value if isinstance(value, int) and value.bit_length() < SHORT_BITS else _digits(value)


def _text(value: Worth) -> str:
    """A number for a line: a long fraction is rounded."""
    text = _digits(value)
    if isinstance(value, int) or len(text) <= MOST_SHOWN:
        return text
    with localcontext(prec=SHOWN_DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX):
        return f"about {Decimal(value.numerator) / Decimal(value.denominator)}"


def _digits(value: Worth) -> str:
    """All digits; Python's own text of an integer ends with an error after some thousands of them."""
    numerator, denominator = map(str, map(Decimal, value.as_integer_ratio()))
    return numerator if denominator == "1" else f"{numerator}/{denominator}"
