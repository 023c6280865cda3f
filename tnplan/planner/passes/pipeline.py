"""The planner from end to end: the passes in order, and the fastest of the variants that fit the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from math import inf

from tnplan.common.checks import check_count
from tnplan.common.collector import collector_at_rest
from tnplan.common.errors import InputError, OverLimitError
from tnplan.common.units import size_text
from tnplan.planner.hardware.compression_options import Compression
from tnplan.planner.hardware.cost import CostModel, make_grid, memory_limit
from tnplan.planner.hardware.process_grid import group_sizes
from tnplan.planner.hardware.profile import Profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.passes.chunk_exchanges import ChunkedExchanges, chunk_exchanges
from tnplan.planner.passes.fuse import EXTENTS_OF_FUSION, Fusion, fuse
from tnplan.planner.passes.lowering.buffer_assignment import assign
from tnplan.planner.passes.lowering.lower import lower
from tnplan.planner.passes.lowering.plan_context import (
    BY_TIER,
    PERSISTENT,
    Limits,
    PlanContext,
    Variant,
    emit_schedule,
)
from tnplan.planner.passes.lowering.settle_overlap import extend_lifetimes, settle_overlap
from tnplan.planner.passes.lowering.spill import spill
from tnplan.planner.passes.sharding import policies
from tnplan.planner.passes.sharding.persistent_sharding import distribute_by_tier
from tnplan.planner.passes.sharding.search import DoesNotFit, distribute, step_modes
from tnplan.planner.passes.sharding.sharded_tree import ShardedTree, assign_digits
from tnplan.planner.passes.sharding.states import StateSpace
from tnplan.planner.passes.tree.build import build, mode_orders
from tnplan.planner.passes.tree.loop_levels import LoopNest
from tnplan.planner.passes.tree.loop_nest import InvariantHoisting
from tnplan.planner.passes.tree.lower_bounds import LeastSeconds, over_limit, step_over, step_without_room
from tnplan.planner.passes.variants import (
    HOISTED_SHARES,
    UNLIMITED_SHARE,
    VariantSpace,
    divided_s,
    fastest,
    seconds_alone,
)
from tnplan.planner.passes.verify import verify
from tnplan.planner.schedule.schedule import Schedule

Pass = Callable[[PlanContext], PlanContext]

PAPER_THRESHOLD_BYTES = 8 * 2**30
"""Bytes of a tensor over all ranks from which the paper's policy distributes a step, at most."""
PAPER_THRESHOLD_OVER_OURS = 128
"""Ours distributes from this many times smaller tensors on, where that is faster."""
LEAST_SAVING_OF_A_GROUP = 0.05
"""A larger group is planned only where it could save this share of the time."""
NEAR_ESTIMATE = 1.25
"""A first plan that takes no more than so many times the estimate is the only one."""
LARGEST_WORLD = 2**24
"""Devices that a plan may be for, at most."""
MOST_SLICES, MOST_WORK = 2**512, 2**960
"""Beyond, times and operations of all slices leave the range of floating point."""


def choose_sharding(context: PlanContext) -> PlanContext:
    """Pass 3: the state of every node. Raises DoesNotFit."""
    sharded, model, policy = context.sharded, context.model, context.variant.policy
    tree, grid, limits, paper = sharded.tree, sharded.grid, context.limits, policy == "paper"
    # The paper's policy is costed as the paper does: a redistribution shuffles the whole shard (Eq. 7).
    space = StateSpace(tree, grid, model, limits.step_bytes, whole_exchange=paper)
    steps = step_modes(tree, sharded.orders, model.item_bytes, limits.threshold_bytes)
    if policy in (BY_TIER, PERSISTENT):
        chosen = distribute_by_tier(tree, grid, space, steps, policy == PERSISTENT)
    else:
        chosen = distribute(tree, space, steps, policies.paper if paper else policies.ours)
    return replace(context, sharded=replace(sharded, distribution=chosen))


def place_modes(context: PlanContext) -> PlanContext:
    """Pass 4: the digit of the process grid that each distributed mode takes."""
    sharded = context.sharded
    placement = assign_digits(sharded.tree, sharded.grid, sharded.space, sharded.distribution)
    return replace(context, sharded=replace(sharded, placement=placement))


def fuse_steps(context: PlanContext) -> PlanContext:
    """Pass 5: the chains."""
    return replace(context, fusion=fuse(context.sharded, context.variant.fusion))


def cut_exchanges(context: PlanContext) -> PlanContext:
    """Pass 6: the exchanges that go in chunks, and the mode orders; none where chains work in place."""
    orders = context.fusion.reordered(context.sharded.orders)
    exchanges = ChunkedExchanges(orders)
    if context.variant.chunked and not context.fusion.in_place:
        exchanges = chunk_exchanges(context.sharded, context.fusion)
    return replace(context, exchanges=exchanges)


