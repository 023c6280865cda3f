"""Fused chains: the CPU's kernel, the planner's cuts, and schedules with chains against einsum."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import inf, prod
from pathlib import Path

import numpy as np
import pytest

from tests.support.contraction.executor import contract_pairwise, lattice
from tests.support.contraction.fused import chains, fused_rates, fusing_profile, stem_path
from tests.support.contraction.overlap import SharedArrays, hiding_profile, in_parts, planned, swapping_path
from tests.support.effort import in_turn
from tests.support.networks import TOLERANCE, agrees, eager_profile, random_arrays, random_path, window
from tests.support.null_device.dry_run import ENDLESS, dry_run
from tests.support.root import ROOT
from tests.support.slow import slow_after, slow_but
from tnplan.calls.execute import execute
from tnplan.common.errors import InputError
from tnplan.executor.device.comm.threads import ThreadCommunicator
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.protocols.device import FusedShape
from tnplan.planner.hardware.fusion_tile import fused_tile
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.importers import read_any
from tnplan.planner.networks.network import Network
from tnplan.planner.passes.pipeline import Planner, plan
from tnplan.planner.passes.verify import verify
from tnplan.planner.schedule.file import load_schedule, save_schedule
from tnplan.planner.schedule.schedule import VERSION, Contract, Fused, Schedule
from tnplan.reporting import json_documents as documents
from tnplan.reporting import tables

CIRCUITS = sorted((ROOT / "paths").glob("*_n*.json"))
QUICK = ("sycamore_n53_m10_b2", "sycamore_n53_m14_b32", "zuchongzhi_n60_m24_b32_time")
BATCHES, QUICK_BATCHES = 7, 1
PER_BATCH = 12
CAPACITY = 4096


def random_chain(seed: int) -> tuple[FusedShape, list[int]]:
    """A chain of 1 to 5 branches on a stem of 7 to 11 modes, and the order of the result's modes."""
    chance = random.Random(seed)
    extents = dict.fromkeys(range(60), 2)
    held = list(range(chance.randint(7, 11)))
    for mode in held:
        extents[mode] = chance.choice((2,) * 8 + (1, 4))
    extents[0] = chance.choice((2, 3))
    operand = [0, *chance.sample(held[1:], len(held) - 1)]
    branches, fresh = [], len(held)
    for _ in range(chance.randint(1, 5)):
        summed = chance.sample(held[1:], min(chance.randint(0, 3), len(held) - 2))
        brought = list(range(fresh, fresh + chance.randint(0, 3)))
        fresh += len(brought)
        branches.append(chance.sample(summed + brought, len(summed + brought)))
        held = [mode for mode in held if mode not in summed] + brought
    out = [0, *chance.sample(held[1:], len(held) - 1)]

    def sized(modes: Sequence[int]) -> tuple[tuple[int, int], ...]:
        return tuple((mode, extents[mode]) for mode in modes)

    return FusedShape(sized(operand), tuple(map(sized, branches)), sized(out)), out


