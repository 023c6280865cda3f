"""One contraction for many bit strings: its plan under a memory limit, and its run, of all slices or some.

It runs on a CPU, or on GPUs, each of which takes some of the slices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from math import log2, prod

import numpy as np

from tnplan.circuits.circuit import GateSequence
from tnplan.common.arrays import ITEM_BYTES, Array
from tnplan.common.errors import InputError
from tnplan.common.system_calls import cores
from tnplan.executor.contraction.run.sparse_state import RowReplay
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.cpu.host_memory import host_memory
from tnplan.executor.device.cpu.parallel_rows import blas_threads
from tnplan.executor.device.protocols.device import RowDevice
from tnplan.executor.device.protocols.precision import expected_error, supported
from tnplan.executor.device.select import gpu_profile, open_lone_gpu, sees_gpu
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.arrays.planning import find_path, memory_bytes
from tnplan.jobs.progress import Progress
from tnplan.planner.hardware.cost import FLOPS_PER_PRODUCT, CostModel
from tnplan.planner.hardware.profile import DEFAULT_PRECISION, Profile, known_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.importers.subscripts import EinsumCall
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.passes.lowering.batch_rows import lower_rows, step_figures
from tnplan.planner.schedule.row_schedule import BatchPlan, RowSchedule
from tnplan.planner.search.orders.uncompiled import are_compiled
from tnplan.planner.search.search_in_proportion import LONGER, MUCH_LONGER, greedy_path
from tnplan.planner.search.search_options import TENSORS_AT_ONCE
from tnplan.planner.search.sparse_state import (
    FIRST_SEARCH_S,
    LONGEST_SEARCH_S,
    SHORTEST_SEARCH_S,
    BatchSearch,
    batch_plan,
    closed_network,
    search_batch,
    search_batch_in_proportion,
    with_slices,
)
from tnplan.questions.tensor_networks.networks import ALL, ROW_S, RunRows, dtype_of, plan_rows, varied_ends

MOVES = 5
"""How often an element is moved: reordered, gathered, read, multiplied and written."""

GPU_FROM_S = 1.0
"""Predicted seconds of a greedy path on a CPU from which on device="auto" takes a GPU."""

SCRATCH_BYTES = 1 << 27
"""Of a GPU's memory, for libraries."""

GREEDY_S = 0.3
"""Predicted seconds up to which a plan is short: finding a better one takes as long."""

FIRST_SHARE, SHARE = 0.25, 0.1
"""Of the predicted seconds of all strings: of a first search, which often halves them, and of later ones."""


