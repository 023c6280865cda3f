"""Weights that are multiplied, of vertices, edges and literals, and weights of clauses."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import networkx
import pytest

import tnplan
from tests.oracles.configurations import Instance, random_instance, solutions
from tests.support.slow import slow_after
from tnplan.questions.combinatorial import counting

WEIGHED = ("independent-sets", "matchings", "dimers", "sat")
SEEDS = range(3000, 3020)


def random_weight(chance: random.Random) -> Fraction:
    match chance.randrange(6):
        case 0:
            return Fraction(chance.randint(-3, 3))
        case 1:
            return Fraction(chance.randint(-(10**12), 10**12), 10**9)
        case 2:
            return Fraction(chance.randint(1, 9), chance.randint(1, 9))
    return Fraction(chance.randint(0, 1000), 1000)


def given_as(weight: Fraction, chance: random.Random) -> Any:
    """The same weight as a user may write it."""
    forms: list[Any] = [weight, f"{weight.numerator}/{weight.denominator}"]
    if 10**9 % weight.denominator == 0:
        forms.append(float(weight))
    return chance.choice(forms)


def weighed(instance: Instance, chance: random.Random) -> tuple[dict[Any, Any], dict[Any, Fraction]]:
    """Weights as they are given, and of all vertices, edges or literals."""
    match instance.problem:
        case "independent-sets":
            keys, drawn = list(instance.vertices), [key for key in instance.vertices if chance.random() < 0.8]
        case "sat":
            variables = [k for k in range(1, instance.n_variables + 1) if chance.random() < 0.8]
            keys = [sign * k for k in range(1, instance.n_variables + 1) for sign in (1, -1)]
            drawn = [sign * k for k in variables for sign in (1, -1)]
        case _:
            keys, drawn = list(instance.edges), [key for key in instance.edges if chance.random() < 0.8]
    weights = {key: random_weight(chance) for key in drawn}
    given = {key: given_as(weight, chance) for key, weight in weights.items()}
    if instance.problem in ("matchings", "dimers"):
        given = {ends[:: chance.choice((1, -1))]: weight for ends, weight in given.items()}
        return given, {frozenset(key): weights.get(key, Fraction(1)) for key in keys}
    return given, {key: weights.get(key, Fraction(1)) for key in keys}


def sum_of_products(instance: Instance, weights: dict[Any, Fraction]) -> Fraction:
    return sum(
        (prod((weights[key] for key in shown), start=Fraction(1))
         for shown, _, is_kept in solutions(instance) if is_kept),
        Fraction(0),
    )  # fmt: skip


@pytest.fixture(params=["tables", "few at once", "trees"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Tables, with two primes at once too, or trees."""
    if request.param == "few at once":
        monkeypatch.setattr(counting, "AT_ONCE", 2)
    if request.param == "trees":
        monkeypatch.setattr(counting, "STATE_BYTES", 2.0**900)
    return str(request.param)


@pytest.mark.parametrize("problem", WEIGHED)
def test_weighted_counts_are_sums_over_configurations(problem: str, way: str) -> None:
    n_primes = set()
    for seed in SEEDS[:: 4 if way == "trees" else 1]:
        instance, chance = random_instance(problem, seed), random.Random(seed)
        given, weights = weighed(instance, chance)
        result = tnplan.count(problem, instance.given, weights=given)
        assert result.value == sum_of_products(instance, weights), (problem, seed)
        n_primes.add(result.report["primes"])
    assert max(n_primes) > 2


@pytest.mark.parametrize("problem", ["independent-sets", "matchings", "dimers"])
def test_weights_of_a_graph_are_its_own(problem: str) -> None:
    for seed in SEEDS:
        instance = random_instance(problem, seed)
        own: dict[Any, Fraction] = instance.vertices if problem == "independent-sets" else {
            frozenset(ends): weight for ends, weight in instance.edges.items()
        }  # fmt: skip
        assert tnplan.count(problem, instance.given, weights=True).value == sum_of_products(instance, own)


