"""The joint search: rounds of the compiled annealing of tree and sliced indices, one or several at once.

Keeps the time, the processes and the checkpoint; `round_policy` decides what a round is. Knows no
memory and no machine, only the limit on a tensor's elements, what an element costs, and a `Target`.
"""

from __future__ import annotations

import os
import pickle
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from multiprocessing import get_context, parent_process
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tnplan.common.errors import InputError
from tnplan.planner.search.annealer.annealed import COLD, Annealed
from tnplan.planner.search.annealing import (
    OnBetter,
    ScoredTree,
    Start,
    Task,
    greedy_s,
    random_greedy,
)
from tnplan.planner.search.checkpoint import SearchCheckpoint
from tnplan.planner.search.orders.starts import (
    FEW_TENSORS,
    OrderStarts,
    best_of_few,
    first_trees,
    has_time,
    tree_bits,
)
from tnplan.planner.search.ranking import Target
from tnplan.planner.search.round_policy import MEAN_LENGTH, POOL, ElitePool, Pools, Round, warm_heat
from tnplan.planner.search.subtrees.regions import LargeTree, is_large

NOMINAL_MOVES_PER_S = 7e6
"""Moves a second with which rounds are planned, on any machine: a clock would make seeds irreproducible."""
ROUND_SHARE = 0.1
"""A full round has the moves of this share of the time, at the nominal rate."""
MOVES_PER_TENSOR = 300_000
"""A full round has at most so many moves a tensor."""
SHORTEST_SHARE = 0.1
"""The last round is left out where the time left is enough for less than this share of its moves."""
GREEDY_SHARE = 0.25
"""Rounds have a greedy tree of their own where making it takes at most this share of a full round."""
RANKING_SHARE, OVERRUN_SHARE = 0.25, 0.05
"""The last share of the time, in which trees are ranked by predicted time where the options want that. Rounds
that make trees much better go on to the end, and the plan of the best may take the second share beyond it."""
GAIN_SHARE, GAIN_BITS = 0.3, 0.1
"""Rounds go on while they are expected to gain so many bits until the end: as they gained in this last share
of the time. Trees near the fastest gain about as much."""
LAST_PLANS, LAST_SHARE = 5, 0.1
"""But where so many plans take no more than this share of the time, that much is left for them: one round
with twice the limit may gain more than all others of that time."""
PLAN_TENSOR_S, WHOLE_PLAN, RANKING_DECAY = 5e-4, 4, 0.7
"""Nominal seconds of a first plan, for each tensor and size of groups; whole plans take so many times more. A
plan is expected to take as long as the last one, or this share of what was expected of that."""
SAVE_TENSOR_S, SLOW_S, SAVED_SHARE = 1e-5, 0.1, 0.05
"""Nominal seconds of a checkpoint for each tensor; slow ones take this share of the time."""
FIRST_ORDERS = 1000
"""Orders of rounds have numbers from here on, times DRAWN_TREES; the first trees have those below."""
DRAWN_TREES = 4
"""Of so many orders a round takes the best tree."""
MOST_BITS = 960
"""log2 of the largest cost that is counted in floating point, which ends at 2^1024."""
UNLIMITED_TREES = 0.25
"""First trees without the limit take so much of the time of those with it."""
IDLE_ROUNDS = 24
"""A search of few tensors without slices ends after so many rounds in a row that gave no better tree."""
ROUNDS_AHEAD = 4
"""Where rounds alone end the search: each is drawn before the last of so many are taken."""


@dataclass(frozen=True)
class RoundOutcome:
    """The tree of a round, if any was within the limit, and what the round took."""

    tree: ScoredTree | None
    sliced: ScoredTree | None
    """Of a round without the limit, what its tree was sliced to."""
    moves: int
    anneal_s: float
    ranking_s: float


