"""Sphinx extension: writes a page for every public name of tnplan, from its docstring."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import tnplan

FOLDER = "reference/api"
TOPICS = {
    "Contractions": ("tnplan.jobs.arrays", "tnplan.calls.contract", "tnplan.calls.optimizer"),
    "Circuits": ("tnplan.circuits", "tnplan.questions"),
    "Codecs": ("tnplan.calls.compress_file", "tnplan.compress"),
    "Jobs and engines": ("tnplan.jobs", "tnplan.calls.execute", "tnplan.calls.simulate",
                         "tnplan.calls.propagate", "tnplan.calls.warmup", "tnplan.calls.diagonalize",
                         "tnplan.calls.sqd_loop", "tnplan.calls.sci_solver", "tnplan.executor"),
    "Hardware": ("tnplan.planner.hardware", "tnplan.calls.calibrate"),
    "Paths, plans and reports": ("tnplan.calls", "tnplan.planner"),
    "Errors": ("tnplan.common",),
}  # fmt: skip
"""A title and the modules whose names stand below it."""


def pages() -> dict[str, str]:
    """The text of every page by its name, `index` among them."""
    by_topic: dict[str, list[str]] = {topic: [] for topic in TOPICS}
    for name in tnplan.__all__:
        value = getattr(tnplan, name)
        if not inspect.ismodule(value):
            by_topic[_topic(value.__module__)].append(name)
    found = {name: _page(f"tnplan.{name}") for names in by_topic.values() for name in names}
    lines = ["# The Python API", "", "Everything below is reached as `tnplan.NAME`.", ""]
    for topic, names in by_topic.items():
        if names:
            lines += [f"## {topic}", "", "```{toctree}", ":maxdepth: 1", "", *names, "```", ""]
    modules = sorted(name for name in tnplan.__all__ if inspect.ismodule(getattr(tnplan, name)))
    lines += ["## Modules", "", "```{toctree}", ":maxdepth: 1", "", *modules, "```", ""]
    for name in modules:
        members = list(getattr(tnplan, name).__all__)
        found[name] = f"# tnplan.{name}\n\n" + "\n".join(_entry(f"tnplan.{name}.{one}") for one in members)
    return {**found, "index": "\n".join(lines)}


def _topic(module: str) -> str:
    for topic, places in TOPICS.items():
        if module.startswith(places):
            return topic
    raise ValueError(f"no topic for the module {module}; name it in docs/extensions/api_pages.py")


def _page(name: str) -> str:
    return f"# {name}\n\n{_entry(name)}"


def _entry(name: str) -> str:
    value: Any = tnplan
    for part in name.split(".")[1:]:
        value = getattr(value, part)
    kind = "autoclass" if inspect.isclass(value) else "autofunction" if callable(value) else "autodata"
    options = "\n   :members:\n" if kind == "autoclass" else "\n"
    return f"```{{eval-rst}}\n.. {kind}:: {name}{options}```\n"


def write_pages(app: Sphinx) -> None:
    """Write what has changed and delete what is no longer public."""
    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(exist_ok=True)
    texts = {f"{name}.md": text for name, text in pages().items()}
    for path in folder.iterdir():
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the writer."""
    app.connect("builder-inited", write_pages)
    return {"version": "1", "parallel_read_safe": True}