def contract_chain(shape: FusedShape, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The chain by einsum, flat."""
    value, modes = arrays[0], [mode for mode, _ in shape.operand]
    for array, branch in zip(arrays[1:], shape.branches, strict=True):
        own = [mode for mode, _ in branch]
        left = [mode for mode in (*modes, *own) if (mode in modes) != (mode in own)]
        value, modes = np.einsum(value, modes, array, own, left), left
    return np.einsum(value, modes, [mode for mode, _ in shape.out]).ravel()


@pytest.mark.parametrize("dtype", sorted(TOLERANCE))
def test_a_chain_agrees_with_einsum(dtype: str) -> None:
    generator = np.random.default_rng(5)
    done = Counter[int]()
    for seed in range(120):
        shape, _ = random_chain(seed)
        if fused_tile(shape.operand, shape.branches, shape.out, CAPACITY) is None:
            continue
        arrays = []
        for modes in (shape.operand, *shape.branches):
            values = generator.normal(size=(2, *(extent for _, extent in modes)))
            arrays.append((values[0] + 1j * values[1] if dtype.startswith("c") else values[0]).astype(dtype))
        out = np.full(prod(extent for _, extent in shape.out), np.nan, dtype)
        flat = [array.ravel() for array in arrays]
        NumpyDevice().bind_fused(shape, flat[0], flat[1:], out, CAPACITY * out.itemsize)()
        wanted = contract_chain(shape, [array.astype(complex) for array in arrays])
        scale = contract_chain(shape, [np.abs(array).astype(float) for array in arrays])
        assert np.all(np.abs(out - wanted) <= TOLERANCE[dtype] * scale), seed
        done[len(shape.branches)] += 1
    assert len(done) == 5
    assert min(done.values()) >= 3, done


def test_a_chain_without_a_tile_is_refused() -> None:
    shape = FusedShape(((0, 3), (1, 3)), (((1, 3),),), ((0, 3),))
    with pytest.raises(ValueError, match="no tile of 512 elements"):
        NumpyDevice().bind_fused(shape, np.zeros(9), [np.zeros(3)], np.zeros(3), 4096)


@pytest.mark.parametrize("batch", slow_after(QUICK_BATCHES, range(BATCHES)))
def test_fused_schedules_agree_with_einsum(batch: int) -> None:
    lengths: Counter[int] = Counter()
    spread = 0
    for seed in range(batch * PER_BATCH, (batch + 1) * PER_BATCH):
        path = stem_path(seed)
        arrays = random_arrays(path, seed)
        ranks = (1, 2, 3, 4, 6, 8)[seed % 6]
        profile = fusing_profile((1 << 12, 1 << 14, 1 << 16)[seed % 3])
        unlimited = plan(
            path, profile, devices=ranks, ranks_per_group=ranks, memory_bytes=inf, threshold_bytes=1,
            policy=("ours", "paper")[seed // 6 % 2],
        )  # fmt: skip
        schedules = [unlimited]
        try:
            limit = unlimited.predicted.peak_bytes * 0.8
            schedules.append(
                plan(
                    path, profile, devices=ranks, ranks_per_group=ranks, memory_bytes=limit, threshold_bytes=1
                )
            )
        except InputError:
            pass
        wanted = contract_pairwise(path, [array.astype(complex) for array in arrays])
        scale = contract_pairwise(path, [np.abs(array.astype(complex)) for array in arrays])
        for schedule in schedules:
            result = execute(schedule, arrays, ranks=ranks, device="cpu").array
            assert np.all(np.abs(result - wanted) <= TOLERANCE[path.dtype] * scale), seed
            lengths.update(len(chain.steps) for chain in chains(schedule))
            spread += sum(
                step.fused is not None and step.layout != (None,) * len(step.layout)
                for step in schedule.steps
            )
            counts, peak_bytes = dry_run(schedule, 0)
            assert peak_bytes <= schedule.predicted.peak_bytes
            assert counts.flops > 0
    assert sum(lengths.values()) >= 5, lengths
    assert max(lengths) >= 3, lengths
    assert spread


@pytest.mark.parametrize("seed", slow_after(16, range(60)))
def test_any_network_may_be_planned_with_fusion(seed: int) -> None:
    path = random_path(seed)
    arrays = random_arrays(path, seed)
    ranks = 1 + seed % 4
    schedule = plan(
        path,
        fusing_profile(1 << 13),
        devices=ranks,
        ranks_per_group=ranks,
        memory_bytes=inf,
        threshold_bytes=1,
    )
    agrees(execute(schedule, arrays, ranks=ranks, device="cpu").array, path, arrays)


@pytest.mark.parametrize("ranks", [1, 2, 4, 6])
def test_a_sliced_lattice_with_chains(ranks: int) -> None:
    path = lattice(3, 10, 2, 2, "complex64", n_open=2)
    arrays = random_arrays(path, ranks)
    schedule = plan(
        path,
        fusing_profile(1 << 13),
        devices=ranks,
        ranks_per_group=ranks,
        memory_bytes=inf,
        threshold_bytes=1,
    )
    assert sum(len(item.steps) for item in schedule.body if isinstance(item, Fused)) >= 4
    result = execute(schedule, arrays, ranks=2 * ranks, device="cpu")
    wanted = contract_pairwise(path, [array.astype(complex) for array in arrays])
    scale = contract_pairwise(path, [np.abs(array.astype(complex)) for array in arrays])
    assert np.all(np.abs(result.array - wanted) <= TOLERANCE["complex64"] * scale)


def fused_window(**fields: object) -> Schedule:
    """A long stem on one rank of an H200, or on the machine with some figures changed."""
    profile = replace(load_profile("h200-nvlink"), **fields)  # type: ignore[arg-type]
    return plan(window(24, 26), profile, memory_bytes=inf)


def test_a_stem_is_fused_and_takes_less_time_and_memory() -> None:
    fused, plain = fused_window(), fused_window(fused_bytes=0)
    lengths = [len(chain.steps) for chain in chains(fused)]
    assert sum(lengths) == 24
    assert max(lengths) > 2
    assert not list(chains(plain))
    assert fused.predicted.once_s < 0.5 * plain.predicted.once_s
    assert fused.predicted.peak_bytes <= plain.predicted.peak_bytes
    assert fused.predicted.once_flops == plain.predicted.once_flops
    for number, chain in enumerate(chains(fused)):
        assert {fused.steps[step].fused for step in chain.steps} == {number}
        assert chain.steps == tuple(range(chain.steps[0], chain.steps[-1] + 1))


@pytest.mark.parametrize("source", slow_but(QUICK, CIRCUITS))
def test_real_paths_with_chains_do_the_predicted_work(source: Path) -> None:
    path = read_any(source)[0]
    profile = replace(load_profile("h200-nvlink"), exchange_bytes=1 << 62)  # petabytes in few rounds
    planner = Planner(path, profile, inf)
    for ranks in in_turn((1, 4, 64), CIRCUITS.index(source)):
        schedule = planner.plan(ranks)
        fused, total = (
            sum(step.predicted_s for step in schedule.steps if wanted(step))
            for wanted in (lambda step: step.fused is not None, lambda step: True)
        )
        assert 0 < fused < total
        if source.stem in ENDLESS:
            continue
        counts, peak_bytes = dry_run(schedule, ranks - 1)
        assert peak_bytes <= schedule.predicted.peak_bytes
        assert counts.flops == pytest.approx(sum(step.flops * step.repeats for step in schedule.steps))


@pytest.mark.parametrize("seed", range(30))
def test_fusion_needs_no_more_memory_than_there_is(seed: int) -> None:
    path = stem_path(seed)
    profile = fusing_profile(1 << 15)
    needed = plan(path, replace(profile, fused_bytes=0), memory_bytes=inf).predicted.peak_bytes
    assert plan(path, profile, memory_bytes=needed).predicted.peak_bytes <= needed


def waist() -> ContractionPath:
    """A stem of 2^12 elements that shrinks to 2^10 and grows again."""
    wide = tuple(f"a{number}" for number in range(12))
    last = ("c0", "c1", "c2")
    terms = (wide, wide[3:5], (wide[6], *last))
    sizes = dict.fromkeys((*wide, *last), 2)
    output = (*last, *(mode for mode in wide if mode not in (*wide[3:5], wide[6])))
    return ContractionPath(Network(terms, output, sizes), ((0, 1), (3, 2)))


def test_a_chain_over_a_waist_is_left_out_where_memory_is_short() -> None:
    profile = fusing_profile(1 << 15)
    free = plan(waist(), profile, memory_bytes=inf)
    tight = plan(waist(), profile, memory_bytes=free.predicted.peak_bytes - 1)
    assert [len(chain.steps) for chain in chains(free)] == [2]
    assert max(len(chain.steps) for chain in chains(tight)) == 1


def test_nothing_is_fused_where_on_chip_work_outweighs_memory() -> None:
    slow = {
        "fused_tile_bytes_per_s": fused_rates(2e12, ["complex64"]),
        "fused_flop_per_s": fused_rates(4e13, ["complex64"]),
    }
    assert not list(chains(fused_window(**slow)))


def test_a_chain_ends_where_its_tile_would_not_fit() -> None:
    large, small = (fused_window(fused_bytes=size) for size in (1 << 15, 1 << 10))
    longest = [max(len(chain.steps) for chain in chains(schedule)) for schedule in (large, small)]
    assert longest[1] < longest[0]


def test_a_dtype_without_a_rate_is_not_fused() -> None:
    assert not list(
        chains(
            fused_window(
                fused_flop_per_s=fused_rates(1e12, ["complex128"]),
                fused_tile_bytes_per_s=fused_rates(1e12, ["complex128"]),
            )
        )
    )


def rich() -> Schedule:
    """A distributed schedule with a chain."""
    schedule = plan(
        window(24, 12),
        fusing_profile(1 << 12),
        devices=4,
        ranks_per_group=4,
        memory_bytes=inf,
        threshold_bytes=1,
    )
    assert any(len(chain.steps) > 1 for chain in chains(schedule))
    return schedule


RICH = rich()
CHAIN = next(chain for chain in chains(RICH) if len(chain.steps) > 1)


def edit(**fields: object) -> Schedule:
    """Change the chain's instruction."""
    changed = replace(CHAIN, **fields)  # type: ignore[arg-type]
    return replace(RICH, once=tuple(changed if item == CHAIN else item for item in RICH.once))


def edit_buffer(number: int, **fields: object) -> Schedule:
    """Change one buffer."""
    buffers = list(RICH.buffers)
    buffers[number] = replace(buffers[number], **fields)  # type: ignore[arg-type]
    return replace(RICH, buffers=tuple(buffers))


def edit_step(number: int, **fields: object) -> Schedule:
    """Change one annotation."""
    steps = list(RICH.steps)
    steps[number] = replace(steps[number], **fields)  # type: ignore[arg-type]
    return replace(RICH, steps=tuple(steps))


SPREAD = next(place for place, mode in enumerate(RICH.buffers[CHAIN.out].layout) if mode is not None)
OTHER = next(mode for mode in RICH.buffers[CHAIN.out].modes if mode not in RICH.buffers[CHAIN.out].layout)


def swapped_layout() -> Schedule:
    """The result spread over another mode than the operand."""
    layout = list(RICH.buffers[CHAIN.out].layout)
    layout[SPREAD] = OTHER
    return edit_buffer(CHAIN.out, layout=tuple(layout))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda: edit(branches=CHAIN.branches[:1], steps=CHAIN.steps[:1]), "modes of out do not follow"),
        (lambda: edit(steps=CHAIN.steps[:1]), "one step per branch"),
        (lambda: edit(branches=(), steps=()), "one step per branch"),
        (lambda: edit(branches=(CHAIN.branches[0],) * 3, steps=(CHAIN.steps[0],) * 3), "summed before"),
        (lambda: edit(operand=CHAIN.out), "holds nothing"),
        (lambda: edit(branches=(CHAIN.branches[0], CHAIN.out)), "holds nothing"),
        (lambda: edit(steps=(10**6,) * len(CHAIN.steps)), "step 1000000 does not exist"),
        (lambda: edit(out=CHAIN.operand), "while it is in use"),
        (swapped_layout, "spreads its tensors differently"),
        (lambda: edit_step(CHAIN.steps[0], fused=None), "not annotated as one chain"),
        (lambda: edit_step(CHAIN.steps[0], fused=999), "not annotated as one chain"),
        (lambda: replace(RICH, profile={**RICH.profile, "fused_bytes": 0}), "no tile of 0 elements"),
        (lambda: replace(RICH, profile={**RICH.profile, "fused_bytes": 256}), "no tile of 32 elements"),
    ],
)
def test_a_broken_chain_is_refused(broken, message: str) -> None:  # type: ignore[no-untyped-def]
    verify(RICH)
    with pytest.raises(InputError, match=message) as refusal:
        verify(broken())
    assert "tnplan plan" in refusal.value.remedy


