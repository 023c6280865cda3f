"""One driver for every job: open the world, read on rank 0, broadcast, place on devices, work, end together.

`execute`, `propagate`, `diagonalize`, `simulate` and `calibrate` say what a job reads, what it needs and
what a rank does (`Job`). How a job uses the machine is said with the same words for all (`JobOptions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tnplan.common.errors import InputError
from tnplan.common.system_calls import cores
from tnplan.common.units import size_text
from tnplan.executor.device.comm.heartbeat import world_communicator
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu.host_memory import ranks_here, threads_a_rank
from tnplan.executor.device.cpu.parallel_rows import blas_threads
from tnplan.executor.device.energy import EnergyMeter
from tnplan.executor.device.expected_gpu import expect_gpu
from tnplan.executor.device.protocols.communicator import (
    AgreedError,
    Communicator,
    World,
    agree,
    ending_together,
)
from tnplan.executor.device.protocols.device import Device
from tnplan.executor.device.select import Chosen, open_device
from tnplan.jobs.job_options import JobOptions
from tnplan.jobs.outputs import Writes, check_outputs, locked
from tnplan.jobs.progress import Listener, Progress

if TYPE_CHECKING:
    from tnplan.executor.device.cpu.algebra import Algebra

USABLE = 0.95
"""The share of a GPU's free memory that a job takes: libraries and fragments take the rest."""

Request = TypeVar("Request")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Needs:
    """What a rank needs before it starts.

    Bytes on a GPU or a CPU, and what to do where they are not there. `cpu_only` names what a CPU alone can
    do. An `algebra` is what it adds and multiplies with.
    """

    gpu_bytes: int = 0
    cpu_bytes: int = 0
    remedy: str = "allow more memory, or start more ranks"
    cpu_only: str = ""
    algebra: Algebra | None = None


@dataclass(frozen=True)
class Rank:
    """One rank of a job on its device.

    `world` has all ranks, for objects of the host; `chosen.ranks` the same ranks, for arrays of the device.
    `memory_bytes` is what the job may take on this rank. `builds` has what each host runs, where they differ.
    """

    world: Communicator
    chosen: Chosen
    threads: int
    memory_bytes: float
    listener: Listener | None
    builds: dict[str, dict[str, str]] | None = None
    meter: EnergyMeter = field(kw_only=True)

    @property
    def device(self) -> Device:
        """The device of this rank."""
        return self.chosen.device

    def connected(self) -> Communicator | None:
        """All ranks, connected for arrays of their devices; None for a lone rank. Collective."""
        return self.chosen.ranks.split(0, self.world.rank) if self.world.size > 1 else None

    def energy(self) -> dict[str, float | None]:
        """The joules of all ranks since their devices were opened, for the report of the job; collective."""
        return self.meter.of_all(self.world)

    def on_stream(self) -> AbstractContextManager[Any]:
        """Where a GPU's arrays are used: its stream is the current one inside."""
        return getattr(self.device, "stream", None) or nullcontext()

    @property
    def is_first(self) -> bool:
        """Whether this rank reads and writes the files of all."""
        return self.world.rank == 0

    def say(self, done: int, total: int, text: str, detail: Any = None, share: float | None = None) -> None:
        """Call the listener on rank 0 with the progress of the job."""
        if self.listener is not None and self.is_first:
            self.listener(Progress(done, total, text, detail, share))

    def say_steps(self, done: int, total: int, name: str, is_even: bool = True) -> None:
        """The same of steps called by `name`, which cost the same where they are even."""
        self.say(done, total, f"{name} {done} of {total}", share=done / total if is_even else None)


@dataclass(frozen=True)
class Job(Generic[Request, Result]):
    """What an engine does as a job.

    - `prepare`: Reads and checks all inputs, on rank 0 alone; its result is handed to the other ranks.
    - `work`: What every rank does with it, on its device; collective.
    - `ranks`: The ranks of a request in this process where none are asked for.
    - `check_ranks`: Raises InputError for a number of ranks that the request cannot use.
    - `needs`: From a request, the number of ranks and the threads of a rank: what each rank needs.
    - `writes`: From a request and the number of ranks: what is written, None where nothing is.
    """

    prepare: Callable[[], Request]
    work: Callable[[Rank, Request], Result]
    ranks: Callable[[Request], int] = lambda request: 1
    check_ranks: Callable[[Request, int], object] = lambda request, ranks: None
    needs: Callable[[Request, int, int], Needs] = lambda request, ranks, threads: Needs()
    writes: Callable[[Request, int], Writes | None] = lambda request, ranks: None


