"""The comparison of codecs as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from tnplan.calls.compare_codecs import CodecRow
from tnplan.common.units import figure_text
from tnplan.reporting.tables import Listing

COLUMNS = ("pipeline", "ratio", "compress MB/s", "restore MB/s", "worst error / bound")


def codec_table(rows: Sequence[CodecRow], bound: float, title: str) -> Listing:
    """A row for each pipeline; errors above the bound are those of a threshold above it."""
    cells = [
        (
            row.name,
            f"{row.ratio:.2f}",
            figure_text(row.encode_bytes_per_s / 1e6),
            figure_text(row.decode_bytes_per_s / 1e6),
            f"{row.worst_error / bound:.4f}",
        )
        for row in rows
    ]
    return Listing(title, COLUMNS, cells, left=("pipeline",))
