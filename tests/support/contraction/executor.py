"""One network of middle size for tests of the executor: a lattice with sliced bonds, planned and saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np
import pytest

from tests.support.networks import TOLERANCE, eager_profile, random_arrays
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.tensors import save_tensors
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.passes.tree import loop_nest as loops
from tnplan.planner.schedule.file import save_schedule
from tnplan.planner.schedule.schedule import Schedule


@dataclass(frozen=True)
class Case:
    """A saved schedule, its tensors and their file."""

    path: ContractionPath
    schedule: Schedule
    arrays: list[np.ndarray]
    schedule_file: Path
    tensors_file: Path


def lattice(
    rows: int, columns: int, bond: int, n_sliced: int, dtype: str, n_open: int = 0
) -> ContractionPath:
    """A lattice contracted row by row, its first horizontal bonds sliced, its first tensors open."""
    terms: list[list[str]] = [[] for _ in range(rows * columns)]
    sizes = {}
    horizontal = []
    for row in range(rows):
        for column in range(columns):
            here = row * columns + column
            for name, other, fits in (
                (f"h{row}.{column}", here + 1, column + 1 < columns),
                (f"v{row}.{column}", here + columns, row + 1 < rows),
            ):
                if fits:
                    terms[here].append(name)
                    terms[other].append(name)
                    sizes[name] = bond
                    if name[0] == "h":
                        horizontal.append(name)
    output = tuple(f"o{corner}" for corner in range(n_open))
    for number, name in enumerate(output):
        terms[number].append(name)
        sizes[name] = 3
    steps, last = [], 0
    for number in range(1, rows * columns):
        steps.append((last, number))
        last = rows * columns + number - 1
    network = Network(tuple(map(tuple, terms)), output, sizes)
    return ContractionPath(network, tuple(steps), tuple(horizontal[:n_sliced]), dtype, "lattice")


def make_case(
    folder: Path, ranks: int, n_sliced: int = 3, n_open: int = 2, bond: int = 2, dtype: str = "complex64",
    size: tuple[int, int] = (4, 5),
    tile_bytes: int = 256,
) -> Case:  # fmt: skip
    """Plan the lattice for a group of `ranks`, with all its slices, and save it and tensors in `folder`."""
    path = lattice(*size, bond, n_sliced, dtype, n_open)
    arrays = random_arrays(path, 1)
    with no_early_sums():
        schedule = plan(
            path,
            eager_profile(4096, tile_bytes),
            devices=ranks,
            ranks_per_group=ranks,
            memory_bytes=inf,
            threshold_bytes=1,
        )
    schedule_file, tensors_file = folder / "schedule.json", folder / "tensors.npz"
    save_schedule(schedule, schedule_file)
    save_tensors(arrays, tensors_file)
    return Case(path, schedule, arrays, schedule_file, tensors_file)


@contextmanager
def no_early_sums() -> Iterator[None]:
    """Plans in which every sliced index makes slices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loops, "WAISTS", 0)
        yield


def contract_fixed(
    path: ContractionPath, arrays: list[np.ndarray], values: Mapping[str, int]
) -> np.ndarray:  # fmt: skip
    """The network contracted in double precision with some of its summed indices at one value each."""
    fixed = []
    for term, array in zip(path.network.inputs, arrays, strict=True):
        places = tuple(slice(values[i], values[i] + 1) if i in values else slice(None) for i in term)
        fixed.append(array[places].astype("complex128"))
    return contract_pairwise(path, fixed)


def contract_pairwise(path: ContractionPath, arrays: list[np.ndarray]) -> np.ndarray:
    """The network contracted pair by pair along its path with einsum."""
    terms = {number: list(term) for number, term in enumerate(path.network.inputs)}
    output = list(path.network.output)
    values = dict(enumerate(arrays))
    for number, (left, right) in enumerate(path.ssa_path, start=len(arrays)):
        a, b = terms.pop(left), terms.pop(right)
        needed = set(output).union(*terms.values())
        numbers = {index: place for place, index in enumerate(dict.fromkeys(a + b))}
        kept = [index for index in numbers if index in needed]
        labels = [[numbers[index] for index in part] for part in (a, b, kept)]
        values[number] = np.einsum(values.pop(left), labels[0], values.pop(right), labels[1], labels[2])
        terms[number] = kept
    ((last, term),) = terms.items()
    numbers = {index: place for place, index in enumerate(term)}
    return np.einsum(values[last], list(numbers.values()), [numbers[index] for index in output])


def check_values(case: Case, result: np.ndarray) -> None:
    """Assert that a result is that of einsum in complex128, to the tolerance of the dtype."""
    check_result(case.path, case.arrays, result)


def check_result(path: ContractionPath, arrays: list[np.ndarray], result: np.ndarray) -> None:
    """As `check_values`, of a path whatever it slices."""
    wanted = contract_pairwise(path, [array.astype(complex) for array in arrays])
    scale = contract_pairwise(path, [np.abs(array.astype(complex)) for array in arrays])
    assert result.shape == wanted.shape
    assert result.dtype == np.dtype(path.dtype)
    assert np.all(np.abs(result - wanted) <= TOLERANCE[path.dtype] * scale)
