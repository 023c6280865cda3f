"""How a job uses the machine, said with the same words for all jobs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from tnplan.common.checks import check_count, is_number
from tnplan.common.errors import InputError
from tnplan.common.files import file_path
from tnplan.common.units import size_in_bytes
from tnplan.executor.device.protocols.stop_signal import listening
from tnplan.executor.device.selection.expected_gpu import check_device
from tnplan.jobs.progress import Listener, as_listener

TIMEOUT_S = 60.0
LARGEST_RANKS = 4096
"""Ranks in one process."""


@dataclass(frozen=True)
class JobOptions:
    """How a job uses the machine; the words and defaults are those of every engine.

    Parameters
    ----------
    device : {"auto", "cpu", "gpu"}
        A GPU for each rank, or the CPU. "auto" takes GPUs that are there and have room, else the CPU.
    ranks : int, optional
        Ranks as threads of this process. Under mpirun the ranks are those of mpirun.
    threads : int, optional
        Threads of a rank on a CPU. Default: the cores of the host over its ranks.
    memory : float or str, optional
        The most bytes that a rank may take, such as "12GiB" or "unlimited". Default: what is free on its GPU,
        or its part of what is free on its host.
    output : path, optional
        The file of the result. Rank 0 writes it.
    checkpoint : bool
        Keep a checkpoint beside `output` while the job runs, where the engine has checkpoints.
    resume : bool
        Continue from that checkpoint.
    progress : callable, optional
        Called on rank 0 with a `Progress`, first before the work begins.
    timeout_s : float
        A rank of mpirun that does not answer for so long ends the job; 0: none does.
    allow_mixed_builds : bool
        Let ranks of mpirun run other versions, libraries or processors than rank 0.
    """

    device: str = "auto"
    ranks: int | None = None
    threads: int | None = None
    memory: float | None = None
    output: Path | None = None
    checkpoint: bool = True
    resume: bool = False
    progress: Listener | None = None
    timeout_s: float = TIMEOUT_S
    allow_mixed_builds: bool = False

    def __post_init__(self) -> None:
        check_device(self.device)
        if self.ranks is not None:
            check_count("--ranks", self.ranks, 1, LARGEST_RANKS)
        if self.threads is not None:
            check_count("--threads", self.threads)
        if self.memory is not None and not (is_number(self.memory) and self.memory > 0):
            raise InputError("--memory", f"is {self.memory!r}", "give a positive number of bytes")
        if not (is_number(self.timeout_s) and (self.timeout_s == 0 or 5 <= self.timeout_s < inf)):
            raise InputError("--timeout", f"is {self.timeout_s!r}", "give 5 seconds or more, or 0 for none")
        if self.resume and (self.output is None or not self.checkpoint):
            raise InputError(
                "--resume", "has no checkpoint",
                "give the --output of the interrupted job, and let it keep a checkpoint",
            )  # fmt: skip

    @property
    def checkpoint_file(self) -> Path | None:
        """The file of the checkpoint, beside the output; None where none is kept."""
        if self.output is None or not self.checkpoint:
            return None
        return self.output.parent / f"{self.output.name}.ckpt"

    def heeding_signals(self) -> AbstractContextManager[Any]:
        """Inside, signals ask a job that keeps a checkpoint to stop, rather than end it."""
        return nullcontext() if self.checkpoint_file is None else listening(self.checkpoint_file)

    @classmethod
    def given(
        cls, device: str, ranks: int | None, threads: int | None, memory: float | str | None,
        output: str | Path | None, checkpoint: bool = True, resume: bool = False,
        progress: Listener | bool | None = None, *, timeout: float = TIMEOUT_S,
        allow_mixed_builds: bool = False,
    ) -> JobOptions:  # fmt: skip
        """The options as a user gives them: sizes and names of files as text too."""
        limit = None if memory is None else size_in_bytes(memory, "--memory")
        target = None if output is None else file_path(output)
        return cls(
            device, ranks, threads, None if limit == inf else limit, target, checkpoint, resume,
            as_listener(progress), timeout, allow_mixed_builds,
        )  # fmt: skip