def emit_program(context: PlanContext) -> PlanContext:
    """Pass 7: flat instructions over buffers, with longer lifetimes around chunked exchanges or not."""
    program = lower(context.sharded, context.fusion, context.exchanges)
    return replace(context, program=extend_lifetimes(program) if context.variant.extended else program)


def assign_buffers(context: PlanContext) -> PlanContext:
    """Pass 8: offsets in one arena; tensors are spilled if they may be, and if the arena is too large."""
    program, limit_bytes = context.program, context.limits.arena_bytes
    arena = assign(program.lifetimes, program.in_place)
    # Compressing takes time: only where the arena does not fit without it.
    if context.variant.spilled and arena.size_bytes > limit_bytes:
        program, arena = spill(program, context.model, limit_bytes) or (program, arena)
    return replace(context, program=program, arena=arena)


def settle_exchanges(context: PlanContext) -> PlanContext:
    """Pass 9: what each chunked exchange overlaps with."""
    return replace(context, program=settle_overlap(context.program, context.arena))


# docs/explanation/architecture.md#from-path-to-schedule
SHARDING: tuple[Pass, ...] = (choose_sharding, place_modes)
FUSION: tuple[Pass, ...] = (fuse_steps,)
CHUNKING: tuple[Pass, ...] = (cut_exchanges,)
LOWERING: tuple[Pass, ...] = (emit_program, assign_buffers, settle_exchanges)
"""The passes of an attempt, in order. Passes 1 and 2, `build` and `mode_orders`, are the same for all."""


def run(passes: Iterable[Pass], context: PlanContext) -> PlanContext:
    """The context after some passes, one after the other."""
    for next_pass in passes:
        context = next_pass(context)
    return context


def programs(sharded: PlanContext) -> Iterator[PlanContext]:
    """The programs of one distribution, each with less memory and more time than those before it.

    What is exchanged in chunks is made last of its step's operands, which may need more memory, and yet more
    where small tensors around it live longer.
    """
    tried: list[Fusion] = []
    for extent in EXTENTS_OF_FUSION:
        in_place = extent.endswith("in place")
        # EXTENTS_OF_FUSION goes from the fastest program to the one of least memory. An extent that leads to
        # chains already tried is left out.
        fused = run(FUSION, replace(sharded, variant=replace(sharded.variant, fusion=extent)))
        if fused.fusion in tried or (in_place and (fused.variant.spilled or not fused.fusion.in_place)):
            continue
        tried.append(fused.fusion)
        chunked = run(CHUNKING, fused)
        # With chunks, and with longer lifetimes around them, more is hidden; both may take more memory. The
        # distribution stays, so that each of these attempts is cheap.
        if chunked.exchanges.by_node:
            yield run(LOWERING, chunked)
            chunked = replace(chunked, variant=replace(chunked.variant, extended=False))
            yield run(LOWERING, chunked)
        yield run((*CHUNKING, *LOWERING), replace(
            fused, variant=replace(fused.variant, chunked=False, extended=False)
        ))  # fmt: skip


