"""Run under mpirun: the command line, with a rank whose changes of layout fail. Arguments: RANK, others."""

from __future__ import annotations

import sys

from mpi4py import MPI

from tnplan.calls import calibrate as calibration
from tnplan.cli.main import main
from tnplan.jobs import calibration as measurements


def struck(*arguments: object) -> None:
    raise RuntimeError("struck by a test")


if __name__ == "__main__":
    if MPI.COMM_WORLD.Get_rank() == int(sys.argv.pop(1)):
        calibration.redistribution_time = struck
    measurements.SUSTAINED_S = 0.01
    main()
