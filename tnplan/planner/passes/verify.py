"""The verifier: is a schedule one that can be replayed? Run after planning and again when one is loaded."""

from __future__ import annotations

from collections.abc import Sequence

from tnplan.planner.hardware.fusion_tile import fused_tile
from tnplan.planner.passes.chain_checks import adjoint_problems
from tnplan.planner.passes.verifier import Verifier, operands
from tnplan.planner.schedule.schedule import Accumulate, FusedAdjoint, GradientSchedule, Instruction, Schedule


def verify(schedule: Schedule) -> None:
    """Raise an InputError that names the first instruction, value or buffer that is wrong."""
    verifier = GradientVerifier(schedule) if isinstance(schedule, GradientSchedule) else Verifier(schedule)
    verifier.run()


class GradientVerifier(Verifier):
    """Sums may begin in every part, and what a part leaves is gone after the one that mirrors it."""

    def __init__(self, schedule: GradientSchedule) -> None:
        super().__init__(schedule)
        self.gradient_schedule = schedule
        self.before: list[set[int]] = []
        self.cotangent_sums: set[int] = set()

    def run(self) -> None:
        """Check everything."""
        leaves, output = self.schedule.leaves, self.schedule.output
        self._require(
            bool(leaves) and leaves[-1] == output, "its last input is not a cotangent of the result"
        )
        super().run()
        schedule = self.gradient_schedule
        if schedule.body:
            self._check_after()
        for number, gradient in enumerate(schedule.gradients):
            self.where = f"gradients[{number}]"
            known = 0 <= gradient.tensor < schedule.cotangent
            self._require(known, f"tensor {gradient.tensor} does not exist")
            self._read(gradient.buffer)
            buffer = self.buffers[gradient.buffer]
            own = {mode for index in leaves[gradient.tensor] for mode in schedule.indices[index]}
            elsewhere = {
                mode
                for tensor, leaf in enumerate(leaves)
                for index in leaf
                for mode in schedule.indices[index]
                if tensor != gradient.tensor
            }
            whole = own & elsewhere <= set(buffer.modes) <= own
            self._require(whole, "its modes are not those of its tensor")
            self._require(not buffer.partial, "its shards are still partial")

    def _check_part(self, name: str, instructions: Sequence[Instruction]) -> None:
        self.before.append(set(self.live) - {self.schedule.result})
        super()._check_part(name, instructions)

    def _check_after(self) -> None:
        """What a part and its image make between them is gone after both, but for what lasts to the end."""
        schedule = self.gradient_schedule
        before = self.before[: len(schedule.parts) - 1]
        depths = [level.depth for level in schedule.parts[-2::-1]]
        self.where = "after"
        same = [level.depth for level in schedule.after] == depths
        self._require(same, f"its parts are not those of depths {depths}")
        for number, level in enumerate(schedule.after):
            self.loops = schedule.sliced[: level.depth]
            self._check_part(f"after[{number}]", level.instructions)
            self.where = f"after[{number}]"
            if level.depth:
                # Invariant: a part and its mirror image leave what was there before both.
                left = self.live - {schedule.result}
                self._require(left == before[-1 - number], "it leaves buffers behind")

    def _check_instruction(self, item: Instruction) -> None:
        if not isinstance(item, FusedAdjoint):
            super()._check_instruction(item)
            return
        for buffer in operands(item):
            self._read(buffer)
        for buffer in item.made:
            self._define(buffer)
        one_each = len(item.branches) == len(item.gradients) and 2 * len(item.branches) == len(item.steps)
        self._require(
            bool(item.branches) and one_each, "it does not have one gradient and two steps a branch"
        )
        for number in item.steps:
            self._check_step(number)
        self._refuse(adjoint_problems(self.schedule, item))
        modes = [
            self._local(self.buffers[buffer]) for buffer in (item.operand, *item.branches, item.cotangent)
        ]
        has_tile = fused_tile(modes[0], modes[1:-1], modes[-1], self.fused_elements) is not None
        self._require(has_tile, f"it has no tile of {self.fused_elements} elements or less")

    def _accumulates(self) -> bool:
        """Whether the body adds to the result."""
        result = self.schedule.result
        return any(isinstance(item, Accumulate) and item.out == result for item in self.schedule.body)

    def _begin_sum(self, out: int) -> None:
        self.cotangent_sums.add(out)

    def _check_sum(self, out: int) -> None:
        known = out in self.sums or out in self.cotangent_sums
        self._require(known, f"buffer {out} is not the sum of this part")
        self._read(out)
