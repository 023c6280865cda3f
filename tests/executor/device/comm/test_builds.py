"""Ranks of different builds are refused by host and value, or are recorded where they are allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tnplan.executor.device.comm import builds
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.protocols.communicator import AgreedError


class Skewed:
    """A group whose rank 1 says something else of itself."""

    def __init__(self, inner: Any, name: str) -> None:
        self._inner, self._name = inner, name
        self.rank = inner.rank

    def gather_objects(self, value: tuple[str, dict[str, str]]) -> list[Any]:
        host, facts = value
        if self.rank == 1:
            host, facts = "other", {**facts, self._name: "another"}
        return list(self._inner.gather_objects((host, facts)))


@pytest.mark.parametrize("name", ["tnplan", "sources", "numpy", "blas", "cpu", "python"])
def test_a_rank_of_another_build(name: str) -> None:
    def refusal(world: Any) -> str:
        with pytest.raises(AgreedError) as error:
            builds.agreed_builds(Skewed(world, name), mixed=False)
        return str(error.value)

    said = run_ranks(2, refusal)
    assert said[0] == said[1]
    own = builds.build_facts()[name]
    assert f"rank 1 on other: has {name} another, and rank 0 on" in said[0]
    assert f"has {own};" in said[0]
    allowed = run_ranks(2, lambda world: builds.agreed_builds(Skewed(world, name), mixed=True))
    assert [facts[name] for facts in allowed[0].values()] == [own, "another"]


def test_ranks_of_one_build_agree() -> None:
    found = run_ranks(2, lambda world: builds.agreed_builds(world, mixed=False))
    assert [len(one) for one in found] == [1, 1]


def test_only_the_blas_of_numpy_counts() -> None:
    """SciPy brings another one, and may be imported on one rank alone."""
    packages = Path(np.__file__).parents[1]

    def entry(folder: str, version: str, api: str = "blas") -> dict[str, str]:
        path = str(packages / folder / "lib.so")
        return {"filepath": path, "user_api": api, "internal_api": "openblas", "version": version}

    numpys, others = entry("numpy.libs", "1"), [entry("scipy.libs", "2"), entry("sklearn/libs", "3")]
    assert builds.blas_text([numpys]) == builds.blas_text([*others, numpys]) == "openblas 1"
    assert builds.blas_text([{**numpys, "version": "4", "architecture": "Zen"}]) == "openblas 4 Zen"
    system = {**numpys, "filepath": "/usr/lib/libopenblas.so", "version": "5"}
    assert builds.blas_text([system, entry("numpy.libs", "6", "openmp")]) == "openblas 5"
