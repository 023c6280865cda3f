"""What `tnplan.Optimizer` refuses, when it is made and when it is called."""

from __future__ import annotations

import pytest

from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.calls.optimizer import Optimizer

SQUARES = [(1000, 1000), (1000, 1000), (1000, 1001), (1001, 1000), (1000, 1000)]

# fmt: off
OPTIONS: list[Row] = [
    ({"time": -1}, "time", "is -1", 'give seconds, or "auto"'),
    ({"time": "long"}, "time", "is 'long'", 'give seconds, or "auto"'),
    ({"time": True}, "time", "is True", 'give seconds, or "auto"'),
    ({"dtype": "int8"}, "dtype", "'int8' is unknown", "choose from float32"),
    ({"seed": "x"}, "seed", "is 'x'", "give an integer from 0"),
    ({"rounds": 0}, "rounds", "is 0", "give an integer from 1"),
    ({"rounds": 3, "time": 1}, "rounds", "is given together with time", "give either rounds or"),
    ({"hardware": "abacus"}, "--hardware", "abacus", "choose from a100, cpu"),
]
NETWORKS: list[Row] = [
    ((["ab", "bc"], "ac", {"a": 2, "b": 2}), "sizes", "have no extent of index 'c'", "extent for each index"),
    ((["ab", "bc"], "az", {"a": 2, "b": 2, "c": 3}), "output", "has index 'z'", "of the tensors"),
]
# fmt: on


@table(OPTIONS)
def test_an_option_is_refused(refusal: Refusal) -> None:
    refusal.raised_by(lambda: Optimizer(**refusal.given))


@table(NETWORKS)
def test_a_network_is_refused(refusal: Refusal) -> None:
    refusal.raised_by(lambda: Optimizer()(*refusal.given))


@table(
    [
        (
            1_000_000,
            "max_tensor",
            "is 1000000, which needs slices, and opt_einsum cannot slice",
            "leave it out here",
        )
    ]
)
def test_slices_are_refused_where_opt_einsum_knows_none(refusal: Refusal) -> None:
    opt_einsum = pytest.importorskip("opt_einsum")
    optimize = Optimizer(max_tensor=refusal.given)
    refusal.raised_by(
        lambda: opt_einsum.contract_path("ab,bc,cd,de,ef->af", *SQUARES, shapes=True, optimize=optimize)
    )
