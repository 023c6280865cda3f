"""How a job uses the machine, said with the same words for all jobs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Any, Self, TypedDict, TypeVar

from tnplan.common.checks import check_count, is_number
from tnplan.common.errors import InputError
from tnplan.common.files import file_path
from tnplan.common.signatures import parameter_texts, texts_of, with_entries
from tnplan.common.units import size_in_bytes
from tnplan.executor.device.expected_gpu import check_device
from tnplan.executor.device.protocols.stop_signal import listening
from tnplan.jobs.progress import Listener, as_listener

TIMEOUT_S = 60.0
LARGEST_RANKS = 4096
"""Ranks in one process."""
Call = TypeVar("Call", bound=Callable[..., Any])


class RankKeywords(TypedDict, total=False):
    """The keywords of all that works on ranks; `JobOptions` says what they mean."""

    device: str
    ranks: int | None
    output: str | Path | None
    progress: Listener | bool | None
    timeout: float
    allow_mixed_builds: bool


class JobKeywords(RankKeywords, total=False):
    """Those of every engine's job."""

    threads: int | None
    memory: float | str | None


class ResumableKeywords(JobKeywords, total=False):
    """Those of a job that keeps a checkpoint."""

    checkpoint: bool
    resume: bool


@dataclass(frozen=True)
class JobOptions:
    """How a job uses the machine; the words, defaults and texts are those of every call.

    Parameters
    ----------
    device : {"auto", "cpu", "gpu"}
        A GPU for each rank, or the CPU. "auto" uses GPUs that have enough free memory, and the CPU where
        there are none.
    ranks : int, optional
        Number of ranks, as threads of this process; mpirun starts its own. Default: 1.
    threads : int, optional
        Threads of each rank on a CPU. Default: the cores of the host divided by its ranks.
    memory : float or str, optional
        The most memory that a rank may use, such as "12GiB" or "unlimited". Default: the free memory of its
        GPU, or an equal part of the free memory of its host.
    output : path, optional
        The file of the result, which rank 0 writes.
    checkpoint : bool
        Keep OUTPUT.ckpt while the job runs.
    resume : bool
        Continue an interrupted job from its checkpoint, if any.
    progress : bool or callable, optional
        True: a bar (`ProgressBar`). Or a function that is called on rank 0 with a `Progress`, first before
        the work begins.
    timeout : float
        The job ends when a rank of mpirun does not answer for this many seconds; 0 means never.
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
    timeout: float = TIMEOUT_S
    allow_mixed_builds: bool = False

    def __post_init__(self) -> None:
        check_device(self.device)
        if self.ranks is not None:
            check_count("--ranks", self.ranks, 1, LARGEST_RANKS)
        if self.threads is not None:
            check_count("--threads", self.threads)
        if self.memory is not None and not (is_number(self.memory) and self.memory > 0):
            raise InputError(
                "--memory",
                f"is {self.memory!r}",
                "give a positive number of bytes",
                topic="memory",
            )
        if not (is_number(self.timeout) and (self.timeout == 0 or 5 <= self.timeout < inf)):
            raise InputError(
                "--timeout",
                f"is {self.timeout!r}",
                "give 5 seconds or more, or 0 for none",
                topic="ranks",
            )
        if self.resume and (self.output is None or not self.checkpoint):
            raise InputError(
                "--resume", "has no checkpoint",
                "give the --output of the interrupted job, and let it keep a checkpoint",
                topic="checkpoints",
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
    def given(cls, call: Callable[..., Any], keywords: Mapping[str, Any]) -> Self:
        """The options that a user gives a call as keywords: sizes and names of files as text too.

        Raises
        ------
        TypeError
            For a keyword that the call has not.
        """
        check_keywords(call.__name__, keywords, inspect.signature(call).parameters)
        return cls.of(**keywords)

    @classmethod
    def of(cls, **keywords: Any) -> Self:
        """The options by their names: sizes and names of files as text too."""
        options = {**keywords, "progress": as_listener(keywords.get("progress"))}
        if options.get("memory") is not None:
            limit = size_in_bytes(options["memory"], "--memory")
            options["memory"] = None if limit == inf else limit
        if options.get("output") is not None:
            options["output"] = file_path(options["output"])
        return cls(**options)


def check_keywords(call: str, keywords: Mapping[str, Any], parameters: Collection[str]) -> None:
    """Refuse keywords that a call has not, as Python does, and name the nearest that it has."""
    for name in keywords:
        if name not in parameters:
            close = get_close_matches(name, parameters, 1)
            remedy = f"did you mean {close[0]!r}?" if close else f"the options are {', '.join(parameters)}"
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}; {remedy}")


def takes_job(keywords: type, options: type[JobOptions]) -> Callable[[Call], Call]:
    """Show the keywords of `**job` in the signature and the docstring of a call.

    A call names what is its own, and takes `**job: Unpack[keywords]`. What shows calls to users (`help`, the
    site, the command line) then sees each keyword with its type from `keywords`, and its default and text
    from `options`. The entry `**job` of the docstring is where these texts are put; a keyword with an entry
    of its own there keeps it.
    """
    defaults = {item.name: item.default for item in fields(options)}
    texts = texts_of(options)
    # `__mro__` begins with the class itself: the options of a kind of job come before those of every job.
    names = [name for base in options.__mro__ for name in vars(base).get("__annotations__", ())]
    hints = {name: keywords.__annotations__[name] for name in names if name in keywords.__annotations__}
    job = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name],
            annotation=getattr(hint, "__forward_arg__", hint),
        )
        for name, hint in hints.items()
    ]  # fmt: skip

    def shown(call: Call) -> Call:
        signature = inspect.signature(call)
        # `inspect.signature`, and so `help` and editors, prefers `__signature__` over what the
        # function itself takes.
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        described: Any = call
        described.__signature__ = signature.replace(parameters=[*own, *job])
        if call.__doc__ is not None:  # which `python -OO` leaves out
            own_texts = parameter_texts(call.__doc__)
            more = {name: texts[name] for name in hints if name not in own_texts}
            described.__doc__ = with_entries(call.__doc__, "**job", more)
        return call

    return shown
