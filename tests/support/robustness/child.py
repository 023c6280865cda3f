"""A process for `ahead.python`: it would take a minute."""

from __future__ import annotations

import time

from tnplan.common.kernels.ahead import end_with_parent

if __name__ == "__main__":
    end_with_parent()
    time.sleep(60)
