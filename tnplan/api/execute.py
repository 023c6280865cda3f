"""`execute`: carries out a schedule on in-process ranks, or on the ranks that mpirun started.

Rank 0 reads and checks every input and hands it to the others, so that only it needs the input files. Output
files are written by the ranks that hold them: rank 0, or with sharded results or checkpoints every rank, to
one shared folder.
"""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.contraction.bind.binder import bind
from tnplan.executor.contraction.bind.program import needed_bytes
from tnplan.executor.contraction.bind.tensor_library import bind_distributed
from tnplan.executor.contraction.run.rank_run import Bind, ContractionRun, Outcome, Progress, run_rank
from tnplan.executor.contraction.run.result import FORMAT as SHARDS_FORMAT
from tnplan.executor.contraction.run.result import (
    count_not_finite,
    gather_result,
    own_shard,
    owners,
    shard_file,
    shard_index,
    write_result,
)
from tnplan.executor.contraction.run.run_report import FORMAT as REPORT_FORMAT
from tnplan.executor.contraction.run.run_report import record
from tnplan.executor.contraction.run.slice_partition import parse_slices, share_of
from tnplan.executor.device.comm.launcher import world_communicator
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.protocols.communicator import (
    AgreedError,
    Communicator,
    World,
    agree,
    ending_together,
)
from tnplan.executor.device.protocols.device import Device
from tnplan.executor.device.selection.select import Chosen, check_device, open_device
from tnplan.planner.common.checks import check_count
from tnplan.planner.common.errors import InputError, WriteError
from tnplan.planner.common.files import check_writable, file_path, load_json
from tnplan.planner.hardware.compression_options import Request, parse_request
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import placed
from tnplan.planner.networks.tensors import check_tensors, load_tensors, values_identity
from tnplan.planner.passes.lowering.compress_exchanges import compress as compress_exchanges
from tnplan.planner.passes.lowering.unfuse import separate
from tnplan.planner.passes.verify.verify import verify
from tnplan.planner.schedule.file import load_schedule
from tnplan.planner.schedule.schedule import Schedule

RESULTS = ("gathered", "sharded")
ENGINES = ("native", "cutensormp")
LARGEST_RANKS = 4096


@dataclass(frozen=True)
class ExecutionResult:
    """What a run gave. `array` has the axes of the schedule's output; it is None on ranks other than 0 and
    where the result is sharded. `report` is the document of result.json, on every rank."""

    array: NDArray[Any] | None
    report: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class _Request:
    """The checked arguments of `execute`, equal on every rank."""

    job: ContractionRun
    tensors: list[NDArray[Any]]
    result: str
    output: Path | None
    threads: int | None
    device: str


