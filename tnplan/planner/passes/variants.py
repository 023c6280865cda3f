"""The variants in which a path may be planned, as data: every choice there is, in the order of the attempts.

| choice | values, in order | what is left out |
|---|---|---|
| ranks of a group | `group_sizes`, smallest first | what could save less than 5 % (`pipeline.plan`) |
| groups that the loops suit | those at hand; one | one, where a variant for those at hand fits |
| policy | ours; the paper's; tier by tier; with persistent shardings | all but the first without exchanges |
| memory for loop invariants | `HOISTED_SHARES` | smaller shares, where one fits |
| spilling of idle tensors | no; yes | nothing: the faster is taken |
| limit of a step | lowered up to `TIGHTENINGS` times; none | none, where one fits |
| more than all memory | `UNLIMITED_SHARE`, after all others | where it would be a variant above |
| extent of fusion | `EXTENTS_OF_FUSION` | all after the first that fits (`pipeline.programs`) |
| exchanges | in chunks, with longer lifetimes; in chunks; whole | the same |

The last two need no new distribution, so that they are tried within each of the others. Runs no pass: what
becomes of a variant, `variants` reads from a mapping that the caller fills while it iterates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from tnplan.planner.hardware.cost import CostModel, make_grid
from tnplan.planner.hardware.profile import Profile
from tnplan.planner.passes.lowering.lower import LoweredProgram
from tnplan.planner.passes.lowering.plan_context import BY_TIER, PERSISTENT, PlanContext, Variant
from tnplan.planner.passes.tree.build import Tree
from tnplan.planner.passes.tree.loop_levels import LoopNest
from tnplan.planner.passes.tree.loop_nest import InvariantHoisting
from tnplan.planner.passes.tree.lower_bounds import step_over
from tnplan.planner.schedule.schedule import Contract, Fused

TIGHTENINGS = 6
"""So often the limit of a step is lowered until the arena of the whole program fits."""
HOISTED_SHARES = (1.25, 0.98, 0.7, 0.0)
"""Of the memory of all ranks, what the largest step and all that is stored for other loop levels may take:
first more than all, since chains may work in place. The last has no level besides what is done once."""
UNLIMITED_SHARE = 2.5
"""The same, where no step has a limit of its own: what is larger may lie between the steps of a chain."""

Plans = Mapping[Variant, PlanContext]
"""The variants that fit so far, in the order in which they were tried."""


def fastest(plans: Plans) -> Variant:
    """The variant of the least predicted time; of equally fast ones, the first."""
    return min(plans, key=lambda variant: plans[variant].total_s)


@dataclass(frozen=True, eq=False)
class VariantSpace:
    """The choices for one path on one machine, with `limit_bytes` of memory a rank.

    `shares` are those of `HOISTED_SHARES` that may be tried.
    """

    tree: Tree
    model: CostModel
    profile: Profile
    loops: InvariantHoisting
    limit_bytes: float
    shares: tuple[float, ...]
    _loop_nests: dict[tuple[float, int, int], LoopNest] = field(default_factory=dict)

    def loop_nest(self, share: float, ranks: int, groups: int) -> LoopNest:
        """The loop nest that saves most work in a share of the memory of all ranks of a group."""
        key = share, ranks, groups
        if key not in self._loop_nests:
            # Elements of all ranks together: a tensor that waits is distributed like any other.
            elements = share * (ranks * self.limit_bytes / self.model.item_bytes) if share else 0.0
            self._loop_nests[key] = self.loops.loop_nest(elements, groups)
        return self._loop_nests[key]

    def loop_nests(self, ranks: int, groups: int) -> tuple[LoopNest, ...]:
        """The loop nests of all variants: they depend on the number of groups by these alone."""
        if all(loop_nest.n_slices % groups == 0 for loop_nest in self.loops.unlimited):
            groups = 1  # which share slices as evenly
        return tuple(self.loop_nest(share, ranks, groups) for share in (UNLIMITED_SHARE, *self.shares))

    def variants(self, ranks: int, policy: str, groups: int, plans: Plans) -> Iterator[Variant]:
        """All variants for `groups` groups of `ranks` ranks that are worth an attempt, one after the other.

        Before it takes the next variant the caller has put the plan of this one into `plans`, if it fits.
        Where none fits whose loop nest suits so many groups, those follow that suit one.
        """
        # docs/explanation/architecture.md#from-path-to-schedule
        yield from self._of_groups(ranks, policy, groups, plans)
        if not plans and self.loop_nests(ranks, groups) != self.loop_nests(ranks, 1):
            yield from self._of_groups(ranks, policy, 1, plans)

    def likely(self, ranks: int, groups: int, tightens: bool) -> Iterator[Variant]:
        """Variants of which the first that fits is mostly near the fastest of all.

        With `tightens` the limit of a step is lowered, which takes several attempts.
        """
        if ranks == 1:
            yield from self._of_groups(1, "ours", groups, {})
            return
        several_tiers = len({digit.tier for digit in make_grid(ranks, self.profile)}) > 1
        if several_tiers:
            yield Variant(ranks, self.loop_nest(self.shares[0], ranks, groups), PERSISTENT)
        elif (above := self._above_all_memory(ranks, groups)) is not None:
            yield above
        policy = BY_TIER if several_tiers else "ours"
        if tightens:
            yield from self._under_limit(policy, self.shares, ranks, groups, {})
            return
        for share in self.shares[:2]:
            yield Variant(ranks, self.loop_nest(share, ranks, groups), policy, share, step_limited=share > 1)

    def _of_groups(self, ranks: int, policy: str, groups: int, plans: Plans) -> Iterator[Variant]:
        """Those whose loop nests suit so many groups: of every policy under a limit for each step, then the
        one above all memory.

        Ours takes the paper's plan, or one made tier by tier, where that is faster; these have no more loop
        levels than there was memory for in ours. Persistent shardings are tried once, with the best nest.
        """
        above = self._above_all_memory(ranks, groups) if policy == "ours" else None
        if above is not None and ranks == 1 and self._is_as_limited(above, groups):
            yield above
            if above in plans:
                return
            above = None
        yield from self._under_limit(policy, self.shares, ranks, groups, plans)
        if plans and policy == "ours" and ranks > 1 and not plans[best := fastest(plans)].is_local:
            # More memory for loop invariants did not fit ours: the other policies begin where it fitted.
            shares = self.shares[self.shares.index(best.share) :]
            several_tiers = len({digit.tier for digit in make_grid(ranks, self.profile)}) > 1
            for other in ("paper", BY_TIER) if several_tiers else ("paper",):
                yield from self._under_limit(other, shares, ranks, groups, plans)
            if several_tiers:
                yield Variant(ranks, fastest(plans).loop_nest, PERSISTENT)
        if above is not None:
            yield above

    def _under_limit(
        self, policy: str, shares: Sequence[float], ranks: int, groups: int, plans: Plans
    ) -> Iterator[Variant]:
        """Those of one policy, the most memory for loop invariants first, until some fit.

        More than all of the memory is tried as it is. Otherwise steps are limited ever more; since chains
        never store what may be too large for that, the last of a share has no limit for each step.
        """
        compression = self.model.compression
        spills = (False,) if compression is None or compression.store is None else (False, True)
        refused: list[LoopNest] = []
        for share in shares:
            loop_nest = self.loop_nest(share, ranks, groups)
            # Two shares often lead to the same loops, and then to the same refusal.
            if loop_nest in refused:
                continue
            first = Variant(ranks, loop_nest, policy, share)
            # Of the variants in a row the first that fits counts; between rows the faster one.
            rows = [[first]]
            if share <= 1:
                rows = [[replace(first, tries=TIGHTENINGS, spilled=spilled)] for spilled in spills]
                for row in rows if self.model.fused_elements else ():
                    row.append(replace(row[0], tries=1, step_limited=False))
            for row in rows:
                for variant in row:
                    yield variant
                    if variant in plans:
                        break
            if any(variant in plans for row in rows for variant in row):
                return
            if share <= 1:
                # Invariant: the last share, 0, leaves two levels, so that this ends before the shares do.
                if len(loop_nest.levels) <= 2:
                    return
                refused.append(loop_nest)

    def _above_all_memory(self, ranks: int, groups: int) -> Variant | None:
        """The variant with loop invariants for which there is memory only where chains work in place.

        None where that is ruled out, and where its loop nest is that of the largest share on several ranks.
        """
        most, *_ = self.shares
        if most <= 1 or self.limit_bytes == inf:
            return None
        loop_nest = self.loop_nest(UNLIMITED_SHARE, ranks, groups)
        if ranks > 1 and loop_nest == self.loop_nest(most, ranks, groups):
            return None
        return Variant(ranks, loop_nest, "ours", UNLIMITED_SHARE, step_limited=False)

    def _is_as_limited(self, above: Variant, groups: int) -> bool:
        """Whether one rank plans the same with a limit for each step: the loop nest is that of the largest
        share, and no step is over the limit."""
        sizes = [size * self.model.item_bytes for size in self.tree.sizes]
        is_same_nest = above.loop_nest == self.loop_nest(self.shares[0], 1, groups)
        return is_same_nest and step_over(self.tree, sizes, self.limit_bytes) is None


def seconds_alone(program: LoweredProgram, loop_nest: LoopNest, launch_s: float) -> tuple[float, float]:
    """Seconds of one rank without launches: of all that is done once, and of one slice in the mean.

    An estimate of what larger groups take; smaller shards may allow longer chains, so that they are faster.
    """
    times_s = {True: 0.0, False: 0.0}
    for step in program.steps:
        times_s[step.once] += step.predicted_s * (1.0 if step.once else step.often)
    often = zip(loop_nest.repeats, (1, *loop_nest.serves[1:]), program.segments, strict=True)
    for level, (repeats, serves, segment) in enumerate(often):
        launches = sum(isinstance(instruction, Contract | Fused) for instruction in segment)
        times_s[level == 0] -= launches * launch_s * repeats / serves
    return times_s[True], times_s[False]


def divided_s(alone_s: tuple[float, float], loop_nest: LoopNest, devices: int, ranks: int) -> float:
    """Seconds of all slices on `devices` devices, were the work of one divided evenly by `ranks`."""
    once_s, slice_s = alone_s
    n_slices, groups = loop_nest.n_slices, devices // ranks
    # Without an early sum there may be more slices, which groups share more evenly.
    rounds = n_slices / groups if loop_nest.summed else -(-n_slices // groups)
    return (once_s + rounds * slice_s) / ranks
