"""The planner from end to end: the passes in order, and the retries that meet a memory limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import inf

from tnplan.planner.common.checks import check_count
from tnplan.planner.common.errors import InputError, OverLimitError
from tnplan.planner.common.units import size_text
from tnplan.planner.hardware.compression_options import Compression
from tnplan.planner.hardware.cost import CostModel, make_grid, memory_limit
from tnplan.planner.hardware.group_sizes import group_sizes
from tnplan.planner.hardware.process_grid import Grid
from tnplan.planner.hardware.profile import Profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.passes.fusion.chunk_exchanges import Overlaps, overlap
from tnplan.planner.passes.fusion.fuse import EXTENTS_OF_FUSION, Fusion, fuse
from tnplan.planner.passes.lowering.attempt import Attempt
from tnplan.planner.passes.lowering.buffer_assignment import assign
from tnplan.planner.passes.lowering.emit_schedule import assemble
from tnplan.planner.passes.lowering.extend_lifetimes import apart
from tnplan.planner.passes.lowering.lower import lower
from tnplan.planner.passes.lowering.settle_overlap import beside
from tnplan.planner.passes.lowering.spill import store
from tnplan.planner.passes.lowering.work_estimate import divided_s, seconds_alone
from tnplan.planner.passes.sharding import policies
from tnplan.planner.passes.sharding.assign_digits import place
from tnplan.planner.passes.sharding.by_tier import distribute_by_tier
from tnplan.planner.passes.sharding.search import DoesNotFit, distribute, step_modes
from tnplan.planner.passes.sharding.states import StateSpace
from tnplan.planner.passes.tree.build import Tree, build
from tnplan.planner.passes.tree.hoist_invariants import Loops
from tnplan.planner.passes.tree.loop_levels import Nesting
from tnplan.planner.passes.tree.lower_bounds import LeastSeconds, step_over, step_without_room
from tnplan.planner.passes.tree.mode_order import reorder
from tnplan.planner.passes.verify.verify import verify
from tnplan.planner.schedule.schedule import Schedule

PAPER_THRESHOLD_BYTES = 8 * 2**30
OURS_BELOW_PAPER = 128
BY_TIER = "ours, tier by tier"
IN_STAYS = "ours, tier by tier, in stays"
MEMORY_TRIES = 6
SHARES_OF_ROOM = (1.25, 0.98, 0.7, 0.0)
"""Of the memory of all ranks, what the largest step and all that is held for other parts may first take, and
then: more than all, since chains may work in place."""
BEYOND = 2.5
"""The same, where no step has a limit of its own: what is larger may lie between the steps of a chain."""
WORTH_PLANNING = 0.05
"""A larger group is planned only where it could save this share of the time."""
LARGEST_WORLD = 2**24
MOST_SLICES, MOST_WORK = 2**512, 2**960
"""Beyond, times and operations of all slices leave the range of floating point."""


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
) -> Schedule:
    """Plan the distributed contraction of a path on `devices` devices.

    `ranks_per_group` ranks work on a slice together (default: the divisor of `devices`, or smaller power of
    two, with the least predicted time of all slices). `memory_bytes` limits all bytes of a rank (default:
    the profile's; infinity for no limit). A step with a tensor of `threshold_bytes` or more, over all ranks,
    is large and may be distributed (default: 8 GiB or a quarter of the memory for the paper's policy, a
    128th of that for ours, which distributes only where it is faster). With `compression` exchanges are
    compressed where that is predicted to be faster, and tensors that wait where memory is short. Without
    `share` every slice makes all that any index of it touches. Raises InputError if nothing fits.
    """
    devices = check_count("--devices", devices, 1, LARGEST_WORLD)
    if policy not in policies.POLICIES:
        raise InputError(
            "--policy", f"{policy!r} is unknown", f"choose one of {', '.join(policies.POLICIES)}"
        )
    if ranks_per_group is not None:
        check_count("--ranks-per-group", ranks_per_group, 1, devices)
    planner = Planner(path, profile, memory_bytes, threshold_bytes, precision, compression, share)
    if ranks_per_group is not None:
        return planner.plan(ranks_per_group, policy, devices // ranks_per_group)
    best: Schedule | None = None
    best_s = inf
    refusal: InputError | None = None
    for size in group_sizes(devices, path.n_slices):
        if planner.estimated_s(devices, size) >= best_s * (1 - WORTH_PLANNING):
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
        self,
        path: ContractionPath,
        profile: Profile,
        memory_bytes: float | None = None,
        threshold_bytes: int | None = None,
        precision: str | None = None,
        compression: Compression | None = None,
        share: bool = True,
    ) -> None:
        if path.n_slices > MOST_SLICES:
            raise InputError(
                path.name or "the path",
                f"has about 2^{path.n_slices.bit_length() - 1} slices, too many for any figure of them",
                "search a path with a larger limit, or slice fewer indices",
            )
        self.path, self.profile = path, profile
        self.model = CostModel(profile, path.dtype, precision, compression)
        self.limit_bytes = memory_limit(profile, memory_bytes)
        if threshold_bytes is not None:
            check_count("--threshold", threshold_bytes)
        self.threshold_bytes = threshold_bytes
        self.tree = build(path)
        self.orders = reorder(self.tree)
        self.loops = Loops(self.tree, path.sliced_inds, path.network.size_dict)
        if self.loops.work_unshared > MOST_WORK:
            raise InputError(
                path.name or "the path",
                f"has about 2^{self.loops.work_unshared.bit_length() - 1} operations, too many for any "
                "figure of them",
                "search a path with fewer",
            )
        shares = SHARES_OF_ROOM if share else (0.0,)
        # More than there is room for may fit where chains work in place.
        optimistic = self.model.fused_elements and compression is None
        self._least = LeastSeconds(self.tree, self.model, self.loops)
        self._nestings: dict[tuple[int, int], tuple[Nesting, ...]] = {}
        self.shares_of_room = tuple(part for part in shares if optimistic or part <= 1)

    def least_s(self, devices: int, ranks: int) -> float:
        """What no plan for groups of `ranks` ranks undercuts on `devices` devices."""
        return self._least.of(ranks, devices // ranks)

    def estimated_s(self, devices: int, ranks: int) -> float:
        """About what a plan for groups of `ranks` ranks takes on `devices` devices at best."""
        nesting, alone_s = self._alone
        return divided_s(alone_s, nesting, devices, ranks)

    @cached_property
    def _alone(self) -> tuple[Nesting, tuple[float, float]]:
        """The nesting of the least work where memory is no limit, and the seconds of one rank with it."""
        nesting = self.loops.nesting(inf if any(self.shares_of_room) else 0.0)
        tree = replace(self.tree, nesting=nesting)
        program = self._attempt(tree, (), "ours", inf, self._threshold("ours"), inf).program
        return nesting, seconds_alone(program, nesting, self.profile.launch_s)

    def nestings(self, ranks: int, groups: int) -> tuple[Nesting, ...]:
        """The nestings that a plan is tried with: it depends on the number of groups by these alone."""
        if all(nesting.n_slices % groups == 0 for nesting in self.loops.endless):
            groups = 1  # which share slices as evenly
        if (ranks, groups) not in self._nestings:
            room = ranks * self.limit_bytes / self.model.item_bytes
            shares = (BEYOND, *self.shares_of_room)
            found = [self.loops.nesting(share * room if share else 0.0, groups) for share in shares]
            self._nestings[ranks, groups] = tuple(found)
        return self._nestings[ranks, groups]

    def fits(self, ranks: int, policy: str = "ours", groups: int = 1) -> bool:
        """Whether `plan` makes a schedule. Asks for one that fits, not for the fastest."""
        if step_without_room(self.tree, self.model, self.limit_bytes, ranks) is not None:
            return False
        ways = {self.nestings(ranks, some): some for some in (groups, 1)}
        return any(self._any_fits(ranks, policy, some) for some in ways.values())

    def _any_fits(self, ranks: int, policy: str, groups: int) -> bool:
        try:
            self._fit(ranks, policy, groups, self.shares_of_room)
        except InputError:
            return policy == "ours" and self._beyond(ranks, groups) is not None
        return True

    def plan(self, ranks: int, policy: str = "ours", groups: int = 1) -> Schedule:
        """The schedule of one group of `ranks` ranks, where `groups` of them share the slices.

        Where the parts that suit so many groups do not fit, they are those that suit one.
        """
        self._refuse_hopeless(ranks)
        try:
            attempt = self._fastest(ranks, policy, groups)
        except InputError:
            if self.nestings(ranks, groups) == self.nestings(ranks, 1):
                raise
            attempt = self._fastest(ranks, policy, 1)
        schedule = self._schedule(attempt, ranks, policy)
        verify(schedule)
        return schedule

    def _fastest(self, ranks: int, policy: str, groups: int) -> Attempt:
        """The fastest attempt, be it one beyond the memory that parts may take otherwise."""
        beyond = self._beyond(ranks, groups) if policy == "ours" else None
        try:
            attempt = self._best(ranks, policy, groups)
        except InputError:
            if beyond is None:
                raise
            return beyond
        return beyond if beyond is not None and beyond.total_s < attempt.total_s else attempt

    def _schedule(self, attempt: Attempt, ranks: int, policy: str) -> Schedule:
        return assemble(
            self.path, self.profile, self.model, self.tree, self.limit_bytes, attempt, ranks, policy
        )

    def _beyond(self, ranks: int, groups: int) -> Attempt | None:
        """An attempt with parts for which there is room only where chains work in place, if it fits."""
        if self.shares_of_room[0] <= 1 or self.limit_bytes == inf:
            return None
        room = ranks * self.limit_bytes / self.model.item_bytes
        nesting = self.loops.nesting(BEYOND * room, groups)
        if ranks > 1 and nesting == self.loops.nesting(self.shares_of_room[0] * room, groups):
            return None
        tree, grid = replace(self.tree, nesting=nesting), make_grid(ranks, self.profile)
        attempt = self._attempt(tree, grid, "ours", inf, self._threshold("ours"), self.limit_bytes)
        return attempt if attempt.arena.size_bytes <= self.limit_bytes else None

    def _best(self, ranks: int, policy: str, groups: int) -> Attempt:
        """The attempt of a policy, under a limit for each step.

        Ours takes the paper's plan, or one made tier by tier, where that is faster; these have no more parts
        than there was room for in ours. The one in stays is tried once, with the parts of the best.
        """
        attempt, shares = self._fit(ranks, policy, groups, self.shares_of_room)
        if policy == "ours" and ranks > 1 and any(step.state != "local" for step in attempt.program.steps):
            several_tiers = len({digit.tier for digit in attempt.grid}) > 1
            for other_policy in ("paper", BY_TIER) if several_tiers else ("paper",):
                try:
                    other, _ = self._fit(ranks, other_policy, groups, shares)
                except InputError:
                    continue
                attempt = min(attempt, other, key=lambda item: item.total_s)
            if several_tiers:
                tree = replace(self.tree, nesting=attempt.nesting)
                in_stays = self._fit_at_once(tree, ranks, IN_STAYS)
                if in_stays is not None and in_stays.total_s < attempt.total_s:
                    attempt = in_stays
        return attempt

    def _fit(
        self, ranks: int, policy: str, groups: int, shares: Sequence[float]
    ) -> tuple[Attempt, Sequence[float]]:
        """As `_fit_nested`, with the parts that save most, or fewer where what they hold does not fit.

        `shares` of the memory are tried in turn; those from the one that fits on come with the attempt.
        """
        tried: list[Nesting] = []
        for number, share in enumerate(shares):
            room = share * ranks * self.limit_bytes / self.model.item_bytes if share else 0.0
            nesting = self.loops.nesting(room, groups)
            if nesting in tried:
                continue
            tree = replace(self.tree, nesting=nesting)
            if share > 1:
                attempt = self._fit_at_once(tree, ranks, policy)
                if attempt is not None:
                    return attempt, shares[number:]
                continue
            tried.append(nesting)
            try:
                return self._fit_nested(tree, ranks, policy), shares[number:]
            except InputError:
                if len(nesting.places) <= 2:
                    raise
        raise AssertionError("the last share has room for no part")

    def _fit_at_once(self, tree: Tree, ranks: int, policy: str) -> Attempt | None:
        """The first attempt, if its arena fits without tensors stored compressed."""
        grid = make_grid(ranks, self.profile)
        limit_bytes, threshold_bytes = self.limit_bytes, self._threshold(policy)
        try:
            attempt = self._attempt(tree, grid, policy, limit_bytes, threshold_bytes, limit_bytes)
        except DoesNotFit:
            return None
        return attempt if attempt.arena.size_bytes <= limit_bytes else None

    def _fit_nested(self, tree: Tree, ranks: int, policy: str) -> Attempt:
        """The fastest attempt whose arena fits the memory: as it is, or with tensors stored compressed."""
        asked = self.model.compression or Compression()
        found: list[Attempt] = []
        refusals: list[InputError] = []
        for storing in (False,) if asked.store is None else (False, True):
            compressing = storing or asked.exchange is not None
            try:
                limit_bytes = self._arena_limit(compressing)
                found.append(self._fit_storing(tree, ranks, policy, limit_bytes, storing))
            except OverLimitError as refusal:
                refusals.append(self._with_workspace(refusal) if compressing else refusal)
            except InputError as refusal:
                refusals.append(refusal)
        if not found:
            raise refusals[-1]
        return min(found, key=lambda attempt: attempt.total_s)

    def _arena_limit(self, compressing: bool) -> float:
        """The bytes that the arena may take: what a codec needs beside it is left free."""
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

    def _fit_storing(self, tree: Tree, ranks: int, policy: str, limit_bytes: float, storing: bool) -> Attempt:
        """An attempt whose arena fits `limit_bytes`; `storing`: if it must, with tensors stored compressed.

        Where no step may hold more than fits, all may be refused although fused chains never store what is
        too large; so the last attempt is one without a limit for each step.
        """
        grid = make_grid(ranks, self.profile)
        try:
            return self._fit_steps(tree, grid, ranks, policy, limit_bytes, storing)
        except InputError:
            if not self.model.fused_elements:
                raise
            attempt = self._attempt(tree, grid, policy, inf, self._threshold(policy), limit_bytes, storing)
            if attempt.arena.size_bytes > limit_bytes:
                raise
            return attempt

    def _fit_steps(
        self, tree: Tree, grid: Grid, ranks: int, policy: str, limit_bytes: float, storing: bool
    ) -> Attempt:
        """Plan under ever tighter limits a step until the arena of the whole program fits the memory."""
        step_limit, threshold = limit_bytes, self._threshold(policy)
        given = self.threshold_bytes is not None
        space = StateSpace(self.tree, grid, self.model, limit_bytes)
        hopeless = step_over(self.tree, space.size_bytes, ranks * limit_bytes)
        if hopeless is not None:
            raise DoesNotFit(hopeless).error(self.tree, space, ranks)
        closest: Attempt | None = None
        for _ in range(MEMORY_TRIES):
            try:
                attempt = self._attempt(tree, grid, policy, step_limit, threshold, limit_bytes, storing)
            except DoesNotFit as refusal:
                if given or threshold <= 1:
                    refused = closest.refusal(limit_bytes, ranks) if closest else None
                    raise refused or refusal.error(self.tree, space, ranks) from None
                threshold = max(threshold // 8, 1)
                continue
            if attempt.arena.size_bytes <= limit_bytes:
                return attempt
            if closest is None or attempt.arena.size_bytes < closest.arena.size_bytes:
                closest = attempt
            step_limit *= max(0.5, 0.98 * limit_bytes / attempt.arena.size_bytes)
            if not given:
                threshold = max(threshold // 4, 1)
        if closest is None:
            raise DoesNotFit(
                max(range(self.tree.n_leaves, self.tree.n_nodes), key=space.size_bytes.__getitem__)
            ).error(self.tree, space, ranks)
        raise closest.refusal(limit_bytes, ranks)

    def _refuse_hopeless(self, ranks: int) -> None:
        """Raise OverLimitError where it is sure without any attempt that none fits."""
        node = step_without_room(self.tree, self.model, self.limit_bytes, ranks)
        if node is not None:
            space = StateSpace(self.tree, make_grid(ranks, self.profile), self.model, self.limit_bytes)
            raise DoesNotFit(node).error(self.tree, space, ranks)

    def _threshold(self, policy: str) -> int:
        if self.threshold_bytes is not None:
            return self.threshold_bytes
        default = min(PAPER_THRESHOLD_BYTES, self.limit_bytes / 4)
        return max(int(default if policy == "paper" else default / OURS_BELOW_PAPER), 1)

    def _attempt(
        self, tree: Tree, grid: Grid, policy: str, limit_bytes: float, threshold_bytes: int,
        arena_bytes: float, storing: bool = False,
    ) -> Attempt:  # fmt: skip
        """One pass through all passes: `limit_bytes` is for each step, `arena_bytes` for what is fused."""
        paper = policy == "paper"
        searched = StateSpace(tree, grid, self.model, limit_bytes, whole_exchange=paper)
        steps = step_modes(tree, self.orders, self.model.item_bytes, threshold_bytes)
        if policy in (BY_TIER, IN_STAYS):
            chosen = distribute_by_tier(tree, grid, searched, steps, policy == IN_STAYS)
        else:
            chosen = distribute(tree, searched, steps, policies.paper if paper else policies.ours)
        space = StateSpace(tree, grid, self.model, inf)
        placed = place(tree, grid, space, chosen)
        attempts = []
        tried: list[Fusion] = []
        for extent in EXTENTS_OF_FUSION:
            fusion = fuse(tree, self.orders, grid, space, chosen, placed, extent)
            in_place = extent.endswith("in place")
            if fusion in tried or (in_place and (storing or not fusion.in_place)):
                continue
            tried.append(fusion)
            moved = {node: found.modes for node, found in fusion.in_place.items()}
            orders = tuple(moved.get(node, own) for node, own in enumerate(self.orders))
            whole = Overlaps(orders, {})
            in_parts = whole
            if not fusion.in_place:
                in_parts = overlap(tree, orders, grid, space, chosen, placed, fusion)
            # What is exchanged in parts is made last of its step's operands, which may need more memory, and
            # yet more where its small tensors have places of their own.
            tries = ((in_parts, True), (in_parts, False), (whole, False))
            for overlaps, alone in tries if in_parts.by_node else tries[-1:]:
                lowered = lower(tree, overlaps, grid, space, chosen, placed, fusion)
                if alone:
                    lowered.lifetimes = apart(lowered)
                arena = assign(lowered.lifetimes, lowered.in_place)
                if storing and arena.size_bytes > arena_bytes:
                    lowered, arena = store(lowered, self.model, arena_bytes) or (lowered, arena)
                program = beside(lowered, arena)
                attempt = Attempt(tree.nesting, grid, chosen, program, arena, threshold_bytes)
                if arena.size_bytes <= arena_bytes:
                    return attempt
                attempts.append(attempt)
        return min(attempts, key=lambda attempt: attempt.arena.size_bytes)