def search_joint(
    task: Task,
    *,
    began: float | None = None,
    n_workers: int = 1,
    target: Target | None = None,
    checkpoint: SearchCheckpoint | None = None,
    on_better: OnBetter | None = None,
    counted: Callable[[ScoredTree], float] | None = None,
) -> ScoredTree:
    """A first tree, then rounds on `n_workers` processes until the time or the rounds are used up.

    The moves of a round follow from the network and the time given, not from the clock; the last round is
    shortened to what time is left. Without an end of the time no clock has a say, and the path is the same
    for any number of workers. `began` is when its time began, by `time.monotonic`; None: now.
    `ScoredTree.score` is log2 of the cost of all slices, with the last pair of the path as the waist. With a
    `target` the best is the tree of the least predicted time there, `ScoredTree.time_s`.
    Raises InputError if no schedule fits it. With `counted`, of which the scores are an estimate, it is the
    tree of the pool for which that is least; with a target this is the first that is ranked.
    """
    on_better = on_better or (lambda _: None)
    now = time.monotonic() if began is None else began
    resumed = None if checkpoint is None else checkpoint.restore(task)
    optimum = best_of_few(task) if target is None else None
    is_best = optimum is not None and optimum.score <= MOST_BITS
    if optimum is not None and is_best:
        pools, used_s = Pools(ElitePool(task.seed, optimum, [optimum])), 0.0
    elif resumed is None:
        pools = _first_pools(task, target, on_better, now + (task.effort.time_s or inf))
        used_s = 0.0
    else:
        pools, used_s = resumed
    on_better(pools.best)
    task = task.with_roots(pools.limited.power)
    if len(task.inputs) > 2 and not is_best:
        _Rounds(task, pools, now - used_s, n_workers, target, checkpoint, on_better, counted).run()
    pool = pools.limited
    if target is None:
        return pools.best if counted is None else min(pool.pool, key=counted)
    if pool.fastest is None:
        pool.fastest = target.fastest((min(pool.pool, key=counted) if counted else pool.best, pool.first))
        on_better(pool.best)
    return pools.best


def _first_pools(task: Task, target: Target | None, on_better: OnBetter, ends: float) -> Pools:
    """The pools that a search begins with; no second one where there are no rounds, or where time is up."""
    pool, effort = _first_pool(task, target, on_better, ends), task.effort
    if task.limit is None or len(task.inputs) <= 2 or not (effort.time_s and effort.max_rounds):
        return Pools(pool)
    if time.monotonic() > ends or not has_time(len(task.inputs), ends):
        return Pools(pool)
    effort = replace(effort, time_s=UNLIMITED_TREES * effort.time_s)
    starts = tuple((ssa_path, ()) for ssa_path, _ in task.starts)
    unlimited = replace(task, limit=None, waist_limit=inf, starts=starts, effort=effort)
    return Pools(pool, _first_pool(unlimited, None, lambda _: None, ends))


def _first_pool(task: Task, target: Target | None, on_better: OnBetter, ends: float) -> ElitePool:
    """The trees that rounds begin with; `on_better` gets the best of orders.

    Of several given trees, the fastest as it was given comes first where their predicted time is asked for,
    else the cheapest; the others are in the pool.
    """
    trees = [_given_tree(task, start) for start in task.starts] or first_trees(task, on_better, ends)
    power = 1.0 if task.limit is not None else _power_in_range(task, trees)
    rooted = task.with_roots(power)
    as_given, within_limit = zip(*(_scored(rooted, tree) for tree in trees), strict=True)
    elite = sorted(within_limit, key=lambda tree: tree.score)[:POOL]
    limited = task.limit is not None
    if target is None:
        return ElitePool(task.seed, elite[0], elite, limited=limited, power=power)
    fastest = None
    # Invariant: a given path is ranked before all others, so that none that is slower takes its place.
    if task.starts:
        # Some may exceed the limit, and fit all the same.
        unsliced = [replace(tree, score=scored.score) for tree, scored in zip(trees, as_given, strict=True)]
        given = dict.fromkeys((*unsliced, *as_given) if target.exceeds else as_given)
        timed = [tree for tree in map(target.ranked, given) if tree.time_s is not None]
        fastest = min(timed, key=lambda tree: tree.time_s or inf, default=None)
    first = fastest or min(as_given, key=lambda tree: tree.score)
    return ElitePool(task.seed, first, elite, fastest, limited=limited, power=power)


