"""A path with as much search as it can gain: none for a contraction of milliseconds. Knows no layouts.

Every stage begins only where the best path so far is predicted to take longer than the stage.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import combinations
from math import inf, log2, prod
from time import monotonic

from tnplan.common.kernels.ahead import compile_soon
from tnplan.planner.hardware.cost import FLOPS_PER_PRODUCT
from tnplan.planner.hardware.profile import DEFAULT_PRECISION, Profile
from tnplan.planner.networks.contraction_path import ContractionPath, ssa_from_linear
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_cache import CachedPath, PathCache, path_cache_folder
from tnplan.planner.search.annealing import Effort
from tnplan.planner.search.cotengra_search import Report, search_path
from tnplan.planner.search.few_tensors import cheapest_path
from tnplan.planner.search.orders.uncompiled import KERNELS, are_compiled
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_options import JOINT, SearchOptions

FEW_TENSORS = 40
"""Up to so many tensors the greedy path is made here, in milliseconds: to import cotengra takes longer."""
MANY_TENSORS = 1_000
"""From so many tensors on a greedy path takes seconds, or minutes where it is bad: orders come first."""
TRIALS_FROM_S = 1e-3
"""Predicted seconds of a contraction from which on other paths than a greedy one are made, for some 50 ms."""
ORDERS_TENSOR_S = 6e-4
"""Seconds of the paths of orders, for each tensor: none is made of a network that takes less."""
ANNEALING_FROM_S = 1.0
"""Predicted seconds from which on annealing begins."""
SEARCH_SHARE = 0.3
"""Seconds of search a predicted second."""
LONGEST_SEARCH_S = 60.0
SHORTEST_SEARCH_S = 2.0
"""The least of a search that is wanted, and of the first one here where kernels have to be compiled."""
FIRST_SEARCH_S = 0.4
"""The first search where kernels are there. Networks of 100 tensors are often as good then as they get."""
LONGER, MUCH_LONGER = 1.5, 5.0
"""A search is followed by a longer one while the path that it finds is worth so many times its seconds. The
next takes as long as that path is worth, and `MUCH_LONGER` times the seconds before at most."""
CALLS = "calls..."
"""The index of the calls: no equation has this label."""


@dataclass
class SearchLimit:
    """The seconds that are left for searches, and whether a path was worth more of them."""

    left_s: float
    is_cut: bool = False


def search_in_proportion(
    network: Network, dtype: str, profile: Profile, *, max_elements: float = inf, seed: int = 0,
    limit: SearchLimit | None = None, shares_slices: bool = True,
) -> ContractionPath:  # fmt: skip
    """A path whose largest tensor has `max_elements`, found in a time that its own one justifies.

    Short searches come first: often they find a path that no long one is worth. What was found in the same
    time or more before is in a cache on disk (`path_cache`), but for greedy paths. `limit` is counted down.
    `shares_slices` is that of `SearchOptions`; paths for others have a folder of their own.
    """
    optimum = _optimum(network, dtype, max_elements)
    if optimum is not None:
        return optimum
    most, limit = None if max_elements == inf else int(max_elements), limit or SearchLimit(inf)
    cache = _cache(most, shares_slices)
    known = _known(cache, network, dtype, max_elements)
    if known is not None:
        best, starts, spent_s = known.path, [known.path] if known.time_s else [], known.time_s
    else:
        best, is_of_orders = _at_once(network, dtype, profile, most, seed)
        starts, spent_s = [], 0.0
    is_searched = False
    if predicted_s(best, profile) >= ANNEALING_FROM_S or not _fits(best, max_elements):
        first_s = FIRST_SEARCH_S if are_compiled() else SHORTEST_SEARCH_S
        while (worth_s := search_share_s(predicted_s(best, profile), first_s)) > LONGER * spent_s:
            next_s = min(worth_s, MUCH_LONGER * spent_s or first_s, limit.left_s)
            if next_s <= spent_s:  # no more than a search that was made
                limit.is_cut = True
                break
            begin, spent_s = monotonic(), next_s
            options = SearchOptions(
                max_tensor_elements=most, effort=Effort(time_s=spent_s), seed=seed, methods=(JOINT,),
                from_paths=starts, shares_slices=shares_slices,
            )  # fmt: skip
            best = _cheapest((search_path(network, dtype, options), best), max_elements)
            is_searched = True
            limit.left_s = max(0.0, limit.left_s - (monotonic() - begin))
    if is_searched or (known is None and is_of_orders):
        cache.keep(CachedPath(best, path_cost(best).log10_mnk_all_slices, spent_s), max_elements)
    return best


def search_as_long(
    network: Network, dtype: str, time_s: float, *, max_elements: float = inf, seed: int = 0,
    shares_slices: bool = True,
) -> ContractionPath:  # fmt: skip
    """The path of a search of so many seconds, or of as many before, which are in the cache on disk.

    Where the fewest multiply-adds of all paths are known, that path without a search.
    """
    optimum = _optimum(network, dtype, max_elements)
    if optimum is not None:
        return optimum
    most = None if max_elements == inf else int(max_elements)
    cache = _cache(most, shares_slices)
    known = cache.find(network, dtype, max_elements)
    if known is not None and known.time_s >= time_s and _fits(known.path, max_elements):
        return known.path
    options = SearchOptions(
        max_tensor_elements=most, effort=Effort(time_s=time_s), seed=seed, methods=(JOINT,),
        shares_slices=shares_slices,
    )  # fmt: skip
    paths = [search_path(network, dtype, options), *([] if known is None else [known.path])]
    best = _cheapest(paths, max_elements)
    cache.keep(CachedPath(best, path_cost(best).log10_mnk_all_slices, time_s), max_elements)
    return best


def _cache(most: int | None, shares_slices: bool) -> PathCache:
    """The cache on disk; paths under a limit whose slices share nothing have a folder of their own."""
    folder = path_cache_folder()
    return PathCache(folder if shares_slices or most is None or folder is None else folder / "unshared")


def _optimum(network: Network, dtype: str, max_elements: float) -> ContractionPath | None:
    """The path with the fewest multiply-adds of few tensors, where it is within the limit."""
    cheapest = cheapest_path(network)
    if cheapest is None:
        return None
    path = ContractionPath(network, cheapest, (), dtype)
    return path if _fits(path, max_elements) else None


def quick_path(network: Network, dtype: str, profile: Profile) -> ContractionPath:
    """A path without annealing, or a better one that is in the cache on disk; no limit."""
    cache = PathCache(path_cache_folder())
    known = _known(cache, network, dtype, inf)
    if known is not None:
        return known.path
    path, is_of_orders = _at_once(network, dtype, profile, None, 0)
    if is_of_orders:
        cache.keep(CachedPath(path, path_cost(path).log10_mnk_all_slices, 0.0))
    return path


def greedy_or_orders(network: Network, dtype: str) -> tuple[tuple[int, ...], ...]:
    """A path in the least time: greedy, or of orders where there are many tensors; SSA numbers."""
    return _first(network, dtype, None, 0).ssa_path


def _known(cache: PathCache, network: Network, dtype: str, max_elements: float) -> CachedPath | None:
    """What was found before under this limit, or without one where that fits."""
    for limit in dict.fromkeys((max_elements, inf)):
        known = cache.find(network, dtype, limit)
        if known is not None and _fits(known.path, max_elements):
            return known
    return None


def _at_once(
    network: Network, dtype: str, profile: Profile, limit: int | None, seed: int
) -> tuple[ContractionPath, bool]:
    """A path without annealing, and whether it is one of orders, or better than that."""
    path, max_elements = _first(network, dtype, limit, seed), inf if limit is None else limit
    if len(network.inputs) >= MANY_TENSORS:
        return path, True
    first_s, fits = predicted_s(path, profile), _fits(path, max_elements)
    if first_s <= max(TRIALS_FROM_S, ORDERS_TENSOR_S * len(network.inputs)) and fits:
        return path, False
    if are_compiled():
        return _cheapest((path, _of_orders(network, dtype, limit, seed)), max_elements), True
    if first_s < ANNEALING_FROM_S:
        other = replace(path, ssa_path=_random_greedy(network, seed))
        path = min(path, other, key=lambda path: path_cost(path).log10_mnk_all_slices)
    if first_s >= ANNEALING_FROM_S or not _fits(path, max_elements):
        compile_soon(KERNELS)  # a search that follows need not wait for the kernels of orders
    return path, False


def worthwhile_s(
    network: Network, dtype: str, profile: Profile, devices: int = 1, report: Report | None = None
) -> float:
    """The seconds of search that a network is worth: a share of what a path takes that is found quickly.

    `report` is called with the paths that a large network has meanwhile, as by `search_path`.
    """
    path = _first(network, dtype, None, 0, report)
    if len(network.inputs) < MANY_TENSORS and predicted_s(path, profile) >= ANNEALING_FROM_S:
        path = _cheapest((path, _of_orders(network, dtype, None, 0)), inf)
    return search_share_s(predicted_s(path, profile) / devices)


def search_share_s(time_s: float, shortest_s: float = SHORTEST_SEARCH_S) -> float:
    """The seconds of search that a predicted time is worth."""
    return min(max(shortest_s, SEARCH_SHARE * time_s), LONGEST_SEARCH_S)


def _first(
    network: Network, dtype: str, limit: int | None, seed: int, report: Report | None = None
) -> ContractionPath:  # fmt: skip
    """A path at once: greedy, and of orders where there are many tensors."""
    if len(network.inputs) >= MANY_TENSORS:
        return _of_orders(network, dtype, limit, seed, report)
    return ContractionPath(network, _greedy(network), (), dtype)


def _of_orders(
    network: Network, dtype: str, limit: int | None, seed: int, report: Report | None = None
) -> ContractionPath:  # fmt: skip
    """The first tree of the joint search, without annealing."""
    effort = Effort(time_s=0.0, max_rounds=0)
    options = SearchOptions(max_tensor_elements=limit, effort=effort, seed=seed, methods=(JOINT,))
    return search_path(network, dtype, options, report)


def _cheapest(paths: Sequence[ContractionPath], max_elements: float) -> ContractionPath:
    """The path with the fewest multiply-adds, of those within the limit where there are any."""
    fitting = [path for path in paths if _fits(path, max_elements)] or paths
    return min(fitting, key=lambda path: path_cost(path).log10_mnk_all_slices)


def _fits(path: ContractionPath, max_elements: float) -> bool:
    return path_cost(path).log2_largest <= log2(max_elements)


def _greedy(network: Network) -> tuple[tuple[int, ...], ...]:
    if len(network.inputs) <= FEW_TENSORS:
        return greedy_path(network)
    from cotengra import array_contract_path

    path = array_contract_path(
        network.inputs, network.output, network.size_dict, optimize="greedy", cache=False
    )
    return ssa_from_linear([tuple(map(int, step)) for step in path], len(network.inputs))


def _random_greedy(network: Network, seed: int) -> tuple[tuple[int, ...], ...]:
    """The best of cotengra's trials, which are made in this process.

    Its own default forks, which a process that has CUDA, JAX or threads does not survive, and then its path
    depends on the number of cores.
    """
    from cotengra import RandomGreedyOptimizer

    finder = RandomGreedyOptimizer(seed=seed, parallel=False)
    path = finder.ssa_path(network.inputs, network.output, network.size_dict)
    return tuple(tuple(map(int, step)) for step in path)


def greedy_path(network: Network) -> tuple[tuple[int, ...], ...]:
    """Always the pair next that adds least to what is stored, of those that share an index; SSA numbers.

    The rule is opt_einsum's (Smith and Gray, JOSS 3, 753 (2018)). What shares none comes last, by size.
    """
    count = dict.fromkeys(network.output, 1)
    for name in (name for term in network.inputs for name in set(term)):
        count[name] = count.get(name, 0) + 1
    live = {number: frozenset(term) for number, term in enumerate(network.inputs)}

    def size(names: Iterable[str]) -> int:
        return prod(network.size_dict[name] for name in names)

    def result(a: int, b: int) -> frozenset[str]:
        both = live[a] & live[b]
        return frozenset(
            name for name in live[a] | live[b] if count[name] > (2 if name in both else 1)
        )  # fmt: skip

    def entry(a: int, b: int) -> tuple[int, int, int]:
        return size(result(a, b)) - size(live[a]) - size(live[b]), a, b

    # All pairs that share an index: the rule of opt_einsum, for networks of few tensors.
    queue = [entry(a, b) for a, b in combinations(live, 2) if live[a] & live[b]]
    heapify(queue)
    path: list[tuple[int, ...]] = []
    number = len(network.inputs)
    while len(live) > 1:
        a, b = heappop(queue)[1:] if queue else sorted(live, key=lambda tensor: size(live[tensor]))[:2]
        # Pairs of tensors that are gone stay in the heap and are passed over. The key of a pair stays while
        # both are alive: an index on a third tensor stays on what that becomes.
        if a not in live or b not in live:
            continue
        product = result(a, b)
        for name in live[a] | live[b]:
            count[name] -= (name in live[a]) + (name in live[b]) - (name in product)
        del live[a], live[b]
        path.append((a, b))
        live[number] = product
        for other in live:
            if other != number and live[other] & product:
                heappush(queue, entry(other, number))
        number += 1
    return tuple(path)


def predicted_s(path: ContractionPath, profile: Profile) -> float:
    """The seconds of all operations on one device at its full rate, and of a launch a step."""
    log10_products = path_cost(path).log10_mnk_all_slices
    rate = profile.rate(path.dtype, DEFAULT_PRECISION[path.dtype]) / FLOPS_PER_PRODUCT[path.dtype]
    return 10.0 ** min(log10_products, 300.0) / rate + len(path.ssa_path) * profile.launch_s


def search_for_calls(
    network: Network,
    dtype: str,
    profile: Profile,
    changing: Collection[int],
    calls: int,
    max_elements: float = inf,
    limit: SearchLimit | None = None,
) -> ContractionPath:
    """The path with the least time of all calls, in which the tensors `changing` have new values each time.

    What depends on the other tensors alone is contracted once. The search sees an index more, on the tensors
    that change, whose extent is the number of calls: so a step costs as often as it is made.

    Where the largest tensor of that path has more than `max_elements`, it is one that suits a single call.
    """
    inputs = tuple(
        (CALLS, *term) if number in changing else term for number, term in enumerate(network.inputs)
    )
    weighted = Network(inputs, (CALLS, *network.output), {CALLS: calls, **network.size_dict})
    weighted_path = search_in_proportion(
        weighted, dtype, profile, max_elements=max_elements * calls, limit=limit
    )
    sliced = tuple(index for index in weighted_path.sliced_inds if index != CALLS)
    path = ContractionPath(network, weighted_path.ssa_path, sliced, dtype)
    if path_cost(path).log2_largest <= log2(max_elements):
        return path
    return search_in_proportion(network, dtype, profile, max_elements=max_elements, limit=limit)
