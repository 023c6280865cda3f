"""Compress: a schedule whose exchanges are compressed where that pays, marked after it was planned.

The layouts, the arena and the order of everything stay as they are. How tensors that wait are stored was
settled by the plan: only their bound may change. Knows times, never a codec.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tnplan.common.errors import InputError
from tnplan.planner.hardware.compression_options import PLACE, Compression, Lossy, Request, lossy
from tnplan.planner.hardware.cost import CostModel
from tnplan.planner.hardware.profile import profile_from_document
from tnplan.planner.passes.lowering.annotate import predict
from tnplan.planner.passes.sharding.states import messages_by_tier
from tnplan.planner.schedule.file import with_identity
from tnplan.planner.schedule.schedule import Instruction, Redistribute, Schedule, StepAnnotation, with_parts

Sizes = tuple[list[float], tuple[int, ...], float]
"""Bytes and messages that a rank receives, by tier, and the bytes of its shard afterwards."""


def compress_exchanges(schedule: Schedule, request: Request) -> Schedule:
    """The schedule with what is requested, under an identity of its own. Raises InputError."""
    planned = schedule.compression or Compression()
    if request.store is not None and planned.store is None:
        raise InputError(
            PLACE, "the schedule stores no tensor compressed",
            "plan it with 'tnplan plan --compress store=BOUND:RATIO'",
            topic="compressed exchanges",
        )  # fmt: skip
    compression = Compression(
        _settled(planned.exchange, request.exchange), _settled(planned.store, request.store),
        request.setting or planned.setting,
    )  # fmt: skip
    if compression == planned:
        return schedule
    if any(schedule.compressed_counts) and compression.setting != planned.setting:
        raise InputError(
            PLACE, f"the plan counts on setting={planned.setting}", "leave the setting out, or plan again"
        )
    model = CostModel(
        profile_from_document(schedule.profile, "schedule: profile"), schedule.dtype, schedule.precision,
        compression,
    )  # fmt: skip
    steps = list(schedule.steps)
    if planned.exchange is None and compression.exchange is not None:
        marked = [_marked(schedule, segment.instructions, model, steps) for segment in schedule.parts]
        schedule = with_parts(schedule, marked)
    predicted = predict(steps, schedule.predicted.peak_bytes, schedule.predicted.live_bytes)
    return with_identity(replace(schedule, compression=compression, steps=tuple(steps), predicted=predicted))


def _settled(planned: Lossy | None, pair: tuple[float, float | None] | None) -> Lossy | None:
    """What is planned with the bound that is given; its ratio is the plan's."""
    if planned is None or pair is None:
        return planned if pair is None else lossy(pair)
    if pair[1] not in (None, planned.ratio):
        raise InputError(
            PLACE, f"the plan counts on a ratio of {planned.ratio:g}", "give only the bound, or plan again"
        )
    return replace(planned, bound=pair[0])


def _marked(
    schedule: Schedule, segment: Sequence[Instruction], model: CostModel, steps: list[StepAnnotation]
) -> tuple[Instruction, ...]:
    """The instructions with their exchanges marked, and the seconds and bytes of their steps changed."""
    marked: list[Instruction] = []
    for item in segment:
        marked.append(item)
        if not isinstance(item, Redistribute) or item.workspace is None:
            continue
        if isinstance(item, Redistribute) and item.parts > 1:
            continue
        sizes = exchange_sizes(schedule, item)
        tiers = model.compressed_tiers(*sizes[:2], schedule.buffers[item.workspace].size_bytes)
        if not tiers:
            continue
        marked[-1] = replace(item, compressed=tiers)
        step = steps[item.step]
        saved_s = model.exchange_s(*sizes) - model.exchange_s(*sizes, tiers)
        moved = tuple(
            size - int(sizes[0][tier] * (1 - 1 / model.exchange_ratio)) if tier in tiers else size
            for tier, size in enumerate(step.moved_bytes_by_tier)
        )
        steps[item.step] = replace(
            step, exchange_s=step.exchange_s - saved_s, moved_bytes=sum(moved), moved_bytes_by_tier=moved
        )
    return tuple(marked)


def exchange_sizes(schedule: Schedule, item: Redistribute) -> Sizes:
    """What the busiest rank receives in an exchange, as `StateSpace.exchange` counts it, from the layouts."""
    source, out = schedule.buffers[item.source], schedule.buffers[item.out]
    grid, extents = schedule.grid, schedule.extents
    shard_bytes = float(out.size_bytes)
    n_tiers = len(schedule.profile["tiers"])
    # As `StateSpace.exchange`, from the layouts of a finished schedule: digits by class, slowest tier first.
    bytes_by_tier, peers_by_tier = [0.0] * n_tiers, [1] * n_tiers
    missing = shard_bytes
    for kind in sorted({(-digit.tier, -digit.radix) for digit in grid}):
        positions = [position for position, digit in enumerate(grid) if (-digit.tier, -digit.radix) == kind]
        added = {out.layout[position] for position in positions}
        removed = {source.layout[position] for position in positions} - added - {None}
        if not removed:
            continue
        tier, radix = -kind[0], -kind[1]
        kept_share = 0.0 if removed & set(out.layout) else 1.0
        for mode in removed:
            assert mode is not None
            kept_share *= extents[mode] // radix / extents[mode]
            peers_by_tier[tier] *= radix
        bytes_by_tier[tier] += missing * (1 - kept_share)
        missing *= kept_share
    return bytes_by_tier, messages_by_tier(peers_by_tier), shard_bytes
