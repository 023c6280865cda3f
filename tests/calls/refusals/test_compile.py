"""What `tnplan.compile` and its compiled contractions refuse."""

from __future__ import annotations

import numpy as np

import tnplan
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network

ARRAYS = [np.ones((3, 3))] * 3
RING = Network((("a", "b"), ("b", "c"), ("c", "a")), (), {"a": 3, "b": 3, "c": 3})
PATH = ContractionPath(RING, ((0, 1), (2, 3)), (), "float64")
TRACE, PRODUCT = "ij,jk,ki->", "ij,jk,kl->il"
A, B, C = (np.random.default_rng(seed).normal(size=(4, 4)) + 0j for seed in range(3))
REAL = [array.real for array in (A, B, C)]
DIRECT = "are not for stripped exponents and given schedules"

# fmt: off
CALLS: list[Row] = [
    ({"constants": {3: ARRAYS[0]}}, "constants", "names tensor 3", "from 0 to 2"),
    ({"batch": 0}, "batch", "is 0", "from 1 up"),
    ({"batch": 2, "batched": [5]}, "batched", "names tensor 5", "from 0 to 2"),
    ({"batch": 2, "batched": []}, "batched", "is empty", "give the numbers of tensors"),
    ({"batch": 2, "batched": 1}, "batched", "is 1", "give a list"),
    ({"constants": [0, 1]}, "constants", "are list", "give a dict"),
    ({"constants": {"0": ARRAYS[0]}}, "constants", "names tensor '0'", "from 0 to 2"),
    ({"dtype": "int64"}, "dtype", "'int64' is unknown", "float32"),
    ({"memory": 10}, "memory", "is 10 bytes", "allow at least some tensors"),
    ({"arrays": [(3, 3)] * 3}, "dtype", "is missing", "arrays instead of shapes"),
    ({"batch": 2, "strip_exponent": True}, "strip_exponent", "is not for batches", "leave out one"),
    ({"equation": tnplan.plan(PATH, devices=2, ranks_per_group=2), "arrays": ()}, "schedule",
     "is for 2 ranks a slice", "devices= as a multiple of 2"),
]
PRODUCTS: list[Row] = [
    (lambda c: c.value_and_grad(A, B, C), "value_and_grad", "has a result of shape (4, 4)", "use vjp"),
    (lambda c: c.vjp((A, B, C), np.ones((4, 3))), "cotangent", "has shape (4, 3)", "the shape of the result"),
    (lambda c: c.vjp((A, B, C), A, wrt=[0, 0]), "wrt", "names a tensor twice", "each tensor once"),
    (lambda c: c.vjp((A, B, C), A, wrt=1), "wrt", "is 1", "give a list of numbers of tensors"),
    (lambda c: c.vjp((A, B, C), A, wrt=[3]), "wrt", "names tensor 3", "choose from 0, 1, 2"),
    (lambda c: c.vjp((A, B, C), A, wrt=[]), "wrt", "is empty", "each tensor once"),
    (lambda c: c.vjp((A, B), A), "call", "has 2 arrays, and takes 3", "one array per tensor"),
    (lambda c: c.update([A]), "update", "is given list", "give a dict of arrays by number"),
    (lambda c: c.update(None), "update", "is given NoneType", "give a dict of arrays by number"),
]
OTHERS: list[Row] = [
    ((tnplan.plan(PATH), {"arrays": ()}, lambda c: c.value_and_grad(*ARRAYS)), "gradients",
     DIRECT, "without these"),
    ((PRODUCT, {}, lambda c: (c.close(), c.vjp((A, B, C), A))), "compiled contraction",
     "is closed", "compile it again"),
    ((TRACE, {"strip_exponent": True}, lambda c: c.vjp((A, B, C), 1)), "gradients", DIRECT, "without these"),
    ((TRACE, {"arrays": REAL}, lambda c: c.vjp(REAL, np.asarray(1j))), "cotangent",
     "would be rounded to float64", "convert the"),
    ((TRACE, {"arrays": ARRAYS, "batch": 2},
      lambda c: c(np.ones((2, 3, 3)), np.ones((4, 3, 3)), np.ones((2, 3, 3)))),
     "arrays of the batch", "have first axes of lengths 2, 4", "as many values of each"),
]
# fmt: on


@table(CALLS)
def test_a_call_is_refused(refusal: Refusal) -> None:
    options = {"equation": TRACE, "arrays": ARRAYS, **refusal.given}
    refusal.raised_by(lambda: tnplan.compile(options.pop("equation"), *options.pop("arrays"), **options))


@table(PRODUCTS)
def test_a_question_to_a_product_is_refused(refusal: Refusal) -> None:
    with tnplan.compile(PRODUCT, A, B, C, device="cpu") as product:
        product(A, B, C)
        refusal.raised_by(lambda: refusal.given(product))


@table(OTHERS)
def test_a_question_is_refused(refusal: Refusal) -> None:
    equation, options, ask = refusal.given
    options = {"arrays": (A, B, C), "device": "cpu", **options}
    with tnplan.compile(equation, *options.pop("arrays"), **options) as contraction:
        refusal.raised_by(lambda: ask(contraction))
