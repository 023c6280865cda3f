"""The documents' table of faults is that of the kept results, in which nothing is wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tests.support.robustness.fault_table import PAGE, kept, page_with, table
from tests.support.robustness.faults import FAULTS

EACH = 6


def test_every_fault_was_tried_and_ended_well() -> None:
    outcomes = kept()
    assert Counter(one.fault for one in outcomes) == {fault.name: EACH for fault in FAULTS}
    assert [one for one in outcomes if one.wrong(FAULTS[one.number % len(FAULTS)])] == []


def test_the_table_is_made_of_the_results() -> None:
    outcomes, page = kept(), PAGE.read_text()
    assert page_with(page, table(outcomes)) == page
    slower = [replace(one, seconds=one.seconds + 1) for one in outcomes]
    assert page_with(page, table(slower)) != page