def test_literal_weights_of_a_file(tmp_path: Path) -> None:
    """Before, between and behind the clauses; without weights=True the assignments are counted."""
    for seed in SEEDS:
        instance, chance = random_instance("sat", seed), random.Random(seed)
        given, weights = weighed(instance, chance)
        clauses = instance.clauses
        lines = [" ".join(map(str, [*clause, 0])) for clause in clauses]
        lines += [f"c p weight {literal} {weight} 0" for literal, weight in given.items()]
        chance.shuffle(lines)
        path = tmp_path / "a.cnf"
        path.write_text("\n".join(["c t wmc", f"p cnf {instance.n_variables} {len(clauses)}", *lines]))
        assert tnplan.count("sat", path, weights=True).value == sum_of_products(instance, weights)
        number = sum(is_kept for *_, is_kept in solutions(instance))
        assert tnplan.count("sat", path).value == number


@pytest.mark.parametrize("seed", range(5))
def test_weighted_formulas_against_a_model_counter(seed: int) -> None:
    pyganak = pytest.importorskip("pyganak", reason="needs pyganak")
    chance, n = random.Random(seed), 40
    near = [[chance.randint(first, min(n, first + 9)) for _ in range(3)] for first in range(1, n - 1)]
    clauses = [[k * chance.choice((1, -1)) for k in set(names)] for names in near]
    counter = pyganak.WeightedCounter()
    counter.new_vars(n)
    counter.add_clauses(clauses)
    weights = {sign * k: chance.randint(1, 999) / 1000 for k in range(1, n + 1) for sign in (1, -1)}
    for literal, weight in weights.items():
        counter.set_lit_weight(literal, weight)
    value = float(tnplan.count("sat", clauses, weights=weights).value)
    assert value == pytest.approx(counter.count(), rel=1e-12)


def random_wcnf(seed: int) -> tuple[int, list[tuple[int | None, list[int]]]]:
    """The number of variables, and clauses with their weights, None where they are hard."""
    chance = random.Random(f"wcnf {seed}")
    n = chance.randint(1, 8)
    largest = chance.choice((1, 7, 10**9))
    clauses: list[tuple[int | None, list[int]]] = [(1, [n])]
    for _ in range(chance.randint(0, 14)):
        width = chance.choice([0, 1, 1, 2, 2, 3, 4, 9])
        literals = [chance.choice((1, -1)) * chance.randint(1, n) for _ in range(width)]
        is_hard = chance.random() < 0.4 and width > 1
        clauses.append((None if is_hard else chance.randint(1, largest), literals))
    return n, clauses


def wcnf_texts(n: int, clauses: list[tuple[int | None, list[int]]]) -> Iterator[str]:
    """The form with a line p, and that without."""
    top = 1 + sum(weight or 0 for weight, _ in clauses)
    shown = [(weight, " ".join(map(str, [*literals, 0]))) for weight, literals in clauses]
    lines = [f"{top if weight is None else weight} {text}" for weight, text in shown]
    yield "\n".join(["c old", f"p wcnf {n} {len(clauses)} {top}", *lines])
    yield "\n".join(["c new", *(f"{'h' if weight is None else weight} {text}" for weight, text in shown)])


@pytest.mark.parametrize("seed", range(30))
def test_maxsat_is_that_of_all_assignments(seed: int, tmp_path: Path) -> None:
    n, clauses = random_wcnf(seed)
    worths: dict[tuple[int, ...], int] = {}
    for signs in product((-1, 1), repeat=n):
        literals = {sign * k for k, sign in enumerate(signs, 1)}
        broken = [weight for weight, clause in clauses if literals.isdisjoint(clause)]
        if None not in broken:
            worths[tuple(sorted(literals, key=abs))] = sum(
                weight or 0 for weight, clause in clauses if not literals.isdisjoint(clause)
            )
    best = max(worths.values(), default=None)
    optima = [literals for literals, worth in worths.items() if worth == best]
    for text in wcnf_texts(n, clauses):
        path = tmp_path / "a.wcnf"
        path.write_text(text)
        result = tnplan.optimize("sat", path)
        assert result.value == best
        if best is None:
            assert result.configuration is None
            continue
        assert result.n_optima == len(optima)
        assert tuple(result.configuration) in optima
        total = sum(weight or 0 for weight, _ in clauses)
        assert result.report["falsified"] == total - best
        if total < 100:
            by_size = tnplan.count("sat", path, by_size=True).by_size
            assert by_size == dict(sorted(Counter(worths.values()).items()))
        assert tnplan.count("sat", path).value == sum(worth == total for worth in worths.values())


