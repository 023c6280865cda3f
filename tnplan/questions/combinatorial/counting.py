"""Exact numbers of configurations: residues modulo primes, put together by the Chinese remainder theorem.

Models of binary variables are counted over the possible states of a frontier as well, in integers of as many
words of 64 bits as they need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tnplan.common.errors import InputError
from tnplan.common.units import size_text, time_text
from tnplan.executor.device.cpu.algebra import LARGEST_PRIME, Algebra, Modular, Optima, Residues, is_prime
from tnplan.executor.device.cpu.frontier_kernel import count_entry
from tnplan.jobs.arrays.compiled import CompiledContraction
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.arrays.planning import find_schedule, memory_bytes
from tnplan.jobs.arrays.ranks import inputs_bytes
from tnplan.jobs.progress import Listener, Progress
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.importers.subscripts import EinsumCall
from tnplan.planner.networks.network import Network
from tnplan.planner.schedule.schedule import Schedule
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_in_proportion import greedy_or_orders, search_as_long
from tnplan.questions.combinatorial.models import Model
from tnplan.questions.combinatorial.passes import MOST_CONTEXT, Costs, best_order, entries, joint_powers

Array = NDArray[Any]
MOST_BITS = 62
"""Of a state, a number of 64 bits with sign."""
WORD_BYTES = 8
REPORTED = 64
"""Variables from one report of progress to the next."""
STATE_BYTES, STATE_S = 32, 2e-8
"""Bytes of a state at least, and its seconds in one table, measured on one core."""


class Numbers(NamedTuple):
    """What the numbers of states are: integers, if nothing else is said.

    With coefficients of so many words a number is a polynomial: its value at 2^64 to that power. With primes,
    below 2^23, it has a residue modulo each; `factors`, [variable | value | prime], multiply it.
    """

    coefficient: int = 0
    primes: Array = np.zeros(0, np.uint64)
    factors: Array = np.zeros((0, 2, 0), np.uint64)


WHOLE = Numbers()


class States:
    """The possible states of the variables that are alive, and the numbers of configurations behind them."""

    def __init__(self, memory: float, numbers: Numbers) -> None:
        self.keys, self.n = np.zeros(1, np.int64), 1
        self._memory, self._coefficient, self._primes = memory, numbers.coefficient, numbers.primes
        self.counts = np.zeros((1, max(1, self._coefficient, self._primes.size)), np.uint64)
        self.counts[0, : max(1, self._primes.size)] = 1
        self._inverses = (1 - 2.0**-50) / self._primes
        self._spare = np.empty(0, np.int64), np.empty((0, 1), np.uint64)
        self._top = 1

    def step(self, change: tuple[int, bool, bool], context: list[int], powers: Array, factors: Array) -> bool:
        """A variable leaves, one enters, or both, as the kernel has it. False: the memory is too small."""
        is_whole = self._coefficient == self._primes.size == 0
        if is_whole and self._top >> (8 * WORD_BYTES - 2):  # a sum of two might not fit
            self.counts = np.pad(self.counts, ((0, 0), (0, 1)))
        words = self.counts.shape[1] + self._coefficient * int(powers.max(initial=0))
        if len(self._spare[0]) < 2 * self.n or self._spare[1].shape[1] != words:
            if 2 * 3 * self.n * WORD_BYTES * (1 + words) > self._memory:
                return False
            self._spare = np.empty(3 * self.n, np.int64), np.empty((3 * self.n, words), np.uint64)
        keys, counts = self._spare
        shifts = np.where(powers > 0, powers * self._coefficient, powers).reshape(-1)
        old, bits = (self.keys, self.counts), np.array(context, np.int64)
        weights = shifts, factors, self._primes, self._inverses
        n, top = count_entry(old, self.n, change, bits, weights, (keys, counts))
        self._spare, self.keys, self.counts = (self.keys, self.counts), keys, counts
        self.n, self._top = n, 2 * top
        return True

    def total(self) -> Array:
        """The words or residues of the number, where no variable is alive."""
        return self.counts[0] if self.n else np.zeros(self.counts.shape[1], np.uint64)


def count_states(
    model: Model, order: Sequence[int], powers: Sequence[Array], memory: float, progress: Listener | None,
    numbers: Numbers = WHOLE,
) -> Array | None:  # fmt: skip
    """The number of configurations; None where states have too many bits or do not fit the memory.

    Powers are -1 where something is not allowed. With coefficients of so many words the number is the sum
    over configurations of 2^64 to the power of these times the sum of the factors' powers; with factors of
    values, that of their products. Gives its words, the lowest first, or its residues.
    """
    states, alive = States(memory, numbers), list[int]()
    units = np.ones((2, numbers.primes.size), np.uint64)
    for number, entry in enumerate(entries(model, order)):
        v = entry.variable
        if progress is not None and number % REPORTED == 0:
            progress(Progress(number, len(order), f"variable {number} of {len(order)}"))
        gone = set(entry.leaving)
        leaving = [variable for variable in alive if variable in gone]
        u = leaving.pop(0) if leaving else None
        scopes = [model.factors[each].variables for each in entry.factors]
        context = [each for each in dict.fromkeys(sum(scopes, ())) if each not in (u, v)]
        if len(context) > MOST_CONTEXT or len(alive) >= MOST_BITS:
            return None
        axes = [*reversed(context), u, v]
        total = joint_powers(model, powers, entry, axes)
        bits = [len(alive) - 1 - alive.index(each) for each in context]
        bit = 0 if u is None else len(alive) - 1 - alive.index(u)
        factors = numbers.factors[v] if numbers.primes.size else units
        if not states.step((bit, u is not None, True), bits, total, factors):
            return None
        alive = [variable for variable in alive if variable != u] + [v]
        for variable in [*leaving, *[v] * (v in gone)]:
            bit = len(alive) - 1 - alive.index(variable)
            if not states.step((bit, True, False), [], np.zeros(4, np.int64), units):
                return None
            alive.remove(variable)
    return states.total()


EXACT = 2**53
ROUNDED = 1 + 2**-12
"""A number of floating point is this close to what it stands for; see `at_most`."""
MOST_ROUNDINGS = 2**40
PLANNED = {algebra.name: algebra for algebra in (Residues(2), Optima())}
"""The algebras that stand in plans for all of their kind."""
LEAST_PLANNED_S, MOST_TABLE_S = 5.0, 1e5
"""Seconds of tables of a frontier from which a tree is planned, and from which no table is tried."""
WORD_BITS = 64
AT_ONCE, MOST_PRIMES = 64, 100_000
"""Primes of one run over tables, and of a number."""
PRIME_BITS = 22
"""Of each of so many primes at least."""
MOST_S = 31_557_600.0
"""Predicted seconds from which a tree is refused: a year."""
FASTEST_PER_S = {"cpu": 1e11, "gpu": 1e14}
"""More multiplications over an algebra than a device makes in a second, ten times or more."""
SHORT_SEARCH_S = 5.0
"""A search of five times as long gained less than a factor of 3 on eight families of graphs."""


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
    _check_time(calls * _least_s(call.network, algebra.dtype, options.device))
    schedule = find_schedule(call, algebra.dtype, options).schedule
    _check_time(calls * schedule.projected_s(1))
    return schedule


def _least_s(network: Network, dtype: str, device: str) -> float:
    """Seconds by an optimistic rate and without a limit of memory: those of the first tree, or of a short
    search where these are hopeless. First trees of random graphs take up to 10^11 times the work.

    A search in proportion to hopeless times, under a limit, takes minutes.
    """
    rate = FASTEST_PER_S["cpu" if device == "cpu" else "gpu"]

    def seconds(path: ContractionPath) -> float:
        return float(10.0 ** min(path_cost(path).log10_mnk_all_slices, 300.0) / rate)

    first_s = seconds(ContractionPath(network, greedy_or_orders(network, dtype), (), dtype))
    return first_s if first_s <= MOST_S else seconds(search_as_long(network, dtype, SHORT_SEARCH_S))


def _check_time(seconds: float) -> None:
    if seconds > MOST_S:
        problem = f"is too small for tables of a frontier, and a tree would take about {time_text(seconds)}"
        raise InputError("memory", problem, "allow more memory, or give a smaller instance", topic="memory")


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
    order, n_states = _order(binary, options)
    if order and not is_tree_faster(model, Residues(largest_prime()), options, STATE_S * n_states):
        words = count_states(binary, order, _powers(binary), memory_bytes(options, "cpu"), progress)
        if words is not None:
            return _number(words), 0
    bound = model.bound
    schedule = schedule_of(model, Residues(largest_prime()), options, 1 + len(list(primes_above(bound))))
    arrays = [factor.allowed.astype(int) for factor in model.factors]
    rounded = count_once(schedule, options, arrays)
    if rounded < EXACT:
        return int(rounded), 0
    closer = at_most(bound, rounded, schedule)
    return _by_tree(schedule, options, arrays, lambda value, prime: value, closer, progress)


def count_grid(sides: tuple[int, int], progress: Listener | None = None, skipped: int = 0) -> tuple[int, int]:
    """The number of independent sets of a grid, width and height, by rows on a GPU, and how many primes it
    took.

    With the largest primes `skipped` others make the number: a check of it.
    """
    from tnplan.executor.device.select import free_gpu_bytes

    free_gpu_bytes(0)  # refuses where there is no GPU
    from tnplan.executor.device.cuda.algebra import grid_rows

    primes = list(primes_above(grid_rows.most_sets(*sides), grid_rows.MOST_PRIME, skipped))
    width, height = sides
    rows = grid_rows.GridRows(width)
    return by_remainders(residues_modulo(primes, partial(rows.residue, height), progress)), len(primes)


def _order(binary: Model, options: ContractionOptions) -> tuple[list[int], float]:
    """An order for tables of states, and all their states; none where a table is far too large for the
    memory, or trees are to be contracted on a GPU."""
    order, log_size = best_order(binary, only_allowed=True)
    n_states = 2 ** min(log_size, 1000.0)
    fits = n_states / len(order) * STATE_BYTES < memory_bytes(options, "cpu") and options.device != "gpu"
    return (order if fits else []), n_states


def _powers(model: Model) -> list[Array]:
    return [factor.allowed.astype(np.int64) - 1 for factor in model.factors]


def _number(words: Array) -> int:
    return int.from_bytes(words.astype("<u8").tobytes(), "little")


def _by_tree(
    schedule: Schedule, options: ContractionOptions, arrays: Sequence[Array],
    residue: Callable[[int, int], int], bound: int, progress: Listener | None,
) -> tuple[int, int]:  # fmt: skip
    """The contraction modulo the product of primes above a bound, and how many these are.

    The arrays are of integers; `residue` gives what one of them stands for, modulo a prime.
    """
    algebra = Residues(largest_prime())
    values, numbers = np.unique(np.concatenate([each.reshape(-1) for each in arrays]), return_inverse=True)
    ends = np.cumsum([each.size for each in arrays])[:-1]

    def compute() -> int:
        prime = int(algebra.modulus[0])
        residues = np.array([residue(int(value), prime) for value in values], np.float64)
        split = np.split(residues[numbers.reshape(-1)], ends)
        return int(contraction(*(own.reshape(each.shape) for own, each in zip(split, arrays, strict=True))))

    with CompiledContraction(schedule, options.changed(algebra=algebra)) as contraction:
        residues = residues_of(algebra, compute, bound, progress)
    return by_remainders(residues), len(residues)


def count_products(
    model: Model, pairs: Sequence[tuple[int, int]], options: ContractionOptions, progress: Listener | None
) -> tuple[int, int]:
    """The sum over configurations of the products of weights of 0 and 1 of the free variables, and how many
    primes it took."""
    sums = [abs(first) + abs(second) for first, second in pairs]
    n_bits = sum(each.bit_length() for each in sums)
    if n_bits > MOST_PRIMES * PRIME_BITS:
        raise InputError("weights", f"have {n_bits:,} bits together", "round the weights to fewer digits")
    # Twice the largest number: residues from the middle on stand for numbers below 0.
    bound = 2 * prod(sums) + 1
    primes = list(primes_above(bound))
    binary, bits = model.binary()
    order, n_states = _order(binary, options)
    residues = None
    if order and not is_tree_faster(model, Residues(largest_prime()), options, STATE_S * n_states):
        weights = np.ones((len(binary.extents), 2), object)
        for variable, pair in enumerate(pairs):
            weights[bits[variable][-1]] = pair
        residues = _residues_of_states(binary, order, weights, primes, options, progress)
    if residues is not None:
        total = by_remainders(list(zip(primes, residues, strict=True)))
    else:
        arrays = [factor.allowed.astype(object) for factor in model.factors]
        near = {variable: k for k, factor in enumerate(model.factors) for variable in factor.variables}
        for variable, pair in enumerate(pairs):
            number = near[variable]
            shape = [2 if each == variable else 1 for each in model.factors[number].variables]
            arrays[number] = arrays[number] * np.array(pair, object).reshape(shape)
        schedule = schedule_of(model, Residues(largest_prime()), options, len(primes))
        total, _ = _by_tree(schedule, options, arrays, int.__mod__, bound, progress)
    return total - prod(primes) * (2 * total > bound), len(primes)


def _residues_of_states(
    binary: Model, order: Sequence[int], weights: Array, primes: Sequence[int], options: ContractionOptions,
    progress: Listener | None,
) -> list[int] | None:  # fmt: skip
    """Residues of the sum of products of weights, [variable | value]; None where the tables do not fit."""
    residues: list[int] = []
    size, memory = AT_ONCE, memory_bytes(options, "cpu")
    while len(residues) < len(primes):
        moduli = np.array(primes[len(residues) : len(residues) + size], np.uint64)
        factors = (weights[:, :, None] % moduli.astype(object)).astype(np.uint64)
        words = count_states(binary, order, _powers(binary), memory, progress, Numbers(0, moduli, factors))
        if words is not None:
            residues += map(int, words)
        elif size == 1:
            return None
        else:
            size //= 2
    return residues


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


def count_by_weight(model: Model, options: ContractionOptions, progress: Listener | None) -> dict[int, int]:
    """The number of configurations of each weight, where there are some.

    A factor of cost c is x^c: the sum is the polynomial whose coefficients are the numbers. Its value at a
    power of 2 above them has them as digits.
    """
    binary, _ = model.binary()
    order, _ = _order(binary, options)
    costs = Costs.of(binary)
    # A state has no more configurations of the variables that have left than the free variables have values.
    most = prod(model.extents[: model.n_free]).bit_length()
    numbers = Numbers(1 + most // WORD_BITS)
    words, size = None, numbers.coefficient * WORD_BITS // 8
    if order:
        words = count_states(binary, order, costs.factors, memory_bytes(options, "cpu"), progress, numbers)
    if words is not None:
        total = _number(words)
    else:
        size = 1 + most // 8
        total = _polynomial_by_tree(model, 8 * size, options, progress)
    digits = total.to_bytes(-(-total.bit_length() // 8) + size, "little")
    begins = range(0, len(digits), size)
    coefficients = [int.from_bytes(digits[begin : begin + size], "little") for begin in begins]
    return {costs.offset - costs.unit * cost: number for cost, number in enumerate(coefficients) if number}


def _polynomial_by_tree(
    model: Model, bits: int, options: ContractionOptions, progress: Listener | None
) -> int:  # fmt: skip
    """The polynomial of costs at 2 to the power of so many bits."""
    costs = Costs.of(model).factors
    n_sizes = 1 + sum(int(each.max(initial=0)) for each in costs)
    n_primes = n_sizes * bits // PRIME_BITS
    if n_primes > MOST_PRIMES:
        problem = f"is too small for the numbers of up to {n_sizes:,} sizes"
        raise InputError("memory", problem, "allow more memory, or round the weights", topic="memory")
    schedule = schedule_of(model, Residues(largest_prime()), options, 1 + n_primes)

    def residue(cost: int, prime: int) -> int:
        return pow(2, bits * cost, prime) if cost >= 0 else 0

    return _by_tree(schedule, options, costs, residue, 1 << n_sizes * bits, progress)[0]


def residues_of(
    algebra: Modular, compute: Callable[[], Any], bound: int, progress: Listener | None
) -> list[tuple[int, Any]]:
    """What is computed modulo each of the primes that tell numbers up to a bound apart."""

    def modulo(prime: int) -> Any:
        algebra.prime = prime
        return compute()

    return residues_modulo(list(primes_above(bound)), modulo, progress)


def residues_modulo(
    primes: Sequence[int], compute: Callable[[int], Any], progress: Listener | None
) -> list[tuple[int, Any]]:
    """What is computed for each of some primes, with it."""
    residues = []
    for number, prime in enumerate(primes):
        if progress is not None:
            text = f"prime {number + 1} of {len(primes)}"
            progress(Progress(number, len(primes), text, share=number / len(primes)))
        residues.append((prime, compute(prime)))
    return residues


def primes_above(bound: int, below: int = LARGEST_PRIME, skipped: int = 0) -> Iterator[int]:
    """Primes below a number, the largest first but for some, whose product is above a bound."""
    primes, product = islice(filter(is_prime, range(below - 1, 1, -1)), skipped, None), 1
    while product <= bound or product == 1:
        prime = next(primes)
        product *= prime
        yield prime


def largest_prime() -> int:
    """The largest prime of residues."""
    return next(primes_above(1))


def by_remainders(residues: Sequence[tuple[int, int]]) -> int:
    """The number from 0 to below the product of primes with these residues: the Chinese remainder theorem."""
    modulus = prod(prime for prime, _ in residues)
    total = sum(
        residue * (modulus // prime) * pow(modulus // prime, -1, prime) for prime, residue in residues
    )
    return total % modulus