def test_contract_fields_are_checked() -> None:
    schedule = plan(window(4, 6), eager_profile(), memory_bytes=inf)
    place = next(n for n, item in enumerate(schedule.once) if isinstance(item, Contract))
    for fields, message in (({"engine": "abacus"}, "engine 'abacus'"), ({"precision": "fp8"}, "'fp8'")):
        once = list(schedule.once)
        once[place] = replace(once[place], **fields)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=message):
            verify(replace(schedule, once=tuple(once)))
    assert not any(isinstance(item, Fused) for item in schedule.once)


def test_a_device_prepares_the_chains_that_it_binds(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them at once, whole ones and the parts of those beside exchanges."""
    prepared, bound = set(), set()
    bind_fused = NumpyDevice.bind_fused

    def bind(device, shape, operand, branches, out, capacity_bytes, precision, closing):  # type: ignore[no-untyped-def]
        assert (shape, precision) in prepared
        bound.add((shape, precision))
        return bind_fused(device, shape, operand, branches, out, capacity_bytes, precision, closing)

    monkeypatch.setattr(NumpyDevice, "prepare_fused", lambda _, several, *__: prepared.update(several))
    monkeypatch.setattr(NumpyDevice, "bind_fused", bind)
    monkeypatch.setattr(ThreadCommunicator, "open_memory", lambda ranks, arena: SharedArrays(ranks, arena))
    paths = (swapping_path(seed) for seed in range(60))
    cases = ((path, planned(path, 4, hiding_profile(1 << 13))) for path in paths)
    path, schedule = next(case for case in cases if any(in_parts(case[1])))
    execute(schedule, random_arrays(path, 1), ranks=4, device="cpu")
    assert prepared == bound


def test_a_device_prepares_the_products_that_it_binds(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared, bound = set(), set()
    bind_contract = NumpyDevice.bind_contract

    def bind(device, shape, a, b, c, workspace, precision, engine):  # type: ignore[no-untyped-def]
        assert (shape, precision, engine) in prepared
        bound.add((shape, precision, engine))
        return bind_contract(device, shape, a, b, c, workspace, precision, engine)

    monkeypatch.setattr(NumpyDevice, "prepare_contract", lambda _, several, *__: prepared.update(several))
    monkeypatch.setattr(NumpyDevice, "bind_contract", bind)
    path = swapping_path(1)
    execute(planned(path, 2, load_profile("cpu")), random_arrays(path, 1), ranks=2, device="cpu")
    assert prepared
    assert prepared == bound


def test_a_profile_with_a_kernel_needs_its_rate() -> None:
    message = r"fused_flop_per_s\.complex64\.fp32: has no rate for the same dtype and precision in "
    r"fused_tile_bytes_per_s"
    with pytest.raises(InputError, match=message):
        replace(load_profile("cpu"), fused_bytes=1 << 15, fused_flop_per_s=fused_rates(1e12, ["complex64"]))
    with pytest.raises(InputError, match=r"fused_flop_per_s\.float32\.fp32"):
        replace(load_profile("h200-nvlink"), fused_flop_per_s=fused_rates(0.0, ["float32"]))


def test_a_schedule_of_an_older_version_is_to_be_planned_again(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    save_schedule(RICH, file)
    assert load_schedule(file) == RICH
    file.write_text(file.read_text().replace(f'"version":{VERSION}', f'"version":{VERSION - 1}', 1))
    with pytest.raises(InputError, match=f"version: is {VERSION - 1}") as refusal:
        load_schedule(file)
    assert f"reads version {VERSION}" in refusal.value.remedy
    assert "tnplan plan" in refusal.value.remedy


def test_reports_name_the_chains() -> None:
    facts = dict(tables.plan_facts(RICH, 4))
    n_chains = len(list(chains(RICH)))
    assert f"fused in {n_chains} chain" in facts["steps"]
    links = documents.chain_document(RICH)["steps"]
    assert {link["fused"] for link in links} >= set(range(n_chains))


def test_what_a_chain_never_stores_need_not_fit() -> None:
    """A stem of 2^10 elements that grows to 2^13 inside a chain, under a limit that the grown one breaks."""
    stem = tuple(f"s{number}" for number in range(10))
    grown = tuple(f"n{number}" for number in range(4))
    terms = (stem, ("s9", *grown), ("s8", *grown))
    network = Network(terms, stem[:8], dict.fromkeys((*stem, *grown), 2))
    path = ContractionPath(network, ((0, 1), (2, 3)), (), "complex64", "grown")
    limit_bytes = 24 << 10
    with pytest.raises(InputError, match="step 0"):
        plan(path, replace(fusing_profile(1 << 17), fused_bytes=0), memory_bytes=limit_bytes)
    schedule = plan(path, fusing_profile(1 << 17), memory_bytes=limit_bytes)
    assert [len(chain.steps) for chain in chains(schedule)] == [2]
    assert schedule.predicted.peak_bytes <= limit_bytes
    arrays = random_arrays(path, 3)
    result = execute(schedule, arrays, device="cpu").array
    assert result is not None
    agrees(result, path, arrays)
