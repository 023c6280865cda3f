"""Plan and replay at least 500 random networks on 1 to 8 in-process ranks, against numpy.einsum."""

from __future__ import annotations

from collections import Counter
from math import inf

import pytest

from tests.support.networks import agrees, eager_profile, random_arrays, random_path
from tests.support.slow import slow_after
from tnplan.calls.execute import execute
from tnplan.common.errors import InputError
from tnplan.planner.passes.pipeline import plan

BATCHES, QUICK = 40, 1
PER_BATCH = 15


@pytest.mark.parametrize("batch", slow_after(QUICK, range(BATCHES)))
def test_random_networks_agree_with_einsum(batch: int) -> None:
    states: Counter[str] = Counter()
    limited = 0
    for seed in range(batch * PER_BATCH, (batch + 1) * PER_BATCH):
        path = random_path(seed)
        arrays = random_arrays(path, seed)
        ranks = 1 + seed % 8
        profile = eager_profile(
            exchange_bytes=(64, 512, 1 << 20)[seed % 3], tile_bytes=(8, 256, 1 << 20)[seed // 3 % 3]
        )
        policy = ("ours", "ours", "paper")[seed % 3 - 1]
        schedule = plan(
            path,
            profile,
            devices=ranks,
            ranks_per_group=ranks,
            memory_bytes=inf,
            threshold_bytes=1,
            policy=policy,
        )
        states.update(step.state for step in schedule.steps)
        agrees(execute(schedule, arrays, ranks=ranks).array, path, arrays)
        alone = plan(path, profile, memory_bytes=inf)
        for share in (0.9, 0.6):
            limit = int(alone.predicted.peak_bytes * share)
            try:
                tight = plan(
                    path, profile, devices=ranks, ranks_per_group=ranks, memory_bytes=limit, threshold_bytes=1
                )
            except InputError:
                continue
            limited += 1
            assert tight.predicted.peak_bytes <= limit
            agrees(execute(tight, arrays, ranks=ranks).array, path, arrays)
    assert states["activate"], states
    assert states["keep"], states
    # Batches are small: in some of them no network fits within less. In the first one several do.
    assert batch or limited >= 3, limited


def test_the_random_networks_have_every_feature() -> None:
    paths = [random_path(seed) for seed in range(BATCHES * PER_BATCH)]
    assert len(paths) >= 500
    seen: Counter[str] = Counter()
    for path in paths:
        network = path.network
        count = Counter(index for term in network.inputs for index in set(term))
        seen["hyper-index"] += any(number > 2 for number in count.values())
        seen["open index"] += bool(network.output)
        seen["open batch index"] += any(count[index] > 1 for index in network.output)
        seen["trace"] += any(len(set(term)) < len(term) for term in network.inputs)
        seen["scalar tensor"] += any(not term for term in network.inputs)
        seen["plain sum"] += any(count[index] == 1 and index not in network.output for index in count)
        seen["single tensor"] += len(network.inputs) == 1
        seen["slices"] += path.n_slices > 1
        seen[path.dtype] += 1
        for extent in network.size_dict.values():
            seen[f"extent {extent}"] += 1
    missing = [
        name
        for name in ("hyper-index", "open index", "open batch index", "trace", "scalar tensor", "plain sum",
                     "single tensor", "slices", "float32", "float64", "complex64", "complex128",
                     "extent 1", "extent 2", "extent 3", "extent 4", "extent 5")
        if seen[name] < 20
    ]  # fmt: skip
    assert not missing, (missing, seen)
