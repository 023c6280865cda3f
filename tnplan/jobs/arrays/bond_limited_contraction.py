"""What `contract` does with `max_bond`: the order, runs at the limit and at half of it, and the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from math import frexp, inf, log10, prod, sqrt
from typing import Any

import numpy as np

from tnplan.common.checks import check_count, is_finite
from tnplan.common.errors import InputError, OverLimitError
from tnplan.common.units import size_text
from tnplan.executor.bond_limited import (
    BondLimitedValue,
    CompressBond,
    ContractPair,
    contract_with_bond_limit,
)
from tnplan.executor.device.cpu.parallel_rows import blas_threads
from tnplan.jobs.arrays.arrays import (
    ArrayKind,
    common_dtype,
    common_kind,
    computed_dtype,
    host_array,
    refuse_followed,
    stated_dtype,
)
from tnplan.jobs.arrays.options import ContractionOptions, in_bytes
from tnplan.jobs.arrays.planning import memory_bytes, read_request
from tnplan.planner.networks.importers.subscripts import EinsumCall
from tnplan.planner.networks.pair_network import PairNetwork
from tnplan.planner.search.bond_limited_order import follow, search_order

TOPIC = "bond limits"
CUTOFF = 1e-10
MOST, OF_RATIO, OF_DISCARDED, ROUNDINGS = 4.0, 30.0, 0.6, 1e3
"""What an estimate of an error is made of: see `_error_estimate`. Fitted to the first 1,500 seeds of
tests/support/bond_limited_cases.py and to larger lattices; its test has other seeds."""


@dataclass(frozen=True)
class BondLimitedContraction:
    """What `contract` gives with `max_bond`: an approximate value, and an estimate of its error.

    Parameters
    ----------
    mantissa : float or complex
        The value is mantissa * 10^exponent; the mantissa's largest real or imaginary part is from 0.5 to 1.
    exponent : float
        The power of ten.
    max_bond : int
        The limit of bonds.
    error_estimate : float
        Estimate of |value - exact value| / |value|, from the difference of the values at `max_bond` and at
        half of it, and from the discarded weight. It is no bound: on random lattices, circuits and graphs the
        error is below it in nine cases of ten. 0 where the value is exact, infinity where nothing is known.
    discarded_weight : float
        The sum over all bonds that were cut of the squares of the singular values that were left out, over
        those of all singular values of the bond.
    largest_discarded_weight : float
        The largest of these shares.
    exact : bool
        Whether no singular value was left out: the value is exact to rounding.
    details : dict
        `half_value`, mantissa and exponent with half the limit, or the same where the value is exact; `cuts`,
        how many bonds lost singular values; the predicted `multiply_adds` and `peak_bytes`; the `device`.

    Examples
    --------
    >>> tnplan.contract("ab,bc,ca->", *[np.ones((4, 4))] * 3, max_bond=2)
    BondLimitedContraction(64, exact, max_bond 2)
    """

    mantissa: float | complex
    exponent: float
    max_bond: int
    error_estimate: float
    discarded_weight: float
    largest_discarded_weight: float
    exact: bool
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def value(self) -> float | complex:
        """The number itself: 0 or infinite parts where it is beyond floating point."""
        whole = round(self.exponent)
        # Two powers: one alone may be beyond the range where the number is not.
        number = np.complex128(self.mantissa) * 10.0 ** (self.exponent - whole)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            for power in (whole // 2, whole - whole // 2):
                number = number * np.float64(10.0) ** power
        return complex(number) if isinstance(self.mantissa, complex) else float(number.real)

    def __repr__(self) -> str:
        number = f"{self.value:.6g}"
        if abs(self.exponent) > 300:
            number = f"{self.mantissa:.6g} x 10^{self.exponent:.6g}"
        error = "exact" if self.exact else f"relative error estimate {self.error_estimate:.1e}"
        return f"BondLimitedContraction({number}, {error}, max_bond {self.max_bond})"


def contract_bond_limited(
    network: Any, arrays: Sequence[Any], settings: tuple[Any, ...], max_bond: int | None, cutoff: float | None
) -> BondLimitedContraction:
    """Contract a closed network with a bond limit; the settings are those of `contract_arrays`, and then
    `algebra` and `out`."""
    if max_bond is None:
        raise InputError("cutoff", "is for contractions with a bond limit", "give max_bond, too")
    max_bond = check_count("max_bond", max_bond, 2)
    cutoff = CUTOFF if cutoff is None else cutoff
    if not (is_finite(cutoff) and 0 <= cutoff < 1):
        raise InputError("cutoff", f"is {cutoff!r}", "give a number from 0, below 1")
    options = _options(settings)
    call = read_request(network, arrays, takes_shapes=False)
    _check_network(call)
    refuse_followed(enumerate(call.operands))
    dtype = computed_dtype(common_dtype(tuple(map(stated_dtype, call.operands))))
    kind = common_kind(call.operands)
    gpu = None if options.device == "cpu" else kind.gpu
    gpu = 0 if gpu is None and options.device == "gpu" else gpu
    pairs = PairNetwork(call.network)
    limit = memory_bytes(options.changed(gpu=gpu), "cpu" if gpu is None else "gpu")
    # Gram matrices of single precision are made in double precision.
    item_bytes = 16 if dtype.startswith("complex") else 8
    components = [_Component(pairs, numbers, max_bond, limit / item_bytes) for numbers in pairs.components]
    # Each counts its own tensors, and the others are there as well.
    inputs = sum(component.size for component in components)
    peak_bytes = item_bytes * max(one.order.peak_elements + 2 * (inputs - one.size) for one in components)
    if peak_bytes > limit:
        problem = f"is {size_text(limit)}, and {size_text(peak_bytes)} are needed with max_bond={max_bond}"
        raise OverLimitError("memory", problem, "give a smaller max_bond, or more memory", topic=TOPIC)
    threads = nullcontext() if options.threads is None else blas_threads(options.threads)
    with threads, _library(kind, gpu) as (xp, read):
        arrays = [
            _finite(read(array, number), number, dtype, xp) for number, array in enumerate(call.operands)
        ]
        tensors, exponent = pairs.tensors(arrays, xp)

        def run(bond: int) -> BondLimitedValue:
            values = [component.contract(tensors, bond, cutoff, xp) for component in components]
            return _product(values, exponent)

        value = run(max_bond)
        half = run(max_bond // 2) if value.discarded else value
    details = {
        "half_value": _in_tens(half), "cuts": len(value.discarded), "peak_bytes": peak_bytes,
        "multiply_adds": sum(component.order.multiply_adds for component in components),
        "device": "cpu" if gpu is None else f"gpu {gpu}",
    }  # fmt: skip
    error = _error_estimate(value, half, float(np.finfo(dtype).eps))
    return BondLimitedContraction(
        *_in_tens(value), max_bond, error, sum(value.discarded), max(value.discarded, default=0.0),
        not value.discarded, details,
    )  # fmt: skip


def _options(settings: tuple[Any, ...]) -> ContractionOptions:
    """What goes with a bond limit; raises InputError for the other options."""
    optimize, hardware, memory, precision, device, devices, threads, strips, algebra, out = settings
    is_free = optimize is None or optimize is True or (isinstance(optimize, str) and optimize == "auto")
    for name, is_given in {
        "optimize": not is_free, "hardware": hardware is not None, "precision": precision is not None,
        "devices": devices != 1, "strip_exponent": bool(strips), "algebra": algebra is not None,
        "out": out is not None,
    }.items():  # fmt: skip
        if is_given:
            raise InputError(name, "is not for contractions with a bond limit", "leave it or max_bond out")
    return ContractionOptions(memory=in_bytes(memory), device=device, threads=threads)


def _check_network(call: EinsumCall) -> None:
    """Refuse what has no one value, or an order of its own."""
    if call.output:
        problem = f"is for networks without open indices, and {len(call.output)} are open here"
        raise InputError("max_bond", problem, "sum its indices, or leave max_bond out")
    if call.path is not None or call.schedule is not None:
        problem = "takes an order of its own, and a path or a schedule is given"
        raise InputError("max_bond", problem, "give its network")
    if not call.operands:
        raise InputError("contract", "has no arrays", "give one array a tensor")
    if 0 in call.size_dict.values():
        raise InputError("max_bond", "is for axes with elements, and one has none", "leave max_bond out")


def _finite(array: Any, number: int, dtype: str, xp: Any) -> Any:
    """An array in the dtype of all; raises InputError where it has NaN or infinity."""
    array = xp.asarray(array, dtype)
    if not bool(xp.isfinite(array).all()):
        raise InputError(f"array {number}", "has NaN or infinity", "give finite numbers", topic=TOPIC)
    return array


@contextmanager
def _library(kind: ArrayKind, gpu: int | None) -> Iterator[tuple[Any, Callable[[Any, int], Any]]]:
    """The library that contracts, at work on its device, and what reads arrays of a kind for it."""

    def on_host(array: Any, number: int) -> Any:
        return host_array(array, f"array {number}")

    if gpu is None:
        yield np, on_host
        return
    from tnplan.executor.device.cuda.runtime.library_arrays import cupy_in_order, on_gpu

    with cupy_in_order(kind.library, gpu) as (cupy, stream):
        yield cupy, on_host if kind.gpu is None else lambda array, number: on_gpu(array, stream)


class _Component:
    """A connected part of a network, and its order."""

    def __init__(self, pairs: PairNetwork, numbers: list[int], max_bond: int, most_elements: float) -> None:
        self._numbers = numbers
        names = {number: name for name, number in enumerate(numbers)}
        self._shapes = [
            {names[other]: extent for other, extent in pairs.bonds[number].items()} for number in numbers
        ]
        self.size = sum(prod(bonds.values()) for bonds in self._shapes)
        self.order = search_order(self._shapes, max_bond, most_elements)

    def contract(self, tensors: Sequence[Any], max_bond: int, cutoff: float, xp: Any) -> BondLimitedValue:
        """Contract it with a limit, in the order that was found."""
        order = follow(self._shapes, self.order.pairs, max_bond)
        steps: list[ContractPair | CompressBond] = []
        pairs = zip(order.pairs, order.compressions, strict=True)
        for new, (pair, bonds) in enumerate(pairs, len(self._shapes)):
            steps += [ContractPair(*pair, new), *(CompressBond(*bond) for bond in bonds)]
        own = [tensors[number] for number in self._numbers]
        neighbours = [list(bonds) for bonds in self._shapes]
        return contract_with_bond_limit(own, neighbours, steps, max_bond, cutoff, xp)


def _product(values: Sequence[BondLimitedValue], exponent: int) -> BondLimitedValue:
    """The product of the values of all components, and a power of 2."""
    mantissa: float | complex = 1.0
    for value in values:
        mantissa *= value.mantissa
        power = frexp(max(abs(mantissa.real), abs(mantissa.imag)))[1]
        mantissa *= 2.0**-power
        exponent += power + value.exponent
    return BondLimitedValue(mantissa, exponent, [share for value in values for share in value.discarded])


def _in_tens(value: BondLimitedValue) -> tuple[float | complex, float]:
    """Mantissa and exponent of ten."""
    return value.mantissa, value.exponent * log10(2.0) if value.mantissa else 0.0


def _error_estimate(value: BondLimitedValue, half: BondLimitedValue, epsilon: float) -> float:
    """The estimate of the relative error of `value`, whose bond is twice that of `half`.

    Their difference is about the error of `half`. That of `value` is smaller as the root of the discarded
    weight is. What this leaves out is in the factors, in a share of that root, and in the dtype's rounding.
    """
    if not value.discarded:
        return 0.0
    if not value.mantissa:
        return inf
    weights = sum(value.discarded), sum(half.discarded)
    ratio = sqrt(weights[0] / weights[1]) if weights[1] else 1.0
    power = min(half.exponent - value.exponent, 1000)
    difference = abs(1 - half.mantissa / value.mantissa * 2.0**power)
    return max(difference * min(MOST, OF_RATIO * ratio), OF_DISCARDED * sqrt(weights[0]), ROUNDINGS * epsilon)
