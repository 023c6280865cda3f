"""Compare an amplitude with cotengra's own contraction.

Usage: python benchmarks/contraction/cotengra_check.py PATH.json RESULT.npy

Part of `make demo`. The reference shares nothing with the run but the file of tensors: cotengra contracts
them in double precision, along PATH, which may be another path of the same network than the executed one.
Goal: equal within the precision of the run; the status is not 0 where they differ.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

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


def check(path: Path, result: Path) -> None:
    """Contract the network of PATH with cotengra and compare with the amplitude in RESULT."""
    loaded = load_path(path)
    tensors = tensors_file(path, loaded.tensors)
    if tensors is None or loaded.network.output:
        raise InputError(str(path), "names no tensors, or has open indices", "give the path of an amplitude")
    start = time.perf_counter()
    expected = complex(cotengra_tree(loaded).contract(load_tensors(tensors, loaded.network, "complex128")))
    took_s = time.perf_counter() - start
    computed = complex(np.load(result))
    difference = abs(computed - expected) / abs(expected)
    print(f"amplitude by tnplan              {computed:.9g}")
    print(f"amplitude by cotengra, in {took_s:4.0f} s  {expected:.9g}")
    print(f"relative difference              {difference:.2e} (allowed: {TOLERANCE:.0e})")
    if not difference <= TOLERANCE:
        sys.exit("the two differ: the demo failed")


def main() -> None:
    """Check what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("path", type=Path, metavar="PATH.json")
    parser.add_argument("result", type=Path, metavar="RESULT.npy")
    given = parser.parse_args()
    check(given.path, given.result)


if __name__ == "__main__":
    main()