# docs/explanation/architecture.md#jobs
def run_job(job: Job[Request, Result], options: JobOptions) -> Result:
    """Run a job on ranks of this process, or collectively on those that mpirun started.

    Returns the result of rank 0 in this process, or that of each rank under mpirun. Raises InputError before
    any work where an input, an option or the memory does not allow the job, and AgreedError, the same on all
    ranks, where they refuse together. Any other failure of a rank ends all of them.
    """
    # Without mpirun the ranks are threads of this process, and this thread may read for all of
    # them. Under mpirun every process comes here, and only rank 0 may read.
    world = world_communicator(options.timeout)
    if world is None:
        expect_gpu(options.device)
        # In this thread: a library first imported in one that ends may crash later.
        request = job.prepare()
        n_ranks = options.ranks or job.ranks(request)
        job.check_ranks(request, n_ranks)
        threads = options.threads or max(1, cores() // n_ranks)

        def alone(ranks: Communicator) -> Result:
            # While one thread limits OpenBLAS, threadpoolctl ignores others: the rank's own is to do it.
            with blas_threads(threads):
                return _on_rank(job, options, ranks, request)

        # Invariant: the lock of the output is taken after the inputs are checked and before any
        # rank works, and is held until the result is written.
        with _output_lock(options, True):
            if n_ranks == 1:
                return run_ranks(1, alone)[0]
            with blas_threads(threads):
                return run_ranks(n_ranks, lambda ranks: _on_rank(job, options, ranks, request))[0]
    return _collective(world, job, options)


def _output_lock(options: JobOptions, is_first: bool) -> AbstractContextManager[Any]:
    """The lock of the output, on the rank that writes it."""
    return locked(options.output) if options.output is not None and is_first else nullcontext()


def _check_limit(options: JobOptions, needs: Needs) -> None:
    """Raise AgreedError where the limit is less than a rank needs on every device that it may take."""
    least_bytes = {"gpu": needs.gpu_bytes, "cpu": needs.cpu_bytes}.get(
        options.device, min(needs.gpu_bytes, needs.cpu_bytes)
    )
    if options.memory is not None and least_bytes > options.memory:
        raise AgreedError(
            "--memory",
            f"allows a rank {size_text(options.memory)}, and {size_text(least_bytes)} are needed",
            needs.remedy,
        )


def _collective(world: World, job: Job[Request, Result], options: JobOptions) -> Result:
    """Run on the ranks of mpirun; any failure but a refusal on which all agree ends the whole job."""
    from tnplan.executor.device.comm.builds import agreed_builds
    from tnplan.executor.device.comm.heartbeat import watched

    # Invariant: rank 0 alone reads inputs. The others may be on hosts that do not have the files.
    def prepare() -> Request | None:
        if options.ranks not in (None, world.size):
            raise InputError(
                "--ranks",
                f"is {options.ranks}, but mpirun started {world.size}",
                "leave it out under mpirun",
                topic="ranks",
            )
        if world.rank != 0:
            return None
        request = job.prepare()
        job.check_ranks(request, world.size)
        return request

    # A rank that died answers no collective call, and the others would wait for it for ever:
    # `watched` ends them by their heartbeats, `ending_together` by the failure itself.
    can_resume = options.checkpoint_file is not None
    with ending_together(world), watched(world, options.timeout, can_resume), ExitStack() as locks:
        # Invariant: all ranks make these collective calls in this order. `agree` comes before each broadcast,
        # so that a refusal on rank 0 reaches every rank and none waits for a request that never comes.
        builds = agreed_builds(world, options.allow_mixed_builds)
        request: Request = world.broadcast_object(agree(world, prepare), 0)
        agree(world, lambda: locks.enter_context(_output_lock(options, world.rank == 0)))
        with blas_threads(options.threads or threads_a_rank(world)):
            return _on_rank(job, options, world, request, builds)


def _on_rank(
    job: Job[Request, Result], options: JobOptions, world: Communicator, request: Request,
    builds: dict[str, dict[str, str]] | None = None,
) -> Result:  # fmt: skip
    """Place one rank on its device, and do its part of the work there."""
    # Outputs are checked before devices are opened: a job of hours does not end at a folder that is
    # not there.
    writes = job.writes(request, world.size)
    if writes is not None:
        check_outputs(world, writes)
    host_ranks = ranks_here(world)
    threads = options.threads or threads_a_rank(world)
    needs = job.needs(request, world.size, threads)
    _check_limit(options, needs)
    if needs.cpu_only and options.device == "gpu":
        raise AgreedError("--device", f"{needs.cpu_only} run only on a CPU", "choose --device cpu")
    device_choice = "cpu" if needs.cpu_only else options.device
    chosen = open_device(
        device_choice, world, needs.gpu_bytes, threads, needs.cpu_bytes, needs.remedy, needs.algebra
    )
    if needs.cpu_only and options.device == "auto":
        chosen = replace(chosen, line=f"device: cpu ({needs.cpu_only} run only there)")
    with _closing(chosen):
        is_gpu = chosen.device.name == "gpu"
        # Ranks of one host share its memory; each GPU has its own, of which the driver and
        # libraries take a share.
        available = chosen.device.memory()[1] * (USABLE if is_gpu else 1 / host_ranks)
        available = available if options.memory is None else min(available, options.memory)
        differing = builds if builds is not None and len({*map(str, builds.values())}) > 1 else None
        # Invariant: every rank gets the same number, the least of all, so that all make the
        # same choices from it.
        memory_bytes = min(world.gather_objects(available))
        with closing(EnergyMeter(chosen.gpu_bus)) as meter:
            rank = Rank(world, chosen, threads, memory_bytes, options.progress, differing, meter=meter)
            if options.device == "auto":
                rank.say(0, 0, chosen.line)
            return job.work(rank, request)


@contextmanager
def _closing(chosen: Chosen) -> Iterator[None]:
    """Give the peers' memory and the device back afterwards, also where all ranks agree on a refusal.

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
