"""The ranks of a compiled contraction: this thread, threads of this process, or those that mpirun started."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import count
from math import prod
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.errors import InputError
from tnplan.common.system_calls import cores
from tnplan.executor.contraction.bind.program import needed_bytes
from tnplan.executor.contraction.run.compiled_program import CompiledProgram
from tnplan.executor.device.comm.heartbeat import world_communicator
from tnplan.executor.device.comm.threads import ThreadCommunicator, run_ranks
from tnplan.executor.device.cpu.host_memory import threads_a_rank
from tnplan.executor.device.cpu.parallel_rows import blas_threads
from tnplan.executor.device.protocols.communicator import Communicator, World, ending_together
from tnplan.executor.device.select import open_device, open_gpu
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.networks.network import Network
from tnplan.planner.schedule.schedule import Schedule

OnRank = Callable[[Communicator, int], CompiledProgram]
"""Binds a contraction to the device that a rank gets, with so many threads; collective."""


OnProgram = Callable[[CompiledProgram], "list[NDArray[Any]] | None"]
"""What each rank does in a call; collective."""


def _contract(rank: CompiledProgram, values: Mapping[int, Any]) -> list[NDArray[Any]] | None:
    rank.run_with(values)
    return rank.gathered()


def bytes_with_inputs(schedule: Schedule) -> int:
    """What a rank takes: its arena, and copies of the inputs beside it."""
    network = Network(schedule.leaves, schedule.output, schedule.size_dict)
    return needed_bytes(schedule) + inputs_bytes(network, schedule.dtype)


def inputs_bytes(network: Network, dtype: str) -> int:
    """The bytes of all inputs of a network."""
    elements = sum(prod(network.shape(number)) for number in range(len(network.inputs)))
    return elements * np.dtype(dtype).itemsize


class RankHere(CompiledProgram):
    """The rank of the thread that calls: the only one, or that of this process under mpirun, whose processes
    all make the same calls."""

    world: World | None = None
    threads: int | None = None
    """Those of BLAS; None: as they are."""

    @property
    def device_name(self) -> str:
        """Where it works: "cpu" or "gpu"."""
        return self.device.name

    @property
    def has_result(self) -> bool:
        """Whether this process gets the result."""
        return self.world is None or self.world.rank == 0

    def contract(self, values: Mapping[int, Any]) -> list[NDArray[Any]] | None:
        """The flat result for new values of some inputs, the others as before, and the flat gradients where
        the schedule has some; valid until the next call. None where another process has them."""
        with self.working():
            return _contract(self, values)

    def carry_out(self, work: OnProgram) -> list[NDArray[Any]] | None:
        """What a collective call gives on this rank."""
        with self.working():
            return work(self)

    def working(self) -> AbstractContextManager[Any]:
        """The device may be used inside, with the threads of BLAS that were asked for."""
        if self.device.name == "gpu" or self.threads is None:
            return self.device.current()
        return blas_threads(self.threads)

    def together(self) -> AbstractContextManager[Any]:
        """An error inside ends all processes that take part in a call."""
        return nullcontext() if self.world is None else ending_together(self.world)

    def close(self) -> None:
        """Give the memory back; collective."""
        with self.device.current():
            super().close()


class ThreadRanks:
    """A thread for each device of this process; they wait for calls until they are closed.

    Where one fails in a call, all end together, and later calls raise the same error.
    """

    has_result = True

    def __init__(self, on_rank: OnRank, n_ranks: int, threads: int | None) -> None:
        self._threads = threads or max(1, cores() // n_ranks)
        self._mailbox = _Mailbox(n_ranks)
        # The threads know the mailbox alone: where nobody has this object any more, they end.
        arguments = self._mailbox, on_rank, self._threads
        threading.Thread(target=_drive, args=arguments, daemon=True).start()
        self.device_name = str(self._mailbox.answer(0))
        self._calls = count(1)

    def contract(self, values: Mapping[int, Any]) -> list[NDArray[Any]] | None:
        """As of `RankHere`: all threads are handed the values."""
        return self.carry_out(partial(_contract, values=values))

    def carry_out(self, work: OnProgram) -> list[NDArray[Any]] | None:
        """Let all threads make a collective call, and wait for what it gives on rank 0."""
        number = next(self._calls)
        with blas_threads(self._threads):
            self._mailbox.order(number, work)
            result: list[NDArray[Any]] = self._mailbox.answer(number)
            return result

    def together(self) -> AbstractContextManager[Any]:
        """No other process takes part."""
        return nullcontext()

    def close(self) -> None:
        """End the threads, and wait until they have given their memory back."""
        self._mailbox.end()
        self._mailbox.answer(None)

    def __del__(self) -> None:
        self._mailbox.end()


class _Mailbox:
    """Orders to the ranks, and answers of rank 0. An order of None ends a rank."""

    def __init__(self, n_ranks: int) -> None:
        self.orders: list[SimpleQueue[Any]] = [SimpleQueue() for _ in range(n_ranks)]
        self.answers: SimpleQueue[tuple[int | None, Any]] = SimpleQueue()

    def order(self, number: int, work: OnProgram) -> None:
        for queue in self.orders:
            queue.put((number, work))

    def end(self) -> None:
        for queue in self.orders:
            queue.put(None)

    def answer(self, number: int | None) -> Any:
        """The answer to the order of that number; raises the error that ended the ranks. Those to calls that
        were interrupted are left out."""
        while True:
            answered, result = self.answers.get()
            if isinstance(result, BaseException):
                self.answers.put((None, result))  # for later calls
                if number is None:
                    return None
                raise result
            if answered == number:
                return result


def _drive(mailbox: _Mailbox, on_rank: OnRank, threads: int) -> None:
    """Run all ranks until they are ended; then, or where one fails, put an answer without a number."""

    def serve(own: ThreadCommunicator) -> None:
        # Where another rank fails, the order None ends this one, which would wait for an order for ever.
        own.at_failure(lambda ended: mailbox.orders[own.rank].put(None), of_device=False)
        rank = on_rank(own, threads)
        if own.rank == 0:
            # Answer 0 says that rank 0 is open. Answers have the numbers of their orders:
            # those to calls that were interrupted are left out by them.
            mailbox.answers.put((0, rank.device.name))
        while (order := mailbox.orders[own.rank].get()) is not None:
            number, work = order
            result = work(rank)
            if own.rank == 0:
                mailbox.answers.put((number, result))
        rank.close()

    try:
        run_ranks(len(mailbox.orders), serve)
    except BaseException as error:
        mailbox.answers.put((None, error))
    else:
        mailbox.answers.put((None, None))


Ranks = RankHere | ThreadRanks
"""All ranks of a compiled contraction, as the thread sees them that calls it."""


def open_ranks(
    schedule: Schedule, options: ContractionOptions, constants: Mapping[int, NDArray[Any]]
) -> Ranks:
    """The ranks for a schedule and its inputs that never change; under mpirun with several devices this and
    all calls are collective."""
    if options.devices % schedule.ranks_per_group:
        problem = f"is for {schedule.ranks_per_group} ranks a slice"
        remedy = f"give devices= as a multiple of {schedule.ranks_per_group}"
        raise InputError("schedule", problem, remedy)

    def on_rank(own: Communicator, threads: int, kind: type[CompiledProgram] = CompiledProgram) -> Any:
        if options.gpu is not None and own.size == 1:
            chosen = open_gpu(options.gpu, own, options.algebra)
        else:
            size_bytes, algebra = bytes_with_inputs(schedule), options.algebra
            chosen = open_device(options.device, own, size_bytes, threads, algebra=algebra)
        try:
            rank = kind(schedule, chosen.device, chosen.ranks, options.strip_exponent, chosen.close)
            for number, values in constants.items():
                rank.set(number, values)
        # Invariant: a device that was opened is closed by the program that took it, or here where none did.
        except BaseException:
            chosen.close()
            raise
        return rank

    world = None if options.devices == 1 else world_communicator()
    if world is None and options.devices > 1:
        return ThreadRanks(on_rank, options.devices, options.threads)
    if world is None:
        rank: RankHere = on_rank(run_ranks(1, lambda own: own)[0], options.threads or 1, RankHere)
        rank.threads = options.threads
    else:
        check_devices(options.devices, world)
        with ending_together(world):
            threads = options.threads or threads_a_rank(world)
            rank = on_rank(world, threads, RankHere)
        rank.world, rank.threads = world, threads
    rank.device.leave()
    return rank


def check_devices(devices: int, world: World) -> None:
    """Refuse another number of devices than mpirun started ranks."""
    if devices != world.size:
        problem = f"are {devices}, and mpirun started {world.size} ranks"
        raise InputError("devices", problem, f"give devices={world.size}")


def pieces(
    values: Mapping[int, Any], batched: Container[int], length: int | None, shape: tuple[int, ...]
) -> Iterator[tuple[int, Mapping[int, Any]]]:
    """Values for one run after the other: as many of a batch at once as the result of that shape has.

    The last piece is the last so many values, some of them once more; of a shorter batch, its own values
    again and again. `length` is None where there is no batch.
    """
    if length is None or length == shape[0]:
        yield 0, values
        return
    at_once = shape[0]
    for start in range(0, length, at_once):
        # The schedule is for a fixed extent of the batch. The last piece begins earlier and
        # computes some values twice; a batch shorter than the extent repeats its values.
        first = max(0, min(start, length - at_once))
        rows: Any = slice(first, first + at_once)
        if length < at_once:
            rows = [first + k % length for k in range(at_once)]
        piece = {number: array[rows] if number in batched else array for number, array in values.items()}
        yield first, piece


def store_piece(result: Any, flat: Any, first: int | None) -> None:
    """Write a flat result, or that of the values of a batch from `first` on."""
    if first is None:
        result.reshape(-1)[...] = flat
        return
    values = flat.reshape(-1, *result.shape[1:])[: len(result) - first]
    result[first : first + len(values)] = values