def _given_tree(task: Task, start: Start) -> ScoredTree:
    """A given path, without a score."""
    ssa_path, sliced = start
    return ScoredTree(0.0, ssa_path, tuple(symbol for symbol in sliced if task.sizes[symbol] > 1))


def _power_in_range(task: Task, trees: Sequence[ScoredTree]) -> float:
    """The power of all sizes with which the steps of these trees are well within floating point; 1 if they
    are already.

    A power of all sizes multiplies log2 of every step's cost by the same number, so that it changes no order
    of steps, only what several of them come to together.
    """
    bits = max(tree_bits(task, tree) if task.starts else tree.score for tree in trees)
    return 1.0 if bits <= MOST_BITS else MOST_BITS / (2 * bits)


def _scored(task: Task, tree: ScoredTree) -> tuple[ScoredTree, ScoredTree]:
    """A tree with its score: as it is, and sliced until it is within the limit.

    Where it is not, both are the second.
    """
    if len(task.inputs) <= 2:
        return tree, tree
    if task.limit is None and not tree.sliced and not task.row_counts:
        return (replace(tree, score=tree_bits(task, tree)),) * 2
    if is_large(task):
        large = LargeTree(task, tree)
        if not large.fits:
            problem = "is too small for the open indices, which cannot be sliced here"
            raise InputError("--max-tensor", problem, "allow larger tensors, or open fewer indices")
        return (large.scored(),) * 2
    annealed = Annealed(task, tree, 0)
    as_given, within_limit = annealed.given, annealed.sliced()
    return as_given or within_limit, within_limit


