"""A signal that asks the job of this process to stop."""

from __future__ import annotations

import os
import signal
import time

from tnplan.executor.device.protocols.stop_signal import asked


def ask_to_stop(number: signal.Signals) -> None:
    """Send this process a signal, and wait until its main thread has heard it: the job goes on meanwhile."""
    os.kill(os.getpid(), number)
    while not asked():
        time.sleep(0.001)
