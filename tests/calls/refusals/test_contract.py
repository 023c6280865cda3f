"""What `tnplan.contract` refuses."""

from __future__ import annotations

import numpy as np

from tests.support.robustness.refusals import Refusal, Row, table
from tnplan import plan
from tnplan.calls.contract import contract
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network

SQUARE, WIDE, CUBE = np.ones((2, 2)), np.ones((200, 200)), np.ones((10, 10, 10))
NARROW = plan(ContractionPath(Network((("a",), ("a",)), (), {"a": 2}), ((0, 1),), (), "float32"))

# fmt: off
CALLS: list[Row] = [
    (lambda: contract("ab,bc->ac", np.ones((2, 3))), "equation 'ab,bc->ac'",
     "has 2 terms for 1 operand", "give one operand a term"),
    (lambda: contract("ab,bc->ac"), "equation 'ab,bc->ac'",
     "has 2 terms for 0 operands", "give one operand a term"),
    (lambda: contract("a,a", np.ones(2), np.ones(3)), "operand 1",
     "index 'a' has the extents 2 and 3", "equal indices have"),
    (lambda: contract("a", np.array(["x", "y"])), "arrays", "have dtype <U1", "convert them to one of"),
    (lambda: contract("a", [[1, 2], [3]]), "array 0", "cannot be read as an array", "give real or complex"),
    (lambda: contract("a,a", np.ones(2, np.longdouble), np.ones(2)), "arrays",
     "have dtype", "convert them to one of"),
    (lambda: contract(NARROW, np.ones(2), np.ones(2)), "arrays",
     "have dtype float64, and the schedule is for float32", "convert them, or plan"),
    (lambda: contract("a,a", np.array([2**40]), np.array([2**30])), "arrays",
     "beyond 64 bits", "convert them to float64"),
    (lambda: contract("a,a->", np.ones(3, bool), np.ones(3, bool), strip_exponent=True), "strip_exponent",
     "is of numbers in floating point, and the arrays are of dtype bool", "convert them to float64"),
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
