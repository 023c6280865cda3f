"""The seed's stages and pipelines: round trips, sizes by hand."""

from __future__ import annotations

import random
import struct
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kernels.compress_arrays import real_values
from tests.support.kernels.gpus import needs_gpus
from tests.support.root import ROOT
from tnplan.compress.format.errors import CodecError

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(ROOT / "benchmarks" / "codecs"))
    from shah2023 import base_coders as base
    from shah2023 import stages, szx_kernel
    from shah2023.pipelines import PIPELINES, Pipeline, components, value_range

KINDS = ("normal", "sparse", "constant", "whole", "product", "zero", "denormal")
SIZES = (1, 255, 256, 257, 5000)
BLOCKS = (64, 128, 256)


def float32(kind: str, size: int, seed: int) -> np.ndarray:
    return real_values(kind, size, np.dtype(np.float32), np.random.default_rng(seed))


def worst_error(values: np.ndarray, again: np.ndarray) -> float:
    return float(np.abs(values.astype(float) - again.astype(float)).max())


def slack(values: np.ndarray) -> float:
    """What the roundings of fp32 add to a bound that the pipelines do not verify."""
    return 4 * float(np.abs(values).max()) * 2.0**-24


def block_states(data: bytes, size: int) -> np.ndarray:
    """How many blocks are all zero, constant, non-constant grouped and non-constant (Fig. 10)."""
    packed, block_bytes, _ = stages.split(data, 3)
    n_blocks = -(-size // struct.unpack("<I", block_bytes)[0])
    bits = np.unpackbits(np.frombuffer(packed, np.uint8), count=2 * n_blocks, bitorder="little")
    return np.bincount(bits[::2] | bits[1::2] << 1, minlength=4)


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda pipeline: pipeline.name)
@pytest.mark.parametrize("kind", KINDS)
def test_pipelines_keep_threshold_and_bound(pipeline: Pipeline, kind: str) -> None:
    for seed, size in enumerate(SIZES):
        values = float32(kind, size, seed)
        before = values.copy()
        reach = value_range(values) or 1.0
        for limit, bound in ((1e-2 * reach, 1e-3 * reach), (1e-3 * reach, 5e-3 * reach)):
            data = pipeline.encode(values, limit, bound)
            again = pipeline.decode(data, bound, size)
            assert np.array_equal(values, before)
            assert again.dtype == np.float32
            kept = np.abs(values) > np.float32(limit) if pipeline.before else np.ones(size, bool)
            assert worst_error(values[kept], again[kept]) <= bound + slack(values) if kept.any() else True
            assert worst_error(values, again) <= max(limit * bool(pipeline.before), bound) + bound + slack(
                values
            )


def test_there_are_the_nine_pipelines_of_the_figure() -> None:
    assert [pipeline.name for pipeline in PIPELINES] == [
        "cuSZ", "cuSZ+threshold", "cuSZ+grouping+LZ4", "cuSZ+grouping+2L", "cuSZx", "cuSZx+threshold",
        "cuSZx+grouping+LZ4", "cuSZx+grouping+2L", "cuSZx+integrated",
    ]  # fmt: skip


def test_threshold_and_grouping_by_hand() -> None:
    values = np.array([0.5, -1.0, 1.0, 2.0, -3.0, 0.0, 0.25, 4.0, 9.0], np.float32)
    cut = stages.threshold(values, 1.0)
    assert cut.tolist() == [0, 0, 0, 2, -3, 0, 0, 4, 9]
    bitmap, significant = stages.group(cut)
    assert bitmap.tolist() == [0b10011000, 1]
    assert significant.tolist() == [2, -3, 4, 9]
    assert np.array_equal(stages.ungroup(bitmap, significant, 9), cut)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs_gpus(int(name == "nvCOMP"))) for name in stages.BITMAPS]
)
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_bitmaps_come_back(name: str, share: float) -> None:
    if name == "nvCOMP":
        pytest.importorskip("nvidia.nvcomp", reason="needs nvCOMP")
    pack, unpack = stages.BITMAPS[name]
    for size in (0, 1, 7, 64, 1000, 70000):
        bitmap = np.packbits(np.random.default_rng(size).random(8 * size) < share)
        assert np.array_equal(unpack(pack(bitmap), size), bitmap)


def test_a_two_level_bitmap_by_hand() -> None:
    bitmap = np.array([0, 7, 0, 0, 0, 0, 0, 1, 255], np.uint8)
    assert stages.pack_two_level(bitmap) == bytes([0b10000010, 0b1, 7, 1, 255])


