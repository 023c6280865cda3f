"""The GPU's fused chains: its tables through a twin of the kernel, and the kernel where there is a GPU."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import prod

import numpy as np
import pytest
from gpu_case import needs_gpus

from executor.device.device import FusedShape
from executor.device.fused_layout import IDLE, fused_tables
from planner.errors import InputError
from planner.hardware.fusion import fused_tile

TOLERANCE = {"float32": 1e-5, "complex64": 1e-5, "float64": 1e-13, "complex128": 1e-13}
OUTPUTS_A_THREAD = {4: 32, 8: 32, 16: 16}
GPU = pytest.param("gpu", marks=needs_gpus(1))


def random_chain(chance: random.Random, most: int) -> FusedShape:
    """A chain of up to 5 branches on an operand of binary modes, and at times one of extent 3."""
    extents = dict.fromkeys(range(60), 2)
    operand = list(range(chance.randint(6, most)))
    if chance.random() < 0.5:
        extents[chance.randrange(2)] = 3
    held, fresh, branches = list(operand), len(operand), []
    for _ in range(chance.randint(1, 5)):
        near = [mode for mode in held if extents[mode] == 2][-8:]
        summed = chance.sample(near, min(len(near), chance.randint(1, 4)))
        brought = list(range(fresh, fresh + chance.randint(0, 4)))
        fresh += len(brought)
        held = [mode for mode in held if mode not in summed] + brought
        branch = brought + summed
        branches.append(branch if chance.random() < 0.7 else chance.sample(branch, len(branch)))
    if chance.random() < 0.3:
        chance.shuffle(held)
    else:
        held.sort(key=lambda mode: mode if mode < len(operand) else chance.random() * len(operand))

    def sized(modes: Sequence[int]) -> tuple[tuple[int, int], ...]:
        return tuple((mode, extents[mode]) for mode in modes)

    return FusedShape(sized(operand), tuple(map(sized, branches)), sized(held))


def run_twin(shape: FusedShape, operand, branches, out, capacity: int) -> None:
    """What fused.cu does with its tables, thread by thread made axes of arrays."""
    itemsize = out.itemsize
    threads = capacity // OUTPUTS_A_THREAD[itemsize]
    tables = fused_tables(shape, capacity, threads, itemsize)
    parameters, own = tables.parameters, tables.own_place.astype(int)
    values, first = [], 0
    for number, branch in enumerate(branches):
        assert parameters["branch_elements"][number] == branch.size
        turned = np.full_like(branch, np.nan)
        turned[tables.branch_place[first : first + branch.size]] = branch
        values.append(turned)
        first += branch.size
    loads, stores = own[0] != IDLE, own[1] != IDLE
    for number in range(tables.n_tiles):
        start = tables.near[number % len(tables.near)] + tables.far[number // len(tables.near)]
        tile = np.full(tables.tile_bytes // itemsize, np.nan, out.dtype)
        for place, offset in list(zip(parameters["load_place"], parameters["load_offset"], strict=True))[
            : tables.n_loads
        ]:
            tile[(own[0][loads] ^ place) // itemsize] = operand[
                start[0] + tables.own_offset[loads, 0] + offset
            ]
        written: dict[int, set[int]] = {}
        for stage_number, branch in enumerate(values):
            stage = parameters["stage"][stage_number]
            rows, columns, k = tables.shapes[stage["shape"]]
            assert k in (0, stage["k"])
            base, column = own[2 + 2 * stage_number :][:2]
            if tables.own_part:
                written = check_own_parts(written, base, stage, rows)
            run_stage(tile, branch, stage, rows, columns, base, column)
        for place, offset in list(zip(parameters["store_place"], parameters["store_offset"], strict=True))[
            : tables.n_stores
        ]:
            out[start[1] + tables.own_offset[stores, 1] + offset] = tile[(own[1][stores] ^ place) // itemsize]


def check_own_parts(written, base, stage, rows):
    """Each warp reads only what it wrote in the stage before; the places that it writes now."""
    writes = {}
    for warp in range(len(base) // 32):
        places = base[32 * warp : 32 * (warp + 1), None] ^ stage["row"].astype(int)[:rows]
        read, wrote = (
            set((places[..., None] ^ stage[side].astype(int)[: stage[extent]]).ravel().tolist())
            for side, extent in (("k_place", "k"), ("n_place", "n"))
        )
        assert not written or read <= written[warp]
        writes[warp] = wrote
    return writes


def run_stage(tile, branch, stage, rows, n_columns, base, column) -> None:
    """All reads of a stage, then all its writes; what it does not write is lost."""
    active = base != IDLE
    base, column = base[active], column[active]
    columns = np.arange(n_columns)
    row = stage["row"].astype(int)[:rows]
    sums = np.zeros((len(base), rows, len(columns)), tile.dtype)
    for q in range(stage["k"]):
        a = tile[((base ^ int(stage["k_place"][q]))[:, None] ^ row) // tile.itemsize]
        b = branch[q * int(stage["n"]) + column[:, None] + columns]
        sums += a[:, :, None] * b[:, None, :]
    tile[:] = np.nan
    n_place = stage["n_place"].astype(int)[column[:, None] + columns]
    tile[(base[:, None, None] ^ row[:, None] ^ n_place[:, None, :]) // tile.itemsize] = sums


def run_gpu(shape: FusedShape, operand, branches, out, capacity: int) -> None:
    import cupy

    from executor.device.cupy_fused import bind_fused

    on_device = [cupy.asarray(array) for array in (operand, *branches, out)]
    stream = cupy.cuda.Stream.null
    bind_fused(shape, on_device[0], on_device[1:-1], on_device[-1], stream, capacity * out.itemsize)()
    out[:] = on_device[-1].get()


def check(runner, shape: FusedShape, dtype: str, capacity: int, rng: np.random.Generator) -> None:
    def values(modes):
        parts = rng.standard_normal((2, *(extent for _, extent in modes)))
        return (parts[0] + 1j * parts[1] if dtype.startswith("complex") else parts[0]).astype(dtype)

    operand, branches = values(shape.operand), [values(branch) for branch in shape.branches]
    out = np.full(prod(extent for _, extent in shape.out), np.nan, dtype)
    runner(shape, operand.ravel(), [branch.ravel() for branch in branches], out, capacity)

    def contracted(convert):
        terms = []
        for array, modes in zip((operand, *branches), (shape.operand, *shape.branches), strict=True):
            terms += [convert(array.astype(np.complex128)), [mode for mode, _ in modes]]
        return np.einsum(*terms, [mode for mode, _ in shape.out], optimize=True).ravel()

    scale = contracted(np.abs).real
    assert np.all(np.abs(out - contracted(np.asarray)) <= TOLERANCE[dtype] * scale), shape


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("runner", ["twin", GPU])
def test_random_chains(runner, dtype):
    chance, rng = random.Random(7), np.random.default_rng(7)
    itemsize = np.dtype(dtype).itemsize
    done = 0
    while done < (40 if runner == "twin" else 200):
        shape = random_chain(chance, 14 if runner == "twin" else 17)
        capacity = chance.choice((16384, 32768)) // itemsize
        if fused_tile(shape.operand, shape.branches, shape.out, capacity) is not None:
            check(run_twin if runner == "twin" else run_gpu, shape, dtype, capacity, rng)
            done += 1


def test_first_lanes_meet_no_bank_conflict():
    """The tables of a typical chain: 16 lanes of 8 bytes in 16 banks, in loads, stages and stores."""
    modes = tuple((mode, 2) for mode in range(20))
    branches = tuple(tuple((mode, 2) for mode in part) for part in ((20, 21, 18, 19), (22, 23, 16, 17)))
    out = (*modes[:10], (20, 2), *modes[10:12], (22, 2), *modes[12:14], (23, 2), *modes[14:16], (21, 2))
    tables = fused_tables(FusedShape(modes, branches, out), 4096, 128, 8)
    own = tables.own_place.astype(int)
    for number, places in enumerate(own):
        if number < 2 or number % 2 == 0:
            assert len(set((places[:16] // 8 % 16).tolist())) == 16


def test_a_chain_too_large_for_the_tile_is_refused():
    modes = tuple((mode, 2) for mode in range(12))
    shape = FusedShape(modes, ((modes[0], modes[11]),), modes[1:11])
    with pytest.raises(ValueError, match="does not fit a tile of 64 elements"):
        fused_tables(shape, 64, 32, 8)


def test_a_capacity_that_the_kernel_was_not_made_for_is_refused():
    bind_fused = pytest.importorskip("executor.device.cupy_fused").bind_fused
    shape = FusedShape(((0, 2),), (((0, 2),),), ())
    for capacity_bytes in (2048, 24576, 65536):
        with pytest.raises(
            InputError, match=f"fused_bytes: is {capacity_bytes}; plan for GPUs with 16384 or"
        ):
            bind_fused(shape, None, [None], None, None, capacity_bytes)
