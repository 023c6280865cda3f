"""The job of `execute`: inputs are read and checked, slices carried out on all ranks, results written.

Rank 0 reads and checks every input and hands it to the others, so that only it needs the input files. Output
files are written by the ranks that hold them: rank 0, or with sharded results or checkpoints every rank, to
one shared folder.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.checks import check_choice
from tnplan.common.errors import InputError, WriteError
from tnplan.common.files import check_writable, file_path, load_json
from tnplan.common.shown_text import Printed, shown_text
from tnplan.common.units import count_text, percent_text, size_text, time_text
from tnplan.executor.contraction.bind.binder import bind
from tnplan.executor.contraction.bind.program import needed_bytes
from tnplan.executor.contraction.bind.tensor_library import bind_distributed
from tnplan.executor.contraction.run.rank_run import Bind, ContractionRun, RunOutcome, run_rank
from tnplan.executor.contraction.run.result import FORMAT as SHARDS_FORMAT
from tnplan.executor.contraction.run.result import (
    count_not_finite,
    gather_result,
    owners,
    rank_shard,
    shard_file,
    shard_index,
    write_result,
)
from tnplan.executor.contraction.run.run_report import FORMAT as REPORT_FORMAT
from tnplan.executor.contraction.run.run_report import result_document
from tnplan.executor.contraction.run.slice_partition import parse_slices, share_of
from tnplan.executor.device.comm.launcher import launched_place
from tnplan.executor.device.cpu.algebra import Algebra, modulus_text, planned_algebra
from tnplan.executor.device.cpu.host_memory import REMEDY
from tnplan.executor.device.protocols.communicator import AgreedError
from tnplan.jobs.job import Job, Needs, Rank, run_job
from tnplan.jobs.job_options import JobOptions
from tnplan.jobs.outputs import Writes
from tnplan.planner.hardware.compression_options import Request, check_lossless, parse_request
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.tensors import check_tensors, load_tensors, values_identity
from tnplan.planner.passes.load import load_schedule
from tnplan.planner.passes.lowering.compress_exchanges import compress_exchanges
from tnplan.planner.passes.lowering.unfuse import unfuse
from tnplan.planner.passes.verify import verify
from tnplan.planner.schedule.schedule import Schedule

TOPIC = "ranks"
SHOWN_VALUES = 4
"""A result of so few values is printed."""

# Whether the ranks lie on hosts and switches as a schedule expects, and what it costs where they do not.


Place = tuple[str, ...]
"""Where a rank runs, the widest first: switches, where they are known, and the host."""
UNITS = ("a host", "a switch", "a group of switches")
"""What the tiers of a profile join, the first tier first."""


def topology_note(schedule: Schedule, places: Sequence[Place]) -> str:
    """What a user should know where a tier reaches over more units than planned; empty where none does.

    `places` has the place of each rank. A tier of the schedule's profile joins so many devices (0: all of
    them): those of one host, then those of one switch, as far as switches are known. Exchanges that were
    planned within a tier go by the next one where its ranks are apart.
    """
    size, tiers = schedule.ranks_per_group, schedule.profile["tiers"]
    groups = [places[first : first + size] for first in range(0, len(places), size)]
    # Tiers go from near to far. A unit of tier t is what shares all of its place but the last t
    # names. The first tier in which ranks that were planned for one unit are on several decides.
    for number, tier in enumerate(tiers[: min(map(len, places))]):
        planned = min(tier["devices"] or size, size)
        units = [[rank_place[: len(rank_place) - number] for rank_place in group] for group in groups]
        if not (together := _together(units, planned)):
            continue
        unit, near = UNITS[min(number, len(UNITS) - 1)], shown_text(tier["name"], 40)
        text = f"planned for {planned} ranks {unit} that exchange by {near}; here {together} are together: "
        in_order = [sorted(group) for group in units]
        remedy = (
            f"plan with devices = {together} in tier {near} of the profile" if _together(in_order, planned)
            else "start ranks host by host (srun --distribution=block)"
        )  # fmt: skip
        return f"{text}{_loss(schedule, number)}; {remedy}"
    return ""


def _together(groups: Sequence[Sequence[Place]], planned: int) -> int:
    """The ranks in one unit, of the first that should be `planned`; 0 where all units are whole.

    Ranks first, first + 1, ... of a group are one domain of the tier.
    """
    domains = [group[first : first + planned] for group in groups for first in range(0, len(group), planned)]
    split = [domain for domain in domains if len({*domain}) > 1]
    return max(split[0].count(unit) for unit in split[0]) if split else 0


def _loss(schedule: Schedule, number: int) -> str:
    """The time that is lost where exchanges of a tier go by the next one."""
    tiers = schedule.profile["tiers"]
    if number + 1 == len(tiers):
        return "exchanges between them may take much longer than predicted"
    factor = tiers[number]["bytes_per_s"] / tiers[number + 1]["bytes_per_s"]
    total_s = sum(step.predicted_s for step in schedule.steps)
    exchange_s = sum(step.exchange_s for step in schedule.steps)
    more = exchange_s / total_s * max(0.0, factor - 1) if total_s else 0.0
    far = shown_text(tiers[number + 1]["name"], 40)
    return f"predicted to take up to {percent_text(more)} longer, exchanges by {far}"


@dataclass(frozen=True, eq=False, repr=False)
class ExecutionResult(Printed):
    """What `execute` gives; `print` shows what was measured beside what was predicted.

    Parameters
    ----------
    array : array or None
        The result, with the axes of the schedule's output. None on ranks other than 0, and where the result
        is sharded.
    report : dict
        The document of result.json (docs/reference/formats.md), on every rank.

    Examples
    --------
    >>> tnplan.ExecutionResult(np.ones((2, 2)), {"measured": {"run_s": 0.5}})
    ExecutionResult(float64 array of shape (2, 2), 500 ms)
    """

    array: NDArray[Any] | None
    report: dict[str, Any]

    def __repr__(self) -> str:
        array = "no array" if self.array is None else f"{self.array.dtype} array of shape {self.array.shape}"
        return f"ExecutionResult({array}, {time_text(self.report['measured']['run_s'])})"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        report, array = self.report, self.array
        measured, predicted = report["measured"], report["predicted"]
        kinds = measured["kinds_s"]
        rows = [
            ("seconds in all", measured["run_s"], predicted["total_s"]),
            # Devices measure permutations together with products, so that the prediction adds them too.
            ("  contractions", kinds["contract_s"], predicted["contract_s"] + predicted["permute_s"]),
            ("  exchanges", kinds["exchange_s"], predicted["exchange_s"]),
        ]
        if "codec_s" in kinds:
            rows.append(("  compression", kinds["codec_s"], predicted["codec_s"]))
        if measured["hidden_s"] or predicted["hidden_s"]:
            rows.append(("  hidden exchanges", measured["hidden_s"], predicted["hidden_s"]))
        n_slices = report["slices"]["stop"] - report["slices"]["first"]
        yield (
            f"{count_text(report['ranks'], 'rank', 'ranks')} in "
            f"{count_text(report['groups'], 'group', 'groups')}, {count_text(n_slices, 'slice', 'slices')}, "
            f"{count_text(report['threads_per_rank'], 'thread', 'threads')} per rank"
        )
        yield f"{'':<20}{'measured':>12}{'predicted':>12}"
        for name, value, expected in rows:
            yield f"{name:<20}{value:>12.4g}{expected:>12.4g}"
        taken_j, expected_j = measured["energy"]["run_j"], predicted["total_j"]
        if taken_j is not None:
            shown = "" if expected_j is None else f"{expected_j:.4g}"
            yield f"{'joules of GPUs':<20}{taken_j:>12.4g}{shown:>12}"
        peaks = [size_text(figures["peak_bytes"]) for figures in (measured, predicted)]
        yield f"{'peak per rank':<20}{peaks[0]:>12}{peaks[1]:>12}"
        if report["compression"] is not None:
            yield _compression_text(report["compression"])
        if array is not None and array.size <= SHOWN_VALUES:
            yield f"result: {array.tolist()}"


def _compression_text(compression: dict[str, Any]) -> str:
    """The accumulated bound, the fidelity, and bytes before and after, in one line."""
    if not compression.keys() & {"exchange", "store"}:
        return (
            "compressed: nothing, since no exchange is predicted to be faster, and no tensor has to be stored"
        )
    bound, fidelity = (
        "not known" if compression[name] is None else format(compression[name], form)
        for name, form in (("bound", ".3g"), ("fidelity", ".9g"))
    )
    kinds = [
        f"{kind} {size_text(sizes['tensor_bytes'])} to {size_text(sizes['stream_bytes'])}"
        for kind in ("exchange", "store")
        if (sizes := compression.get(kind))
    ]
    return "; ".join([f"compressed: bound {bound}, fidelity {fidelity}", *kinds])


Tensors = str | Path | Sequence[NDArray[Any]]
"""Arrays in the order of the network, or an .npz of them."""
RESULTS = ("gathered", "sharded")
ENGINES = ("native", "cutensormp")


class _AgreedWriteError(AgreedError):
    """A file that cannot be written once work is done; all ranks raise it."""


@dataclass(frozen=True, eq=False)
class ExecutionRequest:
    """The arguments of `execute` besides the job's options."""

    schedule: Schedule | str | Path
    tensors: Tensors | None
    slices: str | tuple[int, int] | None
    result: str
    engine: str
    compress: str | None
    algebra: Algebra | str | None

    def over(self, plan: Schedule) -> Algebra | None:
        """The algebra of a schedule; each rank has it from its own call."""
        return planned_algebra(self.algebra, plan.algebra, plan.dtype)


