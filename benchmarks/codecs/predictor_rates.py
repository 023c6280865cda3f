"""Rates of the coder `small` under a predictor on a GPU, and without one, where they must be what they were.

Usage: python benchmarks/codecs/predictor_rates.py [--sizes 26,28] [-o results.json]; some 90 s on an H100
Goals on one H100: 100 GB/s each way, in bytes of the array, on smooth arrays of one, two and three axes;
each stream is restored and its bound checked, and one of each kind is compared with the CPU's, byte for
byte. `codec_rates.py` measures the coders without a predictor.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from codec_rates import BOUND, EventTimed, best_s, check
from tensor_codecs import write as keep

from tnplan.compress import compress, worst_size_bytes
from tnplan.compress.format.choice import CodingOptions
from tnplan.compress.format.stream import real_dtype
from tnplan.compress.gpu.decode import decode
from tnplan.compress.gpu.encode import encode
from tnplan.compress.gpu.survey import Survey, write

GOAL_GB_PER_S = 100.0
COMPARED_LOG2 = 22
DTYPES = ("float32", "float64", "complex64")


def shapes(log2: int) -> Iterator[tuple[int, ...]]:
    """Shapes of so many elements, or nearly: also ones that no tile divides."""
    third = log2 // 3
    yield (1 << log2,)
    yield (1 << (log2 - log2 // 2), 1 << (log2 // 2))
    yield (1 << (log2 - 2 * third), (1 << third) - 3, (1 << third) + 2)


def smooth(xp: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Waves along each axis, of frequencies that do not repeat, and a thousandth of noise."""
    generator = np.random.default_rng(len(shape))
    values = xp.zeros(shape, xp.float32)
    for axis, n in enumerate(shape):
        wave = sum(np.sin(generator.uniform(5, 60) * np.linspace(0, 1, n) + k) for k in range(3))
        values += xp.asarray(wave.astype(np.float32)).reshape(
            [n if k == axis else 1 for k in range(len(shape))]
        )
    values += 1e-3 * xp.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    return values + 1j * values[::-1] if dtype == "complex64" else values.astype(dtype)


def rates(device: Any, array: Any, wait: Any) -> dict[str, Any]:
    """Ratio, GB/s of the whole call, of encoding and of restoring, and the milliseconds of each kernel."""
    dtype, options = array.dtype.name, CodingOptions(BOUND, setting="small", predict=True)
    values = array.reshape(-1).view(real_dtype(dtype))
    room = worst_size_bytes(array.shape, dtype)
    out, back = device.empty(room + -room % 8, "uint8"), device.empty(values.size, values.dtype.name)
    header, limits = Survey(device, values, dtype, array.shape, options).header()
    if not header.predictor:
        raise ValueError(f"no predictor was chosen for {array.shape}")
    encode_s = best_s(lambda: encode(device, values, header, limits, out), wait)
    whole_s = best_s(lambda: write(device, values, dtype, array.shape, options, out), wait)
    used = encode(device, values, header, limits, out)
    data = out[:used].copy()
    decode_s = best_s(lambda: decode(device, data, back, header), wait)
    check(values, back, header.components, limits)
    timed = EventTimed(device, wait)
    encode(timed, values, header, limits, out)
    decode(timed, data, back, header)
    scale = array.nbytes / 1e9
    return {
        "shape": array.shape, "dtype": dtype, "ratio": array.nbytes / used,
        "encode_gb_per_s": scale / encode_s, "compress_gb_per_s": scale / whole_s,
        "decompress_gb_per_s": scale / decode_s,
        "kernel_ms": {name: 1e3 * seconds for name, seconds in timed.kernel_s.items()},
    }  # fmt: skip


def same_as_cpu(device: Any, array: Any) -> bool:
    """Whether the stream of an array is that of the CPU."""
    made = compress(array, BOUND, setting="small", device=device).data
    return bool(device.download(made).tobytes() == compress(array.get(), BOUND, setting="small").data)


def main() -> int:
    """Measure, print, keep the figures; 1 where a goal is missed."""
    import cupy

    from tnplan.executor.device.cuda.codec import CupyCodec
    from tnplan.executor.device.cuda.device import CupyDevice

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", default="26,28", help="logarithms of the sizes")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    device, wait, rows = CupyCodec(), cupy.cuda.get_current_stream().synchronize, []
    for dtype in DTYPES:
        for shape in shapes(COMPARED_LOG2):
            if not same_as_cpu(device, smooth(cupy, shape, dtype)):
                raise ValueError(f"the streams of {dtype} {shape} differ on GPU and CPU")
    print("streams of GPU and CPU are the same; GB/s: encoding, whole call, restoring; us of kernels")
    for log2 in map(int, options.sizes.split(",")):
        for dtype in DTYPES[:: 2 if log2 > 26 else 1]:
            for shape in shapes(log2):
                row = rates(device, smooth(cupy, shape, dtype), wait)
                rows.append(row)
                kernels = " ".join(f"{name} {1e3 * ms:.0f}" for name, ms in row["kernel_ms"].items())
                print(
                    f"{dtype:9} {shape!s:20} {row['ratio']:7.1f} {row['encode_gb_per_s']:6.0f} "
                    f"{row['compress_gb_per_s']:6.0f} {row['decompress_gb_per_s']:6.0f}\n    {kernels}",
                    flush=True,
                )
    least = {way: min(row[f"{way}_gb_per_s"] for row in rows) for way in ("compress", "decompress")}
    for way, rate in least.items():
        print(f"{way}: at least {rate:.0f} GB/s (goal {GOAL_GB_PER_S:.0f})")
    keep(options.output, {"gpu": CupyDevice(0).facts(), "bound": BOUND, "goal": GOAL_GB_PER_S, "rates": rows})
    missed = min(least.values()) < GOAL_GB_PER_S
    if missed:
        print("MISSED")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
