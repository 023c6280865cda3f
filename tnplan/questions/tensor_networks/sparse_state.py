"""One contraction for many bit strings: its plan under a memory limit, and its run, of all slices or some."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2, prod

from tnplan.circuits.circuit import GateSequence
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.common.memory import ITEM_BYTES
from tnplan.executor.contraction.sparse_state import BatchReplay, peak_elements
from tnplan.executor.device.cpu.host_memory import cores, host_memory
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.arrays.planning import memory_bytes
from tnplan.jobs.progress import Progress
from tnplan.planner.hardware.cost import FLOPS_PER_PRODUCT
from tnplan.planner.hardware.profile import DEFAULT_PRECISION, Profile, known_profile
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.schedule.batch_plan import BatchPlan
from tnplan.planner.search.search_options import TENSORS_AT_ONCE
from tnplan.planner.sparse_state import (
    FIRST_SEARCH_S,
    LONGEST_SEARCH_S,
    BatchSearch,
    search_batch_in_proportion,
    with_slices,
)
from tnplan.questions.tensor_networks.network_work import ROW_S
from tnplan.questions.tensor_networks.networks import dtype_of, varied_ends

MOVES = 5
"""How often an element is moved: reordered, gathered, read, multiplied and written."""


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
    """

    def __init__(
        self, circuit: GateSequence, bitstrings: Array, options: ContractionOptions,
        longest_search_s: float = LONGEST_SEARCH_S,
    ) -> None:  # fmt: skip
        _check(options)
        self.options, self.dtype = options, dtype_of(options)
        # Qubits with the same bit in all strings are closed by it, and the network is contracted
        # down to the others.
        varied, ends = varied_ends(bitstrings)
        self.bitstrings = bitstrings = bitstrings[:, varied]
        network, self.arrays = simplify(*circuit_network(circuit, ends))
        profile = known_profile(options.hardware or "cpu")
        self.profile = profile
        self.products_per_s = rate = products_per_s(profile, self.dtype)
        self.element_weight = weight = rate * ITEM_BYTES[self.dtype] / profile.memory_bytes_per_s
        limit_bytes = min(memory_bytes(options, "cpu"), host_memory()[1])
        self.elements = elements = limit_bytes / ITEM_BYTES[self.dtype]
        most = 2 ** int(log2(max(1.0, elements / TENSORS_AT_ONCE)))
        while True:
            search = BatchSearch(options.search_s, most, options.seed, weight, longest_search_s)
            self.plan = search_batch_in_proportion(network, bitstrings, rate, search)
            # The search bounds single tensors; how many are there at once is known of the plan
            # alone. Halve the bound until it fits.
            if peak_elements(self.plan) <= elements:
                self.most_elements = most
                return
            most //= 2
            if most < len(bitstrings):
                raise InputError(
                    "memory", f"of {limit_bytes:.3g} bytes does not hold the amplitudes of so many strings",
                    "allow more, or ask for fewer strings at once",
                    topic="memory",
                )  # fmt: skip

    def search_longer(self, longest_s: float = LONGEST_SEARCH_S) -> None:
        """Go on with the search of the path, where no time is stated; a better one that fits is taken."""
        if self.options.search_s is not None:
            return
        search = BatchSearch(None, self.most_elements, self.options.seed, self.element_weight, longest_s)
        rate = self.products_per_s
        plan = search_batch_in_proportion(self.plan.network, self.bitstrings, rate, search, self.plan)
        if plan.products < self.plan.products and peak_elements(plan) <= self.elements:
            self.plan = plan

    @property
    def predicted_s(self) -> float:
        """Seconds of all slices, with every move of an element."""
        once_s = batch_s(self.plan, self.products_per_s, self.dtype, self.profile)
        return once_s + (MOVES - 1) * moved_s(self.plan, self.dtype, self.profile)

    def alone(self) -> int:
        """Multiply-adds of one of the strings by itself, of a short search: its own comes later."""
        given = self.options.search_s
        time_s = None if given is None else min(given, FIRST_SEARCH_S)
        search = BatchSearch(
            time_s, self.most_elements, self.options.seed, self.element_weight, FIRST_SEARCH_S
        )
        first = self.bitstrings[:1]
        return search_batch_in_proportion(self.plan.network, first, self.products_per_s, search).products

    def slice_more(self, least: int) -> None:
        """Slice further indices until there are so many slices, those first that cost least."""
        try:
            self.plan = with_slices(self.plan, self.bitstrings, least)
        except InputError:
            problem = f"needs {least} slices, and the contraction has no more indices for that"
            raise InputError("--fidelity", problem, "give a larger one, or leave it out") from None

    def amplitudes(self, slices: Sequence[int] | None = None) -> Array:
        """One amplitude for each string; of some slices, the part of it that they sum up to."""
        replay = BatchReplay(self.plan, self.arrays, self.dtype, self.options.threads or cores())
        listener = self.options.progress
        count = self.plan.n_slices if slices is None else len(slices)

        def tell(done: int) -> None:
            if listener is not None:
                listener(Progress(done, count, f"slice {done} of {count}", share=done / count))

        tell(0)
        return replay.run(slices, tell)


def _check(options: ContractionOptions) -> None:
    """Refuse what many amplitudes at once do not do yet."""
    if options.device == "gpu" or options.gpu is not None:
        raise InputError(
            "device", "is a GPU, and many amplitudes at once run on a CPU", 'use device="cpu", or "auto"',
            topic="GPUs",
        )
    if options.devices > 1:
        raise InputError(
            "devices", f"are {options.devices}, and many amplitudes at once run on one",
            "give one, or ask for all values of some open qubits",
        )  # fmt: skip
    if options.precision not in (None, "fp32", "fp64"):
        raise InputError("precision", f"{options.precision!r} is not for a CPU", "choose fp32 or fp64")


def products_per_s(profile: Profile, dtype: str) -> float:
    """Multiply-adds of a device."""
    return profile.rate(dtype, DEFAULT_PRECISION[dtype]) / FLOPS_PER_PRODUCT[dtype]


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
