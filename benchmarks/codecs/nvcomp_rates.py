"""nvCOMP's codecs beside ours on the same arrays: ratios, and GB/s of whole calls. Needs nvidia-nvcomp.

`tensor_codecs.py --device gpu --rivals` runs it. Bitcomp's lossy mode gets the bound of ours, the others lose
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

RIVALS = ("LZ4", "Cascaded", "ANS", "Bitcomp", "Bitcomp lossy")


def installed() -> bool:
    """Whether nvCOMP can be imported."""
    return bool(find_spec("nvidia") and find_spec("nvidia.nvcomp"))


def codec_of(rival: str, limit: float, stream: int) -> Any:
    """A codec of nvCOMP for single precision; `limit` is the largest error of a lossy one."""
    from nvidia import nvcomp

    options: dict[str, Any] = {"LZ4": {}, "Cascaded": {"data_type": "<u4"}}.get(rival, {"data_type": "<f4"})
    if rival == "Bitcomp lossy":
        options |= {"mode": nvcomp.BitcompMode.BITCOMP_LOSSY_FP_TO_SIGNED, "delta": 2 * limit}
    return nvcomp.Codec(algorithm=rival.split()[0], cuda_stream=stream, **options)


def rates(
    values: Any, limits: tuple[float, ...], best_s: Callable[[Callable[[], Any]], float]
) -> Iterator[dict[str, Any]]:
    """A row a rival for flat single precision numbers on the GPU; ValueError where one errs by more than the
    bound, or at all without one."""
    import cupy
    from nvidia import nvcomp

    stream, limit = cupy.cuda.get_current_stream().ptr, min(limits)
    bits = values.view(np.uint32)
    for rival in RIVALS:
        codec = codec_of(rival, limit, stream)
        source = nvcomp.as_array(bits if rival in ("LZ4", "Cascaded") else values, cuda_stream=stream)
        packed = codec.encode(source)
        encode_s = best_s(lambda codec=codec, source=source: codec.encode(source))
        decode_s = best_s(lambda codec=codec, packed=packed: codec.decode(packed))
        again = cupy.asarray(codec.decode(packed)).view(np.uint8).reshape(-1).view(np.float32)
        if rival == "Bitcomp lossy":
            good = float(abs(again - values).max()) <= limit * (1 + 1e-5)
        else:
            good = bool((again.view(np.uint32) == bits).all())
        if not good:
            raise ValueError(f"{rival} does not restore its input")
        size, scale = int(packed.buffer_size), values.nbytes / 1e9
        yield {
            "rival": rival, "ratio": values.nbytes / size, "compress_gb_per_s": scale / encode_s,
            "decompress_gb_per_s": scale / decode_s,
        }  # fmt: skip


def line(row: dict[str, Any]) -> str:
    """A row below those of ours."""
    return (
        f"    nvCOMP {row['rival']:14} {row['ratio']:7.2f} {'':15} {row['compress_gb_per_s']:7.0f} "
        f"{row['decompress_gb_per_s']:7.0f}"
    )
