"""Which buffers an instruction reads, told from its fields. The verifier's own account of it."""

from __future__ import annotations

from tnplan.planner.schedule.schedule import Instruction

OPERANDS = {
    "load": (),
    "zero": (),
    "free": (),
    "contract": ("a", "b"),
    "fused": ("operand", "branches", "closing"),
    "fused_adjoint": ("operand", "branches", "cotangent"),
    "fix_slice": ("source",),
    "add_slice": ("source",),
    "sum_modes": ("source",),
    "accumulate": ("source",),
    "encode": ("source",),
    "decode": ("source",),
    "redistribute": ("source",),
    "gather": ("source",),
    "reduce_scatter": ("source",),
}
"""The fields that name buffers which are read, by opcode; workspaces are not read."""


def operands(instruction: Instruction) -> list[int]:
    """The numbers of the buffers whose values an instruction needs."""
    numbers: list[int] = []
    for name in OPERANDS[instruction.op]:
        value = getattr(instruction, name)
        if value is not None:
            numbers += value if isinstance(value, tuple) else (value,)
    return numbers
