"""Each pass as a step from context to context. `pipeline` has them in order; no pass calls the next."""

from __future__ import annotations

from dataclasses import replace

from tnplan.planner.passes.fusion.chunk_exchanges import ChunkedExchanges, chunk_exchanges
from tnplan.planner.passes.fusion.fuse import fuse
from tnplan.planner.passes.lowering.buffer_assignment import assign
from tnplan.planner.passes.lowering.extend_lifetimes import extend_lifetimes
from tnplan.planner.passes.lowering.lower import lower
from tnplan.planner.passes.lowering.plan_context import BY_TIER, PERSISTENT, PlanContext
from tnplan.planner.passes.lowering.settle_overlap import settle_overlap
from tnplan.planner.passes.lowering.spill import spill
from tnplan.planner.passes.sharding import policies
from tnplan.planner.passes.sharding.assign_digits import assign_digits
from tnplan.planner.passes.sharding.by_tier import distribute_by_tier
from tnplan.planner.passes.sharding.search import distribute, step_modes
from tnplan.planner.passes.sharding.states import StateSpace


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
    """Pass 7: flat instructions over buffers, with longer lifetimes around chunked exchanges if asked for."""
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
