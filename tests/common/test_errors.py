"""Messages in the words of who reads them: options on the command line, keywords in Python."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator

import pytest

import tnplan
from tests.house import rules
from tests.support.root import ROOT
from tnplan.common.errors import KEYWORDS, InputError, in_python
from tnplan.planner.hardware.profile import load_profile

OF_OTHER_PROGRAMS = {
    "abbrev", "always", "dirty", "exclude", "distribution",  # git, srun
    "diag-suppress", "extra-device-vectorization", "fmad", "gpu-architecture", "std",  # NVRTC
}  # fmt: skip
NOT_PUBLIC = {"hyper"}
"""Options of workloads that only benchmarks draw."""


def keywords() -> set[str]:
    """The names of all parameters and fields of what tnplan makes public."""
    names: set[str] = set()
    for module in (tnplan, tnplan.sqd, tnplan.workload, tnplan.compress):
        for name in module.__all__:
            value = getattr(module, name)
            methods = [each for each in vars(value).values() if inspect.isfunction(each)] if inspect.isclass(
                value
            ) else []  # fmt: skip
            names |= set(getattr(value, "__annotations__", {}))
            for call in (value, *methods):
                if callable(call):
                    try:
                        names |= set(inspect.signature(call).parameters)
                    except ValueError:  # a class that says no signature
                        continue
    from tnplan.questions.options import QuestionKeywords

    return names | set(QuestionKeywords.__annotations__)


def options_in_messages() -> Iterator[tuple[str, str]]:
    """Every option that a text outside of the command line names, and the file."""
    for path in rules.sources(ROOT):
        module = rules.module_name(path, ROOT)
        if rules.within(module, "tnplan.cli"):
            continue
        tree = ast.parse(path.read_text())
        documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and id(node) not in documentation:
                for option in re.findall(r"(?<![\w(-])--([a-z][a-z0-9-]*)", str(node.value)):
                    yield option, module


def test_every_option_of_a_message_is_a_keyword_in_python() -> None:
    known = keywords()
    named = list(options_in_messages())
    assert len(named) > 200
    unknown = {
        (option, module)
        for option, module in named
        if option not in OF_OTHER_PROGRAMS | NOT_PUBLIC
        and KEYWORDS.get(option, option.replace("-", "_")).partition("=")[0] not in known
    }
    assert not unknown


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("--max-terms: is 0; give 1 or more", "max_terms: is 0; give 1 or more"),
        ("path: is old; write it with 'tnplan plan --devices 4'", None),
        ("leave --no-checkpoint out", "leave checkpoint=False out"),
        ("ranks: lie apart; use srun (srun --distribution=block)", None),
        ("a--b: is not an option; a -- b neither", None),
    ],
)
def test_options_become_keywords(message: str, expected: str | None) -> None:
    assert in_python(message) == (expected or message)


def test_python_and_the_command_line_each_have_their_words() -> None:
    with pytest.raises(InputError) as refused:
        load_profile("abacus")
    assert str(refused.value).startswith("hardware: ")
    assert refused.value.line.startswith("--hardware: ")
    assert refused.value.line.endswith("(see docs/reference/hardware.md#fields)")


def test_of_a_long_problem_the_middle_is_left_out() -> None:
    error = InputError("a", f"is {list(range(1000))}", "give less")
    assert error.problem.startswith("is [0, 1, 2,")
    assert error.problem.endswith(", 998, 999]")
    assert len(error.problem) < 700
