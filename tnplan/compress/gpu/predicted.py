"""Frames under a predictor on a device: values to residuals for the coder `small`, and back.

The kernels do what `cpu.predictor` does. Residuals are whole numbers in the array's precision,
which the coder takes like values whose step is 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.format.box import Box, PointPass, Predictor, passes, predicted_box
from tnplan.compress.format.stream import Header, Quantizer
from tnplan.compress.gpu import launches
from tnplan.compress.gpu.frames import Coded, FrameGroup, lay_out
from tnplan.compress.gpu.launches import MOST_BLOCKS, DeviceArray, KernelDevice, block_count
from tnplan.compress.gpu.rans import Segments, code_residuals

COARSE = 1 << 13
"""Points that one block fills, pass after pass; later passes are launches of their own."""
LINE, LINE_PASSES = 1 << 12, 5
"""Points of a frame of one axis whose last passes, so many, one block does (split.cu)."""
RESIDUAL_LIMIT = 0.5


@dataclass(frozen=True)
class BoxPasses:
    """The passes of a frame, and behind them the points whose fine numbers are made first, those of them that
    no pass from values meets, and all points: `words` as kernels take them, and the points of each.

    The first `n_coarse` are done by one block; those from `n_fine` on from values instead of fine numbers.
    """

    words: NDArray[np.uint32]
    sizes: tuple[int, ...]
    n_coarse: int
    n_fine: int
    n_passes: int
    is_line: bool


@lru_cache(64)
def box_passes(box: Box, predictor: Predictor) -> BoxPasses:
    """The passes of a box."""
    point_passes = [] if predictor.is_lorenzo else list(passes(box, predictor))
    is_line, axes, n_axes = box[:-1] == (1,) * (len(box) - 1), predictor.axes, launches.box_axes(box)
    # Passes along batches have spacing 1 too, before those along predicted axes.
    n_fine = sum(each.spacing == 1 and any(each.along >> axis & 1 for axis in axes) for each in point_passes)
    first_fine = len(point_passes) - n_fine
    coarse = sum(point_pass.first + point_pass.size <= COARSE for point_pass in point_passes[:first_fine])
    known = tuple(2 if axis in axes else 1 for axis in range(len(box)))
    if is_line:
        first_fine = max(coarse, len(point_passes) - LINE_PASSES)
        known = (*known[:-1], 1 << (len(point_passes) - first_fine))
    # All along a row: what lies between would be read from memory too.
    filled, remaining = _every(known if is_line else (*known[:-1], 1), box), _every(known, box)
    whole = replace(_every((1,) * len(box), box), along=sum(1 << axis for axis in axes))
    all_points = [*point_passes, filled, remaining, whole]
    words = np.array([point_pass.widened(n_axes).lattice for point_pass in all_points], np.uint32).reshape(-1)
    sizes = tuple(point_pass.size for point_pass in all_points)
    return BoxPasses(words, sizes, coarse, first_fine, len(point_passes), is_line)


def _every(steps: Box, box: Box) -> PointPass:
    """Points of a box so far apart along each axis, from the first one on."""
    counts = tuple(-(-n // step) for n, step in zip(box, steps, strict=True))
    return PointPass(0, 1, (0,) * len(box), steps, counts, 0)


class PredictedGroup:
    """Frames of equal size, and their fine numbers and residuals on the device."""

    def __init__(self, device: KernelDevice, header: Header, group: FrameGroup) -> None:
        assert header.predictor is not None
        self.device, self.header, self.group = device, header, group
        self.predictor, self.elements = header.predictor, np.uint64(group.elements)
        self.box, last = predicted_box(header.shape, group.elements, self.predictor.early)
        self.last, self.passes = np.uint32(last), box_passes(self.box, self.predictor)
        n_axes = launches.box_axes(self.box)
        self.variant = "" if n_axes == launches.FEW_AXES else "_wide"
        box = launches.box(self.box, n_axes, self.predictor.is_cubic, self.predictor.strip, last)
        self.points = self.elements, box, device.upload(self.passes.words)
        n_reals = group.count * group.elements * header.components
        self.fine = device.empty(n_reals, "int32")
        self.residuals = device.empty(n_reals, header.real_dtype.name)

    def split(self, values: DeviceArray, rules: Any) -> DeviceArray:
        """Make residuals of the group's real numbers: how many values of each tile, in C order, miss their
        bound (frames, components, n_tiles)."""
        passes, n_tiles = self.passes, np.uint32(self.group.n_tiles)
        exact = self.device.zeros(self.group.count * self.header.components * self.group.n_tiles, "uint32")
        filled, remaining, whole = (passes.n_passes + k for k in range(3))
        behind = values, rules, n_tiles, self.residuals, exact
        if self.predictor.is_lorenzo:
            self._pass("split", "split_differences", whole, self.fine, *behind)
            return exact
        self._pass("split", "fill_fine", filled, values, rules, self.fine)
        self._over_passes("split", passes.n_fine, self.fine, self.residuals)
        if passes.is_line and passes.n_fine < passes.n_passes:
            blocks = -(-self.group.elements // LINE) * self.header.components
            last = np.uint32(passes.n_fine), np.uint32(passes.n_passes - passes.n_fine)
            self._launch("split", "split_line", blocks, self.fine, *self.points, *last, *behind)
        else:
            for number in range(passes.n_fine, passes.n_passes):
                self._pass("split", "split_values", number, self.fine, *behind)
        self._pass("split", "count_missing", remaining, self.fine, values, rules, n_tiles, exact)
        return exact

    def join(self, work: DeviceArray, span: Any, rules: Any, values: DeviceArray) -> None:
        """Make the group's real numbers of residuals, or of raw values instead of them."""
        if self.predictor.is_lorenzo:
            self._pass("join", "place_differences", self.passes.n_passes + 2, self.residuals, self.fine)
            self._add_differences()
        else:
            self._over_passes("join", self.passes.n_passes, self.residuals, self.fine)
        blocks = self._blocks(self.group.elements)
        arrays = self.residuals, self.fine, self.elements, self.last
        self._launch("join", "fill_values", blocks, work, span, *arrays, rules, values)

    def _add_differences(self) -> None:
        """Sums along each axis, the last one first: lines of all frames and components in a launch."""
        size, stride = self.fine.size, 1
        for axis in reversed(range(len(self.box))):
            extent = self.box[axis]
            if axis in self.predictor.axes and extent > 1:
                threads = size // extent * (launches.WARP if stride == 1 else 1)
                blocks = max(1, min(-(-threads // launches.THREADS), 8 * MOST_BLOCKS))
                launch = launches.predicted(f"join{self.variant}", "add_along", blocks)
                arguments = self.fine, np.uint64(size), np.uint32(extent), np.uint64(stride)
                self.device.launch(launch, self.header.dtype, *arguments)
            stride *= extent

    def _over_passes(self, file: str, stop: int, source: DeviceArray, target: DeviceArray) -> None:
        """All passes before number `stop`."""
        coarse = np.uint32(self.passes.n_coarse)
        blocks = self.header.components
        self._launch(file, f"{file}_coarse", blocks, source, *self.points, coarse, target)
        for number in range(self.passes.n_coarse, stop):
            self._pass(file, f"{file}_pass", number, source, target)

    def _pass(self, file: str, entry: str, number: int, source: DeviceArray, *behind: Any) -> None:
        blocks = self._blocks(self.passes.sizes[number])
        self._launch(file, entry, blocks, source, *self.points, np.uint32(number), *behind)

    def _launch(self, file: str, entry: str, blocks: int, *arguments: Any) -> None:
        launch = launches.predicted(f"{file}{self.variant}", entry, blocks, self.group.count)
        self.device.launch(launch, self.header.dtype, *arguments)

    def _blocks(self, size: int) -> int:
        """Blocks a frame for so many points."""
        return max(1, min(-(-size // launches.THREADS), max(1, 8 * MOST_BLOCKS // self.group.count)))


def residual_rules(header: Header) -> Any:
    """The rules for the coder: steps of 1."""
    n = header.components
    return launches.rules(replace(header, quantizers=(Quantizer(step=1.0),) * n), (RESIDUAL_LIMIT,) * n)


def code_predicted(
    device: KernelDevice, values: DeviceArray, header: Header, limits: tuple[float, ...], group: FrameGroup
) -> Coded:
    """Code the segments of a group, of which `values` are the real numbers."""
    predicted, rules = PredictedGroup(device, header, group), launches.rules(header, limits)
    exact = predicted.split(values, rules)
    plan = lay_out(device, values, header, group, launches.no_rules(header.dtype))
    segments = Segments(device, header.dtype, group)
    code_residuals(device, predicted.residuals, residual_rules(header), segments)
    coded, n_tiles = segments.coded(plan), np.uint32(group.n_tiles)

    def pack(starts: DeviceArray, frames: DeviceArray, out: DeviceArray) -> None:
        coded.pack(starts, frames, out)
        blocks = block_count(group.elements * header.components)
        device.launch(
            launches.predicted("split", "put_missing", blocks, group.count), header.dtype,
            values, predicted.fine, predicted.elements, predicted.last, n_tiles, rules, exact, frames, out,
        )  # fmt: skip

    return replace(coded, exact=exact, pack=pack)
