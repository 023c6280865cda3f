"""The numba kernel that sorts excitations of alpha into cells; `list_cells` says what these are.

Imported lazily (numba loads slowly).
"""

from __future__ import annotations

from typing import Any

from tnplan.executor.device.cpu.bits_kernel import jit


@jit
def fill_entries(group: int, groups: Any, links: Any, beta_of: Any, scratch: Any, entries: Any) -> int:
    """Entries of an alpha group, sorted by beta string; how many strings have some."""
    # A counting sort by beta string, in time of the entries and not of all strings: `present` lists
    # the strings that occur, so that only these are looked at and reset.
    counts, ends, present = scratch[0], scratch[1], scratch[2]
    n_present = 0
    # First run: how many entries each beta string has.
    for link in range(links.start[group], links.start[group + 1]):
        other = links.other[link]
        for k in range(groups.begin[other], groups.begin[other + 1]):
            b = beta_of[k]
            if counts[b] == 0:
                present[n_present] = b
                n_present += 1
            counts[b] += 1
    # Then where the entries of each begin.
    at = 0
    for i in range(n_present):
        ends[present[i]] = at
        at += counts[present[i]]
    # Second run: write them; ends[b] ends where the cell ends. The codes are those of `ListCells`.
    for link in range(links.start[group], links.start[group + 1]):
        other, rises = links.other[link], links.create[link] > links.destroy[link]
        code = 4 * links.pairs[link] + 2 * rises + (links.sign[link] < 0)
        for k in range(groups.begin[other], groups.begin[other + 1]):
            b = beta_of[k]
            entries[ends[b], 0] = groups.determinants[k]
            entries[ends[b], 1] = code
            ends[b] += 1
    return n_present


@jit
def fill_cells(
    first: int, last: int, first_row: int, last_row: int, groups: Any, links: Any, beta_links: Any,
    beta_of: Any, base: Any, start: Any, entries: Any, cells: Any, scratch: Any,
) -> None:  # fmt: skip
    """Entries of alpha groups first .. last-1 that have rows first_row .. last_row-1, and their cells.

    `beta_of[k]` is the beta string of member k. Rows 0 to 2 of `scratch` hold, by beta string, how many
    entries its cell has (zero between groups), where the next one goes, and which strings have a cell.
    """
    # Invariant: counts is zero everywhere at the start of each group, and is set to it again at its
    # end.
    counts, ends, present = scratch[0], scratch[1], scratch[2]
    for group in range(first, last):
        n_present = 0
        if base[group + 1] > base[group]:
            # Groups without local rows have no entries in `base`, and cost nothing.
            own = entries[base[group] : base[group + 1]]
            n_present = fill_entries(group, groups, links, beta_of, scratch, own)
        for k in range(groups.begin[group], groups.begin[group + 1]):
            d = groups.determinants[k]
            if d < first_row or d >= last_row:
                continue
            # The cells of a row: one for each link of its beta string, empty where no determinant
            # of a linked alpha string has that beta string. Bounds are relative to base[group], to
            # fit 32 bits.
            s = start[d - first_row]
            for link in range(beta_links.start[beta_of[k]], beta_links.start[beta_of[k] + 1]):
                b = beta_links.other[link]
                cells[s, 0] = ends[b] - counts[b] if counts[b] else 0
                cells[s, 1] = ends[b] if counts[b] else 0
                s += 1
        for i in range(n_present):
            counts[present[i]] = 0
