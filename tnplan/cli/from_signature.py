"""Options of a command, made from the signature and the docstring of the call that it stands for.

A parameter becomes an option of its name. Its type and default are those of the signature, its choices and
its help those of the docstring. What the command line has otherwise is said beside the command.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from tnplan.cli.option_types import FILE, PROFILE, added, as_json, circuit_argument, set_parameters
from tnplan.common.errors import InputError
from tnplan.common.signatures import ParameterText, texts_of

Other = Mapping[str, Any] | Callable[[Any], Any] | None
"""What differs from the call: attributes of `click.option`, with `flags` for other names; an option in place
of the one that would be made, or an argument; or None, where there is none."""
Change = Other | str
"""The same, or a help text."""
Kind = TypeVar("Kind")
Call = Callable[..., Any]
commands: dict[str, Callable[[str], click.Command]] = {}
"""What makes each command of the files that were imported, from the first line of its help."""

EVERYWHERE: dict[str, Other] = {
    "algebra": {"type": str, "metavar": "NAME"},
    "amplitude": {"metavar": "BITS"},
    "circuit": circuit_argument,
    "compress": {"metavar": "BOUNDS"},
    "depolarize": {"flags": ("--depolarizing",)},
    "devices": {"type": click.IntRange(1)},
    "hardware": {"type": PROFILE, "metavar": "PROFILE", "help": "A shipped profile or a TOML file."},
    "memory": {"type": str, "metavar": "SIZE"},
    "output": {"flags": ("-o", "--output")},
    "parameters": set_parameters,
    "plot": {"metavar": "FILE.svg"},
    "progress": None,
    "ranks": {"type": click.IntRange(1)},
    "roots": {"type": click.IntRange(1)},
    "schedule": click.argument("schedule", type=FILE, metavar="SCHEDULE.json"),
    "seed": {"type": click.IntRange(0)},
    "size": {"type": str, "metavar": "SIZE"},
    "threads": {"type": click.IntRange(1)},
    "threshold": {"type": str, "metavar": "SIZE"},
    "timeout": {"type": click.FloatRange(0), "metavar": "SECONDS"},
}
"""Changes that hold for all calls with such a parameter; those of a command are added to them."""
TYPES = {"str": str, "int": int, "float": float}


def command_with(
    options: Iterable[Callable[[Any], Any]], function: Call, summary: str, text: str
) -> click.Command:
    """A command with options, in this order, and a help."""
    return click.command(help=f"{summary}\n\n{inspect.cleandoc(text)}")(added(*options)(function))


# docs/explanation/architecture.md#calls-and-commands
def command(address: str, **changes: Change) -> Callable[[Call], None]:
    """Add the command of a call at `module.name` of `tnplan.calls`, which is imported when it is needed.

    The function that is decorated has the command's name and help. It gets the call and the options. With a
    parameter `as_json` the command has --json.
    """

    def decorate(function: Call) -> None:
        def described(summary: str) -> click.Command:
            module, _, name = address.partition(".")
            call = getattr(import_module(f"tnplan.calls.{module}"), name)

            def called(**options: Any) -> Any:
                return function(call, **options)

            has_json = "as_json" in inspect.signature(function).parameters
            options = (options_of(call, **changes), *([as_json] if has_json else []))
            return command_with(options, called, summary, function.__doc__ or "")

        commands[function.__name__.replace("_", "-")] = described

    return decorate


def options_of(call: Callable[..., Any], **changes: Change) -> Callable[[Any], Any]:
    """Add an option to a command for each parameter of a call, or for each field of a class of options.

    Raises
    ------
    TypeError
        For a change of a parameter that the call has not, or of which no option can be made.
    """
    parameters, texts = _parameters(call), texts_of(call)
    # A change of a parameter that was renamed is an error of the command, found when it is imported.
    if unknown := changes.keys() - parameters.keys():
        raise TypeError(f"{call.__name__} has no parameters {', '.join(sorted(unknown))}")
    flags = {name: _flags(name, each, _changed(name, changes)) for name, each in parameters.items()}
    options = []
    for name, parameter in parameters.items():
        change = _changed(name, changes)
        if callable(change):
            options.append(change)
        elif change is not None:
            text = texts.get(name, ParameterText("", ()))
            attributes = {"help": _help(text.text, flags), **_attributes(parameter, text, change)}
            if attributes.get("multiple"):
                attributes["help"] += " May be given several times."
            options.append(click.option(*flags[name], name, **attributes))
    return added(*options)


def taken(kind: Callable[..., Kind], options: dict[str, Any]) -> Kind:
    """An object with the options that are its fields; they are taken out of the options."""
    return kind(**{name: options.pop(name) for name in _parameters(kind) if name in options})


def taken_with(needed: str, kind: Callable[..., Kind], options: dict[str, Any]) -> Kind | None:
    """The same where the option `needed` is given; without it None, and the others are refused."""
    values = {name: options.pop(name) for name in _parameters(kind) if name in options}
    if values[needed] is None:
        refuse_without(needed, *values)
        return None
    return kind(**values)


def refuse_without(needed: str, *names: str) -> None:
    """Refuse options of the command that runs which a user gives without the one that they belong to."""
    context = click.get_current_context()
    parameters = {str(each.name): each for each in context.command.params}
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            has_no = context.params[name] is False
            flag = (parameters[name].secondary_opts if has_no else parameters[name].opts)[-1]
            other = parameters[needed].opts[-1]
            raise InputError(flag, f"is given without {other}", f"add {other}, or leave it out")


def _parameters(call: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters that can be options; of a class of options first what it adds to those it extends."""
    parameters = inspect.signature(call).parameters
    names = list(parameters)
    if isinstance(call, type) and is_dataclass(call):
        inherited = [item.name for base in call.__bases__ if is_dataclass(base) for item in fields(base)]
        names = sorted(names, key=lambda name: name in inherited)
    return {
        name: parameters[name]
        for name in names
        if name != "self" and parameters[name].kind is not parameters[name].VAR_KEYWORD
    }


