"""The verifier refuses what cannot be replayed, whichever part of a schedule is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from math import inf

import pytest

from tests.support.networks import eager_profile, random_path, window
from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.passes.verify import verify
from tnplan.planner.schedule.file import load_schedule, save_schedule
from tnplan.planner.schedule.schedule import (
    Accumulate,
    Contract,
    FixSlice,
    Free,
    Gather,
    Instruction,
    Load,
    Redistribute,
    ReduceScatter,
    Schedule,
    SumModes,
)


def rich_schedule() -> Schedule:
    """A schedule with nearly every opcode: slices, a plain sum, redistributions and a reduction."""
    chain = window(24, 12)
    last = range(24, 36)
    sizes = {**chain.network.size_dict, "sum": 3}
    inputs = [*chain.network.inputs, (*(f"b{n}" for n in list(last)[2:]), "sum")]
    inputs[1] = (*inputs[1], "cut")
    inputs[5] = (*inputs[5], "cut")
    sizes["cut"] = 2
    n = len(inputs)
    ssa = [tuple(t + 1 if t >= n - 1 else t for t in step) for step in chain.ssa_path] + [(n + 23, n - 1)]
    path = ContractionPath(Network(tuple(inputs), ("b24", "b25"), sizes), tuple(ssa), ("cut",))
    return plan(path, eager_profile(), devices=8, ranks_per_group=8, memory_bytes=inf, threshold_bytes=1024)


SCHEDULE = rich_schedule()


def edit(part: str, kind: type, change: Callable[..., Instruction | None]) -> Schedule:
    """Change (or drop) the first instruction of a kind."""
    instructions = list(getattr(SCHEDULE, part))
    place = next(n for n, item in enumerate(instructions) if isinstance(item, kind))
    changed = change(instructions[place])
    instructions[place : place + 1] = [] if changed is None else [changed]
    return replace(SCHEDULE, **{part: tuple(instructions)})


def edit_buffer(number: int, **fields: object) -> Schedule:
    """Change the fields of one buffer."""
    buffers = list(SCHEDULE.buffers)
    buffers[number] = replace(buffers[number], **fields)  # type: ignore[arg-type]
    return replace(SCHEDULE, buffers=tuple(buffers))


def find(kind: type) -> Instruction:
    """The first instruction of a kind in the body."""
    return next(item for item in (*SCHEDULE.body, *SCHEDULE.once) if isinstance(item, kind))


def test_the_example_is_valid_and_has_all_opcodes_but_gather() -> None:
    verify(SCHEDULE)
    kinds = {type(item) for item in (*SCHEDULE.once, *SCHEDULE.body)}
    assert kinds == {Load, FixSlice, SumModes, Contract, Redistribute, ReduceScatter, Accumulate, Free}


CONTRACT = find(Contract)
assert isinstance(CONTRACT, Contract)
*KEPT, REDUCED = SCHEDULE.buffers[CONTRACT.a].modes
EXCHANGE = find(Redistribute)
assert isinstance(EXCHANGE, Redistribute)
WORKSPACE = next(n for n, buffer in enumerate(SCHEDULE.buffers) if buffer.workspace)
SPREAD = next(n for n, buffer in enumerate(SCHEDULE.buffers) if any(m is not None for m in buffer.layout))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda: edit("body", Contract, lambda _: None), "holds nothing"),
        (lambda: edit("body", Contract, lambda i: replace(i, a=i.c)), "holds nothing"),
        (lambda: edit("body", Contract, lambda i: replace(i, c=i.a)), "while it is in use"),
        (lambda: edit("body", Contract, lambda i: replace(i, step=10**6)), "step 1000000 does not exist"),
        (lambda: edit("body", Free, lambda i: replace(i, buffer=SCHEDULE.result)), "overlaps"),
        (lambda: edit("body", Free, lambda _: None), "leaves buffers behind|in use|overlaps"),
        (lambda: edit("body", Accumulate, lambda _: None), "accumulating"),
        (lambda: edit("body", FixSlice, lambda i: replace(i, source=10**6)), "holds nothing"),
        (lambda: edit("once", Load, lambda i: replace(i, tensor=999)), "tensor 999 does not exist"),
        (lambda: edit("once", Load, lambda i: replace(i, tensor=i.tensor + 1)), "not those of tensor"),
        (lambda: edit_buffer(CONTRACT.c, offset_bytes=SCHEDULE.predicted.peak_bytes), "outside the arena"),
        (lambda: edit_buffer(CONTRACT.c, offset_bytes=SCHEDULE.buffers[CONTRACT.a].offset_bytes), "overlaps"),
        (
            lambda: edit_buffer(CONTRACT.a, modes=(*KEPT[:5], REDUCED, *KEPT[5:])),
            r"\[batch \| kept \| reduced\]",
        ),
        (lambda: edit_buffer(CONTRACT.a, modes=SCHEDULE.buffers[CONTRACT.a].modes[:1] * 2), "twice|size"),
        (lambda: edit_buffer(SPREAD, layout=(None, None, None)), "size|digit"),
        (lambda: edit_buffer(SPREAD, layout=(None,)), "another number of digits"),
        (lambda: edit_buffer(SPREAD, size_bytes=8), "not that of its shard"),
        (lambda: edit_buffer(WORKSPACE, size_bytes=0), "a workspace of 0 bytes holds no element"),
        (lambda: edit_buffer(WORKSPACE, size_bytes=-64), "a workspace of -64 bytes holds no element"),
        (lambda: replace(SCHEDULE, sliced=("cut", "cut")), "an index is sliced twice"),
        (lambda: replace(SCHEDULE, steps=(replace(SCHEDULE.steps[0], k=0),)), "its product is .* x 0"),
        (lambda: edit_buffer(SPREAD, layout=(999, None, None)), "not one of its modes"),
        (lambda: edit_buffer(EXCHANGE.out, partial=(0,)), "spread and partial|partial"),
        (lambda: replace(SCHEDULE, result=0), "result: buffer 0 is written while it is in use"),
        (lambda: replace(SCHEDULE, ranks_per_group=4), "the grid has 8 ranks, not 4"),
        (lambda: replace(SCHEDULE, dtype="int8"), "dtype 'int8'"),
        (lambda: replace(SCHEDULE, output=("b25", "b24")), "not those of the output"),
    ],
)
def test_a_broken_schedule_is_refused(broken: Callable[[], Schedule], message: str) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        verify(broken())
    assert "tnplan plan" in refusal.value.remedy


@pytest.mark.parametrize("seed", range(40))
def test_a_schedule_survives_its_file(seed: int, tmp_path) -> None:  # type: ignore[no-untyped-def]
    schedule = plan(
        random_path(seed), eager_profile(), devices=4, ranks_per_group=4, memory_bytes=inf, threshold_bytes=1
    )
    save_schedule(schedule, tmp_path / "s.json")
    loaded = load_schedule(tmp_path / "s.json")
    assert loaded == schedule
    verify(loaded)
    text = (tmp_path / "s.json").read_text()
    assert text == json.dumps(json.loads(text), separators=(",", ":")) + "\n"


def test_an_edited_file_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    save_schedule(SCHEDULE, tmp_path / "s.json")
    text = (tmp_path / "s.json").read_text()
    assert '"dtype":"complex64"' in text
    (tmp_path / "s.json").write_text(text.replace('"dtype":"complex64"', '"dtype":"complex128"'))
    with pytest.raises(InputError, match=r"identity.*were changed"):
        load_schedule(tmp_path / "s.json")


def test_gather_to_a_spread_layout_is_refused() -> None:
    with pytest.raises(InputError, match="not whole on every rank"):
        verify(edit("body", Redistribute, lambda i: Gather(i.source, i.out, i.workspace, i.step)))
