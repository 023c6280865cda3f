"""Graphs and formulas as they are given: lattices, files, objects, and what is refused."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest

import tnplan
from tests.oracles.configurations import random_instance
from tests.support.kernels.gpus import count_gpus, needs_gpus
from tests.support.slow import slow_after
from tnplan.questions.combinatorial.formulas import read_formula
from tnplan.questions.combinatorial.instances import read_graph

A006506 = [2, 7, 63, 1234, 55447, 5598861, 1280128950, 660647962955, 770548397261707, 2030049051145980050]
"""Independent sets of the n x n grid, n from 1 on, as published (OEIS)."""
A006506_LATER = {
    12: 162481813349792588536582997,
    14: 338752110195939290445247645371206783,
    15: 52521741712869136440040654451875316861275,
}
A004003 = [2, 36, 6728, 12988816, 258584046368, 53060477521960000, 112202208776036178000000]
"""Domino tilings of the 2n x 2n square."""
A063443 = [2, 5, 35, 314, 6427, 202841, 12727570]
"""Independent sets of the n x n board of kings."""
A068253 = [1, 6, 82, 2604, 193662, 33865632]
"""A third of the colourings in three colours of the n x n grid."""


def test_published_numbers() -> None:
    for n, number in [*enumerate(A006506, 1), *A006506_LATER.items()]:
        assert tnplan.count("independent-sets", f"grid {n}x{n}").value == number
    for n, number in enumerate(A004003, 1):
        assert tnplan.count("dimers", f"grid {2 * n}x{2 * n}").value == number
    for n, number in enumerate(A063443, 1):
        assert tnplan.count("independent-sets", f"king {n}x{n}").value == number
    for n, number in enumerate(A068253, 1):
        assert tnplan.count("colourings", f"grid {n}x{n}").value == 3 * number


def test_the_polynomial_of_a_cycle_of_matchings() -> None:
    """Matchings of size k of a cycle of n: n / (n - k) times the binomial coefficient of n - k and k."""
    from math import comb

    found = tnplan.count("matchings", networkx.cycle_graph(60), by_size=True).by_size
    assert found == {k: 60 * comb(60 - k, k) // (60 - k) for k in range(31)}


def test_energies_of_the_ring_of_spins() -> None:
    """An even number of the n bonds is broken: 2 times the binomial coefficient."""
    from math import comb

    found = tnplan.count("ising", "torus 80", by_size=True).by_size
    assert found == {-80 + 4 * k: 2 * comb(80, 2 * k) for k in range(41)}


@pytest.mark.parametrize(
    ("name", "vertices", "edges"),
    [
        ("grid 1", 1, 0), ("grid 3x4", 12, 17), ("grid 2x3x4", 24, 46), ("king 3x4", 12, 29),
        ("torus 5", 5, 5),
        ("torus 3x4", 12, 24), ("torus 2x2", 4, 4), ("torus 1x3", 3, 3), ("torus 3x3x3", 27, 81),
    ],
)  # fmt: skip
def test_lattices(name: str, vertices: int, edges: int) -> None:
    graph = read_graph(name)
    assert (len(graph.vertices), len(graph.edges)) == (vertices, edges)
    if name.startswith("grid") and "x" in name:
        wanted = networkx.grid_graph([int(n) for n in reversed(name.split()[1].split("x"))])
        ends = {frozenset(graph.edge(number)) for number in range(len(graph.edges))}
        assert ends == set(map(frozenset, wanted.edges))


def test_graphs_in_files(tmp_path: Path) -> None:
    dimacs, listed = tmp_path / "a.col", tmp_path / "a.edges"
    dimacs.write_text("c a path, and a vertex alone\np edge 4 2\nn 2 2.5\ne 1 2\ne 2 3 -7\n")
    graph = read_graph(dimacs)
    assert (graph.vertices, graph.edges) == ((1, 2, 3, 4), ((0, 1), (1, 2)))
    assert (graph.vertex_weights, graph.edge_weights) == ({1: Fraction(5, 2)}, {1: Fraction(-7)})
    listed.write_text("# couplings\na b 0.1\n\nb c 1/3\nc a\n")
    graph = read_graph(str(listed))
    assert (graph.vertices, graph.edges) == (("a", "b", "c"), ((0, 1), (1, 2), (2, 0)))
    assert graph.edge_weights == {0: Fraction(1, 10), 1: Fraction(1, 3)}
    assert tnplan.optimize("ising", listed).value == Fraction(-1) - Fraction(1, 10) - Fraction(1, 3)


def test_formulas_in_files(tmp_path: Path) -> None:
    path = tmp_path / "a.cnf"
    path.write_text("c two clauses, the second over two lines\np cnf 4 2\n1 -2 0 2\n3\n0\n%\n0\n")
    formula = read_formula(path)
    assert (formula.n_variables, formula.clauses) == (4, ((1, -2), (2, 3)))
    assert tnplan.count("sat", path).value == 8


@pytest.mark.parametrize("seed", slow_after(2, range(3)))
def test_formulas_with_twenty_variables(seed: int) -> None:
    """All assignments at once: bit k of their number is variable k + 1."""
    chance, n = random.Random(seed), 20
    clauses = [[k * chance.choice((1, -1)) for k in chance.sample(range(1, n + 1), 3)] for _ in range(60)]
    numbers = np.arange(1 << n)
    held = np.zeros(1 << n, int)
    for clause in clauses:
        held += np.logical_or.reduce([(numbers >> abs(k) - 1 & 1) == (k > 0) for k in clause])
    assert tnplan.count("sat", clauses).value == np.count_nonzero(held == len(clauses))
    best = tnplan.optimize("sat", clauses)
    assert (best.value, best.n_optima) == (held.max(), np.count_nonzero(held == held.max()))


@pytest.mark.parametrize("seed", range(50))
def test_formulas_against_a_model_counter(seed: int) -> None:
    pyganak = pytest.importorskip("pyganak", reason="needs pyganak")
    chance, n = random.Random(seed), 60
    near = [[chance.randint(first, min(n, first + 9)) for _ in range(3)] for first in range(1, n - 1)]
    clauses = [[k * chance.choice((1, -1)) for k in set(names)] for names in near * 2]
    counter = pyganak.Counter()
    counter.new_vars(n)
    counter.add_clauses([*clauses, [n, -n]])
    assert tnplan.count("sat", [*clauses, [n, -n]]).value == counter.count()


def test_a_file_counts_as_the_graph_that_it_holds(tmp_path: Path) -> None:
    for seed in range(10):
        instance = random_instance("independent-sets", seed)
        graph = networkx.convert_node_labels_to_integers(instance.given, 1)
        lines = [f"p edge {len(graph)} {len(graph.edges)}", *(f"e {a} {b}" for a, b in graph.edges)]
        (tmp_path / "a.dimacs").write_text("\n".join(lines))
        found = tnplan.count("independent-sets", tmp_path / "a.dimacs").value
        assert found == tnplan.count("independent-sets", instance.given).value


def directed() -> Any:
    return networkx.DiGraph([(1, 2), (2, 1)])


@pytest.mark.parametrize(
    ("problem", "given", "line"),
    [
        ("cliques", "grid 2x2", "'cliques' is unknown"),
        ("dimers", "grid2x2", "neither a file nor a lattice"),
        ("dimers", "king 3", "king has 1 extents"),
        ("dimers", "grid 9999x9999", "more than 1,000,000 vertices"),
        ("dimers", 7, "graph: is of type int"),
        ("dimers", [], "has no vertex"),
        ("dimers", [(1,)], "edge 0: is"),
        ("dimers", [(1, 1)], "loop at 1"),
        ("dimers", [(1, 2), (2, 1)], "twice"),
        ("dimers", directed(), "twice"),
        ("dimers", [(1, 2, "x")], "has weight 'x'"),
        ("dimers", [(1, 2, float("nan"))], "has weight 'nan'"),
        ("dimers", [(1, 2, "1e99999999")], "has weight '1e99999999'"),
        ("dimers", [(1, 2, 1j)], "has weight 1j"),
        ("ising", "grid 2x2", "by_size=True"),
        ("dimers", [([1], [2])], "has the vertex"),
        ("sat", [[10**9]], "more than 1,000,000 variables"),
        ("sat", [[0]], "formula: is"),
        ("sat", [[1.5]], "formula: is"),
        ("sat", 7, "formula: is 7"),
        ("sat", [], "has no variable"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_line(problem: str, given: Any, line: str) -> None:
    with pytest.raises(tnplan.InputError, match=line.replace("^", r"\^")):
        tnplan.count(problem, given)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("p edge 2 1\ne 1 3\n", ":2: is 'e 1 3'"),
        ("e 1 2\np edge 2 1\n", ":1: is 'e 1 2'"),
        ("p edge 2 1\nq\n", ":2: is 'q'"),
        ("p edge 9999999 0\n", "up to 1,000,000"),
        ("p edge x 1\n", ":1: has 'x'"),
        ("a b c d\n", ":1: is 'a b c d'"),
    ],
)
def test_files_of_graphs_that_are_none(text: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(tnplan.InputError, match=line):
        tnplan.count("dimers", tmp_path / "a.txt")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("1 2 0\n", "has '1'"), ("p cnf 2 1\n3 0\n", ":2: has '3'"), ("p cnf 2 1\nx 0\n", "has 'x'"),
        ("c\n", "no line"),
    ],
)  # fmt: skip
def test_files_of_formulas_that_are_none(text: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "a.cnf").write_text(text)
    with pytest.raises(tnplan.InputError, match=line):
        tnplan.count("sat", tmp_path / "a.cnf")


def test_options_that_are_refused() -> None:
    if not count_gpus():
        asked = ((tnplan.count, "dimers"), (tnplan.count, "independent-sets"), (tnplan.optimize, "ising"))
        for verb, problem in asked:
            with pytest.raises(tnplan.InputError, match=r"GPU|CUDA"):
                verb(problem, "grid 2x2", device="gpu")
    with pytest.raises(tnplan.InputError, match="colours"):
        tnplan.count("colourings", "grid 2x2", colours=0)
    with pytest.raises(tnplan.InputError, match="memory: is 100 B, and the factors take"):
        tnplan.count("independent-sets", "grid 20x20", memory=100)


def test_weights_are_exact_or_refused() -> None:
    edges = [(1, 2, 1e20), (2, 3, 1e-20)]
    assert tnplan.count("matchings", edges).value == 3
    for call in (tnplan.optimize, lambda *given: tnplan.count(*given, by_size=True)):
        with pytest.raises(tnplan.InputError, match=r"more than 2\^52 units of 1/\d+; round them"):
            call("matchings", edges)
    with pytest.raises(tnplan.InputError, match="is too small for the numbers of"):
        tnplan.count("matchings", [(1, 2, 1), (3, 4, 10**12)], by_size=True)
    sizes = tnplan.count("matchings", [(1, 2, 1), (3, 4, 50_000)], by_size=True).by_size
    assert sizes == {0: 1, 1: 1, 50_000: 1, 50_001: 1}
    tenths = tnplan.optimize("matchings", [(k, k + 1, 0.1) for k in range(60)])
    assert (tenths.value, tenths.n_optima) == (3, 31)  # of 61 vertices in a row, any odd one may be left


@pytest.mark.parametrize("n", slow_after(11, [70, 73, 74, 75, 76, 77, 78, 79, 80, 400, 2000, 1200]))
def test_numbers_of_every_size(n: int) -> None:
    """Independent sets of a path: Fibonacci numbers, about 2^53 and beyond the range of floating point."""
    before, number = 1, 2
    for _ in range(n - 1):
        before, number = number, before + number
    assert tnplan.count("independent-sets", f"grid {n}").value == number
    free = tnplan.optimize("ising", [(k, k + 1, 0) for k in range(n - 1)])
    assert (free.value, free.n_optima) == (0, 2**n)


def test_results_print_as_reports(capsys: pytest.CaptureFixture[str]) -> None:
    print(tnplan.count("independent-sets", "grid 2x2", by_size=True))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "grid 2x2 of 4 vertices and 4 edges: 7 independent sets"
    assert lines[1:4] == ["  weight 0: 1", "  weight 1: 4", "  weight 2: 2"]
    best = tnplan.optimize("dimers", "grid 3x3")
    assert (best.value, best.configuration) == (None, None)
    assert str(best) == "grid 3x3 of 9 vertices and 12 edges: there are no perfect matchings"


@pytest.mark.parametrize(
    ("lattice", "sides"),
    [
        ("grid 3x5", (3, 5)), ("grid 5x3", (3, 5)), ("grid 4", (1, 4)), ("grid 2x2", (2, 2)),
        ("grid 1x1", None), ("king 3x5", None), ("torus 4x4", None), ("grid 2x2x2", None),
    ],
)  # fmt: skip
def test_grids_are_known_by_their_edges(lattice: str, sides: tuple[int, int] | None) -> None:
    graph = read_graph(lattice)
    assert graph.grid == sides
    if sides is not None and len(graph.edges) > 1:
        assert read_graph([graph.edge(number) for number in range(1, len(graph.edges))]).grid != sides


@needs_gpus(1)
def test_grids_row_by_row_on_a_gpu() -> None:
    for lattice in ("grid 1x1", "grid 3x5", "grid 20x7"):
        values = {tnplan.count("independent-sets", lattice, device=device).value for device in ("cpu", "gpu")}
        assert len(values) == 1
