"""The planner from end to end: the passes in order, and the ladder of attempts that meets a memory limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from math import inf

from tnplan.common.checks import check_count
from tnplan.common.errors import InputError, OverLimitError
from tnplan.common.units import size_text
from tnplan.planner.hardware.compression_options import Compression
from tnplan.planner.hardware.cost import CostModel, make_grid, memory_limit
from tnplan.planner.hardware.group_sizes import group_sizes
from tnplan.planner.hardware.profile import Profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.passes.context_passes import (
    assign_buffers,
    choose_sharding,
    cut_exchanges,
    emit_program,
    fuse_steps,
    place_modes,
    settle_exchanges,
)
from tnplan.planner.passes.fusion.fuse import EXTENTS_OF_FUSION, Fusion
from tnplan.planner.passes.ladder import (
    BY_TIER,
    HOISTED_SHARES,
    PERSISTENT,
    UNLIMITED_SHARE,
    Rung,
    ladder,
)
from tnplan.planner.passes.lowering.emit_schedule import emit_schedule
from tnplan.planner.passes.lowering.plan_context import Limits, PlanContext, Variant
from tnplan.planner.passes.lowering.work_estimate import divided_s, seconds_alone
from tnplan.planner.passes.sharding import policies
from tnplan.planner.passes.sharding.search import DoesNotFit
from tnplan.planner.passes.sharding.sharded_tree import ShardedTree
from tnplan.planner.passes.sharding.states import StateSpace
from tnplan.planner.passes.tree.build import build
from tnplan.planner.passes.tree.hoist_invariants import InvariantHoisting
from tnplan.planner.passes.tree.loop_levels import LoopNest
from tnplan.planner.passes.tree.lower_bounds import LeastSeconds, over_limit, step_over, step_without_room
from tnplan.planner.passes.tree.mode_order import mode_orders
from tnplan.planner.passes.verify.verify import verify
from tnplan.planner.schedule.schedule import Schedule

Pass = Callable[[PlanContext], PlanContext]

PAPER_THRESHOLD_BYTES = 8 * 2**30
"""Bytes of a tensor over all ranks from which the paper's policy distributes a step, at most."""
PAPER_THRESHOLD_OVER_OURS = 128
"""Ours distributes from this many times smaller tensors on, where that is faster."""
LEAST_SAVING_OF_A_GROUP = 0.05
"""A larger group is planned only where it could save this share of the time."""
LARGEST_WORLD = 2**24
"""Devices that a plan may be for, at most."""
MOST_SLICES, MOST_WORK = 2**512, 2**960
"""Beyond, times and operations of all slices leave the range of floating point."""


SHARDING: tuple[Pass, ...] = (choose_sharding, place_modes)
FUSION: tuple[Pass, ...] = (fuse_steps,)
CHUNKING: tuple[Pass, ...] = (cut_exchanges,)
LOWERING: tuple[Pass, ...] = (emit_program, assign_buffers, settle_exchanges)
"""The passes of an attempt, in order. Passes 1 and 2, `build` and `mode_orders`, are the same for all."""


def run(passes: Iterable[Pass], context: PlanContext) -> PlanContext:
    """The context after some passes, one after the other."""
    for one in passes:
        context = one(context)
    return context


def attempt(context: PlanContext) -> PlanContext:
    """All passes, and those from fusion on again in variants that need less memory until the arena fits.

    The variant that fits first, or else needs least. What is exchanged in chunks is made last of its step's
    operands, which may need more memory, and yet more where small tensors around it live longer.
    """
    spilled = context.variant.spilled
    context = run(SHARDING, context)
    found: list[PlanContext] = []
    tried: list[Fusion] = []
    for extent in EXTENTS_OF_FUSION:
        fused = run(FUSION, replace(context, variant=Variant(extent, spilled=spilled)))
        in_place = extent.endswith("in place")
        if fused.fusion in tried or (in_place and (spilled or not fused.fusion.in_place)):
            continue
        tried.append(fused.fusion)
        chunked = run(CHUNKING, fused)
        whole = run(CHUNKING, replace(fused, variant=Variant(extent, False, False, spilled)))
        variants = [whole]
        if chunked.exchanges.by_node:
            variants = [chunked, replace(chunked, variant=Variant(extent, True, False, spilled)), whole]
        for variant in variants:
            found.append(run(LOWERING, variant))
            if found[-1].fits:
                return found[-1]
    return min(found, key=lambda one: one.arena.size_bytes)