@pytest.mark.parametrize("problem", [*WEIGHED, "colourings", "ising"])
def test_sizes_by_trees_are_those_of_tables(problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = "torus 3x4" if problem == "dimers" else "king 3x4"
    given = random_instance("sat", 3).given if problem == "sat" else graph
    expected = tnplan.count(problem, given, by_size=True).by_size
    monkeypatch.setattr(counting, "STATE_BYTES", 2.0**900)
    result = tnplan.count(problem, given, by_size=True)
    assert result.by_size == expected
    assert len(expected or ()) > (problem != "dimers")


CNF = "p cnf 3 2\n1 2 0\n"


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.cnf", CNF + "c p show 1 2 0\n", ":3: is 'c p show 1 2 0', for projected counting; leave it out"),
        ("a.cnf", CNF + "c p weight 1 0.5 0\n", ":3: has a weight of 1, and no line has one of -1"),
        ("a.cnf", CNF + "c p weight 1 x 0\nc p weight -1 1 0\n", ":3: has weight 'x'; give a finite number"),
        ("a.cnf", CNF + "c p weight 1 nan 0\n", ":3: has weight 'nan'"),
        ("a.cnf", CNF + "c p weight 1 1/0 0\n", ":3: has weight '1/0'"),
        ("a.cnf", CNF + "c p weight 1 1e9999 0\n", ":3: has weight '1e9999'"),
        ("a.cnf", CNF + "c p weight 0 1 0\n", ":3: is 'c p weight 0 1 0'; give 'c p weight"),
        ("a.cnf", CNF + "c p weight 1 0.5\n", ":3: is 'c p weight 1 0.5'; give 'c p weight"),
        ("a.cnf", CNF + "c p gweight 2 0\n", ":3: is 'c p gweight 2 0'"),
        ("a.cnf", CNF + "c p weight 4 1 0\nc p weight -4 1 0\n", ":3: has 4; give a literal up to 3"),
        ("a.cnf", CNF + "c p weight 1 1 0\nc p weight 1 2 0\n", ":4: has a second weight of literal 1; give"),
        ("a.wcnf", "p wcnf 2 1 10\n0 1 0\n", ":2: has the weight '0'; give a whole number from 1 up"),
        ("a.wcnf", "p wcnf 2 1 10\n-3 1 0\n", ":2: has the weight '-3'"),
        ("a.wcnf", "p wcnf 2 1 10\n1.5 1 0\n", ":2: has the weight '1.5'"),
        ("a.wcnf", "p wcnf 2 1 10\nh 1 0\n", ":2: has the weight 'h'"),
        ("a.wcnf", "p wcnf 2 1 10\n1 3 0\n", ":2: has '3'"),
        ("a.wcnf", "p wcnf 2 1 x\n1 1 0\n", ":1: has the weight 'x'"),
        ("a.wcnf", "p wcnf 2 1 3 4\n1 1 0\n", ":1: has 'p'"),
        ("a.wcnf", "h 1 2 0\nx 1 0\n", ":2: has the weight 'x'"),
        ("a.wcnf", "h 1 2 0\n3 1 h 0\n", ":2: has 'h'; give literals up to"),
        ("a.wcnf", "h 1 2 0\n3 9999999 0\n", ":2: has '9999999'; give literals up to 1,000,000"),
        ("a.wcnf", "h 0\n", "has no variable"),
        ("a.wcnf", f"9{'0' * 17} 1 0\n", "more than 2^52 units of 1/1; round them"),
        ("a.wcnf", f"9{'0' * 19} 1 0\n", ":1: has the weight"),
    ],
)
def test_files_with_weights_that_are_refused(name: str, text: str, line: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(tnplan.InputError) as refusal:
        tnplan.optimize("sat", tmp_path / name)
    assert line in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("problem", "given", "weights", "line"),
    [
        ("independent-sets", "grid 2x2", {(0, 2): 1}, "has (0, 2), which is not in the instance"),
        ("independent-sets", "grid 2x2", {(0, 1): "x"}, "(0, 1): has weight 'x'"),
        ("independent-sets", "grid 2x2", 3, "weights: is 3; give True"),
        ("matchings", [(1, 2)], {(1, 2): 1, (2, 1): 1}, "has (2, 1) twice"),
        ("matchings", [(1, 2)], {(1, 3): 1}, "has (1, 3), which"),
        ("sat", [[1, 2]], {1: 2}, "has 1 without -1"),
        ("sat", [[1, 2]], {3: 2, -3: 1}, "has 3, which"),
        ("ising", "grid 2x2", True, "are given together with ising"),
        ("colourings", "grid 2x2", {(0, 0): 1}, "are given together with colourings"),
        ("matchings", [(k, k + 1) for k in range(1000)], dict.fromkeys([(k, k + 1) for k in range(1000)],
         "7e-999"), "bits together; round the weights"),
    ],
)  # fmt: skip
def test_weights_that_are_refused(problem: str, given: Any, weights: Any, line: str) -> None:
    with pytest.raises(tnplan.InputError) as refusal:
        tnplan.count(problem, given, weights=weights)
    assert line in str(refusal.value)


