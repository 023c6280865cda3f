"""Exact numbers of configurations: residues modulo primes, put together by the Chinese remainder theorem."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.executor.device.cpu.algebra import (
    LARGEST_PRIME,
    Algebra,
    Modular,
    Optima,
    Residues,
    is_prime,
)
from tnplan.jobs.arrays.compiled import CompiledContraction
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.arrays.planning import find_schedule, memory_bytes
from tnplan.jobs.arrays.ranks import inputs_bytes
from tnplan.jobs.progress import Listener, Progress
from tnplan.planner.networks.importers.subscripts import EinsumCall
from tnplan.planner.schedule.schedule import Schedule
from tnplan.questions.combinatorial.frontier import best_order
from tnplan.questions.combinatorial.frontier_count import STATE_BYTES, STATE_S, count_states
from tnplan.questions.combinatorial.models import Model
from tnplan.questions.combinatorial.passes import Costs

Array = NDArray[Any]
EXACT = 2**53
ROUNDED = 1 + 2**-12
"""A number of floating point is this close to what it stands for; see `at_most`."""
MOST_ROUNDINGS = 2**40
PLANNED = {algebra.name: algebra for algebra in (Residues(2), Optima())}
"""The algebras that stand in plans for all of their kind."""
LEAST_PLANNED_S, MOST_TABLE_S = 5.0, 1e5
"""Seconds of tables of a frontier from which a tree is planned, and from which no table is tried."""
WORD_BITS = 64


def network_of(model: Model) -> EinsumCall:
    """The network of a model: an index a variable, a tensor a factor."""
    inputs = tuple(tuple(f"v{each}" for each in factor.variables) for factor in model.factors)
    return EinsumCall(inputs, (), {f"v{each}": extent for each, extent in enumerate(model.extents)}, ())


def schedule_of(model: Model, algebra: Algebra, options: ContractionOptions, calls: int) -> Schedule:
    """The schedule of a model's network over an algebra, for about so many calls."""
    # A plan is for all primes, and remembered for an object.
    options = options.changed(algebra=PLANNED.get(algebra.name, algebra), calls=calls)
    call = network_of(model)
    size_bytes = inputs_bytes(call.network, algebra.dtype)
    if options.memory is not None and options.memory < size_bytes:
        problem = f"is {size_text(options.memory)}, and the factors take {size_text(size_bytes)}"
        raise InputError("memory", problem, "allow several times that", topic="memory")
    return find_schedule(call, algebra.dtype, options).schedule


def is_tree_faster(model: Model, algebra: Algebra, options: ContractionOptions, table_s: float) -> bool:
    """Whether a tree takes less time than tables of a frontier that take so many seconds."""
    if table_s < LEAST_PLANNED_S:
        return False
    if table_s > MOST_TABLE_S:
        return True
    try:
        return schedule_of(model, algebra, options, 1).projected_s(1) < table_s
    except InputError:  # no tree fits the memory
        return False


def count_model(model: Model, options: ContractionOptions, progress: Listener | None) -> tuple[int, int]:
    """The number of configurations, and how many primes it took."""
    binary, _ = model.binary()
    order, log_size = best_order(binary, only_allowed=True)
    memory, n_states = memory_bytes(options, "cpu"), 2 ** min(log_size, 1000.0)
    # A table that is far too large for the memory is not begun.
    fits = n_states / len(order) * STATE_BYTES < memory
    if fits and not is_tree_faster(model, Residues(largest_prime()), options, STATE_S * n_states):
        powers = [factor.allowed.astype(np.int64) - 1 for factor in binary.factors]
        number = count_states(binary, order, powers, memory, progress)
        if number is not None:
            return number, 0
    bound = model.bound
    algebra = Residues(largest_prime())
    schedule = schedule_of(model, algebra, options, 1 + len(list(_primes(bound))))
    arrays = [factor.allowed.astype(float) for factor in model.factors]
    rounded = count_once(schedule, options, arrays)
    if rounded < EXACT:
        return int(rounded), 0
    with CompiledContraction(schedule, options.changed(algebra=algebra)) as contraction:
        compute = lambda: int(contraction(*arrays))  # noqa: E731
        residues = residues_of(algebra, compute, at_most(bound, rounded, schedule), progress)
    return by_remainders(residues), len(residues)


