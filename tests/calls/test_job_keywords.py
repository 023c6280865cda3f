"""The keywords that all jobs share: typed and described once, and shown by every call that takes them."""

from __future__ import annotations

import ast
import inspect
import pydoc
from collections.abc import Callable
from typing import Any

import pytest

import tnplan
from tnplan.common.signatures import ParameterText, parameter_texts, with_entries
from tnplan.jobs.job_options import JobKeywords, JobOptions, ResumableKeywords, takes_job

MOST_OWN = 12
"""Parameters that a reader takes in, keyword-only ones counted."""
CALLS: dict[str, Callable[..., Any]] = {
    "propagate": tnplan.propagate,
    "diagonalize": tnplan.diagonalize,
    "diagonalize_qubits": tnplan.diagonalize_qubits,
    "execute": tnplan.execute,
    "run": tnplan.sqd.run,
    "simulate": tnplan.simulate,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_names_few_parameters_itself(name: str) -> None:
    tree = ast.parse(inspect.getsource(CALLS[name])).body[0]
    assert isinstance(tree, ast.FunctionDef)
    assert len(tree.args.args) + len(tree.args.kwonlyargs) <= MOST_OWN
    assert tree.args.kwarg is not None


@pytest.mark.parametrize("name", CALLS)
def test_a_call_shows_the_keywords_of_its_job(name: str) -> None:
    wanted = ResumableKeywords.__annotations__
    shown = inspect.signature(CALLS[name]).parameters
    texts = parameter_texts(CALLS[name].__doc__)
    help_text = pydoc.plain(pydoc.render_doc(CALLS[name]))
    for keyword in wanted:
        assert shown[keyword].kind is inspect.Parameter.KEYWORD_ONLY
        assert texts[keyword].text
        assert f"{keyword} : {texts[keyword].kind}" in help_text
    assert [shown[one].default for one in ("device", "ranks", "memory", "timeout")] == [
        "auto",
        None,
        None,
        60,
    ]
    common = parameter_texts(JobOptions.__doc__)
    assert all(texts[one] == common[one] for one in ("threads", "memory", "timeout", "allow_mixed_builds"))
    assert "**job" not in help_text


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_keyword_is_refused_and_the_nearest_is_named(name: str) -> None:
    call = CALLS[name]
    own = [one for one in inspect.signature(call).parameters.values() if one.default is one.empty]
    for wrong, right in (
        ("devise", "device"),
        ("memori", "memory"),
        ("alow_mixed_builds", "allow_mixed_builds"),
    ):
        with pytest.raises(
            TypeError, match=rf"{name}\(\) got an unexpected .* '{wrong}'; did you mean '{right}'"
        ):
            call(*["x"] * len(own), **{wrong: 1})


def test_a_keyword_of_the_call_itself_is_named_too() -> None:
    with pytest.raises(TypeError, match=r"'observabel'; did you mean 'observable'\?"):
        tnplan.simulate("a.qsim", observabel="Z0")
    with pytest.raises(TypeError, match=r"'qqq'; the options are circuit, shots, "):
        tnplan.simulate("a.qsim", qqq=1)


@pytest.mark.parametrize("keyword", ["checkpoint", "resume"])
def test_a_call_without_checkpoints_takes_none(keyword: str) -> None:
    with pytest.raises(TypeError, match=rf"unexpected keyword argument '{keyword}'"):
        tnplan.calibrate("a.toml", **{keyword: True})


def test_a_text_of_the_call_stays() -> None:
    @takes_job(JobKeywords, JobOptions)
    def call(**job: Any) -> None:
        """Do it.

        Parameters
        ----------
        output : path, optional
            A file of the call.
        **job
            All others.

        Returns
        -------
        None
            Nothing.
        """

    texts = parameter_texts(call.__doc__)
    assert texts["output"] == ParameterText("path, optional", ("A file of the call.",))
    assert [*texts][:2] == ["output", "device"]
    assert sorted(texts) == sorted(JobKeywords.__annotations__)
    assert (call.__doc__ or "").endswith("\nReturns\n-------\nNone\n    Nothing.")


def test_a_call_without_a_docstring_has_a_signature() -> None:
    def call(**job: Any) -> None:
        pass

    call.__doc__ = None  # as `python -OO` has it
    shown = inspect.signature(takes_job(JobKeywords, JobOptions)(call)).parameters
    assert sorted(shown) == sorted(JobKeywords.__annotations__)
    assert call.__doc__ is None


def test_parameters_of_a_docstring() -> None:
    text = """Do it.

    Parameters
    ----------
    a, b : int
        Two
        numbers.
    **more

    Raises
    ------
    c : int
        No parameter.
    """
    two = ParameterText("int", ("Two", "numbers."))
    assert parameter_texts(text) == {"a": two, "b": two, "**more": ParameterText("", ())}
    assert two.text == "Two numbers."
    assert parameter_texts("Do it.") == parameter_texts(None) == {}
    changed = with_entries(text, "**more", {"d": ParameterText("str", ("A text.",))})
    assert parameter_texts(changed) == {"a": two, "b": two, "d": ParameterText("str", ("A text.",))}
