"""Rates of the codecs on a GPU: whole calls, and each kernel alone. `tensor_codecs.py --device gpu` runs it.

Goals on one H200, arrays of 2^26 to 2^29 numbers, in bytes of the array: `fast` 800 GB/s compressing and 1500
decompressing, `small` 200 and 500. The share of the copy bandwidth counts the array and the stream once each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np

from tnplan.compress import worst_size_bytes
from tnplan.compress.format.choice import CodingOptions
from tnplan.compress.format.stream import components, real_dtype
from tnplan.compress.gpu.decode import decode
from tnplan.compress.gpu.encode import encode
from tnplan.compress.gpu.launches import KernelLaunch
from tnplan.compress.gpu.survey import Survey, write

DTYPES = ("float32", "complex64")
KINDS = ("product", "sparse", "normal")
CODERS = ("fast", "small")
GOALS = {"fast": (800.0, 1500.0), "small": (200.0, 500.0)}
"""GB/s of compressing and decompressing."""
BOUND = 1e-3
REPEATS = 100
WARM_S = 0.1
"""So long work is repeated before it is timed: an idle GPU has lower clocks."""
FACTOR = 256
COPIED_BYTES = 1 << 30


class Timed:
    """A device that waits for every kernel, and adds up how long each took."""

    def __init__(self, device: Any, wait: Callable[[], None]) -> None:
        self.device, self.wait = device, wait
        self.kernel_s: dict[str, float] = defaultdict(float)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    def launch(self, launch: KernelLaunch, dtype: str, *arguments: Any) -> None:
        """Run a kernel between two waits."""
        self.wait()
        start_s = perf_counter()
        self.device.launch(launch, dtype, *arguments)
        self.wait()
        self.kernel_s[launch.entry] += perf_counter() - start_s


class EventTimed(Timed):
    """The same by CUDA's events, so that waits do not count; a launch does, some 10 us."""

    def launch(self, launch: KernelLaunch, dtype: str, *arguments: Any) -> None:
        """Run a kernel between two events."""
        import cupy

        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        self.device.launch(launch, dtype, *arguments)
        end.record()
        end.synchronize()
        self.kernel_s[launch.entry] += cupy.cuda.get_elapsed_time(begin, end) / 1e3