@dataclass(frozen=True)
class ExecutionProblem:
    """The checked inputs of `execute`, equal on every rank."""

    run: ContractionRun
    tensors: list[NDArray[Any]]
    result: str


def run_execution(request: ExecutionRequest, options: JobOptions) -> ExecutionResult:
    """Carry out a schedule on the ranks of this process, or on those of mpirun."""
    _check_engine(request.engine, options)
    check_choice("--result", request.result, RESULTS)
    if request.engine != "native" and options.device == "auto":
        options = replace(options, device="gpu")
    job = Job(
        prepare=lambda: _prepare(request, options),
        work=lambda rank, problem: _work(rank, problem, request, options),
        ranks=lambda problem: problem.run.schedule.ranks_per_group,
        check_ranks=lambda problem, n: share_of(problem.run.schedule, n, 0, *problem.run.slices),
        needs=lambda problem, n, threads: _needs(problem, request),
        writes=lambda problem, n: _writes(problem, options.output, n),
    )
    try:
        with options.heeding_signals():
            return run_job(job, options)
    except _AgreedWriteError as error:
        raise WriteError(error.line) from None
    # The other engines have no CPU, so that the way out is another engine.
    except AgreedError as error:
        if request.engine == "native" or not error.place.startswith("--device"):
            raise
        remedy = error.remedy.replace("--device cpu", "--engine native")
        raise AgreedError(f"--engine {request.engine}", error.problem, remedy) from None