def execute(
    schedule: Schedule | str | Path,
    tensors: str | Path | Sequence[NDArray[Any]] | None = None,
    *,
    ranks: int | None = None,
    device: str = "auto",
    result: str = "gathered",
    slices: str | tuple[int, int] | None = None,
    resume: bool = False,
    output: str | Path | None = None,
    threads: int | None = None,
    checkpoint: bool = True,
    engine: str = "native",
    compress: str | None = None,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
) -> ExecutionResult:
    """Contract the network of a schedule, or of its slices first:stop.

    `schedule` is a schedule or its file; `tensors` the arrays in the order of the network, or an .npz with
    t0, t1, ... (default: the file that the schedule names, seen from its own folder). Under mpirun the call
    is collective over all ranks; otherwise `ranks` threads of this process work (default: one group).
    `device` is "gpu" (a GPU a rank), "cpu", or "auto": the GPUs if they are there and have room, else the
    CPU; `announce` is called once, in the process of rank 0, with a line that says what "auto" chose and why.
    With `output` the result goes to that .npy, or to shards beside it (`result="sharded"`), with a .json of
    what was measured; a schedule of several slices then keeps checkpoints in `<output>.ckpt` unless
    `checkpoint` is false, and `resume` continues from them. `threads` are those of BLAS and of copies, a rank
    (default: the cores of the host over its ranks). The `engine` "cutensormp" leaves contractions and the
    exchanges after them to cuTENSOR and cuTENSORMp, on GPUs and without checkpoints; "native" is our own.
    `compress` is the option of `tnplan execute`, such as "exchange=1e-3,checkpoints" (docs/compression.md).
    `progress(done, all)` is called after each slice of the own group, on every MPI rank, or in this process
    for rank 0. Raises InputError before any work is done, or where values on the way cannot be compressed as
    planned; WriteError where a file cannot be written once work is done.
    """
    check_device(device)
    _check_engine(engine, device, resume)
    if ranks is not None:
        check_count("--ranks", ranks, 1, LARGEST_RANKS)
    if result not in RESULTS:
        raise InputError("result", f"{result!r} is unknown", f"choose from {', '.join(RESULTS)}")
    world = world_communicator()

    def prepare() -> _Request:
        return _prepare(
            schedule, tensors, slices, resume, output, threads, checkpoint, result, device, engine, compress
        )

    if world is None:
        request = prepare()
        n_ranks = ranks or request.job.schedule.ranks_per_group
        share_of(request.job.schedule, n_ranks, 0, *request.job.slices)
        n_threads = request.threads or max(1, len(_own_cores()) // n_ranks)
        with blas_threads(n_threads):
            results = run_ranks(n_ranks, lambda rank: _work(request, rank, n_threads, progress, announce))
        return results[0]
    return _collective(world, prepare, ranks, progress, announce)


def _prepare(
    schedule: Schedule | str | Path,
    tensors: str | Path | Sequence[NDArray[Any]] | None,
    slices: str | tuple[int, int] | None,
    resume: bool,
    output: str | Path | None,
    threads: int | None,
    checkpoint: bool,
    result: str,
    device: str,
    engine: str,
    compress: str | None,
) -> _Request:
    """Read and check everything that a run needs; raises InputError."""
    folder = Path() if isinstance(schedule, Schedule) else file_path(schedule).parent
    plan = schedule if isinstance(schedule, Schedule) else load_verified(schedule)
    if isinstance(schedule, Schedule):
        verify(plan)
    asked = Request() if compress is None else parse_request(compress)
    plan = _compressed(plan, asked)
    if engine == "cutensormp" and plan.compression is not None:
        raise InputError("--engine", "cutensormp compresses nothing", "take --engine native")
    if engine == "cutensormp":
        plan, device = separate(plan), "gpu"
    chosen = parse_slices(_slices_text(slices), plan.n_slices)
    if threads is not None:
        check_count("--threads", threads)
    source = _source(plan, tensors, folder)
    target = None if output is None else file_path(output)
    if target is not None:
        _check_outputs(target, result == "sharded", plan, schedule, source)
    elif resume or result == "sharded":
        raise InputError(
            "--resume" if resume else "--result", "needs an output file", "name it with --output"
        )
    keeps = target is not None and plan.body and (checkpoint or resume) and engine == "native"
    kept = target.with_name(target.name + ".ckpt") if target is not None and keeps else None
    arrays = _tensors(plan, source)
    values = "" if kept is None else values_identity(arrays)
    if asked.checkpoints and kept is None:
        raise InputError("--compress", "there are no checkpoints to compress", "leave checkpoints out")
    job = ContractionRun(plan, chosen, kept, resume, values, engine, asked.checkpoints)
    return _Request(job, arrays, result, target, threads, device)


def _compressed(plan: Schedule, asked: Request) -> Schedule:
    """The schedule with the bounds that were asked for; the exchanges that pay are marked."""
    marked = compress_exchanges(plan, asked)
    if marked is not plan:
        verify(marked)
    return marked


def _check_engine(engine: str, device: str, resume: bool) -> None:
    if engine not in ENGINES:
        raise InputError("--engine", f"{engine!r} is unknown", f"choose from {', '.join(ENGINES)}")
    if engine == "cutensormp" and device == "cpu":
        raise InputError("--engine", "cutensormp needs GPUs", "choose --device gpu")
    if engine == "cutensormp" and resume:
        raise InputError("--resume", "there are no checkpoints with --engine cutensormp", "leave it out")


def _binder(engine: str) -> Bind:
    """How this rank's instructions become calls."""
    if engine == "native":
        return bind
    from tnplan.executor.device.comm.cutensormp import CutensorMp

    return lambda schedule, device, group, tensors: bind_distributed(
        schedule, device, group, tensors, lambda: CutensorMp(group, device)
    )


def load_verified(path: str | Path) -> Schedule:
    """Read schedule.json and verify what it says; errors name the file."""
    schedule = load_schedule(path)
    placed(str(path), lambda: verify(schedule))
    return schedule


def _slices_text(slices: str | tuple[int, int] | None) -> str | None:
    if slices is None or isinstance(slices, str):
        return slices
    return ":".join(map(str, slices)) if isinstance(slices, Sequence) else str(slices)


def _check_outputs(target: Path, sharded: bool, plan: Schedule, *sources: object) -> None:
    """Refuse outputs that cannot be written, or would replace one of the `sources` that is a file."""
    if target.suffix != ".npy":
        raise InputError(
            "--output", f"{str(target)!r} does not end in .npy", "give the result a name in .npy"
        )
    inputs = [source for source in sources if isinstance(source, str | Path)]
    check_writable(target, *inputs)
    _check_document(target.with_suffix(".json"), REPORT_FORMAT, inputs)
    if sharded:
        _check_document(shard_index(target), SHARDS_FORMAT, inputs)
        for rank in owners(plan):
            check_writable(shard_file(target, rank), *inputs)


def _check_document(path: Path, format_: str, inputs: Sequence[str | Path]) -> None:
    """Refuse to write a document over a file that is not an earlier one of its kind."""
    check_writable(path, *inputs)
    if not path.exists():
        return
    try:
        held = load_json(path)
    except InputError:
        held = None
    if not isinstance(held, dict) or held.get("format") != format_:
        raise InputError(
            str(path),
            f"would be replaced, and is no {format_}",
            "choose another name for --output, or move the file",
        )


def _source(
    schedule: Schedule, tensors: str | Path | Sequence[NDArray[Any]] | None, folder: Path
) -> str | Path | Sequence[NDArray[Any]]:
    """The tensors that were given, or else the file that the schedule names."""
    if isinstance(tensors, str | Path):
        return file_path(tensors)
    if tensors is not None:
        return tensors
    if schedule.tensors is None:
        raise InputError(
            "--tensors", "the schedule names no file of tensors", "give an .npz with t0, t1, ..."
        )
    return file_path(folder / schedule.tensors)


def _tensors(schedule: Schedule, tensors: str | Path | Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    network = Network(schedule.leaves, schedule.output, schedule.size_dict)
    if not isinstance(tensors, str | Path | Sequence):
        raise InputError("tensors", f"is {type(tensors).__name__}", "give a list of arrays, or an .npz file")
    if isinstance(tensors, str | Path):
        arrays = load_tensors(tensors, network, schedule.dtype)
    else:
        arrays = check_tensors(tensors, network, schedule.dtype, "tensors")
    return [np.ascontiguousarray(array) for array in arrays]


def _collective(
    world: World,
    prepare: Callable[[], _Request],
    ranks: int | None,
    progress: Progress | None,
    announce: Callable[[str], None] | None,
) -> ExecutionResult:
    """Run on the ranks of mpirun; any failure but a refusal on which all agree ends the whole job."""

    def check() -> _Request | None:
        if ranks not in (None, world.size):
            raise InputError(
                "--ranks", f"is {ranks}, but mpirun started {world.size}", "leave it out under mpirun"
            )
        if world.rank != 0:
            return None
        request = prepare()
        share_of(request.job.schedule, world.size, 0, *request.job.slices)
        return request

    with ending_together(world):
        request: _Request = world.broadcast_object(agree(world, check), 0)
        n_threads = request.threads or _shared_cores(world)
        with blas_threads(n_threads):
            return _work(request, world, n_threads, progress, announce)


def _work(
    request: _Request,
    world: Communicator,
    n_threads: int,
    progress: Progress | None,
    announce: Callable[[str], None] | None,
) -> ExecutionResult:
    """One rank: choose a device, run, and hand over the result."""
    chosen = _open_device(request, world, n_threads)
    if announce is not None and request.device == "auto" and world.rank == 0:
        announce(chosen.line)
    heard = progress if world.name == "mpi" or world.rank == 0 else None
    outcome = None
    try:
        with _given_back(chosen):
            outcome = run_rank(
                request.job, request.tensors, chosen.ranks, chosen.device, heard, _binder(request.job.engine)
            )
            return _hand_over(request, outcome, chosen.device, world, n_threads)
    except AgreedError as error:
        if outcome is None:
            raise
        # What is refused after the run is a file that cannot be written.
        raise WriteError(str(error)) from None


def _open_device(request: _Request, world: Communicator, n_threads: int) -> Chosen:
    """The device of this rank; where an engine that needs GPUs finds none, the refusal names the engine."""
    try:
        return open_device(request.device, world, needed_bytes(request.job.schedule), n_threads)
    except AgreedError as error:
        if request.job.engine == "native":
            raise
        remedy = error.remedy.replace("--device cpu", "--engine native")
        raise AgreedError(f"--engine {request.job.engine}", error.problem, remedy) from None


@contextmanager
def _given_back(chosen: Chosen) -> Iterator[None]:
    """Close the peers' memory and the device afterwards, also where all ranks agree on a refusal.

    A rank that fails alone is to end the others at once: its stream may wait for them for long.
    """
    refusal = None
    try:
        yield
    except AgreedError as error:
        refusal = error
    chosen.device.synchronize()
    chosen.ranks.close()
    chosen.close()
    if refusal is not None:
        raise refusal


def _hand_over(
    request: _Request, outcome: Outcome, device: Device, world: Communicator, n_threads: int
) -> ExecutionResult:
    """Gather or write the result, write what was measured, and remove the checkpoint."""
    array = gather_result(outcome, device) if request.result == "gathered" else None
    held = array if request.result == "gathered" else own_shard(outcome, device)
    not_finite = 0 if held is None else count_not_finite(held)
    document = record(request.job, outcome, device, world, n_threads, not_finite)
    if request.output is not None:
        write_result(request.output, held, request.result == "sharded", document, outcome, world)
    if outcome.checkpoint is not None:
        outcome.checkpoint.remove()
    if document["not_finite"] and world.rank == 0:
        message = f"the result holds {document['not_finite']} values that are NaN or infinite"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    return ExecutionResult(array, document)


def _own_cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _shared_cores(world: Communicator) -> int:
    """This process's cores over the ranks of its host that share them, at least 1."""
    own = (socket.gethostname(), tuple(_own_cores()))
    return max(1, len(own[1]) // world.gather_objects(own).count(own))


@lru_cache(maxsize=1)
def _thread_pools() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def blas_threads(n_threads: int) -> AbstractContextManager[Any]:
    """BLAS with `n_threads` threads inside, as before outside."""
    pools: AbstractContextManager[Any] = _thread_pools().limit(limits=n_threads, user_api="blas")
    return pools
