"""Random einsum calls that are hard to differentiate, and calls that must be refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.contraction.derivatives import random_values

INEXACT = ("float16", "float32", "float64", "complex64", "complex128")
EXACT = ("bool", "int8", "uint8", "int32", "int64")
FORMS = ("whole", "transposed", "strided", "expanded", "conjugate", "imaginary")
"""How a library holds the values of a variable."""
ERRORS = {"float16": 2e-2, "float32": 2e-4, "complex64": 2e-4}
"""Relative to the largest value; of all other dtypes `ROUNDING`."""
ROUNDING = 1e-9


@dataclass(frozen=True)
class HostileCall:
    """A call of einsum.

    Parameters
    ----------
    equation : str
        With ellipses, spaces, indices of extent 0 and 1, or without an output.
    values : tuple of array
        Of the operands.
    variables : tuple of int
        The operands that are differentiated, by number.
    same : mapping of int to int
        Operands that are the tensor of another variable.
    forms : tuple of str
        One of `FORMS` for each operand.
    is_interleaved : bool
        Whether the call has lists of labels in place of the equation.
    is_plain : bool
        Whether constants are lists and numbers, as far as they are real.
    """

    equation: str
    values: tuple[NDArray[Any], ...]
    variables: tuple[int, ...]
    same: dict[int, int]
    forms: tuple[str, ...]
    is_interleaved: bool
    is_plain: bool

    @property
    def dtype(self) -> str:
        """The dtype to which NumPy promotes those of the operands."""
        return np.result_type(*(one.dtype for one in self.values)).name

    @property
    def rounding(self) -> float:
        """Of values in the least precise dtype, relative to the largest."""
        return max(ERRORS.get(one.dtype.name, ROUNDING) for one in self.values)

    def arguments(self, operands: Sequence[Any]) -> list[Any]:
        """Those of the call for some operands."""
        if not self.is_interleaved:
            return [self.equation, *operands]
        left, arrow, right = self.equation.replace(" ", "").partition("->")
        arguments: list[Any] = []
        for operand, term in zip(operands, left.split(","), strict=True):
            arguments += [operand, labels(term)]
        return [*arguments, labels(right)] if arrow else arguments


def labels(term: str) -> list[Any]:
    """The list of labels of a term."""
    before, dots, after = term.partition("...")
    return [*map(ord, before), *([Ellipsis] if dots else []), *map(ord, after)]


def hostile_call(seed: int) -> HostileCall:
    """One to five operands of all dtypes, of which some are differentiated."""
    generator = np.random.default_rng(seed)

    def is_so(share: float) -> bool:
        return bool(generator.random() < share)

    extents = {letter: int(generator.choice([1, 2, 3])) for letter in "abcdeXY"}
    if is_so(0.06):
        extents["a"] = 0
    dots = tuple(int(extent) for extent in generator.choice([1, 2, 3], 2))
    has_dots, count = is_so(0.25), int(generator.integers(1, 6))
    wide = str(generator.choice(INEXACT[1:] if count > 2 else INEXACT))
    terms, values, variables, forms = [], [], [], []
    same: dict[int, int] = {}
    for number in range(count):
        letters = [str(letter) for letter in generator.choice([*extents], int(generator.integers(0, 4)))]
        narrow = {letter for letter in letters if is_so(0.1)}
        shape = tuple(1 if letter in narrow else extents[letter] for letter in letters)
        term = "".join(letters)
        if has_dots and is_so(0.7):
            axes = dots[int(generator.integers(0, 3)) :]
            axes = tuple(1 if is_so(0.2) else extent for extent in axes)
            place = int(generator.integers(0, len(letters) + 1))
            term = f"{term[:place]}...{term[place:]}"
            shape = (*shape[:place], *axes, *shape[place:])
        dtype = wide if is_so(0.6) else str(generator.choice(INEXACT))
        is_variable = is_so(0.6) or (number == count - 1 and not variables)
        if not is_variable and is_so(0.4):
            dtype = str(generator.choice(EXACT))
        value = random_values(generator, shape, "float64" if dtype in EXACT else dtype)
        value = np.where(generator.random(shape) < 0.1, 0, value).astype(dtype)
        earlier = [k for k in variables if values[k].shape == shape and k not in same]
        if is_variable and earlier and is_so(0.5):
            same[number], value = earlier[0], values[earlier[0]]
        elif is_variable:
            variables.append(number)
        terms.append(term)
        values.append(value)
        forms.append(str(generator.choice(FORMS)) if is_so(0.4) else "whole")
    used = sorted({letter for term in terms for letter in term.replace(".", "")})
    output = [str(letter) for letter in generator.permutation(used)[: int(generator.integers(0, 4))]]
    comma, arrow = (" , ", " -> ") if is_so(0.2) else (",", "->")
    equation = comma.join(terms)
    if not is_so(0.2):
        equation += arrow + ("..." if has_dots else "") + "".join([] if is_so(0.3) else output)
    return HostileCall(
        equation, tuple(values), tuple(variables), same, tuple(forms), is_so(0.2), is_so(0.3)
    )


def _with_shape(call: HostileCall, number: int, shape: tuple[int, ...]) -> HostileCall:
    values = list(call.values)
    values[number] = np.ones(shape, values[number].dtype)
    return replace(call, values=tuple(values), same={})


def _without_one(call: HostileCall) -> HostileCall:
    values, forms = (*call.values, np.ones(2)), (*call.forms, "whole")
    return replace(call, values=values, forms=forms, is_interleaved=False)


def _with_axis(call: HostileCall) -> HostileCall:
    call = replace(call, equation=call.equation.replace("...", ""))
    return _with_shape(call, call.variables[0], (2,) * 9)


def _with_other_extent(call: HostileCall) -> HostileCall:
    left, arrow, right = call.equation.replace(" ", "").partition("->")
    call = replace(
        call, equation=f"{left},zz{arrow}{right}", values=(*call.values, np.ones((2, 3))),
        forms=(*call.forms, "whole"),
    )  # fmt: skip
    return call


def _with_strange_output(call: HostileCall) -> HostileCall:
    return replace(call, equation=f"{call.equation.partition('->')[0]}->Q")


def _with_two_outputs(call: HostileCall) -> HostileCall:
    return replace(call, equation=f"{call.equation.partition('->')[0]}->a->b", is_interleaved=False)


def _with_objects(call: HostileCall) -> HostileCall:
    values = (*call.values, np.array(["x"]))
    equation = call.equation.replace(" ", "").partition("->")[0] + ",a->"
    return replace(call, equation=equation, values=values, forms=(*call.forms, "whole"))


SPOILED: dict[str, Callable[[HostileCall], HostileCall]] = {
    "one operand too many": _without_one,
    "an operand with more axes": _with_axis,
    "two extents of an index": _with_other_extent,
    "an output that no operand has": _with_strange_output,
    "two outputs": _with_two_outputs,
    "an array of texts": _with_objects,
}
"""Changes of a call after which it must be refused."""
