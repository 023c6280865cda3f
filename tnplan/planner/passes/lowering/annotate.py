"""The annotation of one step: its state in the paper's terms, its sizes, and its predicted time."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from tnplan.planner.passes.sharding.search import StepModes, contract_terms, restrict
from tnplan.planner.passes.sharding.sharded_tree import ShardedTree
from tnplan.planner.passes.sharding.states import ExchangeTraffic
from tnplan.planner.schedule.schedule import Prediction, StepAnnotation


def annotate(
    sharded: ShardedTree, node: int, shared: tuple[int, int] | None, fused: tuple[int, float] | None
) -> StepAnnotation:
    """Describe the step that makes `node` as it was planned; `shared`: the slices in a row that its result
    serves, and how often it is repeated for them, None where it is done once; `fused`: the number of its
    chain, and its share of the seconds."""
    tree, space, orders = sharded.tree, sharded.space, sharded.orders
    states, step, choice = sharded.distribution.states, sharded.step(node), sharded.choice(node)
    before = [
        (child, sharded.exchange_before(node, child))
        for child in (step.left, step.right)
        if child >= tree.n_leaves
    ]
    exchanges = [exchange for _, exchange in before if exchange is not None]
    after = _reduction(sharded, step)
    if after is not None:
        exchanges.append(after)
    by_tier = [0] * space.n_tiers
    if exchanges:
        moved = [space.moved_bytes(item) for item in exchanges]
        by_tier = [ceil(sum(sizes[tier] for sizes in moved)) for tier in range(space.n_tiers)]
    if fused is None:
        contract_s, permute_s, _ = contract_terms(space, step, choice.layout)
    else:
        contract_s, permute_s = fused[1], 0.0
    if step.node == tree.loop_nest.waist and fused is None:
        permute_s += space.model.add_s(space.shard_bytes(step.node, states[step.node]))
    # A mode of the result is on the left operand (m), on the right one (n), or on both (batch).
    legs = tree.legs[step.node]
    on_left, on_right = (set(tree.legs[operand]).intersection(legs) for operand in (step.left, step.right))
    batch = tree.extent(tuple(on_left & on_right))
    return StepAnnotation(
        state=_state(sharded, step, before, after), a_modes=orders[step.left], b_modes=orders[step.right],
        c_modes=orders[step.node], layout=sharded.layout(node), batch=batch,
        m=tree.extent(tuple(on_left - on_right)), n=tree.extent(tuple(on_right - on_left)), k=step.reduced,
        size_bytes=max([space.size_bytes[node] for node in (step.left, step.right, step.node)]),
        moved_bytes=sum(by_tier), moved_bytes_by_tier=tuple(by_tier),
        flops=step.products * space.share(choice.layout) * space.model.flops_per_product,
        contract_s=contract_s, permute_s=permute_s,
        exchange_s=sum([space.exchange_s(item) for item in exchanges], 0.0), once=shared is None,
        serves=1 if shared is None else shared[0], repeats=1 if shared is None else shared[1],
        fused=None if fused is None else fused[0],
    )  # fmt: skip


def predict(steps: Sequence[StepAnnotation], peak_bytes: int, live_bytes: int) -> Prediction:
    """Sum the annotations of a schedule."""
    once = [step for step in steps if step.once]
    each = [step for step in steps if not step.once]
    return Prediction(
        once_s=sum((step.predicted_s for step in once), 0.0),
        slice_s=sum((step.predicted_s * step.often for step in each), 0.0),
        once_flops=sum((step.flops for step in once), 0.0),
        slice_flops=sum((step.flops * step.often for step in each), 0.0),
        once_moved_bytes=sum(step.moved_bytes for step in once),
        slice_moved_bytes=sum(step.moved_bytes * step.often for step in each),
        peak_bytes=peak_bytes,
        live_bytes=live_bytes,
    )


def _reduction(sharded: ShardedTree, step: StepModes) -> ExchangeTraffic | None:
    choice = sharded.choice(step.node)
    base = restrict(choice.layout, step.out_mask)
    if base == choice.layout:
        return None
    partial = tuple(whole & ~left for whole, left in zip(choice.layout, base, strict=True))
    return sharded.space.reduction(step.node, partial, base, sharded.distribution.states[step.node])


def _state(
    sharded: ShardedTree, step: StepModes, before: list[tuple[int, ExchangeTraffic | None]],
    after: ExchangeTraffic | None,
) -> str:  # fmt: skip
    """The state of the paper's section IV-B that a step is in, and `local` and `reduce` beyond it."""
    if after is not None:
        return "reduce"
    space, choice = sharded.space, sharded.choice(step.node)
    # Activate, keep, redistribute and gather are the paper's four states of a step along a use-chain.
    moved = any(exchange is not None and exchange.received_bytes > 0 for _, exchange in before)
    if choice.layout == space.local:
        return "gather" if moved else "local"
    if moved:
        return "redistribute"
    inherited = any(sharded.distribution.states[child] != space.local for child, _ in before)
    return "keep" if inherited else "activate"