@dataclass
class _Rounds:
    """The rounds of one search, one or `n_workers` at once, until its time is up.

    `began` is when its time began, by `time.monotonic`, less what was used before it was resumed.
    """

    task: Task
    pools: Pools
    began: float
    n_workers: int
    target: Target | None
    checkpoint: SearchCheckpoint | None
    on_better: OnBetter
    counted: Callable[[ScoredTree], float] | None
    idle: int = 0
    """Rounds taken since one gave a better tree."""
    is_ranking: bool = False
    """Whether rounds of few tensors rank before the last share of the time."""
    move_s: float = 0.0
    """Seconds of a move in the last round; 0 before the first."""
    ranking_s: float = 0.0
    """What predicting the time of a tree takes."""
    history: list[tuple[float, float]] = field(default_factory=list)
    """When rounds ended, by `time.monotonic`, and the best scores then."""
    saved: float = field(init=False)
    """When the pools were written last, by `time.monotonic`, and the seconds that it takes."""
    save_s: float = field(init=False)
    has_time: bool = True
    """Whether the last round had time for moves."""
    full_moves: float = field(init=False)
    """Moves of a full round."""
    n_planned: float = field(init=False)
    """Full rounds in all, but for those that rank trees."""
    has_greedy: bool = field(init=False)
    """Whether there is time for greedy trees of a round's own."""
    reported_score: float = field(init=False)

    def __post_init__(self) -> None:
        n, effort = len(self.task.inputs), self.task.effort
        self.saved, self.save_s = time.monotonic(), SAVE_TENSOR_S * n
        # From a nominal pace and not from the clock: the same task gives the same rounds on a slower machine.
        nominal_moves = ROUND_SHARE * effort.nominal_s * NOMINAL_MOVES_PER_S
        self.full_moves = min(nominal_moves, float(MOVES_PER_TENSOR * n))
        tree_s = greedy_s(n, self.pools.best.score / self.pools.limited.power)
        self.has_greedy = tree_s * NOMINAL_MOVES_PER_S <= GREEDY_SHARE * self.full_moves
        self.n_planned = min(
            effort.max_rounds * MEAN_LENGTH,
            inf if effort.time_s == inf
            else effort.time_s * self.n_workers * NOMINAL_MOVES_PER_S / max(self.full_moves, 1.0),
        )  # fmt: skip
        if self.target is not None:
            plans = self.target.devices.bit_length() * (WHOLE_PLAN if self.target.whole_plans else 1)
            self.ranking_s = min(PLAN_TENSOR_S * n * plans, RANKING_SHARE * effort.nominal_s)
        self.reported_score = self.pools.best.score

    def run(self) -> None:
        """Rounds until time is up; the pools are saved after each one that comes back."""
        self._save()
        is_timed = self.task.effort.time_s < inf
        ends = self.began + self.task.effort.time_s
        # Invariant: without a clock, the round that is drawn depends on neither the number of workers nor
        # their pace. So many rounds are drawn before the first of them is taken, and they are taken in order.
        most = self.n_workers if is_timed else ROUNDS_AHEAD
        running: dict[Future[RoundOutcome], Round] = {}
        again, self.pools.running = self.pools.running, []
        goes_on = True
        with _workers(self.n_workers, self.task, self.target, self._report) as submit:
            while True:
                while goes_on and len(running) < most:
                    given = again.pop(0) if again else None
                    next_round, moves = self._next(ends - time.monotonic(), given)
                    if moves is None:
                        goes_on = False
                        break
                    self.pools.running.append(next_round)
                    running[submit(next_round, moves, ends)] = next_round
                if not running:
                    break
                first = next(iter(running))
                done = wait(running, return_when=FIRST_COMPLETED).done if is_timed else wait([first]).done
                for job in done:
                    finished = running.pop(job)
                    self.pools.running.remove(finished)
                    self._take(finished, job.result())

    def _next(self, left_s: float, given: Round | None) -> tuple[Round, float | None]:
        """The next round, or a given one, and its moves; None where the search ends before it."""
        effort, pools = self.task.effort, self.pools
        if given is None and pools.number >= effort.max_rounds:
            return Round(0, "rank", pools.best, COLD), None
        ranks = self.target is not None and (self.is_ranking or self._is_late(left_s))
        if given is None and self._is_idle():
            if ranks or self.target is None:
                return Round(0, "rank", pools.best, COLD), None
            ranks, self.is_ranking, self.idle = True, True, 0
        if ranks and self.counted is not None and not pools.limited.asked:
            # Few are ranked on many devices: the first is what a search for operations would give by then.
            pools.limited.pool.sort(key=self.counted)
        next_round = given or pools.next(self.n_planned, ranks, self.has_greedy)
        wanted = next_round.length * self.full_moves
        # Invariant: no plan begins that what is left is too short for, but for one where none was made.
        reserved_s = next_round.ranks * self.ranking_s
        if self.target is not None and pools.limited.fastest is None and effort.time_s < inf:
            reserved_s = max(self.ranking_s - OVERRUN_SHARE * effort.time_s, 0.0)
        annealing_s = left_s - reserved_s
        moves = wanted if self.move_s == 0.0 else min(wanted, annealing_s / self.move_s)
        has_time = self.has_time and annealing_s > 0 and moves >= SHORTEST_SHARE * wanted
        return next_round, moves if has_time else None

    def _is_idle(self) -> bool:
        """Whether nothing is left to gain for few tensors, as far as the last rounds say; of slices there are
        too many to say so."""
        few = len(self.task.inputs) <= FEW_TENSORS and not self.pools.best.sliced
        return few and self.idle >= IDLE_ROUNDS and self.task.effort.time_s < inf

    def _is_late(self, left_s: float) -> bool:
        """Whether what is left is for predicted times, which take a plan each.

        Before, rounds are those of a search for operations, whose best tree is among those that are ranked.
        """
        time_s = self.task.effort.time_s
        if time_s == inf:
            return self.pools.given >= (1.0 - RANKING_SHARE) * self.n_planned
        if left_s > RANKING_SHARE * time_s or self.pools.limited.fastest is not None:
            return left_s <= RANKING_SHARE * time_s
        if left_s <= LAST_PLANS * self.ranking_s <= LAST_SHARE * time_s:
            return True
        # One jump in a longer share of the time says little: rounds have to gain in the later half of it too.
        gains = (self._gain(share * time_s) / (share * time_s) for share in (GAIN_SHARE, GAIN_SHARE / 2))
        return min(gains) * left_s < GAIN_BITS

    def _gain(self, seconds: float) -> float:
        """The bits that the best score gained in the last seconds."""
        since, score = time.monotonic() - seconds, self.pools.limited.pool[0].score
        before = min((score for ended, score in self.history if ended <= since), default=self.reported_score)
        return (before - score) / self.pools.limited.power

    def _take(self, done: Round, outcome: RoundOutcome) -> None:
        """What a round came to goes to the pools, and its pace to what the next ones are planned with."""
        if outcome.moves:
            self.move_s = outcome.anneal_s / outcome.moves
        elif done.anneals:
            self.has_time = False
        if done.ranks:
            # Without a rival two or three sizes of groups were planned.
            ranking_s = outcome.ranking_s if done.rival else outcome.ranking_s / 3
            self.ranking_s = max(RANKING_DECAY * self.ranking_s, ranking_s)
        self.history.append((time.monotonic(), self.pools.limited.pool[0].score))
        is_better = self.pools.take(done, outcome.tree, outcome.sliced)
        self.idle = 0 if is_better else self.idle + 1
        if is_better:
            # Among ranked trees the faster one may have the larger score.
            report = self.on_better if self.pools.limited.fastest else self._report
            report(self.pools.best)
        self._save()

    def _report(self, tree: ScoredTree) -> None:
        """Report a tree that is better than all reported so far, while none is ranked."""
        if self.pools.limited.fastest is None and tree.score < self.reported_score:
            self.reported_score = tree.score
            self.on_better(tree)

    def _save(self) -> None:
        """Write the pools; those of a large network only as often as takes a small share of the time."""
        now = time.monotonic()
        if self.checkpoint is None or (self.save_s > SLOW_S and now - self.saved < self.save_s / SAVED_SHARE):
            return
        self.checkpoint.write(self.pools, now - self.began)
        self.saved = time.monotonic()
        self.save_s = self.saved - now


