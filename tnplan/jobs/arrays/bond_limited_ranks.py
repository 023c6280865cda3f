"""What `contract(max_bond=, devices=)` does on ranks: rank 0 finds the order, each makes its own tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from tnplan.executor.bond_limited.network import BondLimitedStep, BondLimitedValue
from tnplan.executor.bond_limited.over_ranks import ArrayExchange, contract_over_ranks
from tnplan.executor.device.comm.heartbeat import world_communicator
from tnplan.executor.device.protocols.communicator import agree
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.arrays.ranks import check_devices
from tnplan.jobs.job import Job, Needs, Rank, run_job
from tnplan.jobs.job_options import JobOptions
from tnplan.planner.networks.network import PairNetwork

REMEDY = "give a smaller max_bond, or more memory or devices"


class Division(NamedTuple):
    """What rank 0 tells the others: who does what.

    Parameters
    ----------
    steps : list of list of list of step
        With each limit, of each component of the network.
    owners : list of list of int
        Of each component: the rank of each tensor, and of each result.
    peak_bytes : list of int
        What each rank needs.
    """

    steps: list[list[list[BondLimitedStep]]]
    owners: list[list[int]]
    peak_bytes: list[int]


class RanksResult(NamedTuple):
    """What rank 0 has in the end: with each limit the values of all components, on the host."""

    values: list[list[BondLimitedValue]]
    exponent: int
    device: str


@contextmanager
def _library(rank: Rank) -> Iterator[Any]:
    """NumPy or CuPy, at work on the device of a rank; decompositions that fail raise LinAlgError."""
    with rank.on_stream():
        if rank.device.name != "gpu":
            yield np
            return
        from tnplan.executor.device.cuda.runtime.library_arrays import raising_cupy

        with raising_cupy() as cupy:
            yield cupy


def contract_on_devices(
    divide: Callable[[], Division],
    pairs: PairNetwork,
    read: Callable[[int], Any],
    dtype: str,
    limits: Sequence[tuple[int, float]],
    options: ContractionOptions,
) -> RanksResult | None:
    """Contract with each of the limits, until nothing is cut; None where another process has the result.

    Parameters
    ----------
    divide
        Finds the order, on rank 0 alone.
    pairs
        The network.
    read
        Gives an array of it by its number, as NumPy's of `dtype`; raises InputError.
    dtype
        Of all tensors.
    limits
        `max_bond` and the cutoff of each contraction.
    options
        Where it is carried out.
    """
    world = world_communicator()
    if world is not None:
        check_devices(options.devices, world)

    def work(rank: Rank, division: Division) -> RanksResult | None:
        number = rank.world.rank
        parts = [*zip(pairs.components, division.owners, strict=True)]
        own = {n for part in parts for n, owner in zip(*part, strict=False) if owner == number}

        def made() -> tuple[list[Any], int]:
            arrays = [read(k) if k in own else None for k in range(pairs.n_arrays)]
            return pairs.tensors(arrays, dtype, np, own)

        values = list[list[BondLimitedValue]]()
        with _library(rank) as xp:
            ranks = rank.connected()
            assert ranks is not None
            exchange = ArrayExchange(ranks, xp)
            made_here, exponent = agree(rank.world, made)
            tensors = [None if array is None else xp.asarray(array) for array in made_here]
            for limit, steps in zip(limits, division.steps, strict=True):
                values.append([
                    contract_over_ranks(
                        [tensors[n] for n in numbers], [[*bonds] for bonds in pairs.bonds_within(numbers)],
                        of_part, owners, limit, exchange, dtype, xp,
                    )
                    for (numbers, owners), of_part in zip(parts, steps, strict=True)
                ])  # fmt: skip
                if not any(value.discarded for value in values[-1]):
                    break
            for value in (value for of_limit in values for value in of_limit):
                if hasattr(value.mantissa, "get"):
                    value.mantissa = value.mantissa.get()
        exponent = sum(rank.world.gather_objects(exponent))
        return RanksResult(values, exponent, rank.device.name) if rank.is_first else None

    def needs(division: Division, ranks: int, threads: int) -> Needs:
        most = max(division.peak_bytes)
        return Needs(most, most, REMEDY)

    device = "cpu" if options.gpu is None else "gpu"
    of_job = JobOptions(device, options.devices, options.threads, options.memory)
    return run_job(Job(divide, work, needs=needs), of_job)