@given(st.binary(max_size=300) | st.binary(min_size=1, max_size=9).map(lambda part: part * 40))
def test_lz4_comes_back(data: bytes) -> None:
    source = np.frombuffer(data, np.uint8)
    assert stages.unpack_lz4(stages.pack_lz4(source), source.size).tobytes() == data


def test_damaged_lz4_is_refused() -> None:
    for block in (b"\x10", b"\xf0", b"\x0f\x01\x00", b"\x10a\x00\x00", b"\x10a\x05\x00", b"\x50abcde", b""):
        with pytest.raises(ValueError, match="no LZ4 block"):
            stages.unpack_lz4(struct.pack("<I", len(block)) + block, 100)


def test_without_lz4_its_pipelines_say_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4", None)
    with pytest.raises(CodecError, match="pip install lz4"):
        stages.pack_lz4(np.zeros(9, np.uint8))


@pytest.mark.parametrize("block", BLOCKS)
def test_blocks_have_the_four_states(block: int) -> None:
    values = np.zeros(4 * block, np.float32)
    values[block : 2 * block] = 5 + 1e-4 * np.random.default_rng(1).random(block)
    values[2 * block + 3] = 7.0
    values[3 * block :] = np.random.default_rng(2).normal(size=block)
    data = base.encode_integrated(values, 1e-3, 1e-3, block)
    assert block_states(data, values.size).tolist() == [1, 1, 1, 1]
    assert worst_error(values, base.decode_blocks(data, 1e-3, values.size)) <= 1e-3
    # cuSZx alone knows two of them.
    plain = base.encode_cuszx(values, 1e-3, block)
    assert block_states(plain, values.size).tolist() == [0, 2, 0, 2]
    # One significant value: its count, its place and itself.
    alone = base.encode_integrated(values[2 * block : 3 * block], 1e-3, 1e-3, block)
    assert len(alone) == 3 * 8 + 1 + 4 + (1 + 1 + 4)


def test_damaged_blocks_are_refused() -> None:
    values = float32("normal", 300, 1)
    values[float32("normal", 300, 2) < 1] = 0
    values[256:] = 1
    chance = random.Random(5)
    refused = 0
    for block in BLOCKS:
        data = base.encode_integrated(values, 1e-3, 1e-3, block)
        start = 3 * 8 + -(-2 * -(-300 // block) // 8) + 4
        for _ in range(1000):
            body = bytearray(data[start:])
            body[chance.randrange(len(body))] = chance.randrange(256)
            length = len(body) if chance.random() < 0.5 else chance.randrange(len(body))
            parts = [*stages.split(data, 3)[:2], bytes(body[:length])]
            try:
                assert base.decode_blocks(stages.join(*parts), 1e-3, 300).shape == (300,)
            except ValueError:
                refused += 1
    assert refused > 1500
    out = np.zeros(64, np.float32)
    # A constant block cut short; a place past the block; 33 bits a value; bytes left over.
    for state, body in ((1, b"abc"), (2, b"\1\x40abcd"), (3, b"abcd\x21" + bytes(400)), (0, b"\0")):
        states = np.array([state], np.uint8)
        assert not szx_kernel.decode(np.frombuffer(body, np.uint8), states, 64, out)


def test_values_that_cannot_be_quantized_are_exact() -> None:
    values = np.array([1e30, np.nan, np.inf, -1.0, 0.5, 3e38], np.float32)
    again = base.decode_cusz(base.encode_cusz(values, 1e-3), 1e-3, 6)
    assert np.array_equal(again[[0, 1, 2, 5]], values[[0, 1, 2, 5]], equal_nan=True)
    assert worst_error(values[3:5], again[3:5]) <= 1e-3
    mixed = base.decode_blocks(base.encode_cuszx(values, 1e-3), 1e-3, 6)
    assert np.array_equal(mixed, values, equal_nan=True)


def test_components_are_the_parts_in_fp32() -> None:
    array = (np.arange(6.0) + 1j).reshape(2, 3)
    real, imaginary = components(array)
    assert real.dtype == imaginary.dtype == np.float32
    assert real.tolist() == [0, 1, 2, 3, 4, 5]
    assert value_range(real) == 5
    assert len(components(array.real)) == 1
    assert components(np.array([1e300, -1.0]))[0].tolist() == [np.inf, -1.0]
