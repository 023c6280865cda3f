"""Where the time of a call goes, in all threads: their stacks, looked at again and again."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

EVERY_S = 0.005
WAITING = ("wait", "_wait_for_tstate_lock", "_worker")
"""Functions at the top of a thread that does nothing."""


def sampled(call: Callable[[], Any]) -> tuple[Any, str]:
    """What a call gives, and a table: the share of the samples in which a function ran, or was on a stack."""
    own, on_stack, samples = Counter[str](), Counter[str](), 0
    over = threading.Event()

    def look() -> None:
        nonlocal samples
        while not over.wait(EVERY_S):
            samples += 1
            for number, frame in sys._current_frames().items():
                if number == threading.get_ident() or frame.f_code.co_name in WAITING:
                    continue
                own[_name(frame)] += 1
                stack: set[str] = set()
                above: FrameType | None = frame
                while above is not None:
                    stack.add(_name(above))
                    above = above.f_back
                on_stack.update(stack)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        result = call()
    finally:
        over.set()
        looking.join()
    lines = [f"{samples} samples, one in {1e3 * EVERY_S:.0f} ms"]
    for title, counts in (("running", own), ("on a stack", on_stack)):
        lines.append(f"{title}:")
        lines += [f"{100 * count / max(samples, 1):7.1f} %  {name}" for name, count in counts.most_common(50)]
    return result, "\n".join(lines)


def _name(frame: FrameType) -> str:
    code = frame.f_code
    return f"{'/'.join(code.co_filename.split('/')[-3:])}:{code.co_qualname}"
