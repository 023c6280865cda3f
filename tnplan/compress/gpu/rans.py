"""The coder `small` on a device: a group's segments coded in slots, and copied to their offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tnplan.compress.cpu import rans
from tnplan.compress.format.bit_tiling import TILE
from tnplan.compress.format.stream import Header, components
from tnplan.compress.gpu import launches
from tnplan.compress.gpu.frames import Coded, FrameGroup, lay_out, part_arrays
from tnplan.compress.gpu.launches import DeviceArray, KernelDevice, KernelLaunch


def slot_bytes(n_components: int) -> int:
    """The most bytes of a tile: states and the words of one round, and each number as it is."""
    return launches.SMALL_SLOT_BYTES + 4 * TILE * n_components


class Segments:
    """The segments of a group's frames, while kernels count, plan and code them."""

    def __init__(self, device: KernelDevice, dtype: str, group: FrameGroup) -> None:
        self.device, self.dtype, self.group, n = device, dtype, group, components(dtype)
        n_tables, n_tokens = rans.count_shape(n)
        self.n_tiles, parts = np.uint32(group.n_tiles), group.count * group.n_tiles
        self.sizes, self.exact, self.heads = part_arrays(device, n, group.count, group.n_tiles)
        self.counts = device.zeros(group.count * n_tables * n_tokens, "uint32")
        self.raw_bits = device.zeros(group.count, "uint64")
        self.starts = device.empty(group.count * n_tables * (n_tokens + 1), "uint16")
        self.plans = device.empty(group.count * launches.SMALL_PLAN_WORDS, "uint32")
        self.tables = device.empty(group.count * rans.most_table_bytes(n) // 4, "uint32")
        self.slots = device.empty(parts * slot_bytes(n) // 2, "uint16")
        self.words = device.empty(parts, "uint32")

    def launch(self, kernel: Callable[[int, int], KernelLaunch], *arguments: Any) -> None:
        """Launch a kernel of the frames' tiles or segments."""
        self.device.launch(kernel(self.group.count, self.group.n_tiles), self.dtype, *arguments)

    def plan(self) -> None:
        """Plan tables and segments from the counts."""
        self.device.launch(
            launches.small_plan(self.group.count), self.dtype, self.counts, self.raw_bits, self.n_tiles,
            np.uint32(rans.longest_log2(self.group.residuals)), self.starts, self.plans, self.heads,
            self.tables,
        )  # fmt: skip

    @property
    def coding(self) -> tuple[DeviceArray, ...]:
        """What kernels that code segments take behind the numbers."""
        return self.starts, self.plans, self.slots, self.words, self.sizes

    def coded(self, plan: DeviceArray) -> Coded:
        """All this for the stream; `plan` is that of `lay_out`."""

        def pack(segment_starts: DeviceArray, frames: DeviceArray, out: DeviceArray) -> None:
            self.launch(
                launches.small_pack, self.slots, self.words, segment_starts, self.n_tiles, self.plans,
                self.tables, frames, out,
            )  # fmt: skip

        return Coded(self.group.count, self.group.n_tiles, plan, self.sizes, self.exact, self.heads, pack)


def code_small(
    device: KernelDevice, values: DeviceArray, header: Header, limits: tuple[float, ...], group: FrameGroup
) -> Coded:
    """Code the segments of a group, of which `values` are the real numbers."""
    rules = launches.rules(header, limits)
    plan, segments = lay_out(device, values, header, group, rules), Segments(device, header.dtype, group)
    numbers = values, *group.arguments, rules
    segments.launch(launches.small_count, *numbers, segments.counts, segments.raw_bits, segments.exact)
    segments.plan()
    segments.launch(launches.small_encode, *numbers, *segments.coding)
    return segments.coded(plan)


def code_residuals(device: KernelDevice, residuals: DeviceArray, rules: Any, segments: Segments) -> None:
    """Code the segments of whole numbers, as reals; how many values are stored exactly is left open."""
    group, n = segments.group, components(segments.dtype)
    symbols = device.empty(group.count * group.n_tiles * TILE * n, f"uint{8 * residuals.dtype.itemsize}")
    outputs = segments.counts, segments.raw_bits, symbols
    segments.launch(launches.keep_symbols, residuals, *group.arguments, rules, *outputs)
    segments.plan()
    segments.launch(launches.encode_symbols, symbols, segments.n_tiles, *segments.coding)
