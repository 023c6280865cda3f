"""What tnplan supports, from docs/reference/support.toml; as a script, writes its tables into support.md."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from typing import Any

from tests.support.root import ROOT

FILE, PAGE = ROOT / "docs/reference/support.toml", ROOT / "docs/reference/support.md"
SUPPORT: dict[str, Any] = tomllib.loads(FILE.read_text(encoding="utf-8"))
ARCHITECTURES = tuple(f"sm_{name.replace('.', '')}" for name in SUPPORT["compute_capabilities"])
"""For which every kernel of the GPU is compiled."""
HEADS = {"version": ("what", "versions", "tested"), "platform": ("system", "processor", "has", "tested")}


def table(name: str) -> str:
    """The rows of a kind as a table of Markdown."""
    names = {key: ", ".join(SUPPORT[key]) for key in ("python", "compute_capabilities")}
    rows = [[str(row[column]).format_map(names) for column in HEADS[name]] for row in SUPPORT[name]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def with_tables(page: str, names: Iterable[str] = HEADS) -> str:
    """The page with its tables made anew: each follows the line of its columns."""
    for name in names:
        head = f"| {' | '.join(HEADS[name])} |\n|{'---|' * len(HEADS[name])}\n"
        before, after = page.split(head)
        rest = after.partition("\n\n")[2]
        page = f"{before}{head}{table(name)}\n\n{rest}"
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