def made(xp: Any, kind: str, dtype: str, size: int) -> Any:
    """A float32 or complex64 array of a kind, `size` a power of 2: a product of factors along its axes, one
    of which a fiftieth are normal numbers, or one of normal numbers."""
    size *= components(dtype)
    if kind == "product":
        generator = np.random.default_rng(0)
        values = xp.ones(1, np.float32)
        while values.size < size:
            factor = generator.normal(size=FACTOR) * np.exp(-3 * generator.random(FACTOR))
            values = xp.kron(values, xp.asarray(factor[: size // values.size].astype(np.float32)))
        return values.view(dtype)
    generator = xp.random.default_rng(0)
    values = generator.standard_normal(size, dtype=np.float32)
    if kind == "sparse":
        values *= generator.random(size, dtype=np.float32) < 0.02
    return values.view(dtype)


def best_s(work: Callable[[], Any], wait: Callable[[], None]) -> float:
    """The least time of some runs, once the GPU is busy."""
    work()
    wait()
    until_s = perf_counter() + WARM_S
    while perf_counter() < until_s:
        work()
        wait()
    times = []
    for _ in range(REPEATS):
        wait()
        start_s = perf_counter()
        work()
        wait()
        times.append(perf_counter() - start_s)
    return min(times)


def copy_bytes_per_s(xp: Any, size_bytes: int, wait: Callable[[], None]) -> float:
    """Bytes read and written a second by a copy."""
    one, other = xp.zeros(size_bytes, np.uint8), xp.zeros(size_bytes, np.uint8)
    return 2 * size_bytes / best_s(lambda: xp.copyto(other, one), wait)


def rates(
    device: Any, timed: Timed, array: Any, coder: str, copy_rate: float, wait: Callable[[], None]
) -> dict[str, Any]:
    """Ratio, GB/s of survey, encoding, both and decoding, the header known or not, shares of the copy
    bandwidth, and the milliseconds of each kernel; ValueError where an error is above the bound."""
    dtype = array.dtype.name
    values = array.reshape(-1).view(real_dtype(dtype))
    room = worst_size_bytes(array.shape, dtype)
    out, back = device.empty(room + -room % 8, "uint8"), device.empty(values.size, values.dtype.name)

    def look(on: Any) -> Any:
        return Survey(on, values, dtype, array.shape, CodingOptions(BOUND, setting=coder)).header()

    def whole(on: Any) -> int:
        return write(on, values, dtype, array.shape, CodingOptions(BOUND, setting=coder), out)[2]

    header, limits = look(device)
    survey_s = best_s(lambda: look(device), wait)
    encode_s = best_s(lambda: encode(device, values, header, limits, out), wait)
    whole_s = best_s(lambda: whole(device), wait)
    used = encode(device, values, header, limits, out)
    data = out[:used].copy()
    unknown_s = best_s(lambda: decode(device, data, back), wait)
    decode_s = best_s(lambda: decode(device, data, back, header), wait)
    check(values, back, components(dtype), limits)
    whole(timed)
    decode(timed, data, back, header)
    moved, scale = array.nbytes + used, array.nbytes / 1e9
    goals = GOALS[coder]
    return {
        "elements": array.size, "dtype": dtype, "coder": coder, "ratio": array.nbytes / used,
        "survey_gb_per_s": scale / survey_s, "encode_gb_per_s": scale / encode_s,
        "compress_gb_per_s": scale / whole_s, "decompress_gb_per_s": scale / decode_s,
        "decompress_unknown_gb_per_s": scale / unknown_s,
        "compress_copy_share": moved / whole_s / copy_rate,
        "decompress_copy_share": moved / decode_s / copy_rate,
        "compress_goal_share": scale / whole_s / goals[0],
        "decompress_goal_share": scale / decode_s / goals[1],
        "kernel_ms": {name: 1e3 * seconds for name, seconds in timed.kernel_s.items()},
    }  # fmt: skip


def check(values: Any, back: Any, n: int, limits: tuple[float, ...]) -> None:
    """ValueError where a restored number errs by more than the limit of its component."""
    for c, limit in enumerate(limits):
        worst = float(abs(values[c::n] - back[c::n]).max())
        if worst > limit * (1 + 1e-5):
            raise ValueError(f"component {c} errs by {worst}, more than {limit}")


def line(row: dict[str, Any]) -> str:
    """A row of the table, and below it the kernels that take a fiftieth of the time or more."""
    total = sum(row["kernel_ms"].values())
    kernels = " ".join(f"{name} {1e3 * ms:.0f}" for name, ms in row["kernel_ms"].items() if ms > total / 50)
    return (
        f"2^{row['elements'].bit_length() - 1} {row['dtype']:9} {row['kind']:8} {row['coder']:5} "
        f"{row['ratio']:7.2f} {row['survey_gb_per_s']:7.0f} {row['encode_gb_per_s']:7.0f} "
        f"{row['compress_gb_per_s']:7.0f} {row['decompress_gb_per_s']:7.0f} "
        f"{row['decompress_unknown_gb_per_s']:7.0f} "
        f"{row['compress_copy_share']:6.1%} {row['decompress_copy_share']:6.1%}\n    us: {kernels}"
    )


def rows(
    device: Any, make_timed: Callable[[], Timed], arrays: Iterator[tuple[str, Any]], copy_rate: float,
    wait: Callable[[], None], rivals: bool = False,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """The rates of arrays given with the names of their kinds, printed one by one; with those of nvCOMP."""
    print("array, ratio; GB/s: survey, encoding, both, decompressing with the header known and unknown;")
    print("both, and decompressing with it known, as shares of the copy's")
    for kind, array in arrays:
        for coder in CODERS:
            row = {"kind": kind, **rates(device, make_timed(), array, coder, copy_rate, wait)}
            print(line(row), flush=True)
            yield row
        if rivals:
            yield from rival_rows(device, kind, array, wait)


def rival_rows(device: Any, kind: str, array: Any, wait: Callable[[], None]) -> Iterator[dict[str, Any]]:
    """The rates of nvCOMP's codecs, printed one by one."""
    import nvcomp_rates

    dtype = array.dtype.name
    values = array.reshape(-1).view(real_dtype(dtype))
    _, limits = Survey(device, values, dtype, array.shape, CodingOptions(BOUND, setting="fast")).header()
    for row in nvcomp_rates.rates(values, limits, lambda work: best_s(work, wait)):
        print(nvcomp_rates.line(row), flush=True)
        yield {"kind": kind, "elements": array.size, "dtype": dtype, **row}


def on_gpu(sizes_log2: list[int], tensors: Iterator[tuple[str, Any]], rivals: bool = False) -> dict[str, Any]:
    """Rates on the first GPU, of made arrays of these sizes, then of tensors given on the host; with facts of
    the GPU, and the rate of a copy of COPIED_BYTES. `rivals`: those of nvCOMP too."""
    import cupy

    from tnplan.executor.device.cuda.codec import CupyCodec
    from tnplan.executor.device.cuda.device import CupyDevice

    device, facts = CupyCodec(), CupyDevice(0).facts()

    def arrays() -> Iterator[tuple[str, Any]]:
        for log2, dtype, kind in product(sizes_log2, DTYPES, KINDS):
            yield kind, made(cupy, kind, dtype, 1 << log2)
        for name, tensor in tensors:
            yield name, cupy.asarray(tensor)

    wait = cupy.cuda.get_current_stream().synchronize
    copy_rate = copy_bytes_per_s(cupy, COPIED_BYTES, wait)
    print(f"copy: {copy_rate / 1e9:.0f} GB/s read and written")
    measured = list(rows(device, lambda: EventTimed(device, wait), arrays(), copy_rate, wait, rivals))
    return {"gpu": facts, "bound": BOUND, "copy_gb_per_s": copy_rate / 1e9, "rates": measured}
