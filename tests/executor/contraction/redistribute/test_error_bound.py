"""The accumulated bound and the fidelity do not depend on how small or large the values are."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from typing import Any

import numpy as np
import pytest

from tests.support.kernels.gpus import DEVICES, opened
from tnplan.executor.contraction.redistribute.compressed import Tally, summary
from tnplan.executor.device.protocols.codec import Packed, measured
from tnplan.planner.hardware.compression_options import Lossy

COUNT = 4096
SCALES = tuple(2.0**exponent for exponent in (-1000, -600, -515, -273, 273, 515, 1000))
BOUND = Lossy(1e-2)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    with opened(request.param) as made:
        yield made


def values(scale: float, seed: int = 1) -> np.ndarray:
    """Complex numbers of a scale."""
    return np.random.default_rng(seed).normal(size=(COUNT, 2)).view(complex)[:, 0] * scale


def stored(device: Any, tensors: list[np.ndarray], lossy: Lossy = BOUND) -> Tally:
    """What is known once tensors were stored compressed and restored."""
    codec = device.codec()
    room = codec.worst_bytes(COUNT, "complex128")
    device.allocate(2 * 16 * COUNT + room)
    source, target = (device.view(16 * COUNT * number, COUNT, "complex128") for number in (0, 1))
    out = device.view(2 * 16 * COUNT, room, "uint8")
    tally = Tally(overlaps=codec.overlaps())
    for tensor in tensors:
        device.from_host(source, tensor)
        packed = codec.encode(source, lossy, "fast", out)
        codec.decode(out[: packed.size_bytes], target)
        tally.packed(packed, tensor.nbytes)
        assert tally.overlaps is not None
        tally.overlaps.add(codec.sample(source), target)
    return tally.read()


@pytest.mark.parametrize("scale", SCALES)
def test_the_bound_is_that_of_any_scale(device: Any, scale: float) -> None:
    wanted = stored(device, [values(1.0)])
    assert 0.01 < wanted.error < 0.1
    assert 0.99 < wanted.fidelity < 1
    found = stored(device, [values(scale)])
    assert found.error == pytest.approx(wanted.error, rel=1e-9)
    assert found.norm == pytest.approx(scale * wanted.norm, rel=1e-9)
    if 1e-140 < scale < 1e140:
        assert found.fidelity == pytest.approx(wanted.fidelity, rel=1e-9)
    else:
        # Squares of samples cannot say; the bound can.
        assert isnan(found.fidelity)
    report = summary(["store"], [[found]])
    assert (report["fidelity"] is None) == isnan(found.fidelity)


def test_messages_of_other_scales_count_by_their_size(device: Any) -> None:
    wanted = stored(device, [values(1.0), 3 * values(1.0, 2)])
    for scale in (1e-180, 1e-90, 1e150):
        found = stored(device, [scale * values(1.0), 3 * scale * values(1.0, 2)])
        assert found.error == pytest.approx(wanted.error, rel=1e-9)
        ranks = [[stored(device, [values(scale)])], [stored(device, [3 * values(scale, 2)])]]
        assert summary(["store"], ranks)["bound"] == pytest.approx(wanted.error, rel=1e-9)
    alone = stored(device, [values(1.0)])
    for other in (values(1e-180), np.zeros(COUNT, complex)):
        mixed = stored(device, [other, values(1.0), other])
        assert (mixed.error, mixed.fidelity) == (alone.error, alone.fidelity)


def test_what_loses_nothing_has_no_bound(device: Any) -> None:
    for tensor, lossy in ((values(1e-200), Lossy(0.0)), (np.zeros(COUNT, complex), BOUND)):
        found = stored(device, [tensor], lossy)
        assert (found.error, found.fidelity) == (0.0, 1.0)


def test_sums_whose_product_leaves_the_range_still_have_a_fidelity() -> None:
    for scale in (1e-180, 1e-200, 1e180, 1e300):
        near = Tally(overlap=scale, before=scale, after=1.0000001 * scale)
        assert near.fidelity == pytest.approx(1 / 1.0000001, rel=1e-12)
        assert Tally(overlap=0.6j * scale, before=scale, after=scale).fidelity == pytest.approx(0.36)
    assert Tally(before=1.0).fidelity == 0
    assert Tally().fidelity == 1


def test_norms_that_are_not_finite_are_told() -> None:
    real = np.array([1.0, 2.0])
    assert measured(9, 2, [0.5], 5.0, real) == Packed(9, np.sqrt(2) * 0.5, np.sqrt(5.0))
    assert isnan(measured(9, 2, [0.5], np.nan, real).norm)
    assert measured(9, 2, [0.5], np.inf, np.array([1.0, -np.inf])).norm == np.inf
    assert Tally(errors=1.0, norm=np.inf).error == Tally(errors=1.0).error == np.inf