def test_weights_stand_without_sizes() -> None:
    with pytest.raises(tnplan.InputError, match="together with by_size"):
        tnplan.count("matchings", [(1, 2)], weights=True, by_size=True)


def test_what_takes_years_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is lowered: plans of what really takes years take long themselves."""
    monkeypatch.setattr(counting, "MOST_S", 1e-9)
    monkeypatch.setattr(counting, "LEAST_PLANNED_S", -1.0)
    monkeypatch.setattr(counting, "MOST_TABLE_S", -1.0)
    monkeypatch.setattr(counting, "SHORT_SEARCH_S", 0.1)
    for call in (tnplan.optimize, tnplan.count):
        with pytest.raises(tnplan.InputError, match="a tree would take"):
            call("independent-sets", "torus 4x4")


def test_what_takes_ages_is_refused_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "find_schedule", None)
    monkeypatch.setattr(counting, "SHORT_SEARCH_S", 0.5)
    with pytest.raises(tnplan.InputError, match=r"a tree would take about .* years"):
        tnplan.optimize("independent-sets", "torus 30x30", device="cpu")


@pytest.mark.parametrize("seed", slow_after(1, range(2)))
def test_what_only_the_first_tree_takes_ages_for_is_not_refused(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches of five seconds find trees of random graphs with 10^7 to 10^11 times less work."""
    graph = networkx.random_regular_graph(3, 300, seed=seed)
    if seed:
        graph = networkx.connected_watts_strogatz_graph(240, 4, 0.4, seed=seed)

    def planned(*_: Any) -> None:
        raise NotImplementedError

    monkeypatch.setattr(counting, "find_schedule", planned)
    if not seed:  # the same search is faster on this graph
        monkeypatch.setattr(counting, "SHORT_SEARCH_S", 1.0)
    with pytest.raises(NotImplementedError):
        tnplan.count("independent-sets", graph, device="cpu")


def test_long_numbers_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Python's own text of an integer ends with an error after 4,300 digits."""
    sizes = {sign * k: "7e999" if sign > 0 else "7e-999" for k in range(1, 7) for sign in (1, -1)}
    result = tnplan.count("sat", [[k] for k in range(1, 7)], weights=sizes)
    print(result)
    digits = str(7**6) + 5994 * "0"
    assert capsys.readouterr().out.splitlines()[0].endswith(f"6 clauses: {digits} is the weight of all "
                                                            "satisfying assignments")  # fmt: skip
    assert result.report["count"] == digits
    print(tnplan.count("sat", [[-k] for k in range(1, 7)], weights=sizes))
    assert "about 1.17649E-5989 is the weight" in capsys.readouterr().out
