"""The table of faults in benchmarks/notes/failures.md, made of what `faults` printed.

As a script: `python -m tests.support.robustness.fault_table ROWS` keeps the lines of the file ROWS in the
results and writes the table of all kept results into the page.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.support.robustness.faults import FAULTS, Outcome
from tests.support.root import ROOT
from tnplan.common.files import write_text

PAGE = ROOT / "benchmarks" / "notes" / "failures.md"
RESULTS = ROOT / "benchmarks" / "results" / "system" / "faults.json"
HEAD = "| fault | times | status | seconds from the fault to the end | result |\n|---|---|---|---|---|\n"


def kept() -> list[Outcome]:
    """The outcomes that are kept in the results."""
    return [Outcome(**row) for row in json.loads(RESULTS.read_text())]


def table(outcomes: list[Outcome]) -> str:
    """A row for each kind of fault."""
    return HEAD + "".join(
        _row(fault.name, [one for one in outcomes if one.fault == fault.name]) for fault in FAULTS
    )


def _row(name: str, outcomes: list[Outcome]) -> str:
    statuses = " or ".join(str(status) for status in sorted({one.status or 0 for one in outcomes}))
    seconds = sorted(one.seconds for one in outcomes if one.status != 0)
    ends = f"{seconds[0]:.1f} to {seconds[-1]:.1f}" if seconds else "the run goes on"
    equal = f"{sum(one.resumed_equal for one in outcomes)} of {len(outcomes)} equal"
    return f"| {name} | {len(outcomes)} | {statuses} | {ends} | {equal} |\n"


def page_with(text: str, made: str) -> str:
    """The text of the page with this table in place of its own."""
    before, _, rest = text.partition(HEAD)
    lines = rest.splitlines(keepends=True)
    behind = next((at for at, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return before + made + "".join(lines[behind:])


def _main(rows: str) -> None:
    found: list[dict[str, Any]] = [json.loads(line) for line in Path(rows).read_text().splitlines()]
    for row in found:
        row.pop("wrong", None)
    lines = ",\n ".join(json.dumps(row) for row in found)
    write_text(RESULTS, f"[{lines}]\n")
    write_text(PAGE, page_with(PAGE.read_text(), table(kept())))


if __name__ == "__main__":
    _main(*sys.argv[1:])