def plan(
    path: ContractionPath,
    profile: Profile,
    *,
    devices: int = 1,
    ranks_per_group: int | None = None,
    memory_bytes: float | None = None,
    threshold_bytes: int | None = None,
    precision: str | None = None,
    policy: str = "ours",
    compression: Compression | None = None,
    share: bool = True,
    goes_back: bool = False,
) -> Schedule:
    """Plan the distributed contraction of a path on `devices` devices.

    `ranks_per_group` ranks work on a slice together (default: the divisor of `devices`, or smaller power of
    two, with the least predicted time of all slices). `memory_bytes` limits all bytes of a rank (default:
    the profile's; infinity for no limit). A step with a tensor of `threshold_bytes` or more, over all ranks,
    is large and may be distributed (default: 8 GiB or a quarter of the memory for the paper's policy, a
    128th of that for ours, which distributes only where it is faster). With `compression` exchanges are
    compressed where that is predicted to be faster, and tensors that wait where memory is short. Without
    `share` every slice makes all that any index of it touches. With `goes_back` there is a backward pass
    through every step, for gradients: no index is summed within a slice, and chains are short. Raises
    InputError if nothing fits.
    """
    devices = check_count("--devices", devices, 1, LARGEST_WORLD)
    if policy not in policies.POLICIES:
        raise InputError(
            "--policy", f"{policy!r} is unknown", f"choose one of {', '.join(policies.POLICIES)}"
        )
    if ranks_per_group is not None:
        check_count("--ranks-per-group", ranks_per_group, 1, devices)
    limits = memory_bytes, threshold_bytes
    planner = Planner(path, profile, *limits, precision, compression, share, goes_back)
    if ranks_per_group is not None:
        return planner.plan(ranks_per_group, policy, devices // ranks_per_group)
    best: Schedule | None = None
    best_s = inf
    refusal: InputError | None = None
    for size in group_sizes(devices, path.n_slices):
        least_s = best_s * (1 - LEAST_SAVING_OF_A_GROUP)
        if best is not None and planner.estimated_s(devices, size) >= least_s:
            continue
        try:
            schedule = planner.plan(size, policy, devices // size)
        except InputError as error:
            refusal = error
            continue
        if size > 1 and all(step.state == "local" for step in schedule.steps):
            schedule = planner.plan(1, policy, devices)  # every rank would do the same work
        time_s = schedule.projected_s(devices // schedule.ranks_per_group)
        if time_s < best_s:
            best, best_s = schedule, time_s
    if best is None:
        assert refusal is not None
        raise refusal
    return best


class Planner:
    """Plans one path on one machine for several group sizes; tree and mode order are worked out once."""

    def __init__(
        self, path: ContractionPath, profile: Profile, memory_bytes: float | None = None,
        threshold_bytes: int | None = None, precision: str | None = None,
        compression: Compression | None = None, share: bool = True, goes_back: bool = False,
    ) -> None:  # fmt: skip
        if path.n_slices > MOST_SLICES:
            raise InputError(
                path.name or "the path",
                f"has about 2^{path.n_slices.bit_length() - 1} slices, too many for any figure of them",
                "search a path with a larger limit, or slice fewer indices",
            )
        self.path, self.profile = path, profile
        self.model = CostModel(profile, path.dtype, precision, compression, goes_back)
        self.limit_bytes = memory_limit(profile, memory_bytes)
        if threshold_bytes is not None:
            check_count("--threshold", threshold_bytes)
        self.threshold_bytes = threshold_bytes
        self.tree = build(path)
        self.orders = mode_orders(self.tree)
        sliced, sizes = path.sliced_inds, path.network.size_dict
        self.loops = InvariantHoisting(self.tree, sliced, sizes, early_sums=not goes_back)
        if self.loops.work_unshared > MOST_WORK:
            raise InputError(
                path.name or "the path",
                f"has about 2^{self.loops.work_unshared.bit_length() - 1} operations, too many for any "
                "figure of them",
                "search a path with fewer",
            )
        shares = HOISTED_SHARES if share else (0.0,)
        # More than there is room for may fit where chains work in place.
        optimistic = self.model.fused_elements and compression is None
        self._least = LeastSeconds(self.tree, self.model, self.loops)
        self._loop_nests: dict[tuple[int, int], tuple[LoopNest, ...]] = {}
        self.hoisted_shares = tuple(own for own in shares if optimistic or own <= 1)

    def least_s(self, devices: int, ranks: int) -> float:
        """What no plan for groups of `ranks` ranks undercuts on `devices` devices."""
        return self._least.of(ranks, devices // ranks)

    def estimated_s(self, devices: int, ranks: int) -> float:
        """About what a plan for groups of `ranks` ranks takes on `devices` devices at best."""
        loop_nest, alone_s = self._alone
        return divided_s(alone_s, loop_nest, devices, ranks)

    @cached_property
    def _alone(self) -> tuple[LoopNest, tuple[float, float]]:
        """The loop nest of the least work where memory is no limit, and the seconds of one rank with it."""
        loop_nest = self.loops.loop_nest(inf if any(self.hoisted_shares) else 0.0)
        context = self.context(loop_nest, 1, Rung("ours", 1.0, step_limited=False), inf)
        return loop_nest, seconds_alone(attempt(context).program, loop_nest, self.profile.launch_s)

    def _loop_nest(self, share: float, ranks: int, groups: int) -> LoopNest:
        """The loop nest that saves most work in a share of the memory of all ranks of a group."""
        room = share * (ranks * self.limit_bytes / self.model.item_bytes) if share else 0.0
        return self.loops.loop_nest(room, groups)

    def loop_nests(self, ranks: int, groups: int) -> tuple[LoopNest, ...]:
        """The loop nests that a plan is tried with: it depends on the number of groups by these alone."""
        if all(loop_nest.n_slices % groups == 0 for loop_nest in self.loops.unlimited):
            groups = 1  # which share slices as evenly
        if (ranks, groups) not in self._loop_nests:
            shares = (UNLIMITED_SHARE, *self.hoisted_shares)
            self._loop_nests[ranks, groups] = tuple(self._loop_nest(share, ranks, groups) for share in shares)
        return self._loop_nests[ranks, groups]

    def fits(self, ranks: int, policy: str = "ours", groups: int = 1) -> bool:
        """Whether `plan` makes a schedule. Asks for one that fits, not for the fastest."""
        if step_without_room(self.tree, self.model, self.limit_bytes, ranks) is not None:
            return False
        ways = {self.loop_nests(ranks, some): some for some in (groups, 1)}
        return any(self._any_fits(ranks, policy, some) for some in ways.values())

    def _any_fits(self, ranks: int, policy: str, groups: int) -> bool:
        try:
            self._climb(policy, self.hoisted_shares, ranks, groups)
        except InputError:
            return policy == "ours" and self._unlimited(ranks, groups) is not None
        return True

    def plan(self, ranks: int, policy: str = "ours", groups: int = 1) -> Schedule:
        """The schedule of one group of `ranks` ranks, where `groups` of them share the slices.

        Where the loop nests that suit so many groups do not fit, they are those that suit one.
        """
        self._refuse_hopeless(ranks)
        try:
            found = self._fastest(ranks, policy, groups)
        except InputError:
            if self.loop_nests(ranks, groups) == self.loop_nests(ranks, 1):
                raise
            found = self._fastest(ranks, policy, 1)
        schedule = emit_schedule(found, policy)
        verify(schedule)
        return schedule

    def _fastest(self, ranks: int, policy: str, groups: int) -> PlanContext:
        """The fastest plan: ours may also be one that steps have no limit in."""
        unlimited = self._unlimited(ranks, groups) if policy == "ours" else None
        if unlimited is not None and ranks == 1 and self._is_found_first(unlimited, groups):
            return unlimited
        try:
            found = self._best_policy(ranks, policy, groups)
        except InputError:
            if unlimited is None:
                raise
            return unlimited
        return unlimited if unlimited is not None and unlimited.total_s < found.total_s else found

    def _is_found_first(self, found: PlanContext, groups: int) -> bool:
        """Whether the first rung of one rank gives the plan that was found without a limit for each step."""
        first_share, *_ = self.hoisted_shares
        is_same_nest = found.loop_nest == self._loop_nest(first_share, 1, groups)
        over = step_over(self.tree, found.sharded.space.size_bytes, self.limit_bytes)
        return is_same_nest and over is None and self.model.compression is None

    def _unlimited(self, ranks: int, groups: int) -> PlanContext | None:
        """A plan with loop-invariant tensors for which there is room only where chains work in place."""
        most, *_ = self.hoisted_shares
        if most <= 1 or self.limit_bytes == inf:
            return None
        loop_nest = self._loop_nest(UNLIMITED_SHARE, ranks, groups)
        if ranks > 1 and loop_nest == self._loop_nest(most, ranks, groups):
            return None
        return self._try(loop_nest, ranks, Rung("ours", UNLIMITED_SHARE, step_limited=False))

    def _best_policy(self, ranks: int, policy: str, groups: int) -> PlanContext:
        """The plan of a policy, under a limit for each step.

        Ours takes the paper's plan, or one made tier by tier, where that is faster; these have no more loop
        levels than there was room for in ours. The one with persistent shardings is tried once, with the
        loop nest of the best.
        """
        found, shares = self._climb(policy, self.hoisted_shares, ranks, groups)
        if policy != "ours" or ranks == 1 or all(step.state == "local" for step in found.program.steps):
            return found
        several_tiers = len({digit.tier for digit in found.sharded.grid}) > 1
        for other_policy in ("paper", BY_TIER) if several_tiers else ("paper",):
            try:
                other, _ = self._climb(other_policy, shares, ranks, groups)
            except InputError:
                continue
            found = min(found, other, key=lambda one: one.total_s)
        if several_tiers:
            persistent = self._try(found.loop_nest, ranks, Rung(PERSISTENT, 1.0))
            if persistent is not None and persistent.total_s < found.total_s:
                found = persistent
        return found

    def _climb(
        self, policy: str, shares: Sequence[float], ranks: int, groups: int
    ) -> tuple[PlanContext, Sequence[float]]:
        """The fastest plan at the first share of the memory at which one fits, and the shares from there on.

        Of the rungs that spill, and of those that do not, the first that fits counts.
        """
        asked = self.model.compression or Compression()
        spills = (False,) if asked.store is None else (False, True)
        tried: list[LoopNest] = []
        rungs = ladder(policy, shares, spills, bool(self.model.fused_elements))
        for share, of_share in groupby(rungs, key=lambda rung: rung.share):
            loop_nest = self._loop_nest(share, ranks, groups)
            if loop_nest in tried:
                continue
            found: list[PlanContext] = []
            refusals: list[InputError] = []
            for _, ways in groupby(of_share, key=lambda rung: rung.spilled):
                try:
                    found.append(self._first_fit(loop_nest, ranks, tuple(ways)))
                except InputError as refusal:
                    refusals.append(refusal)
            if found:
                return min(found, key=lambda one: one.total_s), shares[shares.index(share) :]
            if share <= 1:
                tried.append(loop_nest)
                if len(loop_nest.levels) <= 2:
                    raise refusals[-1]
        raise AssertionError("the last share has room for no loop level")

    def _first_fit(self, loop_nest: LoopNest, ranks: int, rungs: Sequence[Rung]) -> PlanContext:
        """The plan of the first rung that fits; the refusal of the first where none does."""
        compression = self.model.compression or Compression()
        compressing = rungs[0].spilled or compression.exchange is not None
        limit_bytes = self._arena_limit(compressing)
        refused: InputError | None = None
        for rung in rungs:
            try:
                return self._fit(loop_nest, ranks, rung, limit_bytes)
            except InputError as refusal:
                refused = refused or refusal
        assert refused is not None
        raise (
            self._with_workspace(refused) if compressing and isinstance(refused, OverLimitError) else refused
        )

    def _try(self, loop_nest: LoopNest, ranks: int, rung: Rung) -> PlanContext | None:
        """The plan of a rung, if its arena fits all of the memory."""
        try:
            return self._fit(loop_nest, ranks, rung, self.limit_bytes)
        except InputError:
            return None

    def _arena_limit(self, compressing: bool) -> float:
        """The bytes that the arena may take: what a codec needs besides is left free."""
        compression = self.model.compression
        if not compressing or compression is None:
            return self.limit_bytes
        workspace_bytes = self.profile.codec(compression.setting).workspace_bytes
        if workspace_bytes >= self.limit_bytes:
            raise InputError(
                "--compress", f"takes {size_text(workspace_bytes)} beside the arena, and the limit of a rank "
                f"is {size_text(self.limit_bytes)}", "allow more memory, or leave it out",
            )  # fmt: skip
        return self.limit_bytes - workspace_bytes

    def _with_workspace(self, refusal: OverLimitError) -> OverLimitError:
        """The refusal of a plan that compresses, which says how the limit that it names came about."""
        compression = self.model.compression or Compression()
        workspace_bytes = self.profile.codec(compression.setting).workspace_bytes
        if not workspace_bytes:
            return refusal
        how = f"{size_text(self.limit_bytes)} less the codec's {size_text(workspace_bytes)}"
        return OverLimitError(refusal.place, f"{refusal.problem} ({how})", refusal.remedy)

    def _fit(self, loop_nest: LoopNest, ranks: int, rung: Rung, limit_bytes: float) -> PlanContext:
        """The plan of a rung under ever tighter limits a step, until the arena of the program fits."""
        context = self.context(loop_nest, ranks, rung, limit_bytes)
        limits, sizes = context.limits, context.sharded.space.size_bytes
        if rung.step_limited:
            hopeless = step_over(self.tree, sizes, ranks * limit_bytes)
            if hopeless is not None:
                raise over_limit(self.tree, self.model, hopeless, ranks, limit_bytes)
        closest: PlanContext | None = None
        for _ in range(rung.tries):
            threshold = limits.threshold_bytes
            try:
                found = attempt(replace(context, limits=limits))
            except DoesNotFit as refusal:
                if self.threshold_bytes is not None or threshold <= 1:
                    refused = closest.refusal if closest else None
                    none_fits = over_limit(self.tree, self.model, refusal.node, ranks, limit_bytes)
                    raise refused or none_fits from None
                limits = replace(limits, threshold_bytes=max(threshold // 8, 1))
                continue
            if found.fits:
                return found
            if closest is None or found.arena.size_bytes < closest.arena.size_bytes:
                closest = found
            limits = replace(
                limits,
                step_bytes=limits.step_bytes * max(0.5, 0.98 * limit_bytes / found.arena.size_bytes),
                threshold_bytes=threshold if self.threshold_bytes is not None else max(threshold // 4, 1),
            )
        if closest is not None:
            raise closest.refusal
        largest = max(range(self.tree.n_leaves, self.tree.n_nodes), key=sizes.__getitem__)
        raise over_limit(self.tree, self.model, largest, ranks, limit_bytes)

    def context(self, loop_nest: LoopNest, ranks: int, rung: Rung, limit_bytes: float) -> PlanContext:
        """What the passes begin with."""
        tree, grid = replace(self.tree, loop_nest=loop_nest), make_grid(ranks, self.profile)
        sharded = ShardedTree(tree, self.orders, grid, StateSpace(tree, grid, self.model, inf))
        step_bytes = limit_bytes if rung.step_limited else inf
        limits = Limits(step_bytes, limit_bytes, self.limit_bytes, self._threshold(rung.policy))
        variant = Variant(spilled=rung.spilled)
        return PlanContext(self.path, self.model, rung.policy, limits, sharded, variant)

    def _refuse_hopeless(self, ranks: int) -> None:
        """Raise OverLimitError where it is sure without any attempt that none fits."""
        node = step_without_room(self.tree, self.model, self.limit_bytes, ranks)
        if node is not None:
            raise over_limit(self.tree, self.model, node, ranks, self.limit_bytes)

    def _threshold(self, policy: str) -> int:
        if self.threshold_bytes is not None:
            return self.threshold_bytes
        default = min(PAPER_THRESHOLD_BYTES, self.limit_bytes / 4)
        return max(int(default if policy == "paper" else default / PAPER_THRESHOLD_OVER_OURS), 1)
