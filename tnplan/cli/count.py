"""`tnplan count` and `tnplan optimize`: graphs and formulas."""

from __future__ import annotations

from typing import Any

import click

from tnplan.cli.from_signature import Call, command
from tnplan.cli.progress import ProgressLines
from tnplan.cli.terminal import say_result
from tnplan.questions.combinatorial.problems import PROBLEMS

PROBLEM = click.argument("problem", type=click.Choice(list(PROBLEMS)), metavar="PROBLEM")
INSTANCE = click.argument("instance", metavar="INSTANCE")
COLOURS = {"type": click.IntRange(1)}


@command("count.count", problem=PROBLEM, instance=INSTANCE, colours=COLOURS)
def count(call: Call, as_json: bool, **options: Any) -> None:
    """PROBLEM is independent-sets, matchings, dimers (perfect matchings), colourings, ising or sat. INSTANCE
    is a DIMACS file of a graph or a formula, a file with an edge 'U V' or 'U V WEIGHT' a line, or a lattice
    such as 'grid 8x8', 'king 10x10' or 'torus 4x4x4'. The number is exact, whatever its size.
    """
    with ProgressLines() as progress:
        result = call(progress=progress, **options)
    say_result(result.report, as_json, [result])


@command("count.optimize", problem=PROBLEM, instance=INSTANCE, colours=COLOURS)
def optimize(call: Call, as_json: bool, **options: Any) -> None:
    """PROBLEM and INSTANCE are those of 'tnplan count'. Largest is the weight of sets of vertices and edges,
    and the number of clauses that hold; least is the energy of spins, and the number of edges whose ends have
    one colour. The configuration that is shown is checked against the instance.
    """
    with ProgressLines() as progress:
        result = call(progress=progress, **options)
    say_result(result.report, as_json, [result])