Submit = Callable[[Round, float, float], "Future[RoundOutcome]"]
"""What takes a round, its moves and its end."""


@contextmanager
def _workers(count: int, task: Task, target: Target | None, on_better: OnBetter) -> Iterator[Submit]:
    """Processes for rounds; this one where one is all, so that it reports better trees on the way."""

    def here(next_round: Round, moves: float, ends: float) -> Future[RoundOutcome]:
        future: Future[RoundOutcome] = Future()
        future.set_result(carry_out(task, next_round, moves, ends, target, on_better))
        return future

    if count == 1:
        yield here
        return
    context = get_context("spawn")
    gives_up = context.Event()
    # A large network goes to each process once, by a file: a process that ends before it has read its
    # arguments would leave this one waiting to write them, where they are longer than a pipe holds.
    with TemporaryDirectory() as folder:
        file = Path(folder) / "task"
        file.write_bytes(pickle.dumps((task, target)))
        with ProcessPoolExecutor(count, context, _begin_worker, (gives_up, file)) as pool:
            try:
                yield lambda *given: pool.submit(_carry_out_there, *given)
            except BaseException:
                gives_up.set()  # rounds would be waited for
                raise


_there: list[tuple[Task, Target | None]] = []
"""Of a process for rounds: what it searches."""


def _begin_worker(gives_up: Any, file: Path) -> None:
    end_with_parent(gives_up)
    _there[:] = [pickle.loads(file.read_bytes())]


def _carry_out_there(next_round: Round, moves: float, ends: float) -> RoundOutcome:
    task, target = _there[0]
    return carry_out(task, next_round, moves, ends, target)


