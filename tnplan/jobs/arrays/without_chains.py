"""What a contraction on a GPU begins with where compiling its chains takes longer than doing without them.

The kernel of a chain is made for it, and compiled when it is met for the first time. A schedule of products
alone needs none, and a short contraction ends sooner with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tnplan.common.errors import InputError
from tnplan.executor.contraction.bind.chains import chains_of_one_rank
from tnplan.executor.device.selection.missing_kernels import MissingKernels
from tnplan.executor.device.selection.select import sees_gpu
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.hardware.profile import Profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.passes import pipeline
from tnplan.planner.schedule.schedule import Schedule


@dataclass(frozen=True, eq=False)
class WithoutChains:
    """A schedule of products alone, for as long as the kernels of the other one's chains are missing."""

    schedule: Schedule
    kernels: MissingKernels

    def chains_are_ready(self) -> bool:
        """Whether all kernels are compiled by now; the first call begins with them, beside what follows."""
        return self.kernels.are_ready()


def plan_without_chains(
    schedule: Schedule, path: ContractionPath, profile: Profile, options: ContractionOptions, memory: float
) -> WithoutChains | None:
    """The schedule of products alone for the same path, where all calls of it end sooner; else None."""
    if options.waits_for_kernels or options.devices > 1 or not sees_gpu():
        return None
    chains = chains_of_one_rank(schedule)
    if not chains:
        return None
    kernels = MissingKernels(chains, schedule.dtype, profile.fused_bytes, options.gpu or 0)
    saved_s = kernels.wait_s
    if saved_s == 0 or not kernels.may_compile:
        return None
    try:
        plain = pipeline.plan(
            path, replace(profile, fused_bytes=0), memory_bytes=memory, precision=options.precision
        )
    except InputError:  # products alone need more memory
        return None
    lost_s = options.calls * (plain.projected_s(1) - schedule.projected_s(1))
    return WithoutChains(plain, kernels) if lost_s < saved_s else None
