"""Arrays in files, compressed and back: `tnplan compress`, `tnplan decompress`. The codecs are in compress/.

`gpu_codec` lets `tnplan.compress` take arrays of CuPy.

The compressed file is a stream of `format.stream`; the report that these functions return is for people and
programs, and is not kept.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any, BinaryIO

import numpy as np

from tnplan.common.array_file import map_array
from tnplan.common.errors import InputError
from tnplan.common.files import check_writable, file_path, open_input, write_file
from tnplan.compress.cpu import codec
from tnplan.compress.format.errors import CodecError
from tnplan.compress.format.stream import Header
from tnplan.compress.gpu.launches import KernelDevice

TOPIC = "compression"

SUFFIX = ".tnz"


def compress_file(
    source: str | Path, output: str | Path | None = None, bound: float = 1e-3, *, mode: str = "range",
    setting: str = "auto", nonfinite: str = "keep",
) -> dict[str, Any]:  # fmt: skip
    """Compress the array of a .npy file within an error bound.

    Parameters
    ----------
    source : path
        An .npy of float32, float64, complex64 or complex128 numbers.
    output : path, optional
        The compressed file. Default: the name of the .npy with .tnz at the end.
    bound : float
        The largest error of a real or imaginary part; 0 is lossless.
    mode : {"range", "absolute", "pointwise"}
        What the bound is relative to: the range of values, nothing, or each value.
    setting : {"auto", "fast", "small"}
        Coding that is fast, or that gives small files; "auto" tries both on a sample.
    nonfinite : {"keep", "refuse"}
        What is done with NaN and infinities.

    Returns
    -------
    dict
        Sizes in bytes, ratio, coder, seconds, and the name of the file.

    Raises
    ------
    InputError
        For what cannot be done; then nothing is written.

    Examples
    --------
    >>> tnplan.compress_file("tensor.npy", bound=1e-3)["ratio"]  # doctest: +SKIP
    """
    target = Path(f"{file_path(source)}{SUFFIX}") if output is None else file_path(output)
    check_writable(target, source)
    start_s = perf_counter()
    # Mapped, not read: the codec goes through arrays that are larger than the memory.
    array = map_array(source)
    try:
        header, pieces = codec.encode(array, bound, mode=mode, setting=setting, nonfinite=nonfinite)
        write_file(target, lambda stream: stream.writelines(pieces))
    except CodecError as error:
        raise _in_file(source, error) from None
    return _report(header, array.nbytes, target.stat().st_size, target, perf_counter() - start_s)


def decompress_file(source: str | Path, output: str | Path | None = None) -> dict[str, Any]:
    """Restore the array of a compressed file.

    Parameters
    ----------
    source : path
        A file that `compress_file` wrote.
    output : path, optional
        The .npy to write. Default: the name without .tnz. A file of that name may be the exact array, and is
        never replaced.

    Returns
    -------
    dict
        The same figures as `compress_file` gives.

    Raises
    ------
    InputError
        For a file that is not whole, or an output that cannot be written.

    Examples
    --------
    >>> tnplan.decompress_file("tensor.npy.tnz", "again.npy")["output"]  # doctest: +SKIP
    """
    name = str(file_path(source))
    if output is None and not name.endswith(SUFFIX):
        raise InputError(
            name, f"does not end in {SUFFIX}, so that the output has no name", "name the output with -o"
        )
    target = file_path(output) if output is not None else Path(name.removesuffix(SUFFIX))
    if output is None and target.exists():
        raise InputError(str(target), "already exists", "name the output with -o")
    check_writable(target, source)
    start_s = perf_counter()
    try:
        with open_input(name) as stream:
            size_bytes = Path(name).stat().st_size
            headers: list[Header] = []

            def fill(written: BinaryIO) -> None:
                # The header of the .npy comes before the values, as soon as the stream has given
                # shape and dtype: the array is never whole in memory.
                def begin(header: Header) -> None:
                    fields = {"descr": np.dtype(header.dtype).str, "fortran_order": False}
                    np.lib.format.write_array_header_1_0(written, {**fields, "shape": header.shape})

                headers.append(codec.decode_to_file(stream, written, begin, size_bytes))

            # Invariant: a stream that is damaged further on leaves no file, as `write_file` moves
            # it only when it is whole.
            write_file(target, fill)
    except CodecError as error:
        raise _in_file(source, error) from None
    header = headers[0]
    array_bytes = header.size * np.dtype(header.dtype).itemsize
    return _report(header, array_bytes, size_bytes, target, perf_counter() - start_s)


def _in_file(source: str | Path, error: CodecError) -> InputError:
    """A codec's error about the array of a file, as the command line shows it."""
    place = str(source) if error.place in ("array", "stream") else f"{source}: {error.place}"
    return InputError(place, error.problem, error.remedy)


def _report(header: Header, array_bytes: int, size_bytes: int, output: Path, time_s: float) -> dict[str, Any]:
    return {
        "output": str(output),
        "dtype": header.dtype,
        "shape": list(header.shape),
        "mode": header.mode,
        "bound": header.bound,
        "coder": header.coder,
        "mirror": header.reflection,
        "array_bytes": array_bytes,
        "stream_bytes": size_bytes,
        "ratio": array_bytes / size_bytes,
        "time_s": time_s,
    }


def gpu_codec() -> KernelDevice:
    """Let `tnplan.compress` work on GPUs, through CuPy.

    From then on `compress` and `decompress` take CuPy arrays, and leave the results on their GPU.

    Returns
    -------
    KernelDevice
        What `compress` and `decompress` take as `device`, for NumPy's arrays and bytes of the host.

    Raises
    ------
    InputError
        Where CuPy is not installed.

    Examples
    --------
    >>> packed = tnplan.compress.compress(array, 1e-3, device=tnplan.gpu_codec())  # doctest: +SKIP
    """
    try:
        from tnplan.executor.device.cuda.codec import CupyCodec
    except ImportError as error:
        raise InputError(
            "gpu_codec",
            f"needs CuPy ({error})",
            "install it with: pip install 'tnplan[gpu]'",
            topic="installation",
        ) from None
    return CupyCodec()
