"""`count` and `optimize`: numbers of configurations and optima of graphs and formulas, exactly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tnplan
from tnplan.jobs.progress import Listener

TOPIC = "counting and optimization"


def count(
    problem: str,
    instance: Any,
    *,
    colours: int = 3,
    by_size: bool = False,
    weights: Mapping[Any, Any] | bool = False,
    memory: float | str | None = None,
    device: str = "auto",
    devices: int = 1,
    threads: int | None = None,
    progress: Listener | bool | None = None,
) -> tnplan.Count:
    """Count the configurations of a graph or a formula, exactly.

    Parameters
    ----------
    problem : {"independent-sets", "matchings", "dimers", "colourings", "ising", "sat"}
        Sets of vertices without edges between them; sets of edges without common ends, "dimers" those that
        have every vertex; vertices in colours, the ends of each edge in two; spins; satisfying assignments.
    instance : graph, list of edges, list of clauses, path or str
        A graph of NetworkX; edges as pairs of vertices, with a weight as a third; a file of DIMACS or of
        edges; or a lattice by name, such as "grid 8x8", "king 10x10" or "torus 4x4x4". A formula is a CNF or
        WCNF file of DIMACS, or clauses as lists of literals, k or -k for variable k.
    colours : int
        The number of colours, for colourings.
    by_size : bool
        Count the configurations of each size. The size of a set is the sum of its weights, 1 for
        each vertex or edge without one. Of a colouring it is the number of edges whose ends have the same
        colour, of spins the energy, of an assignment the number of clauses that hold, or in a WCNF file
        their weight, if the hard clauses hold.
    weights : bool or dict
        Add the products of weights in place of 1 for each configuration: those of vertices in an independent
        set, of edges in a matching, or of literals that hold, from lines `c p weight LITERAL WEIGHT 0` of a
        CNF file. Or a dict with the weight of each vertex, edge or literal; others have 1.
    memory : float or str, optional
        The most memory that tensors may use, such as "12GiB". Default: what is free.
    device : {"auto", "cpu", "gpu"}
        "gpu" contracts trees on GPUs, and independent sets of grids row by row. Other values use the CPU.
    devices : int
        Ranks that share the work, as threads of this process.
    threads : int, optional
        Threads of each rank. Default: the cores divided by the ranks.
    progress : bool or callable, optional
        True: a bar (`ProgressBar`). Or a function that is called with a `Progress` again and again.

    Returns
    -------
    Count
        The number, of any size, and those of each size. The sum of products is an integer or a Fraction.

    Raises
    ------
    InputError
        For what cannot be read or used, or where the memory does not suffice.

    Examples
    --------
    >>> tnplan.count("dimers", "grid 8x8").value
    12988816
    >>> tnplan.count("independent-sets", [(1, 2), (2, 3)], by_size=True).by_size
    {0: 1, 1: 3, 2: 1}
    >>> tnplan.count("sat", [[1, 2]], weights={1: 0.25, -1: 0.75}).value
    Fraction(5, 4)
    """
    # docs/explanation/architecture.md#calls-and-commands
    from tnplan.questions.combinatorial.answers import count_instance

    settings = {
        "memory": memory, "device": device, "devices": devices, "threads": threads, "progress": progress,
    }  # fmt: skip
    return count_instance(problem, instance, colours, by_size, weights, settings)


def optimize(
    problem: str,
    instance: Any,
    *,
    colours: int = 3,
    count_optima: bool = True,
    memory: float | str | None = None,
    device: str = "auto",
    devices: int = 1,
    threads: int | None = None,
    progress: Listener | bool | None = None,
) -> tnplan.Optimization:
    """Find the optimum of a graph or a formula, how many configurations attain it, and one of them.

    Largest is the weight of independent sets, matchings and dimers, and the number of clauses that hold, or
    their weight in a WCNF file, whose hard clauses hold all;
    least is the energy of spins, -sum J s s' - sum h s with J the weights of edges, 1 where they have none,
    and h those of vertices, and the number of edges of a colouring whose ends are alike.

    Parameters
    ----------
    problem : {"independent-sets", "matchings", "dimers", "colourings", "ising", "sat"}
        As in `count`.
    instance : graph, list of edges, list of clauses, path or str
        As in `count`. Weights count as they are written: 0.1 is a tenth.
    colours : int
        The number of colours, for colourings.
    count_optima : bool
        Count the configurations that attain the optimum.
    memory : float or str, optional
        The most memory that tensors may use, such as "12GiB". Default: what is free.
    device : {"auto", "cpu", "gpu"}
        "gpu" contracts trees on GPUs. Other values use the CPU.
    devices : int
        Ranks that share the work, as threads of this process.
    threads : int, optional
        Threads of each rank. Default: the cores divided by the ranks.
    progress : bool or callable, optional
        As in `count`.

    Returns
    -------
    Optimization
        The optimum, the number of optima, and one of them, checked against the instance.

    Raises
    ------
    InputError
        As of `count`; or where weights have more digits together than their sums keep.

    Examples
    --------
    >>> print(tnplan.optimize("sat", [[1, 2], [-1, 2], [1, -2], [-1, -2]]))  # doctest: +ELLIPSIS
    list of clauses of 2 variables and 4 clauses: largest number of satisfied clauses 3
    falsified: 1
    attained by 4
    one: ...
    checked, in ... s
    """
    # docs/explanation/architecture.md#calls-and-commands
    from tnplan.questions.combinatorial.answers import optimize_instance

    settings = {
        "memory": memory, "device": device, "devices": devices, "threads": threads, "progress": progress,
    }  # fmt: skip
    return optimize_instance(problem, instance, colours, count_optima, settings)
