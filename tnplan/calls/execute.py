"""`execute`: carries out a schedule on in-process ranks, or on the ranks that mpirun started.

This module has only the call. Its job is in contraction/execution.py, which is imported while a GPU begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tnplan
from tnplan.common.later import LaterModule
from tnplan.executor.device.selection.expected_gpu import expect_gpu
from tnplan.jobs.job_options import TIMEOUT_S, JobOptions
from tnplan.jobs.progress import Listener

if TYPE_CHECKING:
    import numpy.typing as numpy_typing
else:
    numpy_typing = LaterModule("numpy.typing")


def execute(
    schedule: tnplan.Schedule | str | Path,
    tensors: str | Path | Sequence[numpy_typing.NDArray[Any]] | None = None,
    *,
    slices: str | tuple[int, int] | None = None,
    result: str = "gathered",
    engine: str = "native",
    compress: str | None = None,
    device: str = "auto",
    ranks: int | None = None,
    threads: int | None = None,
    memory: float | str | None = None,
    output: str | Path | None = None,
    checkpoint: bool = True,
    resume: bool = False,
    progress: Listener | bool | None = None,
    timeout: float = TIMEOUT_S,
    allow_mixed_builds: bool = False,
) -> tnplan.ExecutionResult:
    """Contract the network of a schedule, or some of its slices.

    Under mpirun the call is collective over all ranks; otherwise the ranks are threads of this process. Rank
    0 reads all inputs. The number of ranks is a multiple of the schedule's group.

    Parameters
    ----------
    schedule : Schedule or path
        A schedule, or its file.
    tensors : sequence of arrays or path, optional
        The arrays in the order of the network, or an .npz with t0, t1, ... They are converted to the
        dtype of the schedule. Default: the file that the schedule names, seen from its own folder.
    slices : "FIRST:STOP" or (int, int), optional
        Only these slices. Default: all.
    result : {"gathered", "sharded"}
        One array on rank 0, or the shard of each rank in a file beside `output`.
    engine : {"native", "cutensormp"}
        "cutensormp" leaves contractions and the exchanges after them to cuTENSOR and cuTENSORMp, on GPUs and
        without checkpoints.
    compress : str, optional
        The option of `tnplan execute`, such as "exchange=1e-3,checkpoints" (docs/explanation/compression.md).
    device : {"auto", "cpu", "gpu"}
        A GPU for each rank, or the CPU. "auto" takes GPUs that are there and have room, else the CPU.
    ranks : int, optional
        Ranks as threads of this process; under mpirun they are those of mpirun. Default: one group.
    threads : int, optional
        Threads of a rank on a CPU. Default: the cores of the host over its ranks.
    memory : float or str, optional
        The most bytes that a rank may take, such as "12GiB". Default: what is free on its GPU, or its part of
        what is free on its host.
    output : path, optional
        An .npy for the result, which rank 0 writes, with a .json of what was measured beside it.
    checkpoint : bool
        Keep finished slices in OUTPUT.ckpt until the result is written.
    resume : bool
        Continue from that checkpoint: to the same bits with the same number of ranks, else equal to rounding.
    progress : bool or callable, optional
        True: a bar (`ProgressBar`). Or a function that is called on rank 0 with a `Progress`, first before
        the work begins, then for every slice of its group.
    timeout : float
        Under mpirun, a rank that does not answer for so many seconds ends the job; 0: none does.
    allow_mixed_builds : bool
        Under mpirun, let ranks run other versions, libraries or processors than rank 0.

    Returns
    -------
    ExecutionResult
        The array, with the axes of the schedule's output, and the document of result.json.

    Raises
    ------
    InputError
        Before any work is done; or where values on the way cannot be compressed as planned.
    WriteError
        Where a file cannot be written once work is done.

    Examples
    --------
    >>> matrices = tnplan.Network((("a", "b"), ("b", "c")), ("a", "c"), {"a": 4, "b": 8, "c": 2})
    >>> schedule = tnplan.plan(tnplan.ContractionPath(matrices, ((0, 1),)), hardware="cpu")
    >>> tnplan.execute(schedule, [np.ones((4, 8)), np.ones((8, 2))], device="cpu").array[0, 0]
    np.complex64(8+0j)
    """
    options = JobOptions.given(
        device, ranks, threads, memory, output, checkpoint, resume, progress,
        timeout=timeout, allow_mixed_builds=allow_mixed_builds,
    )  # fmt: skip
    expect_gpu(device)
    from tnplan.jobs.schedules.execution import ExecutionRequest, run_execution

    return run_execution(ExecutionRequest(schedule, tensors, slices, result, engine, compress), options)
