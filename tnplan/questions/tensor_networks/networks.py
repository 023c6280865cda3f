"""Contractions of the networks of questions: one network, or one with many values of some tensors.

Progress counts the predicted work of networks that are contracted in turn, not networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log10

import numpy as np

from tnplan.circuits.circuit import GateSequence
from tnplan.common.arrays import Array
from tnplan.jobs.arrays.compiled import CompiledContraction
from tnplan.jobs.arrays.numpy_contraction import DirectCall, direct_contraction
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.arrays.planning import (
    BATCH,
    batched_network,
    chosen_device,
    compiled,
    find_batched,
    find_path,
    find_schedule,
)
from tnplan.jobs.progress import Progress
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.importers.subscripts import EinsumCall
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network
from tnplan.planner.networks.of_circuits.wires import OpenNetwork
from tnplan.planner.networks.simplify import Simplified, simplify
from tnplan.planner.search.search_in_proportion import greedy_or_orders, predicted_s

LARGEST_BATCH = 1024
"""Values of a batch that are contracted at once."""
PLANNED_ELEMENTS = 100_000
"""Elements that steps read and write in the time that a tensor is planned and bound."""


def dtype_of(options: ContractionOptions, arrays: Sequence[Array] | None = None) -> str:
    """The dtype in which a precision is computed; double where none is stated.

    Real where arrays are named and all of them are.
    """
    is_double = options.precision in (None, "fp64")
    if arrays is None or any(map(np.iscomplexobj, arrays)):
        return "complex128" if is_double else "complex64"
    return "float64" if is_double else "float32"


Run = Callable[[], Array]
"""A contraction that is planned; called, it gives the result."""
ALL = slice(None)


@dataclass(frozen=True)
class RunRows:
    """A planned contraction of many values of some tensors, all or a slice of them; axis 0 of the result."""

    contract: Callable[[slice], Array]
    predicted_s: float = 0.0
    """Seconds of all values, where there are several."""

    def __call__(self, rows: slice = ALL) -> Array:
        """The result."""
        return self.contract(rows)


def contract_network(network: Network, arrays: Sequence[Array], options: ContractionOptions) -> Array:
    """The whole network, simplified first; axes are its open indices."""
    return _plan_simple(*simplify(network, arrays), options)()


def _plan_simple(network: Network, values: Sequence[Array], options: ContractionOptions) -> Run:
    """A simplified network, planned."""
    dtype = dtype_of(options, values)
    if len(values) == 1:
        return lambda: _ordered(values[0], network).astype(dtype)
    request = _request(network, values)
    direct = _direct(network, find_path(request, dtype, options), options)
    if direct is not None:
        return lambda: np.asarray(direct(*(np.ascontiguousarray(array, dtype) for array in values)))
    planned = find_schedule(request, dtype, options)

    def run() -> Array:
        with compiled(planned, options) as contraction:
            return np.asarray(contraction(*(array.astype(dtype) for array in values)))

    return run


def _direct(network: Network, path: ContractionPath, options: ContractionOptions) -> DirectCall | None:
    """The contraction of a network that is contracted once by NumPy alone, where it takes less time than to
    plan and bind a schedule; None elsewhere, and on other devices."""
    path = replace(path, network=network)
    if path.sliced_inds or options.devices > 1 or chosen_device(path, options) != "cpu":
        return None
    most_streamed = PLANNED_ELEMENTS * len(network.inputs)
    return direct_contraction(network, path.ssa_path, path.dtype, options, most_streamed)


def value_and_gradients(
    network: Network, arrays: Sequence[Array], wanted: Sequence[int], options: ContractionOptions
) -> tuple[complex, dict[int, Array]]:
    """The number that a network is, and its derivatives by each entry of the tensors wanted.

    Nothing is conjugated. The derivatives by the tensors of the simplified network come from its reverse
    schedule; from there they go back through the simplification.
    """
    # Fixed tensors are multiplied together first; `back` takes derivatives through that to the
    # tensors wanted.
    simple = Simplified(network, arrays, wanted)
    dtype = dtype_of(options)
    if len(simple.arrays) == 1:
        value, slopes = simple.arrays[0], [np.ones((), dtype)]
    else:
        values = [array.astype(dtype) for array in simple.arrays]
        schedule = find_schedule(_request(simple.network, values), dtype, options)
        with compiled(schedule, options) as contraction:
            if simple.depending:
                value, gradients = contraction.value_and_grad(*values, wrt=simple.depending)
                slopes = [np.asarray(gradient) for gradient in gradients]
            else:
                value, slopes = np.asarray(contraction(*values)), []
    return complex(value), simple.back(dict(zip(simple.depending, slopes, strict=False)))


def contract_batch(opened: OpenNetwork, leaves: Sequence[Array], options: ContractionOptions) -> Array:
    """A network closed by many values of its further tensors, which their first axis and the result's counts.

    What does not depend on them is contracted once.
    """
    return plan_batch(opened, leaves, options)()


def plan_batch(opened: OpenNetwork, leaves: Sequence[Array], options: ContractionOptions) -> RunRows:
    """The same, planned now and contracted later: all values, or a slice of them."""
    return plan_closed(ClosedNetwork.of(opened, leaves), options)


@dataclass(frozen=True)
class ClosedNetwork:
    """A simplified network closed by values of its last tensors; `arrays` holds the first value of these.

    `leaves` has all of them, which their first axis counts, and is empty where there is one: then the whole
    network is simplified.
    """

    network: Network
    arrays: list[Array]
    leaves: Sequence[Array]
    count: int
    n_tensors: int
    """How many there were before it was simplified."""

    @classmethod
    def of(cls, opened: OpenNetwork, leaves: Sequence[Array]) -> ClosedNetwork:
        """What `opened` and these values of its further tensors make."""
        network, values = simplify(opened.network, opened.arrays)
        closed, arrays = closed_by_leaves(network, opened), [*values, *(leaf[0] for leaf in leaves)]
        count = len(leaves[0]) if leaves else 1
        if count == 1:
            return cls(*simplify(closed, arrays), (), 1, len(opened.arrays))
        return cls(closed, arrays, leaves, count, len(opened.arrays))

    @property
    def dtype(self) -> str:
        """The dtype of its tensors in single precision."""
        return dtype_of(ContractionOptions(precision="fp32"), self.arrays)


def plan_closed(closed: ClosedNetwork, options: ContractionOptions) -> RunRows:
    """A contraction for each value of the last tensors, or of a slice of them; axis 0 of the result."""
    if closed.count == 1:
        run_one = _plan_simple(closed.network, closed.arrays, options)
        return RunRows(lambda rows: run_one()[None][rows])
    leaves = dict(enumerate(closed.leaves, len(closed.arrays) - len(closed.leaves)))
    return plan_rows(_request(closed.network, closed.arrays), leaves, closed.count, options)


def plan_rows(
    request: EinsumCall, leaves: Mapping[int, Array], count: int, options: ContractionOptions
) -> RunRows:
    """A contraction for each of `count` values of some tensors, by their number: axis 0 of `leaves`."""
    arrays, numbers = request.operands, tuple(leaves)
    dtype, batch = dtype_of(options, arrays), min(count, LARGEST_BATCH)
    options = replace(options, calls=count, changing=numbers)
    if count == batch:  # what is contracted once
        path = find_path(request, dtype, options)
        direct = _direct(batched_network(request.network, batch, numbers), path, options)
        if direct is not None:
            values = [leaves.get(number, array) for number, array in enumerate(arrays)]
            return RunRows(
                lambda rows: np.asarray(direct(*(np.ascontiguousarray(x, dtype) for x in values)))[rows]
            )
    planned = find_batched(request, dtype, options, batch, numbers)
    # The other tensors are the same for all values and stay on the device; these have a first axis,
    # the batch.
    constants = {number: array.astype(dtype) for number, array in enumerate(arrays) if number not in leaves}
    options = replace(options, device=planned.device)

    def run(rows: slice) -> Array:
        with CompiledContraction(planned.now().schedule, options, constants, numbers) as contraction:
            return np.asarray(contraction(*(leaf[rows].astype(dtype) for leaf in leaves.values())))

    n_batches = -(-count // planned.schedule.size_dict[BATCH])
    return RunRows(run, n_batches * planned.schedule.projected_s(1))


def closed_by_leaves(network: Network, opened: OpenNetwork) -> Network:
    """The simplified network of `opened` with its further tensors."""
    sizes = {**opened.network.size_dict, **network.size_dict}
    return Network((*network.inputs, *opened.leaf_terms), opened.output, sizes)


def _request(network: Network, arrays: Sequence[Array]) -> EinsumCall:
    return EinsumCall(network.inputs, network.output, network.size_dict, tuple(arrays))


def _ordered(array: Array, network: Network) -> Array:
    """The tensor of a network of one, with its axes in the order of the result."""
    (term,) = network.inputs
    return np.transpose(array, [term.index(index) for index in network.output])


# Bit strings one after the other: a contraction that is called with the ends of each, on CPUs and GPUs.


def varied_ends(bitstrings: Array) -> tuple[Array, str]:
    """The qubits on which some strings differ, and what closes each qubit: `.` leaves it open."""
    varied = np.flatnonzero((bitstrings != bitstrings[:1]).any(axis=0))
    ends = ["." if qubit in varied else "01"[bit] for qubit, bit in enumerate(bitstrings[0].tolist())]
    return varied, "".join(ends)


def amplitudes_by_calls(circuit: GateSequence, bitstrings: Array, options: ContractionOptions) -> Array:
    """The amplitudes of strings, uint8 [string, qubit]; what does not depend on them is contracted once."""
    varied, ends = varied_ends(bitstrings)
    network, arrays = circuit_network(circuit, ends)
    opened = OpenNetwork(network, arrays, (), tuple((index,) for index in network.output))
    basis = np.eye(2, dtype=np.complex128)
    return contract_batch(opened, [basis[bitstrings[:, qubit]] for qubit in varied], options)


START_S, TENSOR_S = 0.0012, 1.7e-5
"""Seconds to make and simplify a network, and for each of its tensors, where `slowness` is 1."""
DIRECT_TENSOR_S, DIRECT_RUN_S = 1e-4, 2e-4
"""Seconds of a tensor that is left then for its path and its steps by NumPy alone, which contracts a network
whose operations take a core at most so long for each tensor."""
PLAN_S, PLANNED_TENSOR_S = 0.003, 3.8e-4
"""The same to plan and bind others, the path being known, and for each tensor."""
ROW_S = 1e-6
"""Seconds of a row of a step beside its operations and its elements."""
LOOKS = 5
"""Networks of a question that are looked at; to others figures between these are given."""


def preparing_s(n_tensors: int, n_left: int, run_s: float = inf) -> float:
    """Seconds of a reference core to make, simplify, plan and bind a network; `n_left` tensors are left, and
    `run_s` is what its operations take a core. Infinite: it has a schedule, whatever they take."""
    made_s = START_S + TENSOR_S * n_tensors
    if n_left == 1:
        return made_s
    if run_s <= DIRECT_RUN_S * n_left:
        return made_s + DIRECT_TENSOR_S * n_left
    return made_s + PLAN_S + PLANNED_TENSOR_S * n_left


@dataclass(frozen=True)
class NetworkWork:
    """Predicted seconds of a network on a reference core: to prepare it, and of each of its rows."""

    start_s: float
    row_s: float

    def seconds(self, rows: float) -> float:
        """Those of so many rows."""
        return self.start_s + rows * self.row_s


def predicted_work(
    sizes: Sequence[int], look: Callable[[int], tuple[Network, int]],
    has_schedules: bool = False,
) -> list[NetworkWork]:  # fmt: skip
    """The work of networks by their numbers, of which few are made.

    Networks of about the same size are taken to have about the same work.

    Parameters
    ----------
    sizes : sequence of int
        Something of each network that grows with its work.
    look : callable
        Makes network k, simplified and closed; and says how many tensors there were before.
    has_schedules : bool
        Whether each is planned, whatever its operations take.
    """
    if not len(sizes):
        return []
    order = np.argsort(sizes, kind="stable")
    last, profile = len(order) - 1, load_profile("cpu")
    looked = sorted({round(float(at)) for at in np.linspace(0, last, LOOKS)})
    starts_s, logs = [], []
    for at in looked:
        network, n_tensors = look(int(order[at]))
        path = ContractionPath(network, greedy_or_orders(network, "complex128"), (), "complex128")
        run_s = inf if has_schedules else predicted_s(path, profile)
        starts_s.append(preparing_s(n_tensors, len(network.inputs), run_s))
        # A launch is one of all rows, and not of each.
        row_s = predicted_s(path, profile) + len(path.ssa_path) * (ROW_S - profile.launch_s)
        logs.append(log10(max(row_s, 1e-12)))
    where = np.empty(len(order))
    where[order] = np.arange(len(order))
    rows_s = 10.0 ** np.interp(where, looked, logs)
    return [NetworkWork(*figures) for figures in zip(np.interp(where, looked, starts_s), rows_s, strict=True)]


class WorkOfShots:
    """Says how far the networks of samples are. Each has a row for each different beginning of the shots.

    Parameters
    ----------
    options : ContractionOptions
        With the listener, without which nothing is done.
    work : callable
        Predicts the work of all networks.
    shots : int
        The most rows.
    """

    def __init__(
        self, options: ContractionOptions, work: Callable[[], Sequence[NetworkWork]], shots: int
    ) -> None:
        self._listener, self._shots = options.progress, shots
        self._left = [] if options.progress is None else [*work()]
        self._done_s, self._rows = 0.0, 0

    def say(self, rows: int, done: int, total: int, name: str) -> None:
        """That the next network is done, which had so many rows; `done` and `total` are units of a name."""
        if self._listener is None:
            return
        # The rows of later networks are not known: their number is taken to go on growing as it did.
        growth = rows / self._rows if self._rows else self._shots
        self._rows = rows
        if rows:
            self._done_s += self._left.pop(0).seconds(rows)
        left_s, expected = 0.0, float(rows)
        for work in self._left:
            expected = min(self._shots, expected * growth)
            left_s += work.seconds(expected)
        share = self._done_s / (self._done_s + left_s)
        self._listener(Progress(done, total, f"{name} {done} of {total}", share=share))
