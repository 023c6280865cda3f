"""The schedule of a contraction: given, cached, or planned now; and what `compile` does.

On a GPU a contraction begins without chains where compiling their kernels takes longer than doing without
them: the kernel of a chain is made for it, and compiled when it is met for the first time. A schedule of
products alone needs none, and a short contraction ends sooner with it.
"""

from __future__ import annotations

import operator
import threading
from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log2, prod
from numbers import Number
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.common.checks import check_count, check_kind
from tnplan.common.errors import InputError, OverLimitError
from tnplan.common.files import load_json
from tnplan.common.units import count_text, plural
from tnplan.executor.contraction.bind.chains import MissingKernels, chains_of_one_rank
from tnplan.executor.contraction.bind.program import needed_bytes
from tnplan.executor.device.comm.launcher import launched_size
from tnplan.executor.device.cpu.algebra import planned_algebra
from tnplan.executor.device.cpu.host_memory import host_memory
from tnplan.executor.device.select import free_gpu_bytes, gpu_profile, sees_gpu
from tnplan.jobs.arrays.arrays import (
    as_array,
    check_axes,
    common_dtype,
    common_kind,
    computed_dtype,
    library_of,
    refuse_followed,
    stated_dtype,
)
from tnplan.jobs.arrays.compiled import CompiledContraction, WithoutSchedule
from tnplan.jobs.arrays.gradient_calls import GradientPlan
from tnplan.jobs.arrays.library_contraction import library_contraction
from tnplan.jobs.arrays.numpy_contraction import MOST_TENSORS, direct_contraction, may_be_direct
from tnplan.jobs.arrays.options import CallOptions, ContractionOptions
from tnplan.jobs.arrays.ranks import bytes_with_inputs, inputs_bytes
from tnplan.planner.hardware.cost import ITEM_BYTES
from tnplan.planner.hardware.profile import Profile, known_profile, load_profile
from tnplan.planner.networks.contraction_path import ContractionPath, dtype_name, ssa_from_linear
from tnplan.planner.networks.importers import from_cotengra, read_any
from tnplan.planner.networks.importers.checks import integer_steps
from tnplan.planner.networks.importers.libraries import from_quimb, is_quimb_network, is_tree
from tnplan.planner.networks.importers.subscripts import EinsumCall, parse_call, shape_of
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.tensors import TensorNetwork
from tnplan.planner.passes import pipeline
from tnplan.planner.passes.lowering.keep_results import keep_results
from tnplan.planner.schedule.file import load_schedule
from tnplan.planner.schedule.recorded_run import calls_s
from tnplan.planner.schedule.schedule import FORMAT, Schedule
from tnplan.planner.search.annealing import Effort
from tnplan.planner.search.cotengra_search import search_jointly
from tnplan.planner.search.search_in_proportion import predicted_s, search_for_calls, search_in_proportion
from tnplan.planner.search.search_options import TENSORS_AT_ONCE

CACHED_SCHEDULES = 256
"""Schedules in the cache; the least recently used is dropped first."""
CACHED_CONTRACTIONS, CACHED_TOTAL_BYTES = 512, 512 << 20
"""Compiled contractions in the cache, and their bytes together."""
CACHED_BYTES = 16 << 20
"""The largest arena of a contraction in the cache."""
BATCH = "batch..."
"""The index of a batch: no equation has this label."""
USABLE_SHARE = 0.9
"""The share of the free memory that a contraction is planned for."""
CALLS_WITH_CONSTANTS = 1000
"""Calls that a contraction with constants is planned for."""
MOST_HALVINGS = 6
"""How often a path with tensors of half the size is tried where the memory does not suffice."""
GPU_FROM_S = 1.0
"""Predicted seconds on a CPU from which on device="auto" takes a GPU for arrays of the host."""


