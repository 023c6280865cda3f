"""`execute`: carries out a schedule on in-process ranks, or on the ranks that mpirun started.

This module has only the call. Its job is in contraction/execution.py, which is imported while a GPU begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import tnplan
from tnplan.common.signatures import LaterModule
from tnplan.executor.device.expected_gpu import expect_gpu
from tnplan.jobs.job_options import JobOptions, ResumableKeywords, takes_job

if TYPE_CHECKING:
    import numpy.typing as numpy_typing
else:
    numpy_typing = LaterModule("numpy.typing")

TOPIC = "ranks"


@takes_job(ResumableKeywords, JobOptions)
def execute(
    schedule: tnplan.Schedule | str | Path,
    tensors: str | Path | Sequence[numpy_typing.NDArray[Any]] | None = None,
    *,
    slices: str | tuple[int, int] | None = None,
    result: str = "gathered",
    engine: str = "native",
    compress: str | None = None,
    algebra: tnplan.Algebra | str | None = None,
    **job: Unpack[ResumableKeywords],
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
        exchange=BOUND[:RATIO], store=BOUND, setting=fast|small, checkpoints; several with commas
        (docs/explanation/compression.md). Default: as planned.
    algebra : str or Algebra, optional
        The algebra that the schedule is planned for: with its prime, such as residues:8388593 or optima:7, or
        one of your own. Default: the one of that name.
    ranks : int, optional
        Number of ranks, as threads of this process; under mpirun that of mpirun. Default: one group.
    output : path, optional
        An .npy for the result, which rank 0 writes, with a .json of what was measured beside it.
    checkpoint : bool
        Keep finished slices in OUTPUT.ckpt until the result is written.
    resume : bool
        Continue from that checkpoint. With the same number of ranks the result has the same bits, otherwise
        it is equal up to rounding.
    progress : bool or callable, optional
        True: a bar (`ProgressBar`). Or a function that is called on rank 0 with a `Progress`, first before
        the work begins, then for every slice of its group.
    **job
        How the job uses the machine: `JobOptions`.

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
    # docs/explanation/architecture.md#calls-and-commands
    options = JobOptions.given(execute, job)
    expect_gpu(options.device)
    from tnplan.jobs.schedules import ExecutionRequest, run_execution

    request = ExecutionRequest(schedule, tensors, slices, result, engine, compress, algebra)
    return run_execution(request, options)
