"""How often random tests are repeated: so often as fits each run of the suite, or as the goals ask.

`TNPLAN_TESTS=thorough make test-slow` does the latter.
"""

from __future__ import annotations

import os


def repeats(of_suite: int, of_goal: int) -> int:
    """`of_goal` where the variable TNPLAN_TESTS is "thorough", else `of_suite`."""
    return of_goal if os.environ.get("TNPLAN_TESTS") == "thorough" else of_suite
