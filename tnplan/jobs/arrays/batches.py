"""Values of a batch in pieces, as many at once as a schedule takes."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any


def pieces(
    values: Mapping[int, Any], batched: Container[int], length: int | None, shape: tuple[int, ...]
) -> Iterator[tuple[int, Mapping[int, Any]]]:
    """Values for one run after the other: as many of a batch at once as the result of that shape has.

    The last piece is the last so many values, some of them once more; of a shorter batch, its own values
    again and again. `length` is None where there is no batch.
    """
    if length is None or length == shape[0]:
        yield 0, values
        return
    at_once = shape[0]
    for start in range(0, length, at_once):
        # The schedule is for a fixed extent of the batch. The last piece begins earlier and
        # computes some values twice; a batch shorter than the extent repeats its values.
        first = max(0, min(start, length - at_once))
        rows: Any = slice(first, first + at_once)
        if length < at_once:
            rows = [first + k % length for k in range(at_once)]
        piece = {number: array[rows] if number in batched else array for number, array in values.items()}
        yield first, piece


def store_piece(result: Any, flat: Any, first: int | None) -> None:
    """Write a flat result, or that of the values of a batch from `first` on."""
    if first is None:
        result.reshape(-1)[...] = flat
        return
    values = flat.reshape(-1, *result.shape[1:])[: len(result) - first]
    result[first : first + len(values)] = values