def count_once(schedule: Schedule, options: ContractionOptions, arrays: Sequence[Array]) -> float:
    """The number of configurations in floating point: exact below 2^53, NaN or infinity beyond the range.

    No term is negative, and rounding is monotone: where the result is below 2^53, so is every value on the
    way that goes into it with a factor above 0. These are integers, and exact.
    """
    # Beyond the range, infinity or NaN says so.
    with np.errstate(over="ignore", invalid="ignore"), CompiledContraction(schedule, options) as contraction:
        return float(contraction(*arrays))


def at_most(bound: int, rounded: float, schedule: Schedule) -> int:
    """The closer of a bound of a number of configurations and of what it is rounded to.

    The number is a sum of products of inputs, and each of these goes through r roundings at most, if there
    are r of them in all. Each of them changes it by a factor 1 + 2^-53 at most: r = 2^40 of them by less than
    1 + 2^-12. Products and their sums are the operations; other sums are those of inputs, of the results of
    products and of slices.
    """
    inputs = sum(prod(schedule.size_dict[index] for index in leaf) for leaf in schedule.leaves)
    roundings = 2 * schedule.operations + inputs + schedule.n_slices
    is_close = np.isfinite(rounded) and roundings <= MOST_ROUNDINGS
    return min(bound, int(rounded * ROUNDED)) if is_close else bound


def count_by_weight(
    model: Model, options: ContractionOptions, progress: Listener | None
) -> dict[int, int]:  # fmt: skip
    """The number of configurations of each weight, where there are some.

    A factor of cost c is x^c: the sum is the polynomial whose coefficients are the numbers. Its value at a
    power of 2 above them has them as digits.
    """
    binary, _ = model.binary()
    order, _ = best_order(binary, only_allowed=True)
    costs = Costs.of(binary)
    # A state has no more configurations of the variables that have left than the free variables have values.
    words = 1 + (prod(model.extents[: model.n_free]).bit_length()) // WORD_BITS
    memory = memory_bytes(options, "cpu")
    total = count_states(binary, order, costs.factors, memory, progress, words)
    if total is None:
        n_sizes = 1 + sum(int(each.max(initial=0)) for each in costs.factors)
        problem = f"does not hold the numbers of up to {n_sizes:,} sizes for each state"
        raise InputError("memory", problem, "allow more, or round the weights", topic="memory")
    size = words * WORD_BITS // 8
    digits = total.to_bytes(-(-total.bit_length() // 8) + size, "little")
    begins = range(0, len(digits), size)
    numbers = [int.from_bytes(digits[begin : begin + size], "little") for begin in begins]
    return {costs.offset - costs.unit * cost: number for cost, number in enumerate(numbers) if number}


def residues_of(
    algebra: Modular, compute: Callable[[], Any], bound: int, progress: Listener | None
) -> list[tuple[int, Any]]:
    """What is computed modulo each of the primes that tell numbers up to a bound apart."""
    primes = list(_primes(bound))
    found = []
    for number, prime in enumerate(primes):
        if progress is not None:
            text = f"prime {number + 1} of {len(primes)}"
            progress(Progress(number, len(primes), text, share=number / len(primes)))
        algebra.prime = prime
        found.append((prime, compute()))
    return found


def _primes(bound: int) -> Iterator[int]:
    """Primes below 2^23, the largest first, whose product is above a bound."""
    product, number = 1, LARGEST_PRIME
    while product <= bound or product == 1:
        number -= 1
        if is_prime(number):
            product *= number
            yield number


def largest_prime() -> int:
    """The largest prime of residues."""
    return next(_primes(1))


def by_remainders(residues: Sequence[tuple[int, int]]) -> int:
    """The number from 0 to below the product of primes with these residues: the Chinese remainder theorem."""
    modulus = prod(prime for prime, _ in residues)
    total = sum(
        residue * (modulus // prime) * pow(modulus // prime, -1, prime) for prime, residue in residues
    )
    return total % modulus
