"""What an exchange does, watched part by part, and what it takes over a slower line than there is.

Knows the interfaces of device, communicator and codec; never layouts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from tnplan.executor.device.protocols.codec import Codec
from tnplan.executor.device.protocols.communicator import Communicator, Message
from tnplan.executor.device.protocols.device import Call, Device


class Watch:
    """Seconds and numbers of the parts of the work on a device, which is waited for before and after each."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.clear()

    def clear(self) -> None:
        """Forget what was watched."""
        self.seconds: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()

    def part(self, name: str, call: Any, *arguments: Any) -> Any:
        """What a call gives, its seconds added to those of `name`."""
        self.device.synchronize()
        start_s = perf_counter()
        result = call(*arguments)
        self.device.synchronize()
        self.seconds[name] += perf_counter() - start_s
        self.counts[name] += 1
        return result


class Proxy:
    """Whatever it is given, but for what a subclass says itself."""

    def __init__(self, inner: Any, watch: Watch) -> None:
        self.inner, self.watch = inner, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class WatchedDevice(Proxy):
    """A device whose copies are watched, as `copy`."""

    def bind_copy(self, *arguments: Any) -> Call:
        """A copy that is watched."""
        call = self.inner.bind_copy(*arguments)
        return lambda: self.watch.part("copy", call)


class WatchedOverlaps(Proxy):
    """Sums that are watched, as `sample`."""

    def add(self, *arguments: Any) -> None:
        """Add a tensor's."""
        self.watch.part("sample", self.inner.add, *arguments)


class WatchedCodec(Proxy):
    """A codec of which everything is watched: `encode`, `decode`, `sample`."""

    def encode(self, *arguments: Any) -> Any:
        """Compress."""
        return self.watch.part("encode", self.inner.encode, *arguments)

    def decode(self, *arguments: Any) -> None:
        """Restore."""
        self.watch.part("decode", self.inner.decode, *arguments)

    def sample(self, *arguments: Any) -> Any:
        """Take a sample."""
        return self.watch.part("sample", self.inner.sample, *arguments)

    def overlaps(self) -> WatchedOverlaps:
        """Sums that are watched too."""
        return WatchedOverlaps(self.inner.overlaps(), self.watch)


class WatchedRanks(Proxy):
    """A communicator whose messages of the host are watched as `sizes`, those of the device as `streams`.

    All ranks meet before each, so that waiting for a peer counts as `meet`.
    """

    def exchange(self, *ways: Sequence[Message]) -> None:
        """Exchange sizes."""
        self.watch.part("meet", self.inner.barrier)
        self.watch.part("sizes", self.inner.exchange, *ways)

    def bind_exchange(self, *ways: Sequence[Message]) -> tuple[Call, Call]:
        """Exchange streams, to the end, in the first call."""
        begin, end = self.inner.bind_exchange(*ways)

        def whole() -> None:
            begin()
            end()

        def watched() -> None:
            self.watch.part("meet", self.inner.barrier)
            self.watch.part("streams", whole)

        return watched, lambda: None


def watched(device: Device, ranks: Communicator, codec: Codec) -> tuple[Watch, Any, Any, Any]:
    """A watch, and a device, a communicator and a codec that it watches."""
    watch = Watch(device)
    return watch, WatchedDevice(device, watch), WatchedRanks(ranks, watch), WatchedCodec(codec, watch)


class SlowLine:
    """A communicator of GPUs whose messages take at least as long as over a line of `bytes_per_s` each way.

    The line serves one exchange after the other, from when the rank's data are ready; a thread of the GPU
    waits for as long as the larger way takes.
    """

    def __init__(self, inner: Communicator, device: Any, bytes_per_s: float) -> None:
        import cupy

        from tnplan.executor.device.cuda.runtime.kernel_cache import load_kernel

        self.inner, self.bytes_per_s, self.stream = inner, bytes_per_s, device.stream
        self.line = cupy.cuda.Stream(non_blocking=True)
        self.kernel = load_kernel(Path(__file__).parent / "wait.cu", "wait", {})
        self.new_event = lambda: cupy.cuda.Event(disable_timing=True)
        self.overlaps = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def exchange(self, *ways: Sequence[Message]) -> None:
        """As it is: sizes are short."""
        self.inner.exchange(*ways)

    def bind_exchange(self, *ways: Sequence[Message]) -> tuple[Call, Call]:
        """An exchange that ends when its messages came and the line has done with them."""
        from tnplan.executor.device.cuda.runtime.signals import record

        inner_begin, inner_end = self.inner.bind_exchange(*ways)
        size_bytes = max(sum(view.nbytes for _, view in way) for way in ways)
        nanoseconds = np.uint64(1e9 * size_bytes / self.bytes_per_s)
        ready, done = self.new_event(), self.new_event()

        def begin() -> None:
            record(ready, self.stream)
            self.line.wait_event(ready)
            self.kernel((1,), (1,), (nanoseconds,), stream=self.line)
            record(done, self.line)
            inner_begin()

        def end() -> None:
            inner_end()
            self.stream.wait_event(done)

        return begin, end
