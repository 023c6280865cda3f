"""Random networks of every sort for the search, and slow counts of what their trees cost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations
from math import inf, prod

from tnplan.planner.networks.network import Network
from tnplan.planner.search.annealing import Effort, Task

EXTENTS = (1, 2, 2, 3, 4, 9)


def hypernetwork(seed: int, tensors: int = 9, indices: int = 12) -> Network:
    """Indices of extent 1 to 9 on two to four tensors, some of them open, perhaps in several components."""
    draw = random.Random(seed)
    parts = draw.choice((1, 1, 2))
    terms: list[list[str]] = [[] for _ in range(tensors)]
    for number in range(indices):
        part = [t for t in range(tensors) if t % parts == number % parts]
        for tensor in draw.sample(part, min(len(part), draw.choice((2, 2, 2, 3, 4)))):
            terms[tensor].append(f"i{number}")
    sizes = {f"i{number}": draw.choice(EXTENTS) for number in range(indices)}
    used = sorted({index for term in terms for index in term})
    output = tuple(draw.sample(used, draw.choice((0, 0, 1, 3))))
    return Network(tuple(map(tuple, terms)), output, sizes)


def task_of(network: Network, limit: int | None = None, seed: int = 0) -> Task:
    """The task of a search: indices that one tensor alone has and that are summed are left out."""
    count = Counter(index for term in network.inputs for index in set(term))
    count.update(network.output)
    inputs = tuple(tuple(index for index in term if count[index] > 1) for term in network.inputs)
    sizes = {index: size for index, size in network.size_dict.items() if count[index] > 1}
    return Task(inputs, network.output, sizes, limit, "flops", ("greedy",), seed, Effort(1.0, 2, 1))


def legs_of(task: Task, inside: frozenset[int]) -> frozenset[str]:
    """The indices that some tensors share with the others, or with the result."""
    others = {i for t, term in enumerate(task.inputs) if t not in inside for i in term} | set(task.output)
    return frozenset(i for t in inside for i in task.inputs[t] if i in others)


def size_of(task: Task, indices: frozenset[str]) -> int:
    """The elements over some indices."""
    return prod(int(task.sizes[index]) for index in indices)


def step_cost(task: Task, first: frozenset[int], second: frozenset[int]) -> int:
    """What a step counts in the objective of a task, where elements read count nothing."""
    span = size_of(task, legs_of(task, first) | legs_of(task, second))
    result = size_of(task, legs_of(task, first | second))
    return int(task.price.products * span + task.price.written * result)


def tree_cost(task: Task, pairs: Sequence[Sequence[int]]) -> int:
    """The cost of a path, by sets of tensors; the path must contract all of them."""
    sets = {t: frozenset((t,)) for t in range(len(task.inputs))}
    total = 0
    for number, (a, b) in enumerate(pairs):
        first, second = sets.pop(a), sets.pop(b)
        total += step_cost(task, first, second)
        sets[len(task.inputs) + number] = first | second
    assert list(map(len, sets.values())) == [len(task.inputs)]
    return total


def least_cost(task: Task) -> int:
    """The cost of the best of all trees: every one is looked at."""

    @cache
    def best(inside: frozenset[int]) -> float:
        if len(inside) == 1:
            return 0
        least = inf
        for part in _parts(inside):
            other = inside - part
            least = min(least, step_cost(task, part, other) + best(part) + best(other))
        return least

    return int(best(frozenset(range(len(task.inputs)))))


def _parts(inside: frozenset[int]) -> Iterator[frozenset[int]]:
    first, *others = sorted(inside)
    for size in range(len(others)):
        for chosen in combinations(others, size):
            yield frozenset((first, *chosen))


def treewidth(cliques: Sequence[frozenset[str]]) -> int:
    """Of the graph of these cliques: the best of all elimination orders (Bodlaender et al., 2006)."""
    vertices = frozenset().union(*cliques)
    beside = {v: frozenset().union(*(c for c in cliques if v in c)) - {v} for v in vertices}

    def degree(gone: frozenset[str], v: str) -> int:
        """Vertices that v reaches over those that are gone."""
        seen, todo, ends = {v}, [v], set()
        while todo:
            for w in beside[todo.pop()] - seen:
                seen.add(w)
                (todo.append if w in gone else ends.add)(w)
        return len(ends)

    @cache
    def width(gone: frozenset[str]) -> int:
        if not gone:
            return -1
        return min(max(width(gone - {v}), degree(gone - {v}, v)) for v in gone)

    return width(vertices)
