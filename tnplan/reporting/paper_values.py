"""What the paper (arXiv 2606.01852) gives for its workloads, to stand beside our figures. Plans nothing.

Tables II and III and the text of section V have speedups and rates; times and operations follow from them by
the paper's Eqs. 8 to 11.
"""

from __future__ import annotations

from dataclasses import dataclass

from tnplan.planner.projection.projection import Projection


@dataclass(frozen=True)
class PaperRow:
    """The paper's figures at one number of devices; None where it gives none."""

    speedup: float | None = None
    extra_speedup: float | None = None
    complexity_reduction: float | None = None
    flop_per_s: float | None = None
    slice_time_s: float | None = None
    sliced: int | None = None


@dataclass(frozen=True)
class PaperWorkload:
    """One workload of the paper: `prefix` begins the names of our paths of it; `rows` by devices."""

    name: str
    prefix: str
    rows: dict[int, PaperRow]

    @property
    def one_device_s(self) -> float:
        """T_1 that the tables imply: S_1024 t_1024 2^b_1024 (Eqs. 8 and 9)."""
        last = self.rows[1024]
        assert last.speedup
        assert last.slice_time_s
        assert last.sliced
        return last.speedup * last.slice_time_s * 2.0**last.sliced

    @property
    def one_device_complexity(self) -> float:
        """C_t,1 that they imply: R_8 times what 8 devices do in T_8 at their rate, in real operations."""
        row = self.rows[8]
        assert row.speedup
        assert row.flop_per_s
        assert row.complexity_reduction
        return row.complexity_reduction * 8 * row.flop_per_s * self.one_device_s / row.speedup

    def time_s(self, devices: int) -> float | None:
        """T_P that the tables imply, or None where they say nothing."""
        if devices == 1:
            return self.one_device_s
        row = self.rows.get(devices)
        if row is None:
            return None
        speedup = row.speedup or (row.extra_speedup * devices if row.extra_speedup else None)
        return self.one_device_s / speedup if speedup else None


WORKLOADS = (
    PaperWorkload(
        "circuit n60 m24",
        "zuchongzhi_n60_m24",
        {
            8: PaperRow(148, 18.5, 18.5, 28.1e12),
            16: PaperRow(extra_speedup=5.44),
            512: PaperRow(complexity_reduction=522.54),
            1024: PaperRow(42759, 41.8, 418, None, 20.19, 20),
        },
    ),
    PaperWorkload(
        "hexagonal 8x8",
        "hexagonal_8x8",
        {
            8: PaperRow(1383, 172.9, 197.8, 31.6e12),
            1024: PaperRow(69.5e6, 67869, 1.49e6, None, 113.27, 6),
        },
    ),
    PaperWorkload(
        "rectangular 49x20",
        "rectangular_7x7_l20",
        {8: PaperRow(75, 9.4, 9.3, 32.9e12), 1024: PaperRow(221212, 216.0, 3154, None, 34.70, 14)},
    ),
    PaperWorkload(
        "triangular 49x24",
        "triangular_7x7_l24",
        {8: PaperRow(56, 7.0, 7.4, 31.8e12), 1024: PaperRow(135728, 132.6, 986, None, 12.19, 14)},
    ),
)


def paper_workload(projection: Projection) -> PaperWorkload | None:
    """The workload of the paper that a projection is of, by the names of its paths."""
    names = [path.name for path in projection.paths] + [label.split("/")[-1] for label in projection.labels]
    for workload in WORKLOADS:
        if any(name.startswith(workload.prefix) for name in names):
            return workload
    return None