# docs/explanation/architecture.md#jobs
def read_request(network: Any, operands: Sequence[Any], *, takes_shapes: bool = True) -> EinsumCall:
    """What the arguments of a call name; `operands` are arrays, or shapes, or none where they are known.

    Unless it takes shapes, numbers and nested lists become arrays of NumPy.
    """
    if not takes_shapes:
        network, operands = _with_arrays(network, operands)
    # Each kind becomes a simpler one and falls through: a file what it holds, a tensor network its
    # structure with its own arrays. What is left is a call of einsum.
    if isinstance(network, Path) or (isinstance(network, str) and network.endswith(".json")):
        network = _from_file(Path(network))
    if isinstance(network, TensorNetwork):
        network, operands = network.network, operands or network.tensors
    if isinstance(network, Schedule):
        request = Network(network.leaves, network.output, network.size_dict)
        return _call(request, operands, schedule=network)
    if is_tree(network):
        network = from_cotengra(network)
    if isinstance(network, ContractionPath):
        return _call(network.network, operands, path=network)
    if isinstance(network, Network):
        return _call(network, operands)
    if is_quimb_network(network):
        structure, own = from_quimb(network)
        return _call(structure, operands or own)
    return parse_call((network, *operands))


def _with_arrays(network: Any, operands: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The arguments with an array for each number and each list of numbers."""
    is_operand = isinstance(network, list | tuple | Number) or library_of(network) == "torch"
    if not is_operand and not isinstance(getattr(network, "shape", None), tuple):
        return network, [as_array(operand, number) for number, operand in enumerate(operands)]
    arguments = [network, *operands]
    for index in range(0, len(arguments) - 1, 2):  # a list of labels stands behind each operand
        arguments[index] = as_array(arguments[index], index // 2)
    return arguments[0], arguments[1:]


def _from_file(path: Path) -> ContractionPath | Schedule:
    document = load_json(path)
    if isinstance(document, dict) and document.get("format") == FORMAT:
        return load_schedule(path)
    return read_any(path)[0]


def _call(
    network: Network, operands: Sequence[Any], path: ContractionPath | None = None,
    schedule: Schedule | None = None,
) -> EinsumCall:  # fmt: skip
    """The operands of a network, each with the shape that it must have; none stand for any."""
    if operands and len(operands) != len(network.inputs):
        problem = f"has {plural(len(operands), 'array', 'arrays')} for {len(network.inputs)} tensors"
        raise InputError("contraction", problem, "give one array per tensor, in the order of the network")
    for number, operand in enumerate(operands):
        shape = shape_of(operand, number)
        if shape != network.shape(number):
            problem = f"has shape {shape}, the network says {network.shape(number)}"
            raise InputError(f"array {number}", problem, "give the arrays in the order of the network")
    return EinsumCall(network.inputs, network.output, network.size_dict, tuple(operands), path, schedule)


@dataclass(frozen=True, eq=False)
class WithoutChains:
    """A schedule of products alone, for as long as the kernels of the other one's chains are missing."""

    schedule: Schedule
    kernels: MissingKernels


@dataclass(frozen=True)
class Planned:
    """A schedule and the device that it was planned for: "cpu", "gpu", or "auto" for one that was given; the
    path of one that was planned; and what may be contracted while kernels are compiled. `devices` are those
    that take part: a multiple of the ranks that share a slice."""

    schedule: Schedule
    device: str
    devices: int
    path: ContractionPath | None = None
    without_chains: WithoutChains | None = None

    def now(self) -> Planned:
        """What is to be contracted now: this, or the schedule that needs no kernels of chains."""
        if self.without_chains is None or self.without_chains.kernels.are_ready():
            return self
        return Planned(self.without_chains.schedule, self.device, self.devices, self.path)


def find_schedule(request: EinsumCall, dtype: str, options: ContractionOptions) -> Planned:
    """The schedule that was given, or the plan of the path that was given or is found."""
    if request.schedule is not None:
        planned_algebra(options.algebra or "plus-times", request.schedule.algebra, request.schedule.dtype)
        if not np.can_cast(dtype, request.schedule.dtype):
            problem = f"have dtype {dtype}, and the schedule is for {request.schedule.dtype}"
            raise InputError("arrays", problem, "convert the arrays, or plan for a wider dtype")
        return Planned(request.schedule, options.device, options.devices)
    if request.path is None and _has_names(options):
        sizes = tuple(request.size_dict.items())
        return _remembered_plan(request.inputs, request.output, sizes, dtype, options)
    if request.path is not None:
        options = options.changed(optimize=request.path)
    return _plan_searched(request.network, dtype, options)


def _has_names(options: ContractionOptions) -> bool:
    """Whether equal options mean the same: optimizers and profiles in hand have no hash by value."""
    return isinstance(options.optimize, str) and not isinstance(options.hardware, Profile)


@lru_cache(CACHED_SCHEDULES)
def _remembered_plan(
    inputs: tuple[tuple[str, ...], ...], output: tuple[str, ...], sizes: tuple[tuple[str, int], ...],
    dtype: str, options: ContractionOptions,
) -> Planned:  # fmt: skip
    """The plan of a network whose path is found by name, in a cache."""
    return _plan_searched(Network(inputs, output, dict(sizes)), dtype, options)


def _plan_searched(network: Network, dtype: str, options: ContractionOptions) -> Planned:
    """The plan of a path that is found: of one with ever smaller tensors, until it fits the memory."""
    for halvings in range(MOST_HALVINGS):
        try:
            return _plan(_path(network, dtype, options, halvings), options)
        except OverLimitError:
            continue
    return _plan(_path(network, dtype, options, MOST_HALVINGS), options)


def find_batched(
    request: EinsumCall, dtype: str, options: ContractionOptions, batch: int, batched: Sequence[int]
) -> Planned:
    """The schedule with one index more, which is on the tensors of the batch and first on the result.

    Its extent is `batch`, or the largest half, quarter, ... that fits the memory.
    """
    if request.schedule is not None:
        raise InputError("batch", "is given with a schedule", "give the network or its path")
    path = find_path(request, dtype, options)
    while True:
        network = batched_network(request.network, batch, batched)
        try:
            # The path is that of one value: an index more on some tensors changes the cost
            # of steps, but every order of them stays possible.
            planned = _plan(replace(path, network=network), options.changed(calls=-(-options.calls // batch)))
        except InputError:
            if batch == 1:
                raise
        else:
            if batch == 1 or _fits_host(planned, options):
                return planned
        # Halving makes log2(batch) plans at most.
        batch = -(-batch // 2)


def _fits_host(planned: Planned, options: ContractionOptions) -> bool:
    """Whether the host has memory for all ranks and their inputs, where no limit was stated."""
    if options.memory is not None or planned.device != "cpu":
        return True
    return planned.devices * bytes_with_inputs(planned.schedule) <= host_memory()[1]


def batched_network(network: Network, batch: int, batched: Container[int]) -> Network:
    """The network with the index of a batch on some tensors, and first on the result."""
    return Network(*batched_terms((network.inputs, network.output, network.size_dict), batch, batched))


def batched_terms(
    terms: tuple[tuple[Any, ...], tuple[str, ...], dict[str, int]], batch: int, batched: Container[int]
) -> tuple[tuple[Any, ...], tuple[str, ...], dict[str, int]]:
    """The same of inputs, output and extents, which may be 0."""
    inputs, output, sizes = terms
    index = BATCH
    while index in sizes:  # a batch of batches
        index += "."
    wide = tuple((index, *term) if number in batched else term for number, term in enumerate(inputs))
    return wide, (index, *output), {index: batch, **sizes}


def find_path(
    request: EinsumCall, dtype: str, options: ContractionOptions, halvings: int = 0
) -> ContractionPath:
    """The path that was given, or one that is found as the options say; for a half, ... of the memory."""
    if request.path is not None:
        options = options.changed(optimize=request.path)
    return _path(request.network, dtype, options, halvings)


def _path(network: Network, dtype: str, options: ContractionOptions, halvings: int = 0) -> ContractionPath:
    """A path that is found, by names in a cache: a schedule may be planned of it after it was looked at."""
    if halvings or not _has_names(options):
        return _search(network, dtype, options, halvings)
    return _remembered_path(network.inputs, network.output, tuple(network.size_dict.items()), dtype, options)


@lru_cache(CACHED_SCHEDULES)
def _remembered_path(
    inputs: tuple[tuple[str, ...], ...], output: tuple[str, ...], sizes: tuple[tuple[str, int], ...],
    dtype: str, options: ContractionOptions,
) -> ContractionPath:  # fmt: skip
    return _search(Network(inputs, output, dict(sizes)), dtype, options)


def _search(network: Network, dtype: str, options: ContractionOptions, halvings: int = 0) -> ContractionPath:
    """A path for the memory, or for a half, a quarter, ... of it."""
    device = options.device if options.device != "auto" else "cpu" if options.gpu is None else "gpu"
    elements = options.devices * memory_bytes(options, device) / (TENSORS_AT_ONCE * ITEM_BYTES[dtype])
    if elements < 1:
        raise InputError(
            "memory", f"is {options.memory} bytes", "allow at least some tensors", topic="memory"
        )
    # A power of two, so that the free memory of the moment makes no other limit for the cache of paths.
    # An input that fits is not sliced for its size alone: nothing of its size need stand beside it.
    largest = max(prod(network.shape(number)) for number in range(len(network.inputs)))
    fits = 2 * largest <= TENSORS_AT_ONCE * elements
    limit = max(1, max(2 ** int(log2(elements)), largest if fits else 1) >> halvings)
    if isinstance(options.optimize, str) and options.optimize == "auto":
        if network.output_size > limit:
            result = count_text(network.output_size, "element", "elements")
            problem = f"leaves room for tensors of {limit:,} elements, and the result has {result}"
            raise InputError(
                "memory", problem, "allow more memory, or share the work between more devices", topic="memory"
            )
        profile = _profile(options, device)
        if options.search_s is not None:
            return search_jointly(network, dtype, Effort(time_s=options.search_s), limit, options.seed)
        if options.calls == 1:
            return search_in_proportion(
                network, dtype, profile, max_elements=limit, seed=options.seed, limit=options.search_limit
            )
        changing = range(len(network.inputs)) if options.changing is None else options.changing
        return search_for_calls(network, dtype, profile, changing, options.calls, limit, options.search_limit)
    path = _path_of(options.optimize, network, dtype)
    return _sliced(path, limit) if halvings else path


def _path_of(optimize: Any, network: Network, dtype: str) -> ContractionPath:
    """The path that an optimizer finds, with its slices, or that a list of pairs is."""
    sliced: tuple[str, ...] = ()
    if isinstance(optimize, ContractionPath):
        return _renamed(optimize, network, dtype)
    if isinstance(optimize, np.ndarray):
        optimize = optimize.tolist()
    if optimize is False:  # one after the other: the result of a step is the last in the list
        n_tensors = len(network.inputs)
        optimize = [(0, n_tensors - step - 1 if step else 1) for step in range(n_tensors - 1)]
    # opt_einsum and NumPy write linear paths: positions in a list from which operands are taken and
    # to which results are appended. Everything here has SSA numbers.
    if isinstance(optimize, list | tuple):
        path = list(optimize[1:] if optimize and optimize[0] == "einsum_path" else optimize)
    elif len(network.inputs) == 1:
        path = []
    else:
        from cotengra import array_contract_path, array_contract_tree

        terms = network.inputs, network.output, network.size_dict
        try:
            if hasattr(optimize, "search"):
                tree = array_contract_tree(*terms, optimize=optimize, canonicalize=False)
                path, sliced = tree.get_path(), tuple(tree.sliced_inds)
            else:
                path = array_contract_path(*terms, optimize=optimize)
        except (KeyError, TypeError, ValueError) as error:
            problem = f"{optimize!r} finds no path ({' '.join(str(error).split())})"
            remedy = "give 'auto', a method of cotengra, a list of pairs, or an optimizer"
            raise InputError("optimize", problem, remedy) from None
    if not isinstance(path, Sequence):
        raise InputError(
            "optimize", f"gives {path!r} as a path", "give an optimizer that finds a list of pairs"
        )
    steps = integer_steps(path, "optimize")
    return ContractionPath(network, ssa_from_linear(steps, len(network.inputs)), sliced, dtype)


def _renamed(path: ContractionPath, network: Network, dtype: str) -> ContractionPath:
    """The path of the same network with other names of its indices; refused where it is another one."""
    own = path.network
    flat = [[index for term in each.inputs for index in term] for each in (own, network)]
    names = dict(zip(*flat, strict=False))
    terms = [tuple(map(names.get, term)) for term in (*own.inputs, own.output)]
    are_equal = all(own.size_dict[index] == network.size_dict[name] for index, name in names.items())
    if terms != [*network.inputs, network.output] or len(set(names.values())) < len(names) or not are_equal:
        raise InputError(
            "optimize", "is the path of another network", "give this path in place of the equation"
        )
    return ContractionPath(network, path.ssa_path, tuple(names[index] for index in path.sliced_inds), dtype)


def _sliced(path: ContractionPath, limit: int) -> ContractionPath:
    """The path, sliced until no tensor has more elements than the limit; open indices are left whole."""
    tree = path.to_cotengra()
    if tree.max_size() > limit:
        try:
            # A fixed seed: the same call has the same slices in every process, so that
            # ranks agree without a message.
            tree.slice_(target_size=limit, allow_outer=False, seed=0)
        except (RuntimeError, KeyError):  # cotengra's words for: no index is left
            return path
    names = {character: index for index, character in path.network.characters.items()}
    return replace(path, sliced_inds=tuple(names[character] for character in tree.sliced_inds))


def _plan(path: ContractionPath, options: ContractionOptions) -> Planned:
    device = chosen_device(path, options)
    profile, memory = _profile(options, device), memory_bytes(options, device)
    if device == "cpu" and options.memory is None:  # copies of the arrays, which the caller may change
        memory = max(1.0, memory - inputs_bytes(path.network, path.dtype))
    schedule = pipeline.plan(
        path, profile, devices=options.devices, memory_bytes=memory, precision=options.precision
    )
    without_chains = None
    if device == "gpu":
        without_chains = plan_without_chains(schedule, path, profile, options, memory)
    # Threads of this process that make no whole group have no slices; under mpirun every rank
    # exists, and `open_ranks` refuses there.
    idle = options.devices % schedule.ranks_per_group if launched_size() == 1 else 0
    return Planned(schedule, device, options.devices - idle, path, without_chains)


def plan_without_chains(
    schedule: Schedule, path: ContractionPath, profile: Profile, options: ContractionOptions, memory: float
) -> WithoutChains | None:
    """The schedule of products alone for the same path, where all calls of it end sooner; else None."""
    if options.waits_for_kernels or options.devices > 1 or not sees_gpu():
        return None
    chains = chains_of_one_rank(schedule)
    if not chains:
        return None
    kernels = MissingKernels(chains, schedule.dtype, profile.fused_bytes, options.gpu or 0)
    # Chains are left out where all calls lose less by it than compiling their kernels takes: n
    # (t_plain - t_chains) < t_compile.
    saved_s = kernels.wait_s
    if saved_s == 0 or not kernels.may_compile:
        return None
    try:
        plain = pipeline.plan(
            path, replace(profile, fused_bytes=0), memory_bytes=memory, precision=options.precision
        )
    except InputError:  # products alone need more memory
        return None
    lost_s = calls_s(plain, options.calls) - calls_s(schedule, options.calls)
    return WithoutChains(plain, kernels) if lost_s < saved_s else None


def gradient_plan(
    planned: Planned, options: ContractionOptions, batch: str | None = None
) -> GradientPlan | None:
    """What the gradients of a contraction are planned from: the memory that its own arena leaves."""
    if planned.path is None:
        return None
    free_bytes = memory_bytes(options, planned.device) - needed_bytes(planned.schedule)
    return GradientPlan(planned.path, _profile(options, planned.device), max(free_bytes, 0.0), batch)


def chosen_device(path: ContractionPath, options: ContractionOptions) -> str:
    """The device of a contraction: where the arrays are; of arrays of the host, a GPU where that pays."""
    if options.device != "auto":
        return options.device
    if options.gpu is not None:
        return "gpu"
    if options.algebra is not None:
        return "cpu"
    pays = predicted_s(path, load_profile("cpu")) > GPU_FROM_S
    return "gpu" if pays and sees_gpu() else "cpu"


def _profile(options: ContractionOptions, device: str) -> Profile:
    """The profile that was stated, or the shipped one of the device."""
    profile = known_profile(options.hardware or (gpu_profile(options.gpu or 0) if device == "gpu" else "cpu"))
    if options.algebra is None:
        return profile
    return options.algebra.profile(profile, device)


def memory_bytes(options: ContractionOptions, device: str) -> float:
    """The limit that was stated, or else what is free."""
    if options.memory is not None:
        return options.memory
    return USABLE_SHARE * (free_gpu_bytes(options.gpu or 0) if device == "gpu" else host_memory()[1])


def steady_memory(options: ContractionOptions) -> float:
    """The limit that was stated, or what is free now, on a GPU too where one may be taken.

    What is free is cut to a fourth of a power of two, so that a schedule in the cache serves the next call.
    """
    if options.memory is not None:
        return options.memory
    devices = ["gpu" if options.device == "gpu" or options.gpu is not None else "cpu"]
    if options.device == "auto" and options.gpu is None and sees_gpu():
        devices = ["cpu", "gpu"]
    free_bytes = min(memory_bytes(options, device) for device in devices)
    step = 2.0 ** (int(log2(max(free_bytes, 4))) - 2)
    return free_bytes // step * step


_contractions: OrderedDict[tuple[Any, ...], tuple[CompiledContraction, int]] = OrderedDict()
"""Each with the bytes that it holds, but for those of gradients, which have an arena of their own."""
_contractions_lock = threading.Lock()


@contextmanager
def compiled(planned: Planned, options: ContractionOptions) -> Iterator[CompiledContraction]:
    """A compiled contraction of a schedule; a small one goes into a cache, others are closed."""
    planned = planned.now()
    schedule = planned.schedule
    options = options.changed(device=planned.device, devices=planned.devices)
    size_bytes = needed_bytes(schedule)

    def compile_schedule() -> CompiledContraction:
        return CompiledContraction(schedule, options, gradient_plan=gradient_plan(planned, options))

    if size_bytes > CACHED_BYTES or options.devices > 1:
        with compile_schedule() as contraction:
            yield contraction
        return
    # Schedules with the same identity are the same; what `open_ranks` takes from the options stands
    # beside it.
    key = (
        schedule.identity, options.device, options.threads, options.gpu, options.strip_exponent,
        options.algebra,
    )  # fmt: skip
    # Taken out and put back at the end: an OrderedDict in this order is a cache of the least
    # recently used. What is dropped is not closed, since another thread may be in a call of it: its
    # memory goes with its last user.
    with _contractions_lock:
        new = key not in _contractions
        contraction, last_bytes = (compile_schedule(), 0) if new else _contractions.pop(key)
        own_bytes = contraction.size_bytes
        _contractions[key] = contraction, own_bytes
        if own_bytes != last_bytes:  # summing over all takes longer than a small contraction
            total_bytes = sum(size_bytes for _, size_bytes in _contractions.values())
            while len(_contractions) > CACHED_CONTRACTIONS or total_bytes > CACHED_TOTAL_BYTES:
                total_bytes -= _contractions.popitem(last=False)[1][1]
    yield contraction


def forget_contractions() -> None:
    """Empty the caches of schedules and compiled contractions; paths on disk stay."""
    _remembered_plan.cache_clear()
    _remembered_path.cache_clear()
    with _contractions_lock:
        _contractions.clear()


def compile_network(
    network: Any, shapes: Sequence[Any], options: ContractionOptions, calls: CallOptions,
    kind: type[CompiledContraction] = CompiledContraction,
) -> CompiledContraction:  # fmt: skip
    """Make a contraction ready to be called again and again: the arguments of `compile`."""
    request = read_request(network, shapes)
    check_axes(request.output)
    for name, extent in request.size_dict.items():
        if extent == 0:
            remedy = "use tnplan.contract, which gives the result: empty, or zeros"
            raise InputError("shapes", f"index {name!r} has extent 0, and there is nothing to plan", remedy)
    check_kind("keep", calls.keep, bool)
    arguments = (*request.operands, *calls.constants.values())
    arrays = [array for array in arguments if hasattr(array, "shape")]
    # Arrays in hand say where calls will come from; shapes alone say nothing, and options.device decides.
    gpu = common_kind(arrays).gpu if arrays else None
    n_tensors, batch = len(request.inputs), calls.batch
    fixed = {_tensor("constants", number, n_tensors): values for number, values in calls.constants.items()}
    refuse_followed(fixed.items(), "constant")
    changing = [number for number in range(n_tensors) if number not in fixed]
    batched = () if batch is None else _batched(calls, changing, n_tensors)
    # The search weighs its own time against all calls. Constants promise that there will be several.
    n_calls = calls.calls
    if n_calls is None:
        n_calls = batch or (CALLS_WITH_CONSTANTS if fixed and changing else 1)
    check_count("calls", n_calls)
    options = options.changed(gpu=gpu, calls=n_calls, changing=tuple(changing) if batch is None else batched)
    dtype = stated(request, network) if calls.dtype is None else dtype_name(calls.dtype, "dtype")
    if batch is not None:
        planned = find_batched(request, dtype, options, batch, batched)
    else:
        planned = find_schedule(request, dtype, options)
    schedule = planned.schedule
    # What constants alone decide is computed at the first call and stays. Schedules for several
    # ranks a slice keep no results.
    if (calls.keep or fixed) and schedule.ranks_per_group == 1:
        limit = memory_bytes(options, planned.device)
        schedule = keep_results(schedule, None if calls.keep else changing, limit)
    gradients = None
    if not (options.strip_exponent or options.algebra):
        index = None if batch is None else BATCH
        gradients = gradient_plan(replace(planned, schedule=schedule), options, index)
    options = options.changed(device=planned.device, devices=planned.devices)
    is_whole = batch is None and not (fixed or calls.keep)
    direct = _without_schedule(planned, options) if is_whole else WithoutSchedule()
    # Shapes of calls, with axes of extent 1 as they were given: the schedule has broadcast them.
    shapes = [
        (schedule.size_dict[BATCH], *shape_of(operand, number)) if number in batched
        else shape_of(operand, number)
        for number, operand in enumerate(request.operands)
    ]  # fmt: skip
    return kind(schedule, options, fixed, batched, gradients, shapes, direct)


def _without_schedule(planned: Planned, options: ContractionOptions) -> WithoutSchedule:
    """What contracts a planned path without its schedule, where that is as fast."""
    path, is_on_gpu = planned.path, planned.device == "gpu"
    if path is None or path.sliced_inds or len(path.network.inputs) > MOST_TENSORS:
        return WithoutSchedule()
    if not may_be_direct(options.changed(device="auto", gpu=None)):
        return WithoutSchedule()
    network, steps, dtype = path.network, path.ssa_path, path.dtype
    on_host = None if is_on_gpu else direct_contraction(network, steps, dtype, options)
    if is_on_gpu and options.gpu is None:
        options = options.changed(gpu=0)
    return WithoutSchedule(on_host, library_contraction(network, steps, dtype, options))


def _batched(calls: CallOptions, changing: Sequence[int], n_tensors: int) -> tuple[int, ...]:
    """The numbers of the tensors of a batch: those stated, or all that change."""
    check_count("batch", calls.batch)
    numbers = changing if calls.batched is None else calls.batched
    if not isinstance(numbers, Iterable):
        raise InputError("batched", f"is {numbers!r}", "give a list of the tensors of the batch")
    batched = tuple(_tensor("batched", number, n_tensors) for number in numbers)
    if not batched:
        raise InputError("batched", "is empty", "give the numbers of tensors, or leave out batch")
    return batched


def _tensor(place: str, number: Any, n_tensors: int) -> int:
    """The number of a tensor."""
    is_number = hasattr(number, "__index__") and not isinstance(number, type)
    if not is_number or not 0 <= operator.index(number) < n_tensors:
        problem = f"names tensor {number!r}"
        raise InputError(place, problem, f"tensors are numbered from 0 to {n_tensors - 1}")
    return operator.index(number)


def stated(request: EinsumCall, network: Any) -> str:
    """The dtype that a schedule, arrays or a path have; a tree of cotengra has none."""
    if request.schedule is not None:
        return request.schedule.dtype
    arrays = [array for array in request.operands if hasattr(array, "dtype")]
    if arrays and len(arrays) == len(request.operands):
        return computed_dtype(common_dtype(tuple(map(stated_dtype, arrays))))
    if request.path is None or is_tree(network):
        raise InputError("dtype", "is missing", "give dtype=, or arrays instead of shapes")
    return request.path.dtype
