"""Compression as the planner sees it: the option, the cost model, exchanges that pay, tensors that wait."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

import tnplan
from tests.support.contraction.compression import (
    EXCHANGE,
    exchanging,
    instructions,
    plan_exchanges,
    slow_profile,
    waiting,
)
from tests.support.networks import eager_profile
from tests.support.null_device.dry_run import dry_run
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.cli.main import run
from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.planner.hardware.compression_options import Compression, Lossy, Request, parse_request
from tnplan.planner.hardware.cost import CostModel, make_grid
from tnplan.planner.hardware.profile import CodecRates, Profile, Tier, load_profile, profile_from_document
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.path_file import save_path
from tnplan.planner.passes.lowering.buffer_assignment import assign, lifetimes
from tnplan.planner.passes.lowering.compress_exchanges import compress_exchanges, exchange_sizes
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.passes.sharding.states import ExchangeTraffic, StateSpace
from tnplan.planner.passes.tree.build import build
from tnplan.planner.passes.verify import verify
from tnplan.planner.schedule.file import load_schedule, save_schedule
from tnplan.planner.schedule.schedule import Decode, Encode, Gather, Instruction, Redistribute, Schedule
from tnplan.reporting.tables import plan_facts

STORE = Compression(store=Lossy(1e-3, 3.0))


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("exchange=1e-3", Request((1e-3, None))),
        ("exchange=0.01:4,store=5e-3:2.5", Request((0.01, 4.0), (5e-3, 2.5))),
        ("store=0, setting=small", Request(None, (0.0, None), "small")),
        ("checkpoints", Request(checkpoints=True)),
        ("exchange=.001,checkpoints", Request((1e-3, None), checkpoints=True)),
    ],
)
def test_the_option_is_read(text: str, request_: Request) -> None:
    assert parse_request(text) == request_


# fmt: off
NO_OPTIONS: list[Row] = [
    ("", "--compress", "'' is unknown", "give exchange="),
    ("everything", "--compress", "'everything' is unknown", "give exchange="),
    ("exchange", "--compress", "'exchange' is unknown", "give exchange="),
    ("checkpoints=1", "--compress", "is unknown", "give exchange="),
    ("exchange=", "--compress", "is not a bound", "give a bound such as"),
    ("exchange=tiny", "--compress", "is not a bound", "give a bound such as"),
    ("exchange=-1e-3", "--compress", "is not a bound", "give a bound such as"),
    ("exchange=nan", "--compress", "exchange=nan is not a bound", "give a bound such as"),
    ("exchange=1e-3,store=1e-3:nan", "--compress", "store=1e-3:nan is not a bound", "give a bound such as"),
    ("exchange=1", "--compress", "exchange: the bound is 1.0", "give a bound from"),
    ("exchange=1e999", "--compress", "is not a bound", "give a bound such as"),
    ("store=1e-3:1", "--compress", "store: the ratio is 1.0", "give a ratio above"),
    ("store=1e-3:0.5", "--compress", "the ratio is 0.5", "give a ratio above"),
    ("store=1e-3:1e9", "--compress", "the ratio is", "give a ratio above"),
    ("store=1e-3:4:4", "--compress", "is not a bound", "give a bound such as"),
    ("exchange=1e-3,exchange=1e-2", "--compress", "named twice", "name exchange once"),
    ("exchange=1e-3,setting=best", "--compress", "setting 'best' is unknown", "choose fast or small"),
    ("setting=small", "--compress", "has a setting and no bound", "add exchange=BOUND or"),
]
# fmt: on


@table(NO_OPTIONS)
def test_what_is_no_option_is_refused(refusal: Refusal) -> None:
    refusal.raised_by(lambda: parse_request(refusal.given))


def h200(tier: Tier, ratio: float, rates: CodecRates | None = None) -> CostModel:
    profile = replace(load_profile("h200-nvlink"), tiers=(tier,))
    if rates:
        profile = replace(profile, codecs={"fast": rates})
    return CostModel(profile, "complex64", None, Compression(exchange=Lossy(1e-3, ratio)))


def test_the_seconds_of_a_compressed_exchange() -> None:
    tier = Tier("network", 0, 25e9, 1e-5, 1 << 20)
    profile = replace(
        load_profile("cpu"), permute_bytes_per_s=1e12, launch_s=1e-6, tiers=(tier,),
        codecs={"fast": CodecRates(800e9, 1500e9, 1e-4)},
    )  # fmt: skip
    model = CostModel(profile, "complex64", None, Compression(exchange=Lossy(1e-3, 4.0)))
    size, messages = float(3 << 30), 3
    packed = 2 * 2 * size / 1e12
    blocks = messages * (1 << 20) / 25e9
    assert model.exchange_s([size], [messages], size) == pytest.approx(
        1e-6 + size / 25e9 + packed + blocks, rel=1e-12
    )
    codec = messages * 2 * 1e-4 + size / 800e9 + size / 1500e9
    streams = size / 4 / 25e9 + 2 * 2 * size / 4 / 1e12 + blocks
    assert model.exchange_s([size], [messages], size, (0,)) == pytest.approx(
        1e-6 + codec + packed + 1e-5 + streams, rel=1e-12
    )


def test_over_25_gb_a_second_an_exchange_is_at_least_twice_as_fast(root: Path) -> None:
    results = root / "benchmarks" / "results" / "codecs" / "tensor_codecs.json"
    rows = json.loads(results.read_text())["rows"]
    ratio = min(row["fast"]["ratio"] for row in rows)
    model = h200(Tier("network", 0, 25e9, 1e-5, 524288), ratio, rates=CodecRates(800e9, 1500e9, 3e-4))
    for size in (1 << 26, 1 << 30, 1 << 33):
        tiers = model.compressed_tiers([size], [1], inf)
        assert tiers == (0,)
        assert model.exchange_s([size], [1], size) >= 2 * model.exchange_s([size], [1], size, tiers)


def test_only_what_pays_is_compressed() -> None:
    slow, fast = Tier("slow", 0, 25e9, 1e-5, 524288), Tier("fast", 8, 409e9, 1e-5, 524288)
    assert h200(fast, 2.0).compressed_tiers([1 << 30], [1], inf) == ()
    assert h200(slow, 2.0).compressed_tiers([1 << 30], [1], inf) == (0,)
    assert h200(slow, 2.0).compressed_tiers([1 << 15], [1], inf) == ()
    assert h200(slow, 2.0).compressed_tiers([1 << 30], [1], 100_000) == ()
    assert h200(slow, 2.0).compressed_tiers([0], [0], inf) == ()
    both = replace(load_profile("h200-nvlink"), tiers=(fast, slow))
    model = CostModel(both, "complex64", None, Compression(exchange=Lossy(1e-3)))
    assert model.compressed_tiers([1 << 30, 1 << 30], [1, 2], inf) == (1,)
    assert CostModel(both, "complex64", None).compressed_tiers([1 << 30, 1 << 30], [1, 2], inf) == ()


def test_sums_are_never_compressed() -> None:
    profile = slow_profile(node=1)
    model = CostModel(profile, "complex64", None, EXCHANGE)
    space = StateSpace(build(exchanging(18, 8)), make_grid(2, profile), model, inf)
    exchange = ExchangeTraffic((0.0, float(1 << 20)), (0, 1), 1 << 20, 1 << 20)
    summed = exchange._replace(summed=True)
    assert space.compressed(exchange) == (1,)
    assert space.compressed(summed) == ()
    assert space.exchange_s(exchange) < space.exchange_s(summed)
    assert space.moved_bytes(exchange) == (0.0, (1 << 20) / 2)
    assert space.moved_bytes(summed) == summed.bytes_by_tier


@pytest.mark.parametrize("ranks", [2, 4, 6])
def test_exchanges_that_pay_are_planned_compressed(ranks: int) -> None:
    plain, packed = (plan_exchanges(ranks, compression) for compression in (None, EXCHANGE))
    assert plain.compression is None
    assert not any(item.compressed for item in instructions(plain, Redistribute))  # type: ignore[attr-defined]
    assert any(item.compressed == (1,) for item in instructions(packed, Redistribute))  # type: ignore[attr-defined]
    assert packed.projected_s(1) < plain.projected_s(1)
    assert packed.predicted.once_moved_bytes < plain.predicted.once_moved_bytes
    sent = sum(dry_run(packed, rank)[0].sent_bytes[1] for rank in range(ranks))
    heads = 1.05
    assert sent <= heads * sum(step.moved_bytes_by_tier[1] for step in packed.steps) * ranks


@pytest.mark.parametrize("ranks", [2, 4, 6])
def test_a_schedule_is_marked_as_it_would_be_planned(ranks: int) -> None:
    plain = plan_exchanges(ranks, None)
    marked = compress_exchanges(plain, parse_request("exchange=1e-3:3"))
    verify(marked)
    assert marked.identity != plain.identity
    assert marked.buffers == plain.buffers
    for part in ("once", "body"):
        for before, after in zip(getattr(plain, part), getattr(marked, part), strict=True):
            assert before == (replace(after, compressed=()) if hasattr(after, "compressed") else after)
    again = replace(marked.compression, exchange=Lossy(1e-3, 3.0))  # type: ignore[type-var]
    planned = plan_exchanges(ranks, again)
    alike = [type(i) for i in planned.once] == [type(i) for i in plain.once]
    assert alike == (ranks != 4)
    if alike:
        assert planned.buffers == plain.buffers
        assert marked.projected_s(1) == pytest.approx(planned.projected_s(1), rel=1e-9)
    for number, step in enumerate(plain.steps):
        exchanges = [
            item for item in plain.once
            if isinstance(item, Redistribute | Gather) and item.step == number
        ]  # fmt: skip
        moved = [sum(parts) for parts in zip(*(exchange_sizes(plain, i)[0] for i in exchanges), strict=True)]
        assert step.state == "reduce" or list(step.moved_bytes_by_tier) == (moved or [0, 0])


def test_marking_changes_bounds_alone_where_a_plan_has_them() -> None:
    planned = plan_exchanges(2, EXCHANGE)
    assert compress_exchanges(planned, Request()) is planned
    changed = compress_exchanges(planned, parse_request("exchange=1e-2"))
    assert changed.compression == Compression(exchange=Lossy(1e-2))
    assert (changed.once, changed.steps) == (planned.once, planned.steps)
    with pytest.raises(InputError, match="counts on a ratio of 2; give only the bound"):
        compress_exchanges(planned, parse_request("exchange=1e-2:5"))
    with pytest.raises(InputError, match="stores no tensor compressed; plan it with"):
        compress_exchanges(planned, parse_request("store=1e-2"))
    with pytest.raises(InputError, match="counts on setting=fast; leave the setting out"):
        compress_exchanges(planned, parse_request("exchange=1e-2,setting=small"))


def path(**options: int) -> ContractionPath:
    return waiting(4, 1 << 7, 16, **options)


def free_codecs() -> Profile:
    return replace(load_profile("cpu"), codecs={"fast": CodecRates(1e12, 1e12)})


def stored(limit_share: float = 0.85, **options: int) -> tuple[Schedule, Schedule]:
    """A plan without a limit, and one that stores tensors to meet one."""
    plain = plan(path(**options), free_codecs(), memory_bytes=inf)
    limit = int(plain.predicted.peak_bytes * limit_share)
    return plain, plan(path(**options), free_codecs(), memory_bytes=limit, compression=STORE)


@pytest.mark.parametrize("sliced", [0, 2])
def test_tensors_that_wait_are_stored_when_memory_is_short(sliced: int) -> None:
    plain, packed = stored(sliced=sliced)
    with pytest.raises(InputError, match="more than the limit"):
        plan(path(sliced=sliced), free_codecs(), memory_bytes=packed.memory_bytes)
    assert packed.memory_bytes is not None
    assert packed.predicted.peak_bytes <= packed.memory_bytes < plain.predicted.peak_bytes
    encoded, decoded = instructions(packed, Encode), instructions(packed, Decode)
    assert encoded
    assert len(encoded) == len(decoded)
    assert sum(step.codec_s for step in packed.steps) > 0
    assert not instructions(plain, Encode)
    if sliced:
        # What no slice touches is compressed once, and restored for every slice.
        assert any(isinstance(item, Encode) for item in packed.once)
        assert any(isinstance(item, Decode) for item in packed.body)
    profile = replace(free_codecs(), codecs={"fast": CodecRates(1e12, 1e12, 0.0, 1 << 20)})
    limit = plain.predicted.peak_bytes
    enough = plan(path(sliced=sliced), profile, memory_bytes=limit, compression=STORE)
    assert not instructions(enough, Encode)


def test_what_a_codec_takes_beside_the_arena_is_left_free() -> None:
    _, packed = stored()
    limit = packed.memory_bytes
    assert limit is not None
    codecs = {"fast": CodecRates(1e12, 1e12, workspace_bytes=limit - packed.predicted.peak_bytes + 1)}
    with pytest.raises(InputError, match=r"and \d+ for the codec are over its limit"):
        verify(replace(packed, profile={**packed.profile, "codecs": {"fast": vars(codecs["fast"])}}))
    with pytest.raises(InputError, match=r"compress: takes .* beside the arena"):
        plan(
            path(), replace(free_codecs(), codecs={"fast": CodecRates(1.0, 1.0, workspace_bytes=limit)}),
            memory_bytes=limit, compression=STORE,
        )  # fmt: skip


def test_what_fits_as_it_is_needs_no_room_for_a_codec() -> None:
    peak_bytes = plan(path(), free_codecs(), memory_bytes=inf).predicted.peak_bytes
    profile = replace(free_codecs(), codecs={"fast": CodecRates(1e12, 1e12, workspace_bytes=2 * peak_bytes)})
    plain = plan(path(), profile, memory_bytes=peak_bytes, compression=STORE)
    assert plain.compressed_counts == (0, 0)


def test_a_plan_says_what_is_compressed() -> None:
    facts = [dict(plan_facts(one, 2)) for one in (stored()[0], stored()[1], plan_exchanges(2, EXCHANGE))]
    assert "compressed" not in facts[0]
    assert facts[1]["compressed"].startswith(f"tensors that wait: {len(instructions(stored()[1], Encode))}; ")
    assert facts[2]["compressed"].startswith("exchanges: ")
    nothing = plan(path(), free_codecs(), memory_bytes=inf, compression=STORE)
    assert dict(plan_facts(nothing, 1))["compressed"].startswith("nothing: ")


def test_a_limit_that_storing_does_not_meet_is_refused() -> None:
    plain = plan(path(), free_codecs(), memory_bytes=inf)
    memory_bytes = plain.predicted.peak_bytes // 2 + (2 << 10)
    codecs = {name: replace(codec, workspace_bytes=1 << 10) for name, codec in free_codecs().codecs.items()}
    text = f"({size_text(memory_bytes)} less the codec's 1.00 KiB)"
    for compression in (STORE, Compression(exchange=Lossy(1e-3))):
        profile = replace(free_codecs(), codecs=codecs)
        with pytest.raises(InputError, match=re.escape(text)):
            plan(path(), profile, memory_bytes=memory_bytes, compression=compression)
    for compression in (None, STORE):
        with pytest.raises(InputError, match="limit of") as refused:
            plan(path(), free_codecs(), memory_bytes=memory_bytes, compression=compression)
        assert "codec" not in str(refused.value)


@pytest.mark.parametrize("sliced", [0, 2])
def test_lifetimes_are_those_of_the_instructions(sliced: int) -> None:
    plain, packed = stored(sliced=sliced)
    for schedule in (plain, packed):
        parts = [part.instructions for part in schedule.parts]
        found = lifetimes(parts, range(0), schedule.buffers, schedule.result)
        arena = assign(found)
        assert arena.size_bytes == schedule.predicted.peak_bytes
        assert arena.live_bytes == schedule.predicted.live_bytes


def test_a_compressed_schedule_is_saved_and_read(tmp_path: Path) -> None:
    for schedule in (stored()[1], plan_exchanges(4, EXCHANGE)):
        save_schedule(schedule, tmp_path / "schedule.json")
        assert load_schedule(tmp_path / "schedule.json") == schedule


def edited(schedule: Schedule, kind: type, change: Callable[..., Instruction]) -> Schedule:
    """The schedule with the first instruction of a kind changed."""
    items = list(schedule.once)
    place = next(number for number, item in enumerate(items) if isinstance(item, kind))
    items[place] = change(items[place])
    return replace(schedule, once=tuple(items))


def test_the_verifier_refuses_what_cannot_be_compressed() -> None:
    packed, marked = stored()[1], plan_exchanges(2, EXCHANGE)
    cases: list[tuple[Schedule, str]] = [
        (replace(packed, compression=None), "no bound for tensors that are stored"),
        (replace(marked, compression=None), "no bound for tensors that are exchanged"),
        (edited(packed, Encode, lambda i: replace(i, step=999)), "step 999 does not exist"),
        (edited(packed, Decode, lambda i: replace(i, source=i.out)), "holds nothing"),
        (edited(packed, Decode, lambda i: Encode(i.source, i.out, i.step)), "does not compress a tensor"),
        (edited(marked, Redistribute, lambda i: replace(i, compressed=(7,))), "tier does not exist"),
        (edited(marked, Redistribute, lambda i: replace(i, workspace=None)), "without a workspace"),
    ]
    for schedule, problem in cases:
        with pytest.raises(InputError, match=problem):
            verify(schedule)


# fmt: off
BROKEN_CODECS: list[Row] = [
    ({"fast": {"encode_bytes_per_s": 0.0, "decode_bytes_per_s": 1.0}},
     "mine: profile cpu: codecs.fast.encode_bytes_per_s", "is 0.0", "give a finite figure"),
    ({"fast": {"encode_bytes_per_s": 1.0}}, "mine", "decode_bytes_per_s", "hardware.md"),
    ({"fast": {"encode_bytes_per_s": 1.0, "decode_bytes_per_s": 1.0, "rate": 1}}, "mine: codecs.fast: rate",
     "is not a field", "choose from encode_bytes_per_s"),
    ({"fast": {"encode_bytes_per_s": 1.0, "decode_bytes_per_s": 1.0, "launch_s": -1.0}},
     "mine: profile cpu: codecs.fast.launch_s", "is -1.0", "give a finite figure, 0"),
]
# fmt: on


@table(BROKEN_CODECS)
def test_profiles_with_broken_codecs_are_refused(refusal: Refusal) -> None:
    document = {**load_profile("cpu").document(), "codecs": refusal.given}
    refusal.raised_by(lambda: profile_from_document(document, "mine"))


def test_a_profile_without_codecs_compresses_nothing() -> None:
    with pytest.raises(InputError, match="codecs: has no codec 'fast'; add a table"):
        plan(path(), replace(eager_profile(), codecs={}), compression=STORE)


def test_the_interface_and_the_command_plan_the_same(tmp_path: Path) -> None:
    save_path(path(), tmp_path / "path.json")
    text, limit = "store=1e-3:4,setting=small", 800 << 20
    assert run(
        ["plan", str(tmp_path / "path.json"), "-o", str(tmp_path / "s.json"), "--memory", str(limit),
         "--compress", text]
    ) == 0  # fmt: skip
    written = load_schedule(tmp_path / "s.json")
    assert written.compression == Compression(store=Lossy(1e-3, 4.0), setting="small")
    assert tnplan.plan(path(), memory=limit, compress=text).compression == written.compression


def test_the_commands_refuse_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("store=1e-3:x", "checkpoints", "setting=fast"):
        assert run(["plan", str(tmp_path / "none.json"), "--compress", text]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("tnplan: error: --compress: ")