def _needs(problem: ExecutionProblem, request: ExecutionRequest) -> Needs:
    """The arena of the schedule, on any device."""
    schedule = problem.run.schedule
    arena_bytes, algebra = needed_bytes(schedule), request.over(schedule)
    cpu_only = ""
    if algebra is not None and not algebra.has_gpu_kernels:
        cpu_only = f"contractions over {algebra.name}"
    return Needs(arena_bytes, arena_bytes, REMEDY, cpu_only, algebra)


def _writes(problem: ExecutionProblem, output: Path | None, n_ranks: int) -> Writes | None:
    """The result, and two generations of each group's partial sum beside it.

    The sum that a run with another number of groups goes on from is one of those of group 0.
    """
    if output is None:
        return None
    plan = problem.run.schedule
    result_bytes = prod(plan.output_shape) * np.dtype(plan.dtype).itemsize
    keeps = problem.run.checkpoint_folder is not None
    groups = n_ranks // plan.ranks_per_group if keeps else 0
    return Writes(output, keeps or problem.result == "sharded", result_bytes * (1 + 2 * groups))


def _prepare(request: ExecutionRequest, options: JobOptions) -> ExecutionProblem:
    """Read and check everything that a run needs, on rank 0; raises InputError."""
    origin, engine, is_sharded = request.schedule, request.engine, request.result == "sharded"
    if not isinstance(origin, Schedule | str | os.PathLike):
        raise InputError(
            "schedule", f"is of type {type(origin).__name__}", "give what `plan` returns, or its file"
        )
    folder = Path() if isinstance(origin, Schedule) else file_path(origin).parent
    plan = origin if isinstance(origin, Schedule) else load_schedule(origin)
    if isinstance(origin, Schedule):
        verify(plan)
    compression = Request() if request.compress is None else parse_request(request.compress)
    plan, algebra = _compressed(plan, compression), request.over(plan)
    # cuTENSORMp carries out single contractions of distributed tensors; chains are taken apart to
    # their steps.
    if engine == "cutensormp":
        if plan.compression is not None:
            raise InputError(
                "--engine", "cutensormp compresses nothing", "use --engine native", topic="cuTENSOR"
            )
        plan = unfuse(plan)
    chosen = parse_slices(_slices_text(request.slices), plan.n_slices)
    source = _source(plan, request.tensors, folder)
    target = options.output
    if target is not None:
        _check_outputs(target, is_sharded, plan, origin, source)
    if is_sharded and plan.sliced_output:
        raise InputError("--result", "sharded is not for slices of open indices", "use --result gathered")
    if is_sharded and target is None:
        raise InputError("--result", "needs an output file", "name it with --output")
    checkpoint = options.checkpoint_file if plan.body and engine == "native" else None
    arrays = _tensors(plan, source, algebra)
    # A checkpoint holds partial sums over slices: of other values of the inputs they would be wrong
    # without a trace, so that the identity of the values is part of it.
    values = "" if checkpoint is None else values_identity(arrays) + modulus_text(algebra)
    if compression.checkpoints and checkpoint is None:
        raise InputError(
            "--compress", "there are no checkpoints to compress", "leave checkpoints out",
            topic="compressed exchanges",
        )  # fmt: skip
    run = ContractionRun(plan, chosen, checkpoint, options.resume, values, engine, compression.checkpoints)
    return ExecutionProblem(run, arrays, request.result)