def attempt(context: PlanContext) -> PlanContext:
    """All passes: the first program that fits, or else the one that needs least. Raises DoesNotFit."""
    too_large: list[PlanContext] = []
    for program in programs(run(SHARDING, context)):
        if program.fits:
            return program
        too_large.append(program)
    # The nearest miss: `plan_variant` takes from it by how much the limit of a step must fall.
    return min(too_large, key=lambda program: program.arena.size_bytes)


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
    # docs/explanation/architecture.md#from-path-to-schedule
    devices = check_count("--devices", devices, 1, LARGEST_WORLD)
    if policy not in policies.POLICIES:
        raise InputError("--policy", f"{policy!r} is unknown", f"choose from {', '.join(policies.POLICIES)}")
    if ranks_per_group is not None:
        check_count("--ranks-per-group", ranks_per_group, 1, devices)
    limits = memory_bytes, threshold_bytes
    with collector_at_rest():
        planner = Planner(path, profile, *limits, precision, compression, share, goes_back)
        if ranks_per_group is not None:
            return planner.plan(ranks_per_group, policy, devices // ranks_per_group)
        return _fastest_groups(planner, devices, policy)


def _fastest_groups(planner: Planner, devices: int, policy: str) -> Schedule:
    """The schedule for groups of the size with the least predicted time of all slices."""
    best: Schedule | None = None
    best_s = inf
    refusal: InputError | None = None
    # Smallest groups first: they exchange least. A larger one is planned only where its estimate, the time of
    # one rank divided evenly, gains 5 %.
    for size in group_sizes(devices, planner.path.n_slices):
        least_s = best_s * (1 - LEAST_SAVING_OF_A_GROUP)
        if best is not None and planner.estimated_s(devices, size) >= least_s:
            continue
        try:
            schedule = planner.plan(size, policy, devices // size)
        except InputError as error:
            # The last refusal is that of the largest group, which has the most memory for a slice.
            refusal = _alone(error)
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


def _alone(refusal: InputError) -> InputError:
    """A refusal without the frames that it came from: these hold whole plans, and it in turn."""
    refusal.__traceback__ = refusal.__context__ = None
    return refusal


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
                f"has about 2^{path.n_slices.bit_length() - 1} slices, more than a float can count",
                "search a path with a larger limit, or slice fewer indices",
            )
        if goes_back and set(path.sliced_inds) & set(path.network.output):
            raise InputError(
                path.name or "the path",
                "slices open indices, which is not possible for gradients",
                "search a path with a larger limit, or slice summed indices",
            )
        self.path, self.profile = path, profile
        self.model = CostModel(profile, path.dtype, precision, compression, goes_back)
        self.limit_bytes = memory_limit(profile, memory_bytes)
        if threshold_bytes is not None:
            check_count("--threshold", threshold_bytes)
        self.threshold_bytes = threshold_bytes
        # Passes 1 and 2 depend neither on devices nor on memory: done once for all variants.
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
        shares: tuple[float, ...] = HOISTED_SHARES if share else (0.0,)
        # More than all of the memory may fit where chains work in place.
        in_place = self.model.fused_elements and compression is None
        shares = tuple(portion for portion in shares if in_place or portion <= 1)
        self.space = VariantSpace(self.tree, self.model, profile, self.loops, self.limit_bytes, shares)
        self._least = LeastSeconds(self.tree, self.model, self.loops)

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
        loop_nest = self.loops.loop_nest(inf if any(self.space.shares) else 0.0)
        context = self.context(Variant(1, loop_nest, "ours", step_limited=False), inf)
        program = run((*SHARDING, *FUSION, *CHUNKING, emit_program), context).program
        return loop_nest, seconds_alone(program, loop_nest, self.profile.launch_s)

    def loop_nests(self, ranks: int, groups: int) -> tuple[LoopNest, ...]:
        """The loop nests that a plan is tried with: it depends on the number of groups by these alone."""
        return self.space.loop_nests(ranks, groups)

    def fits(self, ranks: int, policy: str = "ours", groups: int = 1) -> bool:
        """Whether `plan` makes a schedule. Asks for one that fits, not for the fastest."""
        return self._first(self.space.variants(ranks, policy, groups, {}), ranks) is not None

    def first_s(self, ranks: int, groups: int = 1, tightens: bool = True) -> float:
        """Seconds of all slices in the first likely variant that fits, mostly near those of `plan`; infinite
        where none does."""
        least_s = inf
        for variant in self.space.likely(ranks, groups, tightens):
            planned = self._first((variant,), ranks)
            if planned is not None:
                schedule = emit_schedule(planned, variant.policy)
                least_s = min(least_s, schedule.projected_s(groups))
                # What is above all memory of several ranks is mostly the fastest where it fits, not always.
                others_too = ranks > 1 and variant.share == UNLIMITED_SHARE
                if not others_too or least_s <= NEAR_ESTIMATE * self.estimated_s(ranks * groups, ranks):
                    break
        return least_s

    def _first(self, variants: Iterable[Variant], ranks: int) -> PlanContext | None:
        if step_without_room(self.tree, self.model, self.limit_bytes, ranks) is not None:
            return None
        for variant in variants:
            with suppress(InputError):
                return self.plan_variant(variant)
        return None

    def plan(self, ranks: int, policy: str = "ours", groups: int = 1) -> Schedule:
        """The schedule of one group of `ranks` ranks, where `groups` of them share the slices.

        That of the variant with the least predicted time. Raises InputError where none fits.
        """
        # A necessary bound, so that what no variant can plan is refused at once.
        node = step_without_room(self.tree, self.model, self.limit_bytes, ranks)
        if node is not None:
            raise over_limit(self.tree, self.model, node, ranks, self.limit_bytes)
        # Invariant: `plans[variant]` is written before the generator is resumed: `variants` decides by it
        # what is left to try.
        plans: dict[Variant, PlanContext] = {}
        refusal: InputError | None = None
        for variant in self.space.variants(ranks, policy, groups, plans):
            try:
                plans[variant] = self.plan_variant(variant)
            except InputError as error:
                if variant.step_limited:  # which names the step that is too large
                    refusal = _alone(self._with_workspace(error, variant))
        if not plans:
            assert refusal is not None
            raise refusal
        schedule = emit_schedule(plans[fastest(plans)], policy)
        # An independent check by code that shares nothing with the passes: no schedule leaves the planner
        # without it.
        verify(schedule)
        return schedule

    def plan_variant(self, variant: Variant) -> PlanContext:
        """The plan of a variant, under ever lower limits for a step until the arena of the program fits.

        Raises InputError where it does not fit.
        """
        limit_bytes, ranks = self._arena_limit(variant), variant.ranks
        context = self.context(variant, limit_bytes)
        limits, sizes = context.limits, context.sharded.space.size_bytes
        if variant.step_limited:
            hopeless = step_over(self.tree, sizes, ranks * limit_bytes)
            if hopeless is not None:
                raise over_limit(self.tree, self.model, hopeless, ranks, limit_bytes)
        closest: PlanContext | None = None
        for _ in range(variant.tries):
            threshold = limits.threshold_bytes
            try:
                tried = attempt(replace(context, limits=limits))
            except DoesNotFit as signal:
                # A step has no layout, unless more of the steps may be distributed.
                if self.threshold_bytes is not None or threshold <= 1:
                    refusal = closest.refusal if closest else None
                    raise refusal or over_limit(
                        self.tree, self.model, signal.node, ranks, limit_bytes
                    ) from None
                limits = replace(limits, threshold_bytes=max(threshold // 8, 1))
                continue
            if tried.fits:
                return tried
            if closest is None or tried.arena.size_bytes < closest.arena.size_bytes:
                closest = tried
            # The search bounds single steps, but the arena holds what waits as well. The limit of a step
            # falls by the ratio at which the arena missed, not below half of it, and smaller tensors may be
            # distributed.
            limits = replace(
                limits,
                step_bytes=limits.step_bytes * max(0.5, 0.98 * limit_bytes / tried.arena.size_bytes),
                threshold_bytes=threshold if self.threshold_bytes is not None else max(threshold // 4, 1),
            )
        if closest is not None:
            raise closest.refusal
        largest = max(range(self.tree.n_leaves, self.tree.n_nodes), key=sizes.__getitem__)
        raise over_limit(self.tree, self.model, largest, ranks, limit_bytes)

    def context(self, variant: Variant, limit_bytes: float) -> PlanContext:
        """What the passes begin with, where the arena may take `limit_bytes`."""
        tree, grid = replace(self.tree, loop_nest=variant.loop_nest), make_grid(variant.ranks, self.profile)
        # Costs of states are without a limit here: limits belong to the search, which has a space of its own.
        sharded = ShardedTree(tree, self.orders, grid, StateSpace(tree, grid, self.model, inf))
        step_bytes = limit_bytes if variant.step_limited else inf
        limits = Limits(step_bytes, limit_bytes, self.limit_bytes, self._threshold(variant.policy))
        return PlanContext(self.path, self.model, limits, sharded, variant)

    def _workspace_bytes(self, variant: Variant) -> int:
        """What a codec takes beside the arena, where the variant may compress."""
        compression = self.model.compression
        if compression is None or not (variant.spilled or compression.exchange is not None):
            return 0
        return self.profile.codec(compression.setting).workspace_bytes

    def _arena_limit(self, variant: Variant) -> float:
        """The bytes that the arena may take: what a codec needs besides is left free."""
        workspace_bytes = self._workspace_bytes(variant)
        if workspace_bytes >= self.limit_bytes:
            raise InputError(
                "--compress", f"takes {size_text(workspace_bytes)} beside the arena, and the limit of a rank "
                f"is {size_text(self.limit_bytes)}", "allow more memory, or leave it out",
                topic="compressed exchanges",
            )  # fmt: skip
        return self.limit_bytes - workspace_bytes

    def _with_workspace(self, refusal: InputError, variant: Variant) -> InputError:
        """A refusal; where the variant compresses it says how the limit that it names came about."""
        workspace_bytes = self._workspace_bytes(variant)
        if not workspace_bytes or not isinstance(refusal, OverLimitError):
            return refusal
        how = f"{size_text(self.limit_bytes)} less the codec's {size_text(workspace_bytes)}"
        return OverLimitError(refusal.place, f"{refusal.problem} ({how})", refusal.remedy)

    def _threshold(self, policy: str) -> int:
        if self.threshold_bytes is not None:
            return self.threshold_bytes
        default = min(PAPER_THRESHOLD_BYTES, self.limit_bytes / 4)
        return max(int(default if policy == "paper" else default / PAPER_THRESHOLD_OVER_OURS), 1)
