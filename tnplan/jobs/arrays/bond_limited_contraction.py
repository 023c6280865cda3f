"""What `contract` does with `max_bond`: the order, runs at the limit and at half of it, and the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from math import frexp, inf, log10, prod, sqrt
from typing import Any, NamedTuple, cast

import numpy as np

from tnplan.common.arrays import ITEM_BYTES
from tnplan.common.checks import check_choice, check_count, is_finite
from tnplan.common.errors import InputError, OverLimitError
from tnplan.common.shown_text import Printed
from tnplan.common.system_calls import cores
from tnplan.common.units import plural, size_text
from tnplan.executor.bond_limited.dry_run import StepWork, dry_run, dry_run_over_ranks
from tnplan.executor.bond_limited.network import (
    BondLimitedStep,
    BondLimitedValue,
    CompressBond,
    CompressRow,
    ContractPair,
    contract_with_bond_limit,
)
from tnplan.executor.bond_limited.rates import seconds_of
from tnplan.executor.device.cpu.parallel_rows import blas_threads
from tnplan.jobs.arrays.arrays import (
    NUMPY_ARRAY,
    ArrayKind,
    common_dtype,
    common_kind,
    computed_dtype,
    host_array,
    refuse_followed,
    stated_dtype,
)
from tnplan.jobs.arrays.bond_limited_ranks import Division, contract_on_devices
from tnplan.jobs.arrays.options import ContractionOptions, in_bytes
from tnplan.jobs.arrays.planning import memory_bytes, read_request, stated
from tnplan.jobs.job_options import LARGEST_RANKS
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import dtype_name
from tnplan.planner.networks.importers.libraries import sites_in_quimb
from tnplan.planner.networks.importers.subscripts import EinsumCall
from tnplan.planner.networks.lattice_sites import Site, sites_of
from tnplan.planner.networks.network import PairNetwork, largest_component
from tnplan.planner.search.bond_limited_order import BondLimitedOrder, follow, search_order
from tnplan.planner.search.bond_limited_owners import owners_of, share_of_time
from tnplan.planner.search.boundary_order import boundary_order

TOPIC = "bond limits"
CUTOFF = 1e-10
MODES = ("auto", "compressed", "boundary")
SIDES = 2
WORTH = 4.0
"""Multiply-adds of a boundary contraction in those of the other order up to which its smaller error is worth
them: with twice the bond that one takes 6 to 8 times as many."""
MOST, OF_RATIO, OF_DISCARDED, ROUNDINGS = 4.0, 30.0, 0.6, 1e3
"""What an estimate of an error is made of: see `_error_estimate`. Fitted to the first 1,500 seeds of
tests/support/bond_limited_cases.py and to larger lattices; its test has other seeds."""
OF_CUTOFF, OF_LOST = 30.0, 30.0
"""What singular values below the cutoff count in the value: both bonds leave them out alike, so that no
difference shows them. Of 270 norms of positive PEPS the cutoff changed none by more than 1.6 times itself."""
OBJECTS_BYTES, TENSOR_BYTES = 10_000, 1_950
"""What small objects take, and those of a tensor."""
OF_GRADIENTS = 1.25
"""The estimate for gradients, in their difference to those at half of the bond: fitted to seeds 1000 to
1299."""


class _Limits(NamedTuple):
    """How it is contracted: the sites are those that the tensors of the network name."""

    max_bond: int
    cutoff: float
    mode: str
    sites: Sequence[Site | None] | None


@dataclass(frozen=True)
class BondLimitedContraction(Printed):
    """What `contract` gives with `max_bond`: an approximate value, and an estimate of its error.

    Parameters
    ----------
    mantissa : float, complex or array
        The value is mantissa * 10^exponent; the mantissa's largest real or imaginary part is from 0.5 to 1.
        Of a network with open indices an array of NumPy, whose axes are these.
    exponent : float
        The power of ten.
    max_bond : int
        The limit of bonds.
    error_estimate : float
        Estimate of |value - exact value| / |value|, of arrays with the root of the sum of squares. It comes
        from the difference of the values at `max_bond` and at half of it, and from the discarded weight, and
        is no bound: on random lattices, circuits and graphs the error is below it in nine cases of ten. 0
        where the value is exact, infinity where nothing is known.
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
    work : object
        What `gradients` takes, with the arrays.

    Examples
    --------
    >>> tnplan.contract("ab,bc,ca->", *[np.ones((4, 4))] * 3, max_bond=2)
    BondLimitedContraction(64, exact, max_bond 2)
    """

    mantissa: Any
    exponent: float
    max_bond: int
    error_estimate: float
    discarded_weight: float
    largest_discarded_weight: float
    exact: bool
    details: dict[str, Any] = field(default_factory=dict)
    work: Any = field(default=None, repr=False, compare=False)

    def gradients(self) -> BondLimitedGradients:
        """The derivatives of the logarithm of the value by all arrays, by another contraction.

        Those of a sum of values are their sum with the values as factors. Bonds are cut as they are for the
        value, and the projectors are taken as constant: each array times its derivatives sums to 1.

        Returns
        -------
        BondLimitedGradients
            Arrays of NumPy with the shapes of those given, and an estimate of their error.

        Raises
        ------
        InputError
            Where indices are open, the value is 0, or the memory does not suffice.

        Examples
        --------
        >>> found = tnplan.contract("ab,ba->", np.ones((2, 2)), np.ones((2, 2)), max_bond=2)
        >>> found.gradients().arrays[0]
        array([[0.25, 0.25],
               [0.25, 0.25]])
        """
        return cast(BondLimitedGradients, self.work.gradients())

    @staticmethod
    def estimate(
        network: Any, *arrays: Any, max_bond: int, mode: str = "auto", dtype: str | None = None,
        memory: float | str | None = None, devices: int = 1, threads: int | None = None,
    ) -> BondLimitedEstimate:  # fmt: skip
        """Predict what `contract` takes with a bond limit on a CPU, without contracting.

        The order is searched, as for the contraction, and kept for it. Its steps are followed by their
        shapes, and their time comes from rates of this machine, which are measured once a process.

        Parameters
        ----------
        network : str, array, Network or network of quimb
            As in `contract`.
        *arrays : array_like or tuple
            Arrays, or shapes where `network` is an equation.
        max_bond : int
            The limit of bonds.
        mode : {"auto", "compressed", "boundary"}
            As in `contract`.
        dtype : str, optional
            That of the arrays where shapes are given.
        memory : float or str, optional
            The most bytes, as in `contract`.
        devices : int
            The devices that share the work, as in `contract`.
        threads : int, optional
            As in `contract`.

        Returns
        -------
        BondLimitedEstimate
            Seconds, bytes and multiply-adds.

        Raises
        ------
        InputError
            Where `contract` refuses the network or the memory, or a dtype is missing.

        Examples
        --------
        >>> pair = "ab,ab->", (300, 200), (300, 200)
        >>> tnplan.BondLimitedContraction.estimate(*pair, max_bond=8, dtype="float32").multiply_adds
        60000.0
        """
        call = read_request(network, arrays)
        _check_network(call)
        check_count("devices", devices, 1, LARGEST_RANKS)
        options = ContractionOptions(memory=in_bytes(memory), device="cpu", devices=devices, threads=threads)
        dtype = stated(call, network) if dtype is None else dtype_name(dtype, "dtype")
        check_choice("mode", mode, MODES)
        limits = _Limits(check_count("max_bond", max_bond, 2), CUTOFF, mode, sites_in_quimb(network))
        work = _Work(call, dtype, options, limits)
        work.check_memory()
        return BondLimitedEstimate(work.predicted_s(), work.peak_bytes, work.multiply_adds)

    @property
    def value(self) -> Any:
        """The number or the array itself: 0 or infinite parts where it is beyond floating point."""
        whole = round(self.exponent)
        # Two powers: one alone may be beyond the range where the number is not.
        number = np.asarray(self.mantissa, np.complex128) * 10.0 ** (self.exponent - whole)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            for power in (whole // 2, whole - whole // 2):
                number = number * np.float64(10.0) ** power
        number = number if np.iscomplexobj(self.mantissa) else number.real
        return number if np.ndim(self.mantissa) else number.item()

    def __repr__(self) -> str:
        if np.ndim(self.mantissa):
            number = "x".join(map(str, np.shape(self.mantissa))) + " values"
        else:
            number = f"{self.value:.6g}"
        if abs(self.exponent) > 300 and not np.ndim(self.mantissa):
            number = f"{self.mantissa:.6g} x 10^{self.exponent:.6g}"
        error = "exact" if self.exact else f"relative error estimate {self.error_estimate:.1e}"
        return f"BondLimitedContraction({number}, {error}, max_bond {self.max_bond})"


class BondLimitedGradients(NamedTuple):
    """Derivatives of the logarithm of a value that was contracted with a bond limit.

    Parameters
    ----------
    arrays : list of array
        Of each array that was given; nothing is conjugated.
    error_estimate : float
        Estimate of the error of all of them, as a share of their norm; no bound. 0 where nothing was cut.
    """

    arrays: list[Any]
    error_estimate: float


class BondLimitedEstimate(NamedTuple):
    """What a contraction with a bond limit takes, as predicted from shapes.

    Parameters
    ----------
    time_s : float
        Seconds at `max_bond` and, where bonds are cut, at half of it, without the search of the order; of
        several devices with their messages, at the link's rate in the shipped profile "cpu".
    memory_bytes : int
        The most bytes that are there at once on a device, without the arrays that are given.
    multiply_adds : float
        Of the contraction at `max_bond`.
    """

    time_s: float
    memory_bytes: int
    multiply_adds: float


def contract_bond_limited(
    network: Any, arrays: Sequence[Any], settings: tuple[Any, ...], max_bond: int | None,
    cutoff: float | None, mode: str | None,
) -> BondLimitedContraction | None:  # fmt: skip
    """Contract a network with a bond limit; the settings are those of `contract_arrays`, and then
    `algebra` and `out`. None where rank 0 in another process has the result."""
    if max_bond is None:
        place = "mode" if cutoff is None else "cutoff"
        raise InputError(place, "is for contractions with a bond limit", "give max_bond, too")
    check_choice("mode", mode := mode or "auto", MODES)
    max_bond = check_count("max_bond", max_bond, 2)
    cutoff = CUTOFF if cutoff is None else cutoff
    if not (is_finite(cutoff) and 0 <= cutoff < 1):
        raise InputError("cutoff", f"is {cutoff!r}", "give a number from 0, below 1")
    options = _options(settings)
    call = read_request(network, arrays, takes_shapes=False)
    _check_network(call)
    limits = _Limits(max_bond, cutoff, mode, sites_in_quimb(network))
    refuse_followed(enumerate(call.operands))
    dtype = computed_dtype(common_dtype(tuple(map(stated_dtype, call.operands))))
    kind = common_kind(call.operands)
    gpu = None if options.device == "cpu" else kind.gpu
    gpu = 0 if gpu is None and options.device == "gpu" else gpu
    options = options.changed(gpu=gpu)
    if options.devices > 1:
        done = _on_devices(call, dtype, options, limits)
        if done is None:
            return None
        work, value, half, device = done
    else:
        work = _Work(call, dtype, options, limits, kind)
        work.check_memory()
        with work.tensors() as (tensors, exponent, xp):
            value = work.run(tensors, exponent, max_bond, xp)
            half = work.run(tensors, exponent, max_bond // 2, xp) if value.discarded else value
        device = "cpu" if gpu is None else f"gpu {gpu}"
    details = {
        "half_value": _in_tens(half), "cuts": len(value.discarded), "peak_bytes": work.peak_bytes,
        "multiply_adds": work.multiply_adds, "device": device, "devices": options.devices,
        "mode": work.mode,
    }  # fmt: skip
    error = _error_estimate(value, half, cutoff, float(np.finfo(dtype).eps))
    return BondLimitedContraction(
        *_in_tens(value), max_bond, error, sum(value.discarded), max(value.discarded, default=0.0),
        not value.discarded, details, work,
    )  # fmt: skip


def _on_devices(
    call: EinsumCall, dtype: str, options: ContractionOptions, limits: _Limits
) -> tuple[_Work, BondLimitedValue, BondLimitedValue, str] | None:
    """The values at the limit and at half of it by several devices; None on other ranks than rank 0."""
    # Arrays of a GPU are read in this thread, whose stream they may still be made in.
    arrays = [host_array(one, f"array {k}") for k, one in enumerate(call.operands)]
    made = list[_Work]()

    def divide() -> Division:
        made.append(_Work(call._replace(operands=tuple(arrays)), dtype, options, limits))
        return made[0].division()

    both = [(bond, limits.cutoff) for bond in (limits.max_bond, limits.max_bond // 2)]
    found = contract_on_devices(
        divide, PairNetwork(call.network), lambda k: _finite(arrays[k], k, dtype, np), dtype, both, options
    )
    if found is None:
        return None
    work = made[0]
    values = [_product(values, found.exponent, work.shape, np) for values in found.values]
    return work, values[0], values[-1], found.device


class _Work:
    """A network, its arrays and its order: what values and gradients are made of."""

    def __init__(
        self, call: EinsumCall, dtype: str, options: ContractionOptions, limits: _Limits,
        kind: ArrayKind = NUMPY_ARRAY,
    ) -> None:  # fmt: skip
        self._operands, self._dtype, self._kind, self._gpu = call.operands, dtype, kind, options.gpu
        self._threads, self._devices, self._cutoff = options.threads, options.devices, limits.cutoff
        self._limit = memory_bytes(options, "cpu" if options.gpu is None else "gpu")
        self.max_bond = limits.max_bond
        self.shape = tuple(call.size_dict[index] for index in call.output)
        self._pairs = PairNetwork(call.network)
        # Gram matrices of single precision are made in double precision.
        item_bytes = 16 if dtype.startswith("complex") else 8
        most = self._limit / item_bytes
        if options.memory is not None or options.gpu is not None:  # what is free on a host is that of all
            most *= self._devices
        self.components = [
            _Component(self._pairs, part, limits, most, self._devices) for part in self._pairs.components
        ]
        if limits.mode == "boundary" and self._devices > SIDES:
            problem = f"is {self._devices}, and a boundary contraction has two sides"
            raise InputError("devices", problem, "give 1 or 2, or another mode", topic=TOPIC)
        self.mode = "boundary" if any(one.order.sides for one in self.components) else "compressed"
        if limits.mode == "boundary" and not any(one.is_lattice for one in self.components):
            problem = "is 'boundary', but no square lattice is recognised"
            remedy = "tag tensors with sites of rows and columns as quimb does, or leave it out"
            raise InputError("mode", problem, remedy, topic=TOPIC)
        self.multiply_adds = sum(component.order.multiply_adds for component in self.components)
        self._peaks = self._peaks_of_devices()
        self.peak_bytes = max(self._peaks)
        kept = sum(component.order.operand_elements for component in self.components)
        inputs = sum(component.size for component in self.components)
        self._gradient_bytes = self.peak_bytes + item_bytes * (kept + 2 * inputs)

    def _peaks_of_devices(self) -> list[int]:
        """The bytes that are there at once at most on each device, by the shapes of all steps."""
        item_bytes = ITEM_BYTES[self._dtype]
        bonds = self._pairs.bonds
        copies = {
            number: prod(one.shape) for number, one in enumerate(self._operands)
            if hasattr(one, "dtype") and (self._gpu is not None or stated_dtype(one) != self._dtype)
        }  # fmt: skip
        works = [one.works(self.max_bond, self._dtype) for one in self.components]
        peaks = []
        for rank in range(self._devices):
            own = [component.tensors_of(rank) for component in self.components]
            sizes = [item_bytes * sum(prod(bonds[n].values()) for n in numbers) for numbers in own]
            # Each component has its own tensors, and those of the others are there as well.
            most = max(of[rank].peak_bytes - size for of, size in zip(works, sizes, strict=True))
            copied = item_bytes * sum(copies.get(n, 0) for numbers in own for n in numbers)
            result = 4 * item_bytes * prod(self.shape) if rank == 0 else 0
            objects = OBJECTS_BYTES + TENSOR_BYTES * len(bonds)
            peaks.append(objects + sum(sizes) + most + copied + result)
        return peaks

    def division(self) -> Division:
        """What each rank does."""
        limits = self.max_bond, self.max_bond // 2
        return Division(
            [[one.steps(bond, self._dtype) for one in self.components] for bond in limits],
            [one.owners for one in self.components], self._peaks,
        )  # fmt: skip

    def predicted_s(self) -> float:
        """The seconds of all runs on CPUs."""
        threads = self._threads
        if threads is None and self._devices > 1:
            threads = max(1, cores() // self._devices)
        with nullcontext() if threads is None else blas_threads(threads):
            works = [one.work(self.max_bond, self._dtype) for one in self.components]
            if any(work.cuts for work in works):
                works += [one.work(self.max_bond // 2, self._dtype) for one in self.components]
            alone = seconds_of(works, len(self._pairs.bonds))
        bonds = (self.max_bond, self.max_bond // 2)[: 1 + any(work.cuts for work in works)]
        return alone * share_of_time([one.part for one in self.components]) + self._messages_s(bonds)

    def _messages_s(self, bonds: Sequence[int]) -> float:
        """The seconds of the messages of the rank that has most, with each limit: they go one by one."""
        if self._devices == 1:
            return 0.0
        tier = load_profile("cpu").link(self._devices)
        return sum(
            max(
                tier.messages_s(work.messages, work.sent_bytes + work.received_bytes)
                for work in one.works(bond, self._dtype)
            )
            for bond in bonds for one in self.components
        )  # fmt: skip

    def check_memory(self, peak_bytes: float | None = None, purpose: str = "") -> None:
        """Refuse what does not fit a device: the contraction, or what takes so much."""
        peak_bytes = self.peak_bytes if peak_bytes is None else peak_bytes
        if peak_bytes > self._limit:
            needed = f"{size_text(peak_bytes)} are needed{purpose} with max_bond={self.max_bond}"
            remedy = "give a smaller max_bond, or more memory"
            if self.shape:
                needed += f" and {plural(len(self.shape), 'open index', 'open indices')}"
                remedy = "sum or fix open indices, give a smaller max_bond, or more memory"
            raise OverLimitError("memory", f"is {size_text(self._limit)}, and {needed}", remedy, topic=TOPIC)

    @contextmanager
    def tensors(self) -> Iterator[tuple[list[Any], int, Any]]:
        """The tensors on the device, at work there, the power of 2 of their product, and their library."""
        threads = nullcontext() if self._threads is None else blas_threads(self._threads)
        with threads, _library(self._kind, self._gpu) as (xp, read):
            # Many small calls: arrays of the host are made ready there, where each takes less.
            near = np if self._kind.gpu is None else xp
            arrays = [_finite(read(one, k), k, self._dtype, near) for k, one in enumerate(self._operands)]
            tensors, exponent = self._pairs.tensors(arrays, self._dtype, near)
            yield [xp.asarray(one) for one in tensors], exponent, xp

    def run(self, tensors: Sequence[Any], exponent: int, bond: int, xp: Any) -> BondLimitedValue:
        """The value with a limit."""
        values = [component.contract(tensors, bond, self._cutoff, xp) for component in self.components]
        return _product(values, exponent, self.shape, xp)

    def gradients(self) -> BondLimitedGradients:
        """The derivatives of the logarithm, and their estimate."""
        if self._devices > 1:
            problem = f"are for one device, and the value comes from {self._devices}"
            raise InputError("gradients", problem, "contract on one device")
        if self.shape:
            raise InputError(
                "gradients",
                "are those of a single number, but the result has open indices",
                "sum or fix these indices",
            )
        self.check_memory(self._gradient_bytes, " for gradients")
        with self.tensors() as (tensors, _, xp):
            full, is_cut = self._relative(tensors, self.max_bond, xp)
            if not is_cut:
                return BondLimitedGradients(full, 0.0)
            half, _ = self._relative(tensors, self.max_bond // 2, xp)
        difference = sqrt(sum(np.linalg.norm(a - b) ** 2 for a, b in zip(full, half, strict=True)))
        size = sqrt(sum(np.linalg.norm(one) ** 2 for one in full))
        rounding = ROUNDINGS * float(np.finfo(self._dtype).eps)
        return BondLimitedGradients(full, max(OF_GRADIENTS * difference / size, rounding))

    def _relative(self, tensors: Sequence[Any], bond: int, xp: Any) -> tuple[list[Any], bool]:
        """The derivatives of the logarithm by all arrays, and whether bonds were cut."""
        found: dict[int, Any] = {}
        is_cut = False
        for component in self.components:
            value = component.contract(tensors, bond, self._cutoff, xp, has_gradients=True)
            if not value.mantissa:
                raise InputError("gradients", "are relative to the value, and it is 0", "change the tensors")
            found |= component.numbered([one / value.mantissa for one in value.gradients])
            is_cut |= bool(value.discarded)
        host = {k: one.get() if hasattr(one, "get") else one for k, one in found.items()}
        arrays = [np.asarray(host_array(one, f"array {k}")) for k, one in enumerate(self._operands)]
        return self._pairs.by_arrays(host, arrays), is_cut


def _options(settings: tuple[Any, ...]) -> ContractionOptions:
    """What goes with a bond limit; raises InputError for the other options."""
    optimize, hardware, memory, precision, device, devices, threads, strips, algebra, out = settings
    is_free = optimize is None or optimize is True or (isinstance(optimize, str) and optimize == "auto")
    for name, is_given in {
        "optimize": not is_free, "hardware": hardware is not None, "precision": precision is not None,
        "strip_exponent": bool(strips), "algebra": algebra is not None, "out": out is not None,
    }.items():  # fmt: skip
        if is_given:
            raise InputError(name, "cannot be combined with max_bond", "leave one of them out")
    check_count("devices", devices, 1, LARGEST_RANKS)
    return ContractionOptions(memory=in_bytes(memory), device=device, devices=devices, threads=threads)


def _check_network(call: EinsumCall) -> None:
    """Refuse what has no one value, or an order of its own."""
    if call.path is not None or call.schedule is not None:
        problem = "finds its own order, but a path or a schedule is given"
        raise InputError("max_bond", problem, "give its network")
    if not call.operands:
        raise InputError("contract", "has no arrays", "give one array per tensor")
    if 0 in call.size_dict.values():
        raise InputError("max_bond", "needs axes with elements, but one axis has none", "leave max_bond out")


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

    def __init__(
        self, pairs: PairNetwork, numbers: list[int], limits: _Limits, most_elements: float, devices: int
    ) -> None:
        self._numbers, self._devices = numbers, devices
        self._shapes = pairs.bonds_within(numbers)
        self._bonds = tuple(tuple(bonds.items()) for bonds in self._shapes)
        self.size = sum(prod(bonds.values()) for bonds in self._shapes)
        # A row is cut from end to end: only the two sides go on at the same time.
        has_rows = limits.mode == "boundary" or (limits.mode == "auto" and devices <= SIDES)
        of_rows = self._by_rows(pairs, limits) if has_rows else None
        self.is_lattice = of_rows is not None
        self.order = self._chosen(of_rows, limits, most_elements)
        self.owners = owners_of(self._shapes, self.order, devices)
        self.part = len(numbers), self.order, self.owners
        rows = tuple((pair, tuple(row for row, _ in found)) for pair, found in self.order.rows.items())
        self._order_key = tuple(self.order.pairs), rows if self.order.sides else None

    def _by_rows(self, pairs: PairNetwork, limits: _Limits) -> BondLimitedOrder | None:
        """The order of a boundary contraction; None where this is no lattice."""
        n_arrays = sum(number < pairs.n_arrays for number in self._numbers)
        named = limits.sites and [
            limits.sites[number] if number < pairs.n_arrays else None for number in self._numbers
        ]
        sites = sites_of(self._shapes, n_arrays, named)
        return None if sites is None else boundary_order(self._shapes, sites, limits.max_bond)

    def _chosen(
        self, of_rows: BondLimitedOrder | None, limits: _Limits, most_elements: float
    ) -> BondLimitedOrder:
        """The order by rows where it is asked for, or fits and its smaller error is worth its work."""
        if of_rows is not None and limits.mode == "boundary":
            return of_rows
        other = search_order(self._shapes, limits.max_bond, most_elements)
        if of_rows is None or of_rows.peak_elements > most_elements:
            return other
        is_cut = any(other.compressions)
        return of_rows if is_cut and of_rows.multiply_adds <= WORTH * other.multiply_adds else other

    def tensors_of(self, rank: int) -> list[int]:
        """The tensors that a rank has, by their number in the network."""
        return [n for n, owner in zip(self._numbers, self.owners, strict=False) if owner == rank]

    def works(self, max_bond: int, dtype: str) -> list[StepWork]:
        """What the steps take of each device."""
        if self._devices == 1:
            return [self.work(max_bond, dtype)]
        works = _works_of_ranks(self._bonds, self._order_key, max_bond, dtype, tuple(self.owners))
        return works + [StepWork()] * (self._devices - len(works))

    def steps(self, max_bond: int, dtype: str) -> list[BondLimitedStep]:
        """The steps with a limit, in the order that was found."""
        return _steps(self._bonds, self._order_key, max_bond, dtype)[0]

    def work(self, max_bond: int, dtype: str) -> StepWork:
        """What the steps take with a limit, by their shapes."""
        return _steps(self._bonds, self._order_key, max_bond, dtype)[1]

    def numbered(self, found: Sequence[Any]) -> dict[int, Any]:
        """Of each tensor by its number in the network."""
        return dict(zip(self._numbers, found, strict=True))

    def contract(
        self, tensors: Sequence[Any], max_bond: int, cutoff: float, xp: Any, has_gradients: bool = False
    ) -> BondLimitedValue:
        """Contract it with a limit, in the order that was found."""
        steps = self.steps(max_bond, str(tensors[0].dtype))
        own = [tensors[number] for number in self._numbers]
        neighbours = [list(bonds) for bonds in self._shapes]
        return contract_with_bond_limit(own, neighbours, steps, max_bond, cutoff, xp, has_gradients)


_OrderKey = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, tuple[tuple[int, ...], ...]], ...] | None]
"""The pairs of an order, and its rows by the numbers of pairs."""


@lru_cache(256)
def _works_of_ranks(
    bonds: tuple[tuple[tuple[int, int], ...], ...], order: _OrderKey, max_bond: int, dtype: str,
    owners: tuple[int, ...],
) -> list[StepWork]:  # fmt: skip
    """What the steps take of each rank that has tensors."""
    steps, _ = _steps(bonds, order, max_bond, dtype)
    return dry_run_over_ranks([*map(dict, bonds)], steps, max_bond, dtype, owners)


@lru_cache(256)
def _steps(
    bonds: tuple[tuple[tuple[int, int], ...], ...], order: _OrderKey, max_bond: int, dtype: str
) -> tuple[list[BondLimitedStep], StepWork]:
    """The steps of an order with a limit, and what they take."""
    shapes, (pairs, rows) = [*map(dict, bonds)], order
    found = follow(shapes, [*pairs], max_bond, rows=None if rows is None else dict(rows))
    steps: list[BondLimitedStep] = []
    for number, (pair, cuts) in enumerate(zip(found.pairs, found.compressions, strict=True)):
        steps += [ContractPair(*pair, len(shapes) + number), *(CompressBond(*cut) for cut in cuts)]
        steps += [CompressRow(*row) for row in found.rows.get(number, ())]
    return steps, dry_run(shapes, steps, max_bond, dtype)


def _product(
    values: Sequence[BondLimitedValue], exponent: int, shape: tuple[int, ...], xp: Any
) -> BondLimitedValue:
    """The product of the values of all components, on the host, with the axes of the output, and a power
    of 2."""
    mantissa: Any = 1.0
    axes: list[int] = []
    for value in values:
        mantissa = mantissa * value.mantissa if not value.output else (
            xp.tensordot(xp.asarray(mantissa), value.mantissa, axes=0)
        )  # fmt: skip
        axes += value.output
        largest = largest_component(xp.asarray(mantissa))
        power = frexp(largest)[1]
        mantissa = mantissa * 2.0**-power
        exponent += power + value.exponent
        if not largest:
            break
    if shape:
        host = mantissa.get() if hasattr(mantissa, "get") else np.asarray(mantissa)
        # Axes of extent 1 are left out of components; -1 - k is axis k of the output.
        order = sorted(range(len(axes)), key=lambda axis: -axes[axis])
        mantissa = host.transpose(order).reshape(shape) if largest else np.zeros(shape, host.dtype)
    return BondLimitedValue(mantissa, exponent, [share for value in values for share in value.discarded])


def _in_tens(value: BondLimitedValue) -> tuple[Any, float]:
    """Mantissa and exponent of ten."""
    return value.mantissa, value.exponent * log10(2.0) if np.any(value.mantissa) else 0.0


def _error_estimate(
    value: BondLimitedValue, half: BondLimitedValue, cutoff: float, epsilon: float
) -> float:  # fmt: skip
    """The estimate of the relative error of `value`, whose bond is twice that of `half`.

    Their difference is about the error of `half`. That of `value` is smaller as the root of the discarded
    weight is. What this leaves out is in the factors, in a share of that root, in what the cutoff leaves out
    of both, and in the dtype's rounding.
    """
    if not value.discarded:
        return 0.0
    if not np.any(value.mantissa):
        return inf
    weights = sum(value.discarded), sum(half.discarded)
    ratio = sqrt(weights[0] / weights[1]) if weights[1] else 1.0
    power = min(half.exponent - value.exponent, 1000)
    changed = value.mantissa - half.mantissa * 2.0**power
    difference = float(np.linalg.norm(changed) / np.linalg.norm(value.mantissa))
    lost = sqrt(weights[0])
    below_cutoff = OF_CUTOFF * min(cutoff, OF_LOST * lost)
    by_bonds = difference * min(MOST, OF_RATIO * ratio)
    return max(by_bonds, OF_DISCARDED * lost, below_cutoff, ROUNDINGS * epsilon)