def end_with_parent(gives_up: Any = None) -> None:
    """End this process when the one that started it is gone, killed perhaps, or gives up; not by signals,
    which that one heeds."""
    parent = parent_process()
    assert parent is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    for wait_for in (parent.join, *([] if gives_up is None else [gives_up.wait])):

        def watch(wait_for: Callable[[], object] = wait_for) -> None:
            wait_for()
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()


def carry_out(
    task: Task,
    next_round: Round,
    moves: float,
    ends: float,
    target: Target | None,
    on_better: OnBetter | None = None,
) -> RoundOutcome:
    """One round of about so many moves, or fewer when time is up.

    The tree of a round without the limit is sliced afterwards.
    """
    before = time.monotonic()
    # Without a limit, and then sliced: the tree goes to the pool of free trees, what it was sliced to to the
    # other.
    if next_round.unlimited:
        unlimited = replace(task, limit=None, waist_limit=inf).with_roots(next_round.power)
        outcome = carry_out(unlimited, replace(next_round, unlimited=False), moves, ends, None)
        sliced = _scored(task, outcome.tree)[1] if outcome.tree else None
        return replace(outcome, sliced=sliced, anneal_s=time.monotonic() - before)
    tree: ScoredTree | None = next_round.source
    moves_made = 0
    if next_round.anneals:
        weighted = _changed(task, next_round, target)
        source = _source(task, next_round, ends)
        # The legs of all nodes of a large tree as bits take too much memory: it is annealed region by region.
        if is_large(task):
            large = LargeTree(weighted, source)
            draw = random.Random(f"{task.seed} {next_round.number} region")
            moves_made = large.improve(next_round.heat, moves, ends, draw)
            tree = large.scored() if large.fits else None
        elif next_round.kind == "descent" and task.limit is not None:
            annealing = Annealed(replace(weighted, limit=None), source, next_round.number)
            heats = next_round.heat, warm_heat(task.seed, next_round.number)
            moves_made = annealing.descend(task.limit, heats, moves, ends)
            tree = annealing.best_tree()
        else:
            annealing = Annealed(weighted, source, next_round.number)
            if next_round.limit_factor < 1.0:
                annealing.tighten(weighted.limit or inf)
            # The scores of a round that counts otherwise say nothing beside those of the others.
            moves_made = annealing.run(next_round.heat, moves, ends, None if next_round.ranks else on_better)
            tree = annealing.best_tree()
    annealed = time.monotonic()
    if tree is not None and next_round.ranks and target is not None:
        tree = replace(tree, time_s=None)
        tree = target.ranked(tree, next_round.rival, next_round.group_steps, next_round.anneals)
    return RoundOutcome(tree, None, moves_made, annealed - before, time.monotonic() - annealed)


def _changed(task: Task, next_round: Round, target: Target | None) -> Task:
    """What a round near the fastest tree searches."""
    factor, limit = next_round.limit_factor, task.limit
    if limit is not None and target is not None and (factor < 1.0 or target.exceeds):
        limit = max(int(factor * limit), 1)
    waist_limit = task.waist_limit
    # Trees that fit, by their plan, have room at the waist.
    if next_round.ranks and next_round.source.time_s is None and target is not None:
        waist_limit = target.waist_limit(limit)
    return replace(task, written_weight=next_round.written_weight, limit=limit, waist_limit=waist_limit)


def _source(task: Task, next_round: Round, ends: float) -> ScoredTree:
    """The tree that a round starts from; those of a round's own follow from its number.

    Orders of a large network are left out where there is no time for them.
    """
    if next_round.kind == "greedy":
        return random_greedy(task, next_round.number)
    if next_round.kind not in ("order", "descent"):
        return next_round.source
    starts = OrderStarts(task if next_round.kind == "order" else replace(task, limit=None), ends)
    first, n = DRAWN_TREES * (next_round.number + FIRST_ORDERS), len(task.inputs)
    drawn = (starts.tree(first + i) for i in range(DRAWN_TREES) if has_time(n, ends))
    trees = (tree for tree in drawn if tree is not None)
    return min(trees, key=lambda tree: tree.score, default=next_round.source)
