"""What `tnplan.contract` refuses."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import cotengra
import numpy as np
import pytest

from tests.support.robustness.refusals import Refusal, Row, table
from tnplan import plan
from tnplan.calls.contract import compile as compile_contraction
from tnplan.calls.contract import contract
from tnplan.calls.tensordot import tensordot, transpose
from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.importers import from_cotengra, from_einsum, from_opt_einsum
from tnplan.planner.networks.network import Network

SQUARE, WIDE, CUBE = np.ones((2, 2)), np.ones((200, 200)), np.ones((10, 10, 10))
NARROW = plan(ContractionPath(Network((("a",), ("a",)), (), {"a": 2}), ((0, 1),), (), "float32"))

# fmt: off
CALLS: list[Row] = [
    (lambda: contract("ab,bc->ac", np.ones((2, 3))), "equation 'ab,bc->ac'",
     "has 2 terms for 1 operand", "give one operand per term"),
    (lambda: contract("ab,bc->ac"), "equation 'ab,bc->ac'",
     "has 2 terms for 0 operands", "give one operand per term"),
    (lambda: contract("a,a", np.ones(2), np.ones(3)), "operand 1",
     "index 'a' has the extents 2 and 3", "equal indices have"),
    (lambda: contract("a", np.array(["x", "y"])), "arrays", "have dtype <U1", "convert them to one of"),
    (lambda: contract("a", [[1, 2], [3]]), "array 0", "cannot be read as an array", "give real or complex"),
    (lambda: contract("a,a", np.ones(2, np.longdouble), np.ones(2)), "arrays",
     "have dtype", "convert them to one of"),
    (lambda: contract(NARROW, np.ones(2), np.ones(2)), "arrays",
     "have dtype float64, and the schedule is for float32", "convert the arrays, or plan"),
    (lambda: contract("a,a", np.array([2**40]), np.array([2**30])), "arrays",
     "beyond 64 bits", "convert the arrays to float64"),
    (lambda: contract("a,a->", np.ones(3, bool), np.ones(3, bool), strip_exponent=True), "strip_exponent",
     "is of numbers in floating point, and the arrays are of dtype bool", "convert the arrays to float64"),
    (lambda: contract(*(x for k in range(33) for x in (np.ones((1, 1)), [2 * k, 2 * k + 1]))), "result",
     "has 66 axes, and arrays of NumPy have 64 at most", "keep fewer indices"),
    *((lambda way=way: contract("abx,bcy,caz,xyz->", *[CUBE] * 4, memory="20kB", optimize=way, device="cpu"),
       "step 0", "KiB more than the limit", "allow more memory") for way in ("auto", "greedy")),
    (lambda: contract("ab,bc,cd", *[SQUARE] * 3, optimize=lambda *_: None), "optimize",
     "gives None as a path", "an optimizer that finds a list of pairs"),
    (lambda: contract("ab,bc,cd", *[SQUARE] * 3, optimize="slowest"), "optimize",
     "'slowest' finds no path", "a method of cotengra"),
    (lambda: contract("ab,bc,cd", *[SQUARE] * 3, optimize=[(0, 5), (0, 1)]), "path[0]",
     "position 5", "(linear) path"),
    (lambda: contract("ab,bc->ac", WIDE, WIDE, memory=100_000, device="cpu"), "memory",
     "leaves room for tensors of 4,096 elements, and the result has 40,000 elements", "allow more"),
]
# fmt: on


@table(CALLS)
def test_a_call_is_refused(refusal: Refusal) -> None:
    refusal.raised_by(refusal.given)


JUNK: list[Any] = [
    None, 5, -1, 2.5, "abc", "", b"x", [], (), {}, {1: 2}, object(), np.nan, np.inf, [None], ["a"],
    np.array(None), np.array(["a"]), lambda *_: None, int, True, 1j, range(3), np.array([1, 2]), slice(1),
    Ellipsis,
]  # fmt: skip
OPTIONS = (
    "out", "optimize", "hardware", "memory", "precision", "device", "devices", "threads", "strip_exponent",
)  # fmt: skip
COMPILED = ("dtype", "constants", "batch", "batched", "keep", "calls", *OPTIONS[1:])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("junk", JUNK, ids=map(str, range(len(JUNK))))
def test_what_is_no_argument_is_refused_in_one_line(junk: Any) -> None:
    """Whatever stands for an argument: it is taken, or refused by `InputError`."""
    a, b = np.ones((2, 3)), np.ones((3, 2))
    tree = cotengra.array_contract_tree([("a", "b"), ("b", "c")], ("a", "c"), {"a": 2, "b": 3, "c": 2})
    path = from_cotengra(tree)
    calls: list[Callable[[], Any]] = []
    for network in ("ab,bc->ac", path.network, path, tree, plan(path)):
        calls += [
            lambda network=network: contract(network, a, junk),
            lambda network=network: contract(network, junk, b),
            lambda network=network: contract(network, junk),
            lambda network=network: compile_contraction(network, a, junk, dtype="float64"),
            lambda network=network: compile_contraction(network, (2, 3), junk, dtype="float64"),
            *(lambda network=network, name=name: contract(network, a, b, **{name: junk}) for name in OPTIONS),
        ]
    calls += [
        lambda: contract(junk, a, b), lambda: contract(junk), lambda: contract(a, junk, b, [1, 2]),
        lambda: contract(a, [0, 1], b, [1, 2], junk), lambda: contract(a, [0, junk], b, [junk, 2]),
        lambda: compile_contraction(junk, a, b),
        *(lambda name=name: compile_contraction("ab,bc->ac", a, b, **{name: junk}) for name in COMPILED),
        lambda: compile_contraction("ab,bc->ac", a, b, constants={0: junk}),
        lambda: tensordot(a, b, junk), lambda: tensordot(a, junk, 1), lambda: transpose(junk),
        lambda: transpose(a, junk), lambda: from_cotengra(junk),
        lambda: from_einsum("ab,bc->ac", junk), lambda: from_einsum(junk, [(2, 3), (3, 2)]),
        lambda: from_einsum("ab,bc->ac", [(2, 3), (3, 2)], junk),
        lambda: from_opt_einsum("ab,bc->ac", [(2, 3), (3, 2)], junk),
    ]  # fmt: skip
    with compile_contraction("ab,bc->ac", a, b) as compiled:
        calls += [
            lambda: compiled(a, junk), lambda: compiled(junk), lambda: compiled.update({0: junk}),
            lambda: compiled.vjp(junk, np.ones((2, 2))), lambda: compiled.vjp((a, b), junk),
        ]  # fmt: skip
        for call in calls:
            with suppress(InputError):
                call()
