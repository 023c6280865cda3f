"""What the planner says about a schedule: every step annotated, and what a rank is expected to take."""

from __future__ import annotations

from dataclasses import dataclass

from tnplan.planner.hardware.process_grid import Layout


@dataclass(frozen=True)
class StepAnnotation:
    """The annotation of one pairwise contraction. Sizes are global, after slicing; bytes and times a rank.

    `state` is local, activate, keep, redistribute, gather or reduce (paper, section IV-B). `once` marks a
    step that no sliced index touches, done before the first slice; the result of another one `serves` so many
    slices in a row, for which it `repeats` so often, for values that an early sum runs over. Steps of one
    `Fused` have the same number `fused`, counted from 0 over the schedule, and share its time; for others it
    is None. `hidden_s` is what its exchanges take beside contractions, on top of `exchange_s`; `codec_s` what
    it takes to compress its result and to restore its operands, where these wait for a later step.
    """

    state: str
    a_modes: tuple[int, ...]
    b_modes: tuple[int, ...]
    c_modes: tuple[int, ...]
    layout: Layout
    batch: int
    m: int
    n: int
    k: int
    size_bytes: int
    moved_bytes: int
    moved_bytes_by_tier: tuple[int, ...]
    flops: float
    contract_s: float
    permute_s: float
    exchange_s: float
    once: bool = False
    serves: int = 1
    repeats: int = 1
    fused: int | None = None
    hidden_s: float = 0.0
    codec_s: float = 0.0

    @property
    def predicted_s(self) -> float:
        """Predicted seconds of the step, with what is waited for of its exchanges."""
        return self.contract_s + self.permute_s + self.exchange_s + self.codec_s

    @property
    def often(self) -> float:
        """How often a slice carries out the step, in the mean of all; 0 where it is done once."""
        return 0.0 if self.once else self.repeats / self.serves


@dataclass(frozen=True)
class Prediction:
    """What the planner expects on one rank of the group. `flops` are real operations of one rank.

    A slice's are the mean of all slices: one that begins an outer part takes longer than the next.
    """

    once_s: float
    slice_s: float
    once_flops: float
    slice_flops: float
    once_moved_bytes: int
    slice_moved_bytes: float
    peak_bytes: int
    live_bytes: int
