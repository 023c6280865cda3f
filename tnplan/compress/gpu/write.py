"""An array to its stream on a device: surveyed, and coded while the host waits for the results."""

from __future__ import annotations

from tnplan.compress.format import stream
from tnplan.compress.format.choice import RANKED_FROM, CodingOptions
from tnplan.compress.format.stream import Header
from tnplan.compress.gpu.device import DeviceArray, KernelDevice
from tnplan.compress.gpu.encode import encode, go_on
from tnplan.compress.gpu.fixed_length import Ahead
from tnplan.compress.gpu.frames import check_capacity
from tnplan.compress.gpu.survey import Survey


def write(
    device: KernelDevice, values: DeviceArray, dtype: str, shape: tuple[int, ...], options: CodingOptions,
    out: DeviceArray,
) -> tuple[Header, tuple[float, ...], int]:  # fmt: skip
    """The stream of an array's flat real numbers in `out` (bytes, from a multiple of 8 on): its header, the
    largest errors of the array's parts, and how many bytes were written.

    As `gpu.survey.Survey` and `gpu.encode.encode` one after the other, byte for byte, and with their errors.
    """
    survey, frame_log2 = Survey(device, values, dtype, shape, options), options.frame_log2
    ahead, has_rule = None, options.bound and options.mode != "pointwise"
    if options.setting == "fast" and has_rule and _is_regular(survey.size, frame_log2):
        start = stream.header_size_bytes(len(shape), stream.components(dtype))
        check_capacity(out, start)
        # Kernels choose the rule and code by it before the host knows what was found.
        ahead = Ahead(device, values, survey.kernels, frame_log2, out, start)
    try:
        header, limits = survey.header()
    finally:
        if ahead:
            # Invariant: no kernel writes into `out` any more when this function is left, also by an
            # error.
            ahead.wait()
    if not ahead:
        return header, limits, encode(device, values, header, limits, out)
    # Where the host chooses another header, what was coded ahead is thrown away.
    if ahead.suits(header, limits):
        n_full = max(1, header.stored >> frame_log2)
        return header, limits, go_on(ahead.writer, values, header, limits, min(ahead.count, n_full))
    ahead.writer.wait_for_end()
    return header, limits, encode(device, values, header, limits, out)


def _is_regular(size: int, frame_log2: int) -> bool:
    """Whether axes are ranked and the first frames of equal size, be half of the array stored or all."""
    return size >= 2 * RANKED_FROM and (size & (size - 1) == 0 or size >= 2 << frame_log2)
