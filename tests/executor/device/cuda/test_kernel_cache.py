"""Every CUDA kernel compiles without a GPU, with the definitions that bound calls give it; their cache."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.executor.device.cuda.test_fused import random_chain
from tests.support.root import ROOT
from tnplan.planner.common.errors import InputError
from tnplan.planner.hardware.fusion_tile import fused_tile

KERNELS = ROOT / "executor" / "device" / "kernels"
ARCHITECTURES = ("sm_80", "sm_90")
OWN_INSTRUCTIONS = {"wgmma.cu": ("sm_90a",)}
"""Files that one architecture alone can have."""
DTYPES = ("float32", "float64", "complex64", "complex128")
ELF = b"\x7fELF"

pytestmark = pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy, which brings the compiler")

Defines = dict[str, str | int]


def of_add() -> Iterator[Defines]:
    from tnplan.executor.device.cuda.device import REALS, add_defines, add_width

    for real_bytes in REALS:
        for n_reals in (63, 64):
            yield add_defines(real_bytes, add_width(real_bytes, n_reals, 0, 4096))


def of_copy() -> Iterator[Defines]:
    from tnplan.executor.device.cuda.copy.permute import UNIT_BYTES, copy_defines
    from tnplan.executor.device.cuda.copy.tiling import BLOCK_THREADS

    for threads in BLOCK_THREADS:
        for unit_bytes in UNIT_BYTES:
            yield copy_defines(unit_bytes, False, "float", threads)
        for unit_bytes, real in ((4, "float"), (16, "float"), (8, "double"), (16, "double")):
            yield copy_defines(unit_bytes, True, real, threads)


def of_excite() -> Iterator[Defines]:
    from tnplan.executor.sbd.cuda.steps import excite_defines

    yield from map(excite_defines, ("float32", "float64"))


def of_excite_tiles() -> Iterator[Defines]:
    from tnplan.executor.sbd.cuda.steps import tile_defines

    for dtype, held, warps in product(("float32", "float64"), (False, True), (4, 6)):
        yield tile_defines(dtype, held, warps)


def of_pauli() -> Iterator[Defines]:
    from tnplan.executor.pauli.cuda.table import pauli_defines

    for words, dtype in product((2, 4, 8), DTYPES[:2]):
        yield pauli_defines(words, dtype)


def of_pauli_turns() -> Iterator[Defines]:
    from tnplan.executor.pauli.cuda.table import turns_defines

    for words, dtype, by_passes in product((2, 4, 8), DTYPES[:2], (True, False)):
        yield turns_defines(words, dtype, by_passes)


def of_sum() -> Iterator[Defines]:
    from tnplan.executor.device.cuda.copy.permute import SUM_THREADS, sum_defines

    for dtype, lanes in product(DTYPES, (1, SUM_THREADS)):
        yield sum_defines(np.dtype(dtype), lanes)


def of_products() -> Iterator[Defines]:
    from tnplan.executor.device.cuda.contract.dispatch import products_defines

    for dtype, short in product(DTYPES, (False, True)):
        yield products_defines(dtype, short)


def of_long_sums() -> Iterator[Defines]:
    from tnplan.executor.device.cuda.contract.split_k import count_blocks, long_sums_defines, result_block

    for dtype, (m, n), vector in product(DTYPES, ((1, 1), (3, 16), (16, 32)), (1, 2)):
        block = result_block(m, n, np.dtype(dtype).itemsize)
        yield long_sums_defines(dtype, block, vector, 32 * count_blocks(m, n, block))


def of_contract(precision: str) -> Iterator[Defines]:
    from tnplan.executor.device.cuda.contract.scatter import blocking, contract_defines

    for parts, n in product((1, 2), (2, 32, 64, 1024)):
        blocks = blocking(precision, n, parts == 2)
        adds = (False, True) if blocks.longest_sum < 1 << 20 else (False,)
        for vector, add in product((4, parts), adds):
            yield contract_defines(blocks, parts, vector, add)


def of_wgmma() -> Iterator[Defines]:
    from tnplan.executor.device.cuda.contract.fp16x3_wgmma import GROUPS, wgmma_defines

    yield from map(wgmma_defines, GROUPS)


def of_fused() -> Iterator[Defines]:
    """Those of random chains of each type that fit, and of one large product."""
    from tnplan.executor.device.cuda.fused.chain import TERMS, TILE_BYTES, chosen, kernel_defines
    from tnplan.executor.device.protocols.device import FusedShape

    modes = tuple((mode, 2) for mode in range(20))
    fresh = tuple((mode, 2) for mode in range(20, 25))
    large = FusedShape(modes, ((*fresh, *modes[15:]),), (*modes[:15], *fresh))
    for dtype, capacity_bytes in product(DTYPES, TILE_BYTES):
        itemsize = np.dtype(dtype).itemsize
        chance = random.Random(itemsize + capacity_bytes)
        shapes = [large] if capacity_bytes == max(TILE_BYTES) else []
        while len(shapes) < 3:
            shape = random_chain(chance, 17)
            if fused_tile(shape.operand, shape.branches, shape.out, capacity_bytes // itemsize):
                shapes.append(shape)
        for shape, precision in product(shapes, ("fp32", *(TERMS if dtype == "complex64" else ()))):
            made = chosen(shape, dtype, capacity_bytes, precision)
            yield dict(kernel_defines(dtype, *made, adds=shape is shapes[2], closes=shape is shapes[1]))


def of_state_measure() -> Iterator[Defines]:
    from tnplan.executor.statevector.cuda.state import measure_defines

    yield from map(measure_defines, DTYPES[2:])


def of_state_pass() -> Iterator[Defines]:
    from tnplan.executor.statevector.cuda.state import PROGRAM_TILES, TILES, pass_defines

    for dtype in DTYPES[2:]:
        for bits in (2, TILES[dtype].bits, PROGRAM_TILES[dtype].wide_bits):
            yield pass_defines(dtype, bits)


def of_state_program() -> Iterator[Defines]:
    from tests.planner.networks.circuits.test_circuits import random_circuit
    from tests.support.engines.statevector import plan_of, qft
    from tnplan.executor.statevector.codegen.pass_program import make_program
    from tnplan.executor.statevector.cuda.state import PROGRAM_TILES, program_defines

    tiles = [(name, tile) for name in DTYPES[2:] for tile in (PROGRAM_TILES[name], PROGRAM_TILES[name].wide)]
    for (dtype, tile), circuit in product(tiles, (qft(16), random_circuit(16, 60, 1))):
        item = plan_of(circuit, tile).passes[0]
        made = make_program(item, 16, tile.register_bits, np.dtype(dtype).itemsize)
        assert made is not None
        defines = program_defines(dtype, made, item.held, tile.register_bits, 16)
        yield defines
    yield {**defines, "NEIGHBOURS": 2}


def of_state_swap() -> Iterator[Defines]:
    from tnplan.executor.statevector.cuda.bit_swap import swap_defines

    for size, bits, threads, at_once in product((8, 16), ((0,), (27, 3)), (256, 512), (4, 8)):
        yield swap_defines(size, bits, threads, at_once)


CASES = {
    "add.cu": of_add,
    "copy.cu": of_copy,
    "excite.cu": of_excite,
    "excite_tiles.cu": of_excite_tiles,
    "fma.cu": lambda: of_contract("fp32"),
    "fused.cu": of_fused,
    "halves.cu": lambda: ({"COMPLEX": number} for number in (0, 1)),
    "long_sums.cu": of_long_sums,
    "mma.cu": lambda: of_contract("fp16x3"),
    "pauli.cu": of_pauli,
    "pauli_turns.cu": of_pauli_turns,
    "products.cu": of_products,
    "state_measure.cu": of_state_measure,
    "state_pass.cu": of_state_pass,
    "state_program.cu": of_state_program,
    "state_swap.cu": of_state_swap,
    "sum.cu": of_sum,
    "wgmma.cu": of_wgmma,
}
COMPILED = [(file, arch) for file in CASES for arch in OWN_INSTRUCTIONS.get(file, ARCHITECTURES)]


def test_every_kernel_file_is_compiled_here() -> None:
    assert {path.name for path in KERNELS.glob("*.cu")} == set(CASES)


@pytest.mark.parametrize(("file", "arch"), COMPILED)
def test_kernels_compile(file: str, arch: str) -> None:
    from tnplan.executor.device.cuda.runtime.kernel_cache import compile_cubin

    distinct = {tuple(sorted(defines.items())) for defines in CASES[file]()}
    assert len(distinct) >= 2
    for defines in sorted(distinct, key=str):
        assert compile_cubin(file, dict(defines), arch, strict=True).startswith(ELF)


def test_kernels_include_only_files_of_their_folder_all_of_which_are_used() -> None:
    from tnplan.executor.device.cuda.runtime.kernel_cache import source

    texts = [source(file) for file in CASES]
    assert not any("#include" in text for text in texts)
    for header in KERNELS.glob("*.cuh"):
        assert any(source(header.name) in text for text in texts)


def test_what_does_not_compile_comes_with_the_log() -> None:
    from tnplan.executor.device.cuda.runtime.kernel_cache import compile_cubin

    with pytest.raises(ValueError, match=r"(?s)add\.cu does not compile for sm_90: .*quad"):
        compile_cubin("add.cu", {"REAL": "quad", "WIDTH": 1}, "sm_90")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from tnplan.executor.device.cuda.runtime import kernel_cache

    monkeypatch.delenv(kernel_cache.NEVER_COMPILE, raising=False)
    monkeypatch.setenv(kernel_cache.CACHE_FOLDER, str(tmp_path / "a" / "b"))
    return tmp_path / "a" / "b"


ADD = (("REAL", "float"), ("WIDTH", "4"))


def test_a_kernel_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tnplan.executor.device.cuda.runtime import kernel_cache

    path = kernel_cache.cached_cubin("add.cu", ADD, "sm_90")
    assert path.parent == folder
    assert path.read_bytes().startswith(ELF)
    monkeypatch.delattr(kernel_cache, "compile_cubin")
    monkeypatch.setenv(kernel_cache.NEVER_COMPILE, "1")
    assert kernel_cache.cached_cubin("add.cu", ADD, "sm_90") == path


def test_keys_tell_kernels_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    from tnplan.executor.device.cuda.runtime import kernel_cache
    from tnplan.executor.device.cuda.runtime.kernel_cache import cache_key

    keys = [cache_key("add.cu", ADD, arch) for arch in ARCHITECTURES]
    keys.append(cache_key("sum.cu", ADD, "sm_90"))
    keys.append(cache_key("add.cu", (("REAL", "float"), ("WIDTH", "1")), "sm_90"))
    monkeypatch.setattr(kernel_cache, "source", lambda file, folder: "another text")
    keys.append(cache_key("add.cu", ADD, "sm_90"))
    monkeypatch.setattr(kernel_cache.nvrtc, "getVersion", lambda: (99, 0))
    keys.append(cache_key("add.cu", ADD, "sm_90"))
    assert len(set(keys)) == 6


def test_nothing_is_compiled_where_that_is_forbidden(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tnplan.executor.device.cuda.runtime import kernel_cache

    monkeypatch.setenv(kernel_cache.NEVER_COMPILE, "1")
    with pytest.raises(InputError, match=r"TNPLAN_NO_COMPILE: is set, and kernel add\.cu for sm_90"):
        kernel_cache.cached_cubin("add.cu", ADD, "sm_90")
    assert not folder.exists()
    monkeypatch.setenv(kernel_cache.NEVER_COMPILE, "0")
    assert kernel_cache.cached_cubin("add.cu", ADD, "sm_90").exists()


def test_a_cache_that_cannot_be_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tnplan.executor.device.cuda.runtime import kernel_cache

    (tmp_path / "file").write_text("in the way")
    monkeypatch.delenv(kernel_cache.NEVER_COMPILE, raising=False)
    monkeypatch.setenv(kernel_cache.CACHE_FOLDER, str(tmp_path / "file" / "below"))
    with pytest.raises(InputError, match="name a writable folder in TNPLAN_KERNEL_CACHE"):
        kernel_cache.cached_cubin("add.cu", ADD, "sm_90")


def test_kernels_of_chains_are_compiled_ahead(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tnplan.executor.calibration.local import chain_shape
    from tnplan.executor.device.cuda.fused import chain as cupy_fused
    from tnplan.executor.device.cuda.runtime import kernel_cache

    monkeypatch.setattr(kernel_cache, "_arch", lambda: "sm_90")
    chains = [(chain_shape(14, logs), precision) for logs in ((2,), (4,)) for precision in ("fp32", "fp16x3")]
    with monkeypatch.context() as patch:
        patch.setenv(kernel_cache.NEVER_COMPILE, "1")
        with pytest.raises(InputError, match=r"kernel fused\.cu for sm_90 is not in"):
            cupy_fused.prepare_fused(chains, "complex64", 32768)
    cupy_fused.prepare_fused([*chains, chains[0]], "complex64", 32768)
    assert len(list(folder.iterdir())) == 4
    for shape, precision in chains:
        defines = cupy_fused.kernel_defines(
            "complex64", *cupy_fused.chosen(shape, "complex64", 32768, precision), adds=False
        )
        key = tuple(sorted((name, str(value)) for name, value in defines))
        assert (folder / f"{kernel_cache.cache_key('fused.cu', key, 'sm_90')}.cubin").exists()
    monkeypatch.setenv(kernel_cache.NEVER_COMPILE, "1")
    cupy_fused.prepare_fused(chains, "complex64", 32768)


def test_many_may_write_one_kernel_at_once(folder: Path) -> None:
    from tnplan.executor.device.cuda.runtime import kernel_cache

    code = (
        "import sys; from tnplan.executor.device.cuda.runtime.kernel_cache import cached_cubin; "
        f"print(cached_cubin('add.cu', {ADD!r}, 'sm_90').read_bytes()[:4])"
    )

    def other() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False, timeout=120
        )

    with ThreadPoolExecutor(6) as pool:
        processes = [pool.submit(other) for _ in range(2)]
        threads = [pool.submit(kernel_cache.cached_cubin, "add.cu", ADD, "sm_90") for _ in range(4)]
    assert [entry.result().stdout.strip() for entry in processes] == [str(ELF)] * 2
    (path,) = {entry.result() for entry in threads}
    assert [entry.name for entry in folder.iterdir()] == [path.name]
