"""A frame under a predictor: values to residuals and back.

Values become fine whole numbers (`format.box`), and each point is predicted from what a decoder knows of
others. All of it is whole numbers but the first and the last step, so that a CPU and a GPU do the same.
An element that misses its bound, or is no number, is stored exactly; its residual says something all the
same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.format.bit_tiling import TILE, tile_count
from tnplan.compress.format.bounds import round_down
from tnplan.compress.format.box import Box, Predictor, frame_box, lattices
from tnplan.compress.format.stream import Header

Values = NDArray[np.floating]


def quantize(
    values: Values, header: Header, limits: tuple[float, ...], most_exact: int
) -> tuple[NDArray[np.int32], NDArray[np.int64] | None]:
    """Residuals (components, tiles * 4096), and the positions (component * tiles * 4096 + element) of values
    to be stored exactly; None for these where they are more than `most_exact`."""
    from tnplan.compress.cpu.prediction import interpolate_kernel as kernel

    predictor, n, real = _predictor(header), header.components, values.dtype.type
    box = frame_box(header.shape, values.size // n)
    fine = np.empty(values.size // n, np.int32)
    residuals = np.empty((n, tile_count(fine.size) * TILE), np.int32)
    residuals[:, fine.size :] = 0
    exact, n_exact = np.empty(most_exact, np.int64), 0
    for c, rule in enumerate(header.quantizers):
        before, step, component = n_exact, real(rule.step), np.ascontiguousarray(values[c::n])
        kernel.fill_fine(component, real(1) / step, fine)
        split(fine, box, predictor, residuals[c])
        limit = real(round_down(limits[c], values.dtype))
        n_exact = int(kernel.find_missing(component, fine, step, limit, exact, n_exact))
        exact[before:n_exact] += c * residuals.shape[1]
    return residuals, exact[:n_exact] if n_exact <= exact.size else None


def dequantize(residuals: NDArray[np.int32], header: Header, values: Values) -> None:
    """Fill a frame's values from residuals."""
    from tnplan.compress.cpu.prediction import interpolate_kernel as kernel

    predictor, n = _predictor(header), header.components
    fine = np.empty(values.size // n, np.int32)
    box = frame_box(header.shape, fine.size)
    component = values if n == 1 else np.empty(fine.size, values.dtype)
    for c, rule in enumerate(header.quantizers):
        join(residuals[c], box, predictor, fine)
        kernel.fill_values(fine, values.dtype.type(rule.step), component)
        if n > 1:
            values[c::n] = component


def _predictor(header: Header) -> Predictor:
    assert header.predictor is not None
    return header.predictor


def split(fine: NDArray[np.int32], box: Box, predictor: Predictor, residuals: NDArray[np.int32]) -> None:
    """Residuals of a box of fine numbers, which become what a decoder will know."""
    from tnplan.compress.cpu.prediction import interpolate_kernel as kernel

    kernel.split(fine, np.array(box, np.uint64), lattices(box, predictor.order), predictor.cubic, residuals)


def join(residuals: NDArray[np.int32], box: Box, predictor: Predictor, fine: NDArray[np.int32]) -> None:
    """A box of fine numbers from residuals."""
    from tnplan.compress.cpu.prediction import interpolate_kernel as kernel

    kernel.join(fine, np.array(box, np.uint64), lattices(box, predictor.order), predictor.cubic, residuals)
