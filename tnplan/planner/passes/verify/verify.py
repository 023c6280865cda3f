"""The verifier: is a schedule one that can be replayed? Run after planning and again when one is loaded."""

from __future__ import annotations

from tnplan.planner.passes.verify.gradients import GradientVerifier
from tnplan.planner.passes.verify.verifier import Verifier
from tnplan.planner.schedule.gradient_schedule import GradientSchedule
from tnplan.planner.schedule.schedule import Schedule


def verify(schedule: Schedule) -> None:
    """Raise an InputError that names the first instruction, value or buffer that is wrong."""
    verifier = GradientVerifier(schedule) if isinstance(schedule, GradientSchedule) else Verifier(schedule)
    verifier.run()
