"""Formulas of combinatorial questions, as a user gives them: clauses, CNF files with weights, WCNF files."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from tnplan.common.errors import InputError
from tnplan.common.shown_text import shown_text
from tnplan.common.units import plural
from tnplan.questions.combinatorial.instances import MOST_VERTICES, count_of, lines_of, weight_of

WEIGHT = re.compile("[1-9][0-9]{0,18}")
"""Of a clause."""
LITERAL = re.compile("-?[1-9][0-9]{0,6}")


@dataclass(frozen=True)
class Formula:
    """A formula in conjunctive normal form: clauses of literals, k or -k for variable k from 1 up.

    In WCNF clauses have weights, None where they are hard. Weights of literals are there for both of a
    variable, exactly as written.
    """

    name: str
    n_variables: int
    clauses: tuple[tuple[int, ...], ...]
    clause_weights: tuple[int | None, ...] | None = None
    literal_weights: dict[int, Fraction] = field(default_factory=dict)

    @property
    def weighed(self) -> list[tuple[tuple[int, ...], int | None]]:
        """Clauses with their weights: 1 where the formula has none, None where one is hard."""
        return list(zip(self.clauses, self.clause_weights or [1] * len(self.clauses), strict=True))

    @property
    def most_satisfied(self) -> int:
        """The weight of all clauses that are not hard."""
        return sum(weight for _, weight in self.weighed if weight is not None)

    @property
    def text(self) -> str:
        """Name and sizes."""
        variables = plural(self.n_variables, "variable", "variables")
        return f"{self.name} of {variables} and {plural(len(self.clauses), 'clause', 'clauses')}"


def read_formula(given: Any) -> Formula:
    """The formula that a user gives: a DIMACS file, or clauses as lists of literals.

    Raises InputError where it is none.
    """
    if isinstance(given, Formula):
        return given
    if isinstance(given, str | Path):
        return _FormulaFile(Path(given)).formula()
    try:
        clauses = [[_literal(literal) for literal in clause] for clause in given]
    except (TypeError, ValueError):
        remedy = "give a DIMACS file, or lists of literals: k or -k for variable k from 1 up"
        raise InputError("formula", f"is {shown_text(repr(given))}", remedy) from None
    return _formula("list of clauses", _most(clauses), clauses)


class _FormulaFile:
    """DIMACS: 'p cnf VARIABLES CLAUSES', then literals, a 0 behind each clause; % ends the file.

    In WCNF a weight stands before each clause. With 'p wcnf VARIABLES CLAUSES TOP' one of TOP or more is that
    of a hard clause; without a line p that is h. 'c p weight LITERAL WEIGHT 0' gives weights to literals.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lines = path, list(lines_of(path))
        firsts = {words[0] for _, words in self._lines}
        self._is_new = "p" not in firsts and ("h" in firsts or path.suffix == ".wcnf")
        self._is_weighted, self._top = self._is_new, math.inf
        self._n_variables = MOST_VERTICES if self._is_new else None
        self._clauses: list[list[int]] = []
        self._weights: list[int | None] = []
        self._is_within = False
        self._literals: dict[int, tuple[Fraction, str]] = {}

    def formula(self) -> Formula:
        for position, words in self._lines:
            match words:
                case ["%", *_]:
                    break
                case ["c", "p", *_]:
                    self._read_property(words, position)
                case ["c", *_]:
                    continue
                case ["p", "cnf", n_variables, _]:
                    self._n_variables = count_of(n_variables, position)
                case ["p", "wcnf", n_variables, _, *top] if len(top) < 2:
                    self._n_variables, self._is_weighted = count_of(n_variables, position), True
                    self._top = _weight(top[0], position) if top else math.inf
                case _:
                    for word in words:
                        self._read_word(word, position)
        if self._n_variables is None:
            raise InputError(str(self._path), "has no line 'p cnf VARIABLES CLAUSES'", "give a DIMACS file")
        if self._is_new:
            self._n_variables = _most(self._clauses)
        for literal, (_, position) in self._literals.items():
            if abs(literal) > self._n_variables:
                raise InputError(position, f"has {literal}", f"give a literal up to {self._n_variables}")
            if -literal not in self._literals:
                problem = f"has a weight of {literal}, and no line has one of {-literal}"
                raise InputError(
                    position, problem, "give both weights: programs differ in what a missing weight means"
                )
        literals = {literal: weight for literal, (weight, _) in self._literals.items()}
        return _formula(
            self._path.name, self._n_variables, self._clauses,
            tuple(self._weights) if self._is_weighted else None, literals,
        )  # fmt: skip

    def _read_property(self, words: list[str], position: str) -> None:
        """A line of the model counting competition's."""
        match words[2:]:
            case ["weight", literal, weight, "0"] if LITERAL.fullmatch(literal):
                if int(literal) in self._literals:
                    problem = f"has a second weight of literal {literal}"
                    raise InputError(position, problem, "give one weight per literal")
                self._literals[int(literal)] = weight_of(weight, position), position
            case ["show", *_]:
                problem = f"is {shown_text(' '.join(words))!r}, for projected counting"
                raise InputError(position, problem, "leave it out: assignments of all variables are counted")
            case _:
                problem = f"is {shown_text(' '.join(words))!r}"
                raise InputError(position, problem, "give 'c p weight LITERAL WEIGHT 0', or another comment")

    def _read_word(self, word: str, position: str) -> None:
        """The weight of a clause, a literal, or the 0 at its end."""
        if self._is_weighted and not self._is_within:
            weight = None if self._is_new and word == "h" else _weight(word, position)
            self._weights.append(None if weight is None or weight >= self._top else weight)
            self._clauses.append([])
            self._is_within = True
            return
        literal = int(word) if word == "0" or LITERAL.fullmatch(word) else None
        if literal is None or self._n_variables is None or abs(literal) > self._n_variables:
            remedy = "write a line 'p cnf N M' first, then clauses of numbers from -N to N that end in 0"
            if self._is_new:
                remedy = f"give literals up to {self._n_variables:,}, and a 0 at the end of each clause"
            raise InputError(position, f"has {shown_text(word)!r}", remedy)
        if not self._is_within:
            self._clauses.append([])
        self._is_within = literal != 0
        if literal:
            self._clauses[-1].append(literal)


def _formula(
    name: str, n_variables: int, clauses: Iterable[Sequence[int]],
    clause_weights: tuple[int | None, ...] | None = None, literals: dict[int, Fraction] | None = None,
) -> Formula:  # fmt: skip
    if not 0 < n_variables <= MOST_VERTICES:
        problem = f"has more than {MOST_VERTICES:,} variables" if n_variables else "has no variable"
        raise InputError(name, problem, "number them from 1 up, and give at least one")
    return Formula(name, n_variables, tuple(map(tuple, clauses)), clause_weights, literals or {})


def _most(clauses: Iterable[Sequence[int]]) -> int:
    return max((abs(literal) for clause in clauses for literal in clause), default=0)


def _weight(word: str, position: str) -> int:
    """The weight of a clause."""
    if not WEIGHT.fullmatch(word):
        raise InputError(position, f"has the weight {shown_text(word)!r}", "give a whole number from 1 up")
    return int(word)


def _literal(value: Any) -> int:
    number = int(value)
    if number == 0 or number != value or isinstance(value, bool):
        raise ValueError(value)
    return number
