"""What each round of the joint search starts from, how hot, and what becomes of its tree: decisions only.

Knows no kernel, no clock, no processes and no files: every choice follows from the seed, a round's number and
the trees that have come back, so that a search goes on from a checkpoint as if it had never stopped.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log, log2

from tnplan.planner.search.annealer.anneal_state import Heat
from tnplan.planner.search.annealing import ScoredTree, between

HOT_SHARE, HOT_ODDS = 0.6, 0.7
"""In the first share of a search most rounds start hot, many from trees of their own: in which basin one ends
depends on where it starts, hot or not. Short ones end in good basins as often as long ones; the others go on
from the best of them."""
HOT_KINDS = ("first", "greedy", "order", "descent")
HALVING_BITS, MOST_HALVINGS = 3.0, 3.0
"""What has led to a best tree so many times 2 worse comes up half as often, down to 2^-MOST_HALVINGS."""
HOT, WARM = (15.0, 50.0), (3.0, 25.0)
"""Between these `local` is drawn: with more of it warm rounds lose a good tree and bring none back."""
SHORTEST_LENGTH = 0.1
"""Moves of the shortest round, in those of a full one."""
MEAN_LENGTH = (1.0 - SHORTEST_LENGTH) / -log(SHORTEST_LENGTH)
"""The mean of lengths from the shortest to 1 whose logarithms are drawn evenly."""
POOL = 4
"""Trees of a pool. Warm rounds take them by rank, each e times as often as the next."""
NEAR_LENGTHS = (0.01, 0.1)
"""Moves of a round near the fastest tree, in those of a full round."""
NEAR_HALVING_BITS, NO_PLAN_BITS = 0.1, 0.2
"""A way near the fastest tree comes up half as often where it led to so many times 2 more time; a tree that
is not planned counts as that much slower than its source."""
WAYS = ((0, 2.0), (0, 1.0), (0, 4.0), (-1, 1.0), (-1, 0.5), (1, 2.0))
"""Ways to a tree near the fastest: steps in the list of group sizes, and the limit in that of the task. The
first gains most on networks with many slices, and comes first."""
WRITTEN = (1.0, 2.0, 4.0)
"""What a round near the fastest counts for an element of a result: how many of them are read and written
depends on the chains."""


@dataclass(frozen=True)
class Round:
    """A round. `rank` plans a tree for its predicted time, `near` does that and anneals, the others anneal.

    `greedy` and `order` start from trees of their own in place of `source`, the first tree: cotengra's greedy
    ones, or those of orders. `descent` starts from an order too, without a limit, and comes to it from above.
    """

    number: int
    kind: str
    source: ScoredTree
    heat: Heat
    length: float = 1.0
    """Moves in those of a full round."""
    written_weight: float = 0.0
    """What an element of a result counts in it besides."""
    limit_factor: float = 1.0
    """The limit in that of the task."""
    group_steps: int = 0
    """Steps in the list of group sizes, from that of the rival."""
    rival: ScoredTree | None = None
    """The fastest tree, where it ranks one."""
    unlimited: bool = False
    """Whether tensors have no limit in it."""
    power: float = 1.0
    """Extents count to this power in it."""

    @property
    def anneals(self) -> bool:
        """Whether the round makes moves."""
        return self.kind != "rank"

    @property
    def ranks(self) -> bool:
        """Whether the round needs the predicted time."""
        return self.kind in ("rank", "near")


@dataclass
class ElitePool:
    """The trees that rounds start from. `next` gives a round, `take` its tree."""

    seed: int
    first: ScoredTree
    pool: list[ScoredTree]
    """The cheapest trees, cheapest first."""
    fastest: ScoredTree | None = None
    """The tree of the least predicted time, once trees are ranked."""
    asked: list[float] = field(default_factory=list)
    """The scores of the trees that were ranked by predicted time."""
    near_log2: dict[str, float] = field(default_factory=dict)
    """log2 of the least predicted time that each of `WAYS` has led to."""
    number: int = 0
    """Rounds given so far."""
    given: float = 0.0
    """Their lengths added up."""
    origins: dict[str, float] = field(default_factory=dict)
    """The best score that hot rounds of a kind have led to."""
    limited: bool = False
    """Whether tensors have a limit."""
    power: float = 1.0
    """Scores count with extents to this power; below 1 where sizes are beyond floating point."""

    @property
    def best(self) -> ScoredTree:
        """The fastest tree where trees are ranked, else the cheapest."""
        return self.fastest or self.pool[0]

    def next(self, planned: float, ranking: bool, greedy: bool = True) -> Round:
        """The next round of a search that is planned to have `planned` full rounds in all.

        When `ranking`, the pool and the first tree are ranked, then others near the fastest. `greedy` says
        whether rounds have time for greedy trees of their own.
        """
        number, draw = self.number, random.Random(f"{self.seed} {self.number}")
        next_round = self._near(number, draw) if ranking else self._anneal(number, draw, planned, greedy)
        self.number += 1
        self.given += next_round.length
        return next_round

    def _anneal(self, number: int, draw: random.Random, planned: float, greedy: bool) -> Round:
        length = between(draw, SHORTEST_LENGTH, 1.0)
        if number == 0 or (self.given < HOT_SHARE * planned and draw.random() < HOT_ODDS):
            kind = self._hot_kind(draw, greedy) if number else "first"
            # The second round of a limited search always descends, so that `origins` soon knows that kind.
            if number == 1 and self.limited:
                kind = "descent"
            return Round(number, kind, self.first, _heat(draw, HOT, (0.28, 0.57)), length)
        # Rank r with odds e^-r (1 - 1/e), the rest for the last: good trees go on more often, none is
        # forgotten.
        rank = min(int(draw.expovariate(1.0)), len(self.pool) - 1)
        return Round(number, "warm", self.pool[rank], _heat(draw, WARM, (0.1, 0.4)), length)

    def _hot_kind(self, draw: random.Random, greedy: bool) -> str:
        """Where a hot round starts: the kinds that led to better trees come up more often."""
        kinds = [kind for kind in HOT_KINDS if greedy or kind != "greedy"]
        kinds = [kind for kind in kinds if self.limited or kind != "descent"]
        return draw.choices(kinds, _odds(self.origins, kinds))[0]

    def _near(self, number: int, draw: random.Random) -> Round:
        # Predicted times are computed once a tree: the plan of one takes as long as many moves.
        for source in (*self.pool, self.first):
            # Every other round goes on from the fastest: time may be up before all have been asked.
            if source.score not in self.asked and (self.fastest is None or number % 2):
                self.asked.append(source.score)
                return Round(number, "rank", source, _mild_heat(draw), 0.0, rival=self.fastest)
        names = [str(way) for way in range(len(WAYS))]
        scaled = {name: HALVING_BITS / NEAR_HALVING_BITS * bits for name, bits in self.near_log2.items()}
        steps, factor = WAYS[int(draw.choices(names, _odds(scaled, names))[0]) if scaled else 0]
        if self.fastest is None:  # nothing fits yet
            steps, factor = 0, 0.5 ** draw.randint(1, 4)
        return Round(
            number, "near", self.best, _mild_heat(draw), between(draw, *NEAR_LENGTHS), rival=self.fastest,
            written_weight=draw.choice(WRITTEN), limit_factor=factor, group_steps=steps,
        )  # fmt: skip

    def take(self, done: Round, tree: ScoredTree | None) -> bool:
        """Add the tree of a round, if it has one; whether there is a new best."""
        if tree is None:
            return False
        before, source = self.best, done.source
        if done.ranks:
            way = done.group_steps, done.limit_factor
            if done.kind == "near" and way in WAYS and source.time_s is not None:
                name = str(WAYS.index(way))
                bits = log2(source.time_s if tree.time_s is None else tree.time_s)
                bits += NO_PLAN_BITS * (tree.time_s is None)
                self.near_log2[name] = min(bits, self.near_log2.get(name, bits))
            if _time_s(tree) < _time_s(self.fastest):
                self.fastest = tree
            return self.best is not before
        if done.kind in HOT_KINDS:
            self.origins[done.kind] = min(tree.score, self.origins.get(done.kind, inf))
        # A better tree takes the place of its source, so that the pool stays diverse.
        if done.kind in ("first", "warm") and tree.score < source.score and source in self.pool:
            self.pool.remove(source)
        self.add(tree)
        return self.best is not before

    def add(self, tree: ScoredTree) -> None:
        """Add a tree; the pool has the `POOL` best of them."""
        if tree not in self.pool:
            self.pool = sorted([*self.pool, tree], key=lambda elite: elite.score)[:POOL]


@dataclass
class Pools:
    """The pool of a search, and under a limit a second one of trees without it.

    Rounds of both take turns. Those of the second are as if there were no limit. What their trees are sliced
    to goes to the first pool, whose warm rounds go on from it. The pool that led to the better tree within
    the limit has more of the rounds.
    """

    limited: ElitePool
    """Trees within the limit, if there is one."""
    unlimited: ElitePool | None = None
    sliced: float | None = None
    """The best score of a tree that was sliced."""
    running: list[Round] = field(default_factory=list)
    """Rounds that were given and not taken yet, in order: a search that is resumed begins with them."""

    @property
    def best(self) -> ScoredTree:
        """The best tree within the limit."""
        return self.limited.best

    @property
    def given(self) -> float:
        """The lengths of all rounds added up."""
        return self.limited.given + (self.unlimited.given if self.unlimited else 0.0)

    @property
    def number(self) -> int:
        """Rounds given so far."""
        return self.limited.number + (self.unlimited.number if self.unlimited else 0)

    def next(self, planned: float, ranking: bool, greedy: bool = True) -> Round:
        """The next round: see `ElitePool.next`. Each pool plans with what the other has not used."""
        unlimited = self.unlimited
        if unlimited is None:
            return self.limited.next(planned, ranking, greedy)
        if ranking or not self._next_is_unlimited():
            return self.limited.next(planned - unlimited.given, ranking, greedy)
        next_round = unlimited.next(planned - self.limited.given, False, greedy)
        return replace(next_round, unlimited=True, power=unlimited.power)

    def _next_is_unlimited(self) -> bool:
        """Whether the next round has no limit: the first has none, the second has one."""
        if self.number < 2:
            return self.number == 0
        scores = {} if self.sliced is None else {"unlimited": self.sliced}
        if self.limited.origins:
            scores["limited"] = min(self.limited.origins.values())
        draw = random.Random(f"{self.limited.seed} {self.number} free")
        return draw.choices((True, False), _odds(scores, ("unlimited", "limited")))[0]

    def take(self, done: Round, tree: ScoredTree | None, sliced: ScoredTree | None = None) -> bool:
        """Add the tree of a round, and what that was sliced to; whether there is a new best."""
        if self.unlimited is None or not done.unlimited:
            return self.limited.take(done, tree)
        self.unlimited.take(done, tree)
        if sliced is None:
            return False
        before = self.best
        self.sliced = sliced.score if self.sliced is None else min(self.sliced, sliced.score)
        self.limited.add(sliced)
        return self.best is not before


def _odds(scores: Mapping[str, float], names: Sequence[str]) -> list[float]:
    """How often each comes up, by the best score that it led to; those not tried yet like the best."""
    # 2^-(bits behind the best / HALVING_BITS), not below 2^-MOST_HALVINGS: no kind dies out, as a later round
    # of it may lead to the best tree.
    best = min(scores.values(), default=0.0)
    behind = [(scores.get(name, best) - best) / HALVING_BITS for name in names]
    return [2.0 ** -min(halvings, MOST_HALVINGS) for halvings in behind]


def _time_s(tree: ScoredTree | None) -> float:
    return inf if tree is None or tree.time_s is None else tree.time_s


def warm_heat(seed: int, number: int) -> Heat:
    """The heat of a round's second part."""
    return _heat(random.Random(f"{seed} {number} warm"), WARM, (0.1, 0.4))


def _heat(draw: random.Random, weights: tuple[float, float], hots: tuple[float, float]) -> Heat:
    """Temperatures drawn for a round: no single choice is best for all networks."""
    local = between(draw, *weights)
    hot = between(draw, *hots)
    cold = min(between(draw, 0.014, 0.028), hot / 2)
    return Heat(local, hot, cold, between(draw, 0.7, 3.0))


def _mild_heat(draw: random.Random) -> Heat:
    """Heat that changes a good tree a little; a larger `local` takes it far away."""
    hot = between(draw, 0.001, 0.02)
    return Heat(between(draw, 0.3, 6.0), hot, hot / 10, 3.0)
