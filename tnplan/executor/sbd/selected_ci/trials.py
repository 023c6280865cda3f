"""Short growths from several starts, and which of them are the best.

Knows starts and states of growths; grows nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tnplan.executor.sbd.selected_ci.connections import member_keys
from tnplan.executor.sbd.selected_ci.growth_state import GrowthState
from tnplan.executor.sbd.selected_ci.starts import Start

BROKEN = 2
"""Spin-broken starts that are kept besides the best, since they gain most from correlation."""
LOWEST_CORRECTION = -0.1
"""Hartree. A larger correction is of determinants near the state's own energy, and has no meaning."""
SAME = 1e-7
"""States whose energies differ by less, in Hartree, turn into each other under a symmetry."""
OVERLAP, ALIKE = 1e-2, 0.1
"""A start leads to a state that was reached where their overlap is above the first. States whose overlap is
above the second are alike."""


@dataclass
class Trial:
    """A start, what it has led to, the second-order correction of the state there, and its spin's penalty."""

    start: Start
    state: GrowthState
    correction: float = 0.0
    penalty: float = 0.0

    @property
    def estimate(self) -> float:
        """The energy with the penalty, and with the correction as far as that can be believed."""
        return self.state.energies[0] + max(self.correction, LOWEST_CORRECTION) + self.penalty

    @property
    def reached(self) -> Start:
        """The state that was reached."""
        return Start(member_keys(self.state.basis), self.state.states, 0, 0.0)

    @property
    def report(self) -> dict[str, Any]:
        """What the report says of it."""
        return {
            "start_determinants": len(self.start.keys), "determinants": len(self.state.basis),
            "energy_hartree": self.state.energies[0], "correction_hartree": self.correction,
        }  # fmt: skip


def best_trials(trials: list[Trial], count: int) -> list[int]:
    """The numbers of the best trials by their estimates, one of those that are alike.

    Besides, those of the best that are spin-broken.
    """
    best: list[int] = []
    for number in sorted(range(len(trials)), key=lambda at: trials[at].estimate):
        trial = trials[number]
        if not any(
            abs(trials[at].state.energies[0] - trial.state.energies[0]) < SAME
            or trials[at].reached.overlap(trial.reached) > ALIKE
            for at in best
        ):
            best.append(number)
    return best[:count] + [at for at in best[count:] if trials[at].start.is_broken][:BROKEN]