def _compressed(plan: Schedule, bounds: Request) -> Schedule:
    """The schedule with the bounds that were asked for; the exchanges that pay are marked."""
    marked = compress_exchanges(plan, bounds)
    if plan.algebra is not None:
        check_lossless(marked.compression, plan.algebra)
    if marked is not plan:
        verify(marked)
    return marked


def _check_engine(engine: str, options: JobOptions) -> None:
    check_choice("--engine", engine, ENGINES)
    if engine == "cutensormp" and options.device == "cpu":
        raise InputError("--engine", "cutensormp needs GPUs", "choose --device gpu", topic="cuTENSOR")
    if engine == "cutensormp" and options.resume:
        raise InputError(
            "--resume", "there are no checkpoints with --engine cutensormp", "leave it out",
            topic="checkpoints",
        )  # fmt: skip


def _binder(engine: str) -> Bind:
    """How this rank's instructions become calls."""
    if engine == "native":
        return bind
    from tnplan.executor.device.comm.cutensormp import CutensorMp

    return lambda schedule, device, group, tensors: bind_distributed(
        schedule, device, group, tensors, lambda: CutensorMp(group, device)
    )


def _slices_text(slices: str | tuple[int, int] | None) -> str | None:
    if slices is None or isinstance(slices, str):
        return slices
    return ":".join(map(str, slices)) if isinstance(slices, Sequence) else str(slices)


def _check_outputs(target: Path, sharded: bool, plan: Schedule, *sources: object) -> None:
    """Refuse outputs that cannot be written, or would replace one of the `sources` that is a file."""
    if target.suffix != ".npy":
        raise InputError("--output", f"{str(target)!r} does not end in .npy", "give a name that ends in .npy")
    check_writable(target, *sources)
    _check_document(target.with_suffix(".json"), REPORT_FORMAT, sources)
    if sharded:
        _check_document(shard_index(target), SHARDS_FORMAT, sources)
        for rank in owners(plan):
            check_writable(shard_file(target, rank), *sources)


