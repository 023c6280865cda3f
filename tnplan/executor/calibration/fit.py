"""Figures of the cost model from measured times. Pure arithmetic.

A chain takes the root of (memory time)^2 + (time on chip)^2, the latter being its bytes on chip over one rate
and its operations over another: see `tnplan.planner.hardware.cost.CostModel.fused_s`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from tnplan.executor.calibration.device_rates import ChainTime
from tnplan.executor.calibration.redistribution_time import RedistributionTime

FREE = 1e18
"""Bytes or operations a second of what costs no time."""
LEAST_SHARE = 0.1
"""A chain tells of the work on chip only where what is left of its time is more than this share."""


def chip_rates(
    chains: Sequence[ChainTime], memory_bytes_per_s: float, short_run_bytes: float
) -> tuple[float, float]:
    """Bytes on chip and operations a second, by least squares of the relative errors of whole times, neither
    below 0 seconds.

    On chip is what the memory's time leaves of a chain's, as a root of squares. A device hides more than that
    behind the memory, so that where little is left it says little; an error of it changes the chain's time by
    its share of the square, which is its weight.

    Raises ValueError where chains are no slower than the memory.
    """
    rows, weights = [], []
    for chain in chains:
        slower = sum(1 + (short_run_bytes / run_bytes) ** 2 for run_bytes in chain.run_bytes)
        square = chain.time_s**2 - (chain.side_bytes * slower / memory_bytes_per_s) ** 2
        chip_s = sqrt(max(square, 0.0))
        if chip_s > LEAST_SHARE * chain.time_s:
            weight = (chip_s / chain.time_s) ** 2
            rows.append((weight * chain.tile_bytes / chip_s, weight * chain.flops / chip_s))
            weights.append(weight)
    if len(rows) < 2:
        raise ValueError("fused chains take no longer than the memory: nothing to fit")
    table, wanted = np.array(rows), np.array(weights)
    both = np.linalg.lstsq(table, wanted, rcond=None)[0]
    alone = wanted @ table / (table**2).sum(axis=0)
    if both[0] < 0:
        both = np.array([0.0, alone[1]])
    elif both[1] < 0:
        both = np.array([alone[0], 0.0])
    rates = 1 / np.maximum(both, 1 / FREE)
    return float(rates[0]), float(rates[1])


def redistribution_rate(swap: RedistributionTime, permute_bytes_per_s: float) -> float:
    """Bytes received a second, once the time to copy what a rank keeps is taken off."""
    kept_s = 2 * swap.kept_bytes / permute_bytes_per_s
    return swap.received_bytes / max(swap.time_s - kept_s, swap.time_s / 2)
