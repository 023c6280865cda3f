"""Calls as a CUDA graph in which those that do not wait for each other may run at the same time.

A stream that is captured makes a chain of its work. Before each call it is told to go on from the ends of the
calls that this one waits for (CUDA driver API, cuStreamUpdateCaptureDependencies).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any

from tnplan.executor.device.protocols.device import Call

ADD, SET = 0, 1
"""What cuStreamUpdateCaptureDependencies does with the nodes that it is given."""


def captured(stream: Any, calls: Sequence[Call], waits: Sequence[Iterable[int]] | None) -> Call:
    """The work of calls on a stream as one launch; `waits` has the numbers of the earlier calls that each
    waits for, and None stands for one after the other.

    Invariant: bound calls allocate nothing and wait for nothing, so that all of their work can be captured.
    """
    with stream:
        stream.begin_capture()
        try:
            if waits is None:
                for call in calls:
                    call()
            else:
                _capture_apart(stream.ptr, calls, waits)
        finally:
            graph = stream.end_capture()
    return partial(graph.launch, stream)


def _capture_apart(stream: int, calls: Sequence[Call], waits: Sequence[Iterable[int]]) -> None:
    ends: list[list[int]] = []
    for number, call in enumerate(calls):
        _go_on_from(stream, chain.from_iterable(ends[other] for other in waits[number]), SET)
        call()
        last = _last_nodes(stream)
        if last is None:
            # Kernels that begin before the one ahead has ended are joined by edges that this interface does
            # not show: the other calls follow one after the other.
            _go_on_from(stream, chain.from_iterable(ends), ADD)
            for later in calls[number + 1 :]:
                later()
            return
        ends.append(last)
    _go_on_from(stream, chain.from_iterable(ends), SET)


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _last_nodes(stream: int) -> list[int] | None:
    """The nodes that the next work of a captured stream waits for; None where they cannot be told."""
    status, count = ctypes.c_int(), ctypes.c_size_t()
    nodes = ctypes.POINTER(ctypes.c_void_p)()
    code = _driver().cuStreamGetCaptureInfo_v2(
        ctypes.c_void_p(stream), ctypes.byref(status), None, None, ctypes.byref(nodes), ctypes.byref(count)
    )
    return None if code else [nodes[number] for number in range(count.value)]


def _go_on_from(stream: int, nodes: Iterable[int], how: int) -> None:
    """Let the next work of a captured stream wait for these nodes, too (ADD) or alone (SET)."""
    different = list(dict.fromkeys(nodes))
    array = (ctypes.c_void_p * len(different))(*different)
    code = _driver().cuStreamUpdateCaptureDependencies(
        ctypes.c_void_p(stream), array, ctypes.c_size_t(len(different)), ctypes.c_uint(how)
    )
    if code:
        raise RuntimeError(f"cuStreamUpdateCaptureDependencies failed: CUDA error {code}")
