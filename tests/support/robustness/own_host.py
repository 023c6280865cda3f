"""Run `tnplan ARGUMENTS` as a rank on a host of its own: `own_host.py ARGUMENTS` under mpirun.

Neither NCCL nor tnplan takes the ranks for neighbours, so that what GPUs exchange goes by the network.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from tnplan.executor.device.comm.launcher import launched_rank

name = f"host{launched_rank()}"
os.environ["NCCL_HOSTID"] = name
socket.gethostname = lambda: name

from tnplan.executor.device.cuda import peer_memory  # noqa: E402 (names the host when it is imported)

peer_memory.BOOT = Path("/nowhere")

from tnplan.cli.main import run  # noqa: E402

sys.exit(run(sys.argv[1:]))
