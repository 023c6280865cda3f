"""Frames under a predictor on a device: values to residuals for the coder `small`, and back.

The kernels do what `cpu.prediction.predicted` does. Residuals are whole numbers in the array's precision,
which the coder takes like values whose step is 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.format.box import PointPass, frame_box, lattices, passes
from tnplan.compress.format.stream import Header, Quantizer
from tnplan.compress.gpu import launches
from tnplan.compress.gpu.device import MOST_BLOCKS, DeviceArray, KernelDevice, block_count
from tnplan.compress.gpu.frames import Coded, FrameGroup, lay_out
from tnplan.compress.gpu.rans import Segments, code_residuals

COARSE = 1 << 13
"""Points that one block fills, pass after pass; later passes are launches of their own."""
LINE, LINE_PASSES = 1 << 12, 5
"""Points of a frame of one axis whose last passes, so many, one block does (split.cu)."""
RESIDUAL_LIMIT = 0.5


@dataclass(frozen=True)
class BoxPasses:
    """The passes of a frame: all as kernels take them, how many of them one block takes, and the points
    of each that is a launch of its own."""

    words: NDArray[np.uint32]
    n_coarse: int
    sizes: tuple[int, ...]


@lru_cache(64)
def box_passes(box: tuple[int, int, int], order: int) -> BoxPasses:
    """The passes of a box."""
    found = passes(box, order)
    coarse = sum(one.first + one.size <= COARSE for one in found)
    words = lattices(box, order).astype(np.uint32).reshape(-1)
    return BoxPasses(
        words if words.size else np.zeros(1, np.uint32), coarse, tuple(map(_size, found[coarse:]))
    )


def _size(one: PointPass) -> int:
    return one.size


class PredictedGroup:
    """Frames of equal size, and their fine numbers and residuals on the device."""

    def __init__(self, device: KernelDevice, header: Header, group: FrameGroup) -> None:
        assert header.predictor is not None
        self.device, self.header, self.group = device, header, group
        self.elements = np.uint64(group.elements)
        box = frame_box(header.shape, group.elements)
        self.box, self.is_line = launches.box(box, header.predictor.cubic), box[:2] == (1, 1)
        self.passes = box_passes(box, header.predictor.order)
        self.lattices = device.upload(self.passes.words)
        n_reals = group.count * group.elements * header.components
        self.fine = device.empty(n_reals, "int32")
        self.residuals = device.empty(n_reals, header.real_dtype.name)

    def split(self, values: DeviceArray, rules: Any) -> None:
        """Have residuals made of the group's real numbers."""
        self._launch("split.cu", "fill_fine", values, self.elements, rules, self.fine)
        in_line = min(LINE_PASSES, len(self.passes.sizes)) if self.is_line else 0
        self._run("split.cu", "split", self.fine, self.residuals, in_line)
        if in_line:
            blocks = -(-self.group.elements // LINE) * self.header.components
            first = np.uint32(self.passes.n_coarse + len(self.passes.sizes) - in_line)
            self.device.launch(
                launches.predicted("split.cu", "split_line", blocks, self.group.count), self.header.dtype,
                self.fine, *self._lattices, first, np.uint32(in_line), self.residuals,
            )  # fmt: skip

    def join(self, work: DeviceArray, span: Any, rules: Any, values: DeviceArray) -> None:
        """Have the group's real numbers made of residuals, or of what is raw in their place."""
        self._run("join.cu", "join", self.residuals, self.fine)
        self._launch(
            "join.cu", "fill_values", work, span, self.residuals, self.fine, self.elements, rules, values
        )

    @property
    def _lattices(self) -> tuple[Any, ...]:
        return self.elements, self.box, self.lattices

    def _run(
        self, file: str, name: str, source: DeviceArray, target: DeviceArray, left: int = 0
    ) -> None:
        """All passes but the last ones, so many."""
        group, dtype = self.group, self.header.dtype
        common = (source, *self._lattices)
        self.device.launch(
            launches.predicted(file, f"{name}_coarse", self.header.components, group.count), dtype,
            *common, np.uint32(self.passes.n_coarse), target,
        )  # fmt: skip
        sizes = self.passes.sizes[: len(self.passes.sizes) - left]
        for number, size in enumerate(sizes, self.passes.n_coarse):
            self.device.launch(
                launches.predicted(file, f"{name}_pass", self._blocks(size), group.count), dtype,
                *common, np.uint32(number), target,
            )  # fmt: skip

    def _launch(self, file: str, entry: str, *arguments: Any) -> None:
        launch = launches.predicted(file, entry, self._blocks(self.group.elements), self.group.count)
        self.device.launch(launch, self.header.dtype, *arguments)

    def _blocks(self, size: int) -> int:
        """Blocks a frame for so many points."""
        return max(1, min(-(-size // launches.THREADS), max(1, 8 * MOST_BLOCKS // self.group.count)))


def residual_rules(header: Header) -> Any:
    """What the coder is told: steps of 1."""
    n = header.components
    return launches.rules(replace(header, quantizers=(Quantizer(step=1.0),) * n), (RESIDUAL_LIMIT,) * n)


def code_predicted(
    device: KernelDevice, values: DeviceArray, header: Header, limits: tuple[float, ...], group: FrameGroup
) -> Coded:
    """Code the segments of a group, of which `values` are the real numbers."""
    made, rules = PredictedGroup(device, header, group), launches.rules(header, limits)
    made.split(values, rules)
    plan = lay_out(device, values, header, group, launches.no_rules(header.dtype))
    segments = Segments(device, header.dtype, group)
    code_residuals(device, made.residuals, residual_rules(header), segments)
    coded = segments.coded(plan)
    n_tiles = np.uint32(group.n_tiles)
    device.launch(
        launches.predicted("split.cu", "count_missing", group.n_tiles, group.count), header.dtype,
        values, made.fine, made.elements, n_tiles, rules, coded.exact,
    )  # fmt: skip

    def pack(starts: DeviceArray, frames: DeviceArray, out: DeviceArray) -> None:
        coded.pack(starts, frames, out)
        blocks = block_count(group.elements * header.components)
        device.launch(
            launches.predicted("split.cu", "put_missing", blocks, group.count), header.dtype,
            values, made.fine, made.elements, n_tiles, rules, coded.exact, frames, out,
        )  # fmt: skip

    return replace(coded, pack=pack)