class SparseState:
    """The amplitudes of distinct bit strings, planned together. Qubits that all of them agree on are closed.

    Parameters
    ----------
    circuit
        On n qubits.
    bitstrings
        uint8, shape (k, n) with k of 1 or more, each once.
    options
        The device, memory, precision and search.
    longest_search_s
        Of a search without a time of its own.
    along_one
        Plan along the path of one string, which later strings find in the cache, in place of a search for
        them all; where that fits the memory, and no time of search is stated. A short greedy one suffices.
    """

    most_elements: int
    """Of a tensor."""

    def __init__(
        self, circuit: GateSequence, bitstrings: Array, options: ContractionOptions,
        longest_search_s: float = LONGEST_SEARCH_S, along_one: bool = False,
    ) -> None:  # fmt: skip
        _check(options)
        self.dtype = dtype_of(options)
        self._lowered: tuple[BatchPlan, RowSchedule] | None = None
        # Qubits with the same bit in all strings are closed by it, and the network is contracted
        # down to the others.
        self.varied, ends = varied_ends(bitstrings)
        self.bitstrings = bitstrings = bitstrings[:, self.varied]
        self.network, self.arrays = network, _ = simplify(*circuit_network(circuit, ends))
        self._place_on("gpu" if on_gpu(options) else "cpu", options)
        self.plan = self._along(greedy_path(closed_network(network)))
        is_auto = options.device == "auto" and options.devices == 1
        if is_auto and self.device == "cpu" and self.predicted_s > GPU_FROM_S and sees_gpu():
            self._place_on("gpu", options)
        options, rate, weight = self.options, self.products_per_s, self.element_weight
        most = self.most_elements
        start = None
        if along_one and options.search_s is None:
            if not self.is_short:
                # Rows make tensors larger. A search from the path of one slices it until it fits, and ends
                # far below one from nothing that is as long.
                one = self.path_of_one
                start = ContractionPath(network, one.ssa_path, one.sliced_inds)
                self.plan = batch_plan(start, bitstrings)
            if self.fits:
                return
        while True:
            search = BatchSearch(options.search_s, most, options.seed, weight, longest_search_s)
            self.plan = search_batch_in_proportion(network, bitstrings, rate, search, start)
            # The search bounds single tensors; how many are there at once is known of the plan
            # alone. Halve the bound until it fits.
            if self.fits:
                self.most_elements = most
                return
            most //= 2
            if most < len(bitstrings):
                problem = f"is {self.limit_bytes:.3g} bytes, too little for the amplitudes of so many strings"
                raise InputError(
                    "memory", problem, "allow more memory, or ask for fewer strings at once", topic="memory"
                )

    def _place_on(self, device: str, options: ContractionOptions) -> None:
        """Plan for a device: its rates, its memory."""
        self.device, self.options = device, options if device == "cpu" else options.changed(device="gpu")
        shipped = "cpu" if device == "cpu" or options.hardware else gpu_profile(options.gpu or 0)
        self.profile = known_profile(options.hardware or shipped)
        self.precision = options.precision or DEFAULT_PRECISION[self.dtype]
        self.products_per_s = products_per_s(self.profile, self.dtype, self.precision)
        item_bytes = ITEM_BYTES[self.dtype]
        self.element_weight = self.products_per_s * item_bytes / self.profile.memory_bytes_per_s
        self.limit_bytes = memory_bytes(options, device)
        if device == "cpu":
            self.limit_bytes = min(self.limit_bytes, host_memory()[1])
        else:
            self.limit_bytes -= SCRATCH_BYTES
        elements = self.limit_bytes / item_bytes
        self.most_elements = 2 ** int(log2(max(1.0, elements / TENSORS_AT_ONCE)))

    @property
    def model(self) -> CostModel:
        """The cost model of the device."""
        return CostModel(self.profile, self.dtype, self.precision)

    @property
    def schedule(self) -> RowSchedule:
        """The flat steps of the plan, with what they keep within the memory."""
        if self._lowered is None or self._lowered[0] is not self.plan:
            self._lowered = self.plan, lower_rows(self.plan, self.model, self.limit_bytes)
        return self._lowered[1]

    @property
    def needed_bytes(self) -> int:
        """What a run of the plan holds at once."""
        if not self.plan.steps:
            return ITEM_BYTES[self.dtype] * len(self.plan.rows)
        return self.schedule.size_bytes + self.schedule.table_bytes

    @property
    def fits(self) -> bool:
        """Whether the memory holds all tensors of the plan that are there at once."""
        return self.needed_bytes <= self.limit_bytes

    @property
    def is_short(self) -> bool:
        """Whether the plan fits and takes so little time that no other is worth finding."""
        return self.fits and self.predicted_s <= GREEDY_S

    def _along(self, ssa_path: tuple[tuple[int, ...], ...], sliced: Sequence[str] = ()) -> BatchPlan:
        """The plan along a path of the network."""
        return batch_plan(ContractionPath(self.network, ssa_path, tuple(sliced)), self.bitstrings)

    @cached_property
    def closed(self) -> EinsumCall:
        """The network of one string, with the tensors of the first."""
        network, leaves = closed_network(self.network), self._leaves(slice(1))
        arrays = [leaves[number][0] if number in leaves else a for number, a in enumerate(self.arrays)]
        return EinsumCall(network.inputs, (), network.size_dict, tuple(arrays))

    @cached_property
    def path_of_one(self) -> ContractionPath:
        """The path of one string, as it is searched for one."""
        return find_path(self.closed, dtype_of(self.options, self.closed.operands), self.options)

    def _leaves(self, rows: slice) -> dict[int, Array]:
        """The tensors on which strings differ, by number, with an axis of some of the strings first."""
        column = {index: self.bitstrings[rows, number] for number, index in enumerate(self.network.output)}
        leaves = {}
        for number, (term, array) in enumerate(zip(self.network.inputs, self.arrays, strict=True)):
            final = [index for index in term if index in column]
            if final:
                first = np.moveaxis(array, [term.index(index) for index in final], range(len(final)))
                leaves[number] = first[tuple(column[index].astype(np.int64) for index in final)]
        return leaves

    def plan_calls(self) -> RunRows:
        """Each string by itself along the path of one, on a GPU where that pays; planned now."""
        request = self.closed._replace(path=self.path_of_one)
        return plan_rows(request, self._leaves(ALL), len(self.bitstrings), self.options)

    @cached_property
    def alone_s(self) -> float:
        """Predicted seconds of the first string by itself along the path of one."""
        path, first = self.path_of_one, self.bitstrings[:1]
        plan = batch_plan(ContractionPath(self.network, path.ssa_path, path.sliced_inds), first)
        return self._seconds(plan)

    def search_longer(self) -> None:
        """Search the path of all strings, where no time is stated, in a share of their predicted seconds.

        That is of the strings one by one where these take less. A better path that fits is taken.
        """
        spent_s, first_s = 0.0, FIRST_SEARCH_S if are_compiled() else SHORTEST_SEARCH_S
        singly_s = len(self.bitstrings) * self.alone_s
        while self.options.search_s is None:
            before_s = self.predicted_s
            worth_s = min(before_s, singly_s)
            if spent_s:
                time_s = min(SHARE * worth_s, MUCH_LONGER * spent_s, LONGEST_SEARCH_S)
            else:
                time_s = min(FIRST_SHARE * worth_s, first_s)
            if time_s < (LONGER * spent_s or first_s / 2):
                return
            spent_s = time_s
            search = BatchSearch(spent_s, self.most_elements, self.options.seed, self.element_weight)
            start = ContractionPath(
                self.network, tuple((step.left, step.right) for step in self.plan.steps), self.plan.sliced
            )
            path = search_batch(self.network, len(self.bitstrings), search, start)
            old, self.plan = self.plan, batch_plan(path, self.bitstrings)
            if self.predicted_s >= before_s or not self.fits:
                self.plan = old
            # Short searches come first: one that saved less than it took is the last, but where the strings
            # still take longer together than one by one.
            if before_s - self.predicted_s < spent_s and self.predicted_s < singly_s:
                return

    @property
    def predicted_s(self) -> float:
        """Seconds of all slices, with every move of an element."""
        return self._seconds(self.plan)

    @property
    def extents(self) -> tuple[int, ...]:
        """Of the sliced indices, outer loops first."""
        return tuple(self.plan.network.size_dict[index] for index in self.plan.sliced)

    def seconds_of(self, slices: Sequence[int]) -> float:
        """Predicted seconds of some slices."""
        if self.device == "gpu":
            return gpu_seconds(self.plan, self.model, slices)
        return self.predicted_s * len(slices) / self.plan.n_slices

    def _seconds(self, plan: BatchPlan) -> float:
        if self.device == "gpu":
            return gpu_seconds(plan, self.model)
        once_s = batch_s(plan, self.products_per_s, self.dtype, self.profile)
        return once_s + (MOVES - 1) * moved_s(plan, self.dtype, self.profile)

    def in_precision(self, precision: str) -> SparseState:
        """The same plan with another precision of the same dtype."""
        other = copy(self)
        other.options, other.precision = self.options.changed(precision=precision), precision
        other.products_per_s, other._lowered = products_per_s(self.profile, self.dtype, precision), None
        return other

    @property
    def rounding(self) -> float:
        """An estimate of the relative error of amplitudes: errors of steps add up as squares."""
        errors = [expected_error(step.precision, step.k) for step in self.schedule.steps]
        return float(np.linalg.norm(errors))

    def of_strings(self, bitstrings: Array) -> SparseState:
        """The same path for other distinct strings, which have the same bits where all of these agree."""
        other = copy(self)
        other.bitstrings = bitstrings[:, self.varied]
        pairs = tuple((step.left, step.right) for step in self.plan.steps)
        other.plan = other._along(pairs, self.plan.sliced)
        return other

    def slice_more(self, least: int) -> None:
        """Slice further indices until there are so many slices, those first that cost least."""
        try:
            self.plan = with_slices(self.plan, least)
        except InputError:
            problem = f"needs {least} slices, and the contraction has no more indices for that"
            raise InputError("--fidelity", problem, "give a larger fidelity, or leave it out") from None

    def amplitudes(self, slices: Sequence[int] | None = None) -> Array:
        """One amplitude for each string; of some slices, the part of it that they sum up to."""
        if not self.plan.steps:
            # One tensor, whose axes are the varied qubits.
            (final, bits), (term,) = self.plan.leaf_bits[0], self.network.inputs
            tensor = np.transpose(self.arrays[0], [term.index(index) for index in final])
            values = np.atleast_1d(np.asarray(tensor[tuple(bits.T.astype(np.int64))], self.dtype))
            return values[self.plan.rows]
        n_devices = self.options.devices
        if slices is None and self.plan.n_slices < n_devices:
            self._slice_for(n_devices)
        chosen = range(self.plan.n_slices) if slices is None else slices
        schedule, n_devices = self.schedule, max(1, min(n_devices, len(chosen)))

        def replay(number: int, device: RowDevice) -> Array:
            # Neighbouring slices share what outer loops keep.
            share = chosen[len(chosen) * number // n_devices : len(chosen) * (number + 1) // n_devices]
            run = RowReplay(schedule, self.arrays, self.dtype, device).run
            return run(share, None if number else self._teller(len(share)))

        if self.device == "cpu":
            threads = self.options.threads or cores()
            with blas_threads(threads):
                return replay(0, NumpyDevice(threads))

        def on_gpu(number: int, gpu: int) -> Array:
            with open_lone_gpu(gpu) as device:
                return replay(number, device)

        if n_devices == 1:
            return on_gpu(0, self.options.gpu or 0)
        parts = run_ranks(n_devices, lambda ranks: on_gpu(ranks.rank, ranks.rank))
        return np.sum(parts, axis=0, dtype=self.dtype)

    def _teller(self, count: int) -> Callable[[int], None] | None:
        """Tells the listener, if there is one, how many slices of so many are done."""
        listener = self.options.progress
        if listener is None:
            return None

        def tell(done: int) -> None:
            listener(Progress(done, count, f"slice {done} of {count}", share=done / count))

        tell(0)
        return tell

    def _slice_for(self, n_gpus: int) -> None:
        """Slice further for so many GPUs, where there are indices for that."""
        try:
            self.plan = with_slices(self.plan, n_gpus)
        except InputError:
            return


LARGEST_BATCH, LARGEST_BATCH_ON_GPU = 1 << 17, 1 << 20
"""Strings of one contraction."""


def largest_batch(options: ContractionOptions) -> int:
    """Strings of one contraction, on a GPU or where one may be taken."""
    may_be_gpu = on_gpu(options) or (options.device == "auto" and sees_gpu())
    return LARGEST_BATCH_ON_GPU if may_be_gpu else LARGEST_BATCH


def on_gpu(options: ContractionOptions) -> bool:
    """Whether a GPU is stated."""
    return options.device == "gpu" or options.gpu is not None


def _check(options: ContractionOptions) -> None:
    """Refuse what many amplitudes at once do not do."""
    if on_gpu(options):
        known = sorted({name for dtype in ("complex64", "complex128") for name in supported(dtype)})
        if options.precision not in (None, *known):
            raise InputError(
                "precision", f"{options.precision!r} is unknown", f"choose from {', '.join(known)}"
            )
        return
    if options.devices > 1:
        raise InputError(
            "devices", f"are {options.devices}, and many amplitudes at once run on one CPU",
            "use one device, or ask for all values of some open qubits",
        )  # fmt: skip
    if options.precision not in (None, "fp32", "fp64"):
        raise InputError("precision", f"{options.precision!r} is not for a CPU", "choose fp32 or fp64")


def products_per_s(profile: Profile, dtype: str, precision: str | None = None) -> float:
    """Multiply-adds of a device, in the dtype's own precision or another."""
    return profile.rate(dtype, precision or DEFAULT_PRECISION[dtype]) / FLOPS_PER_PRODUCT[dtype]


def gpu_seconds(plan: BatchPlan, model: CostModel, slices: Sequence[int] | None = None) -> float:
    """The seconds of all slices, or of some, on a GPU: each step as a product, for pairs of rows with what
    they gather.

    What does not depend on a loop is counted once for all of its rounds.
    """
    sizes = plan.network.size_dict
    level = {index: number for number, index in enumerate(plan.sliced)}
    levels = [max((level[i] for i in legs if i in level), default=-1) for legs in plan.leaf_legs]
    rows = [len(bits) for _, bits in plan.leaf_bits] + [len(step.pairs) for step in plan.steps]
    counts = [
        count * prod(sizes[index] for index in legs if index not in level)
        for count, legs in zip(rows, plan.leaf_legs, strict=False)
    ] + [step.elements for step in plan.steps]
    extents = [sizes[index] for index in plan.sliced]
    rounds = [1.0, *np.cumprod(extents, dtype=float)]
    if slices is not None:
        # The values of the outer loops that occur, for each number of these.
        rounds = [float(len(np.unique(np.asarray(slices) // prod(extents[n:])))) for n in range(len(rounds))]
    total_s = 0.0
    for number, step in enumerate(plan.steps):
        levels.append(max(levels[step.left], levels[step.right]))
        figures = step_figures(plan, number, rows, counts)
        moved_bytes = model.item_bytes * figures.elements
        flops, shape = model.flops_per_product * figures.products, figures.extents(model)
        once_s = model.contract_s(moved_bytes, flops, shape)
        once_s += model.scatter_s(moved_bytes, flops, shape, model.item_bytes * figures.out)
        total_s += rounds[levels[-1] + 1] * once_s
    return total_s


def batch_s(plan: BatchPlan, products_per_s: float, dtype: str, profile: Profile) -> float:
    """The seconds of all slices: operations, elements that are gathered and written, and rows."""
    # The times of arithmetic and of memory add up: a step first gathers, then multiplies.
    rows = sum(len(step.pairs) for step in plan.steps)
    return plan.products / products_per_s + moved_s(plan, dtype, profile) + plan.n_slices * rows * ROW_S


def moved_s(plan: BatchPlan, dtype: str, profile: Profile) -> float:
    """The seconds in which all elements that are gathered and written are moved once."""
    sizes = [
        prod(plan.network.size_dict[index] for index in legs if index not in plan.sliced)
        for legs in plan.leaf_legs
    ]
    elements = 0
    # Each pair of rows gathers its two operands; results are written once.
    for step in plan.steps:
        count = len(step.pairs)
        elements += count * (sizes[step.left] + sizes[step.right]) + step.elements
        sizes.append(step.elements // count)
    return plan.n_slices * elements * ITEM_BYTES[dtype] / profile.memory_bytes_per_s
