"""Figures of the cost model from measured times. Pure arithmetic.

A chain takes the root of (memory time)^2 + (time on chip)^2, the latter being its bytes on chip over one rate
and its operations over another: see `planner.hardware.cost.CostModel.fused_s`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from executor.calibration.between import SwapTime
from executor.calibration.local import ChainTime

LEAST_SHARE = 0.1
"""A chain tells of the work on chip only where that is more than this share of its time."""


def chip_rates(
    chains: Sequence[ChainTime], memory_bytes_per_s: float, tile_bytes_per_s: float, fit_tile: bool
) -> tuple[float, float]:
    """Bytes on chip and operations a second, by least squares of relative errors.

    The former is `tile_bytes_per_s`, or with `fit_tile` fitted too, where that gives a rate above 0. Raises
    ValueError where chains are no slower than the memory, or than the bytes on chip.
    """
    rows = []
    for chain in chains:
        square = chain.time_s**2 - (chain.moved_bytes / memory_bytes_per_s) ** 2
        chip_s = sqrt(max(square, 0.0))
        if chip_s > LEAST_SHARE * chain.time_s:
            rows.append((chain.tile_bytes / chip_s, chain.flops / chip_s))
    if len(rows) < 2:
        raise ValueError("fused chains take no longer than the memory: nothing to fit")
    table, ones = np.array(rows), np.ones(len(rows))
    if fit_tile:
        seconds_a_byte, seconds_an_operation = np.linalg.lstsq(table, ones, rcond=None)[0]
        if min(seconds_a_byte, seconds_an_operation) > 0:
            return 1 / float(seconds_a_byte), 1 / float(seconds_an_operation)
    rest = ones - table[:, 0] / tile_bytes_per_s
    seconds_an_operation = float(table[:, 1] @ rest / (table[:, 1] @ table[:, 1]))
    if not seconds_an_operation > 0:
        raise ValueError("fused chains take no longer than their bytes on chip: nothing to fit")
    return tile_bytes_per_s, 1 / seconds_an_operation


def swap_rate(swap: SwapTime, permute_bytes_per_s: float) -> float:
    """Bytes received a second, once the time to copy what a rank keeps is taken off."""
    kept_s = 2 * swap.kept_bytes / permute_bytes_per_s
    return swap.received_bytes / max(swap.time_s - kept_s, swap.time_s / 2)
