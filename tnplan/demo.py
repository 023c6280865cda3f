"""`python -m tnplan.demo check PATH.json RESULT.npy`: compare an amplitude with cotengra's own contraction.

Part of `make demo`. The reference shares nothing with the run but the file of tensors: cotengra contracts
them in double precision, along PATH, which may be another path of the same network than the executed one.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click
import numpy as np

from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.path_file import load_path, tensors_file
from tnplan.planner.networks.tensors import load_tensors

TOLERANCE = 1e-5


def cotengra_tree(path: ContractionPath) -> Any:
    """cotengra's tree of the same network, path and slices; its `contract` takes the tensors' arrays."""
    import cotengra

    symbols = {index: cotengra.get_symbol(number) for number, index in enumerate(path.network.size_dict)}
    tree = cotengra.ContractionTree.from_path(
        [[symbols[index] for index in term] for term in path.network.inputs],
        [symbols[index] for index in path.network.output],
        {symbols[index]: size for index, size in path.network.size_dict.items()},
        ssa_path=path.ssa_path,
    )
    for index in path.sliced_inds:
        tree.remove_ind_(symbols[index])
    return tree


@click.group()
def demo() -> None:
    """Steps of `make demo` that no command of tnplan does."""


@demo.command()
@click.argument("path", type=click.Path(path_type=Path), metavar="PATH.json")
@click.argument("result", type=click.Path(path_type=Path), metavar="RESULT.npy")
def check(path: Path, result: Path) -> None:
    """Contract PATH with cotengra and compare with the amplitude in RESULT."""
    loaded = load_path(path)
    tensors = tensors_file(path, loaded.tensors)
    if tensors is None or loaded.network.output:
        raise InputError(str(path), "names no tensors, or has open indices", "give the path of an amplitude")
    start = time.perf_counter()
    expected = complex(cotengra_tree(loaded).contract(load_tensors(tensors, loaded.network, "complex128")))
    took_s = time.perf_counter() - start
    found = complex(np.load(result))
    difference = abs(found - expected) / abs(expected)
    click.echo(f"amplitude by tnplan              {found:.9g}")
    click.echo(f"amplitude by cotengra, in {took_s:4.0f} s  {expected:.9g}")
    click.echo(f"relative difference              {difference:.2e} (allowed: {TOLERANCE:.0e})")
    if not difference <= TOLERANCE:
        sys.exit("the two differ: the demo failed")


if __name__ == "__main__":
    demo()