def _changed(name: str, changes: Mapping[str, Change]) -> Other:
    """What is to differ for a parameter."""
    everywhere: Other = EVERYWHERE.get(name, {})
    change = changes.get(name, everywhere)
    if isinstance(change, str):
        change = {"help": change}
    if isinstance(change, Mapping) and isinstance(everywhere, Mapping):
        return {**everywhere, **change}
    return change


def _flags(name: str, parameter: inspect.Parameter, change: Other) -> tuple[str, ...]:
    """What a user writes: `--max-weight`, or `--checkpoint/--no-checkpoint`."""
    if isinstance(change, Mapping) and "flags" in change:
        return tuple(change["flags"])
    word = name.replace("_", "-")
    has_two = _hint(parameter) == "bool" and parameter.default is not False
    return (f"--{word}/--no-{word}" if has_two else f"--{word}",)


def _hint(parameter: inspect.Parameter) -> str:
    """The type of a parameter's values where it has one."""
    return str(parameter.annotation).removesuffix(" | None")


def _attributes(
    parameter: inspect.Parameter, text: ParameterText, change: Mapping[str, Any]
) -> dict[str, Any]:
    """The attributes of an option besides its names and its help."""
    more = {name: value for name, value in change.items() if name != "flags"}
    hint, default = _hint(parameter), parameter.default
    if default is parameter.empty:
        more = {"required": True, **more}
    # A flag that is there means true; a bool that is true by default gets its pair --name/--no-name
    # from `flags`.
    elif hint == "bool" and default is False:
        return {"is_flag": True, **more}
    elif default is not None or hint == "bool":
        more = {"default": default, **more}
    if "type" in more or "flag_value" in more or hint == "bool":
        return more
    # NumPy's docstrings list choices as {"a", "b"}.
    if "{" in text.kind:
        choices = re.findall(r'"([^"]+)"', text.kind)
        return {"type": click.Choice(choices), **more}
    if "Path" in hint:
        return {"type": FILE, **more}
    if hint not in TYPES:
        raise TypeError(f"no option can be made of {parameter}; say its type")
    return {"type": TYPES[hint], **more}


def _help(text: str, flags: Mapping[str, tuple[str, ...]]) -> str:
    """A text of a docstring as a user of the command line reads it: with options in place of parameters."""

    def shown(match: re.Match[str]) -> str:
        return flags[match[1]][-1].partition("/")[0] if match[1] in flags else match[1]

    return re.sub(r'"([\w.+-]+)"', r"\1", re.sub("`([^`]+)`", shown, text))
