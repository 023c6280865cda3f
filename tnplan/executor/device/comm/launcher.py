"""Finds out from the environment whether an MPI launcher started this process. Imports no MPI."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from socket import gethostname

WORLD_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE")
RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "SLURM_LOCALID")
LOCAL_SIZES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")


def launched_size(environment: Mapping[str, str] = os.environ) -> int:
    """The number of ranks that a launcher started; 1 where there is none.

    Under srun it is that of the step; a batch script outside a step is one process.
    """
    for name in WORLD_SIZES:
        if environment.get(name, "").isdigit():
            return int(environment[name])
    if "SLURM_STEP_ID" in environment and "SLURM_STEP_NUM_TASKS" in environment:
        return int(environment["SLURM_STEP_NUM_TASKS"])
    return 1


def launched_rank(environment: Mapping[str, str] = os.environ) -> int:
    """This process's rank as its launcher says it; 0 where there is none."""
    return 0 if launched_size(environment) == 1 else _number(RANKS, environment)


def launched_local_rank() -> int:
    """This process's number among those of its host; 0 where the launcher does not say it."""
    return _number(LOCAL_RANKS, os.environ)


def launched_local_size() -> int:
    """How many ranks this host has; 1 where the launcher does not say it."""
    return max(1, _number(LOCAL_SIZES, os.environ))


def _number(names: tuple[str, ...], environment: Mapping[str, str]) -> int:
    return next((int(environment[name]) for name in names if environment.get(name, "").isdigit()), 0)


def launched_place() -> tuple[str, ...]:
    """Where this process runs, the widest first: switches, where Slurm knows them, and the host."""
    kinds = os.environ.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    names = os.environ.get("SLURM_TOPOLOGY_ADDR", "").split(".", len(kinds) - 1)
    if len(names) < len(kinds) or kinds[-1] != "node":
        return (gethostname(),)
    return (*names[:-1], gethostname())


def interrupt_ends_process() -> None:
    """Let an interrupt (Ctrl-C) end this process at once, by its signal, until `interrupt_is_raised`.

    MPI's start cannot be interrupted by an exception: ranks that get no further would be waited for. A
    launcher ends the job when a process ends by a signal.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupt_is_raised() -> None:
    """Let an interrupt raise KeyboardInterrupt, as Python does."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
