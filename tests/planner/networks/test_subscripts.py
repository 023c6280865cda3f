"""The arguments of einsum calls, against numpy.einsum: what it accepts means the same here."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.common.errors import InputError
from tnplan.planner.networks.importers.subscripts import parse_call

N_CALLS = 3000


def contracted(arguments: tuple[Any, ...]) -> np.ndarray:
    """The result of a parsed call, by numpy.einsum with integer labels."""
    call = parse_call(arguments)
    labels = {index: number for number, index in enumerate(call.size_dict)}
    rest: list[Any] = []
    for operand, term in zip(call.operands, call.inputs, strict=True):
        shape = [call.size_dict[index] for index in term]
        rest += [np.asarray(operand).reshape(shape), [labels[index] for index in term]]
    return np.asarray(np.einsum(*rest, [labels[index] for index in call.output]))


def random_call(rng: random.Random) -> tuple[Any, ...]:
    """An equation of up to four small operands, with ellipses, axes of extent 1, traces and products."""
    extents = {chr(97 + i): rng.choice([1, 2, 3]) for i in range(rng.randint(1, 6))}
    broadcast = [rng.choice([1, 2, 3]) for _ in range(rng.randint(0, 2))]
    terms, operands = [], []
    for _ in range(rng.randint(1, 4)):
        term = [rng.choice(list(extents)) for _ in range(rng.randint(0, 3))]
        shape = [extents[index] if rng.random() < 0.9 else 1 for index in term]
        if rng.random() < 0.4:
            at = rng.randint(0, len(term))
            axes = broadcast[len(broadcast) - rng.randint(0, len(broadcast)) :]
            axes = [extent if rng.random() < 0.8 else 1 for extent in axes]
            term, shape = [*term[:at], "...", *term[at:]], [*shape[:at], *axes, *shape[at:]]
        terms.append("".join(term))
        operands.append(np.array([rng.randint(-3, 3) for _ in range(int(np.prod(shape)))]).reshape(shape))
    equation = rng.choice([",", " , "]).join(terms)
    if rng.random() < 0.6:
        letters = sorted({letter for letter in equation if letter.isalpha()})
        output = rng.sample(letters, rng.randint(0, len(letters)))
        if "..." in equation:
            output.insert(rng.randint(0, len(output)), "...")
        equation += "->" + "".join(output)
    return equation, *operands


def test_random_calls_mean_what_numpy_says() -> None:
    rng = random.Random(0)
    accepted = 0
    for _ in range(N_CALLS):
        call = random_call(rng)
        try:
            wanted = np.einsum(*call)
        except ValueError:
            with pytest.raises(InputError):
                contracted(call)
            continue
        accepted += 1
        found = contracted(call)
        assert found.shape == wanted.shape, call[0]
        np.testing.assert_array_equal(found, wanted, err_msg=call[0])
    assert accepted > 0.8 * N_CALLS


def test_lists_of_labels() -> None:
    a, b = np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(contracted((a, [0, 1], b, [1, 2])), a @ b)
    np.testing.assert_array_equal(contracted((a, ["row", "k"], b, ["k", "col"], ["col", "row"])), (a @ b).T)
    np.testing.assert_array_equal(contracted((a, [..., 0], b, [0, 1], [..., 1])), a @ b)
    np.testing.assert_array_equal(contracted((b, [7, 3], a, [5, 7])), np.einsum(b, [7, 3], a, [5, 7]))


def test_symbols_beyond_the_letters() -> None:
    symbols = [chr(192 + number) for number in range(100)]
    equation = ",".join(a + b for a, b in pairwise(symbols)) + "->"
    assert parse_call((equation, *[np.eye(2)] * 99)).network.output_shape == ()


# fmt: off
WRONG_CALLS: list[Row] = [
    ((), "einsum", "has no arguments", "give an equation and"),
    (("ab,bc", (2, 3)), "equation 'ab,bc'", "has 2 terms for 1 operand", "give one operand per term"),
    (("ab", (2,)), "operand 0", "has shape (2,) for 2 indices", "give an extent for each"),
    (("a", (2, 3)), "operand 0", "has shape (2, 3) for 1 indices", "give an extent for each"),
    (("ab,bc", (2, 3), (4, 5)), "operand 1", "index 'b' has the extents 3 and 4", "equal indices have"),
    (("aa", (2, 1)), "operand 0", "index 'a' has the extents 2 and 1", "equal indices have"),
    (("ab->c", (2, 3)), "equation 'ab->c'",
     "index 'c' of the output does not belong to any operand", "list only indices of the operands"),
    (("ab->a,b", (2, 3)), "equation 'ab->a,b'", "has two outputs", "write the indices of"),
    (("a.b", (2, 3)), "equation 'a.b'", "has the character '.'", "name indices by single"),
    (("a->b->a", (2,)), "equation 'a->b->a'", "has the character", "name indices by single"),
    (("......", (2, 3)), "equation '......'", "has the character '.'", "name indices by single"),
    (("ab", None), "operand 0", "is of type NoneType", "give an array, or its"),
    (("ab", (2.5, 2)), "operand 0", "is of type tuple, without a shape", "give an array, or its extents"),
    (((2, 3),), "lists of indices", "have no operand", "give arrays, each followed by its list"),
    (((2, 3), "ab"), "lists of indices", "have an object of type str in", "give an equation first, or"),
    (((2, 3), [[0], 1]), "lists of indices", "[0] is not a label", "name indices by"),
    (((2, 3), [..., ...]), "lists of indices", "two ellipses", "give one ellipsis at"),
    (((2, 3), [0, "a"], (3,), ["b"]), "lists of indices",
     "labels that have no order", "give the labels of the"),
    (((2, 3), [1, "1"]), "lists of indices", "labels 1 and '1' have one name", "rename one of them"),
]
# fmt: on


@table(WRONG_CALLS)
def test_wrong_calls_are_named(refusal: Refusal) -> None:
    refusal.raised_by(lambda: parse_call(refusal.given))
