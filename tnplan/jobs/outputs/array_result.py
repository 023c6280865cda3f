"""A result of arrays: an .npz with the report beside it. The checkpoint goes once nothing is left to do."""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.files import write_file, write_json
from tnplan.jobs.job_options import JobOptions


def write_arrays(options: JobOptions, arrays: dict[str, Any], report: dict[str, Any]) -> None:
    """Write the arrays to the output and the report beside it; delete the checkpoint of what converged."""
    target, checkpoint = options.output, options.checkpoint_file
    assert target is not None
    write_file(target, lambda stream: np.savez(stream, **arrays))
    write_json(target.with_suffix(".json"), report)
    if checkpoint is not None and report["converged"]:
        checkpoint.unlink(missing_ok=True)
