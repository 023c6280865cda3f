"""The file of the state-vector benchmarks on GPUs: their figures with where they were measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cupy

from tnplan.common.files import write_text
from tnplan.executor.contraction.run.run_report import commit
from tnplan.executor.device.cpu.host_memory import host_facts


def write_rows(output: Path | None, **figures: Any) -> None:
    """Write figures, the GPU and the environment as JSON; nothing where there is no file."""
    if output is None:
        return
    gpu = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    document = {**figures, "gpu": gpu, "environment": host_facts(), "commit": commit()}
    write_text(output, json.dumps(document, indent=1) + "\n")