def _check_document(path: Path, format_: str, inputs: Sequence[object]) -> None:
    """Refuse to write a document over a file that is not an earlier one of its kind."""
    check_writable(path, *inputs)
    if not path.exists():
        return
    try:
        present = load_json(path)
    except InputError:
        present = None
    if not isinstance(present, dict) or present.get("format") != format_:
        raise InputError(
            str(path),
            f"would be replaced, and is not a {format_}",
            "choose another name for --output, or move the file",
        )


def _source(schedule: Schedule, tensors: Tensors | None, folder: Path) -> Tensors:
    """The tensors that were given, or else the file that the schedule names."""
    if isinstance(tensors, str | Path):
        return file_path(tensors)
    if tensors is not None:
        return tensors
    if schedule.tensors is None:
        raise InputError(
            "--tensors",
            "the schedule names no file of tensors",
            "give an .npz with the arrays t0, t1 and so on",
        )
    return file_path(folder / schedule.tensors)


def _tensors(schedule: Schedule, tensors: Tensors, algebra: Algebra | None) -> list[NDArray[Any]]:
    exactly = None if algebra is None else algebra.exactly
    network = Network(schedule.leaves, schedule.output, schedule.size_dict)
    if not isinstance(tensors, str | Path | Sequence):
        raise InputError(
            "tensors", f"is of type {type(tensors).__name__}", "give a list of arrays, or an .npz file"
        )
    if isinstance(tensors, str | Path):
        arrays = load_tensors(tensors, network, schedule.dtype, exactly)
    else:
        arrays = check_tensors(tensors, network, schedule.dtype, "tensors", exactly)
    return [np.ascontiguousarray(array) for array in arrays]


def _work(
    rank: Rank, problem: ExecutionProblem, request: ExecutionRequest, options: JobOptions
) -> ExecutionResult:
    """Run this rank's slices, and hand over the result."""
    outcome = None
    note = topology_note(problem.run.schedule, rank.world.gather_objects(launched_place()))
    if note:
        rank.say(0, 0, note)

    try:
        run, binder = problem.run, _binder(problem.run.engine)
        run = replace(run, algebra=request.over(run.schedule))
        outcome = run_rank(run, problem.tensors, rank.chosen.ranks, rank.device, rank.say, binder, rank.meter)
        return _hand_over(rank, problem, outcome, options.output)
    # Invariant: errors after the run are of writing alone. The command ends with another status for
    # them, as the work was done and may be resumed.
    except AgreedError as error:
        if outcome is None:
            raise
        # What is refused after the run is a file that cannot be written.
        raise _AgreedWriteError(error.place, error.problem, error.remedy) from None


def _hand_over(
    rank: Rank, problem: ExecutionProblem, outcome: RunOutcome, output: Path | None
) -> ExecutionResult:
    """Gather or write the result, write what was measured, and remove the checkpoint."""
    gathered = problem.result == "gathered"
    # Gathering and writing shards are collective: every rank comes here, also those that have no
    # part of the result.
    array = gather_result(outcome, rank.device) if gathered else None
    present = array if gathered else rank_shard(outcome, rank.device)
    not_finite = 0 if present is None else count_not_finite(present, problem.run.schedule.algebra)
    document = result_document(problem.run, outcome, rank.device, rank.world, rank.threads, not_finite)
    document["measured"]["energy"] |= rank.energy()
    if rank.builds is not None:
        document["environment"]["builds"] = rank.builds
    if output is not None:
        write_result(output, present, not gathered, document, outcome, rank.world)
    if outcome.checkpoint is not None:
        # Invariant: the checkpoint goes after the result is on disk.
        outcome.checkpoint.remove()
    if document["not_finite"] and rank.is_first:
        message = f"the result holds {document['not_finite']} values that are NaN or infinite"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    return ExecutionResult(array, document)
