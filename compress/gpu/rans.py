"""The coder `small` on a device: a group's segments coded in slots, from which they go to their places."""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.compress.cpu import rans
from tnplan.compress.format.bit_tiling import TILE
from tnplan.compress.format.stream import Header, components
from tnplan.compress.gpu import launches
from tnplan.compress.gpu.device import DeviceArray, KernelDevice
from tnplan.compress.gpu.frames import Coded, FrameGroup, lay_out, part_arrays


def slot_bytes(n_components: int) -> int:
    """Room for a tile: states and the words of one round, and each number as it is."""
    return launches.SMALL_SLOT_BYTES + 4 * TILE * n_components


def code_small(
    device: KernelDevice, values: DeviceArray, header: Header, limits: tuple[float, ...], group: FrameGroup
) -> Coded:
    """Code the segments of a group, of which `values` are the real numbers."""
    rules = launches.rules(header, limits)
    return code_numbers(
        device, values, header.dtype, rules, group, lay_out(device, values, header, group, rules)
    )


def code_numbers(
    device: KernelDevice, values: DeviceArray, dtype: str, rules: Any, group: FrameGroup, plan: DeviceArray
) -> Coded:
    """The same with these rules, and a plan of the frames that the segments go to."""
    n = components(dtype)
    n_tables, n_tokens = rans.count_shape(n)
    n_tiles, parts = np.uint32(group.n_tiles), group.count * group.n_tiles
    sizes, exact, heads = part_arrays(device, n, group.count, group.n_tiles)
    counts = device.zeros(group.count * n_tables * n_tokens, "uint32")
    raw = device.zeros(group.count, "uint64")
    device.launch(
        launches.small_count(group.count, group.n_tiles), dtype, values, *group.arguments, rules,
        counts, raw, exact,
    )  # fmt: skip
    starts = device.empty(group.count * n_tables * (n_tokens + 1), "uint16")
    plans = device.empty(group.count * launches.SMALL_PLAN_WORDS, "uint32")
    tables = device.empty(group.count * rans.tables_room_bytes(n) // 4, "uint32")
    longest_log2 = np.uint32(rans.longest_log2(group.residuals))
    device.launch(
        launches.small_plan(group.count),
        dtype,
        counts,
        raw,
        n_tiles,
        longest_log2,
        starts,
        plans,
        heads,
        tables,
    )
    slots, words = device.empty(parts * slot_bytes(n) // 2, "uint16"), device.empty(parts, "uint32")
    device.launch(
        launches.small_encode(group.count, group.n_tiles), dtype, values, *group.arguments, rules,
        starts, plans, slots, words, sizes,
    )  # fmt: skip

    def pack(segment_starts: DeviceArray, frames: DeviceArray, out: DeviceArray) -> None:
        device.launch(
            launches.small_pack(group.count, group.n_tiles), dtype, slots, words, segment_starts, n_tiles,
            plans, tables, frames, out,
        )  # fmt: skip

    return Coded(group.count, group.n_tiles, plan, sizes, exact, heads, pack)
