"""Random einsum contractions whose derivatives are compared with those of a library's own einsum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

DTYPES = ("float32", "float64", "complex64", "complex128")
LAYOUTS = ("whole", "transposed", "strided", "expanded")


@dataclass(frozen=True)
class Operand:
    """A tensor of a contraction.

    Parameters
    ----------
    shape : tuple of int
        With axes of extent 1 that are broadcast.
    dtype : str
        That of the contraction, or one that it holds.
    variable : int or None
        The variable that it is; None for a constant. Several operands may be one variable.
    layout : str
        How its values lie in memory: one of `LAYOUTS`.
    values : array
        Of a constant.
    """

    shape: tuple[int, ...]
    dtype: str
    variable: int | None
    layout: str
    values: NDArray[Any]


@dataclass(frozen=True)
class Case:
    """A contraction to be differentiated.

    Parameters
    ----------
    equation : str
        With diagonals, traces, indices on several tensors, and open ones in any order.
    dtype : str
        Of the contraction.
    operands : tuple of Operand
        Its tensors.
    variables : tuple of array
        Values of what is differentiated.
    directions : tuple of array
        One for each variable.
    weight : array
        Of the shape of the result.
    """

    equation: str
    dtype: str
    operands: tuple[Operand, ...]
    variables: tuple[NDArray[Any], ...]
    directions: tuple[NDArray[Any], ...]
    weight: NDArray[Any]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Those of the tensors."""
        return [operand.shape for operand in self.operands]

    @property
    def promoted(self) -> str:
        """The dtype to which NumPy promotes those of the tensors."""
        return np.result_type(*(operand.dtype for operand in self.operands)).name

    @property
    def rounding(self) -> float:
        """Of values in the least precise dtype, relative to the largest."""
        names = {self.dtype, *(operand.dtype for operand in self.operands)}
        return 2e-4 if names & {"float32", "complex64"} else 1e-10


def random_case(seed: int, dtype: str | None = None, broadcast: bool = True) -> Case:
    """One to four tensors of extents 1 to 3, real or complex, of which some are variables."""
    generator = np.random.default_rng(seed)
    dtype = dtype or str(generator.choice(DTYPES))
    count = int(generator.integers(1, 5))
    extents = {letter: int(generator.integers(1, 4)) for letter in "abcdef"}
    terms = ["".join(generator.choice([*extents], int(generator.integers(0, 4)))) for _ in range(count)]
    used = sorted(set("".join(terms)))
    output = "".join(generator.permutation(used)[: int(generator.integers(0, min(3, len(used)) + 1))])
    if generator.random() < 0.4:
        output = ""
    held = [name for name in DTYPES if np.can_cast(name, dtype)]
    shared: dict[tuple[tuple[int, ...], str], int] = {}
    operands: list[Operand] = []
    variables: list[NDArray[Any]] = []
    for number, term in enumerate(terms):
        narrow = broadcast and generator.random() < 0.2
        shape = tuple(1 if narrow and generator.random() < 0.5 else extents[letter] for letter in term)
        if any(shape[term.index(letter)] != extent for letter, extent in zip(term, shape, strict=True)):
            shape = tuple(extents[letter] for letter in term)  # a diagonal has one extent
        own = dtype if generator.random() < 0.7 else str(generator.choice(held))
        variable = None
        if generator.random() < 0.7 or (number == count - 1 and not variables):
            variable = shared.get((shape, own)) if generator.random() < 0.7 else None
            if variable is None:
                variable = shared[shape, own] = len(variables)
                variables.append(random_values(generator, shape, own))
        layout = str(generator.choice(LAYOUTS)) if generator.random() < 0.5 else "whole"
        operands.append(Operand(shape, own, variable, layout, random_values(generator, shape, own)))
    whole = dict.fromkeys(used, 1)
    for term, operand in zip(terms, operands, strict=True):
        for letter, extent in zip(term, operand.shape, strict=True):
            whole[letter] = max(whole[letter], extent)
    directions = tuple(random_values(generator, one.shape, str(one.dtype)) for one in variables)
    weight = random_values(generator, tuple(whole[letter] for letter in output), dtype)
    equation = f"{','.join(terms)}->{output}"
    return Case(equation, dtype, tuple(operands), tuple(variables), directions, weight)


def random_values(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Normal numbers, complex ones for a complex dtype."""
    real, imaginary = generator.normal(size=(2, *shape))
    return np.asarray(real + 1j * imaginary if dtype.startswith("c") else real, dtype)
