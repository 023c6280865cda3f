"""Run under mpirun: a schedule with compressed exchanges, on these ranks. Arguments: OUT.

Rank 0 writes the result; the schedule is the same on every number of ranks that tests start.
"""

from __future__ import annotations

import sys

from tests.support.contraction.compression import EXCHANGE, arrays_of, exchanging, plan_exchanges
from tnplan.calls.execute import execute


def main() -> None:
    schedule = plan_exchanges(2, EXCHANGE)
    execute(schedule, arrays_of(exchanging(18, 8)), output=sys.argv[1], threads=1, device="cpu")


if __name__ == "__main__":
    main()
