"""Every CUDA kernel compiles without a GPU, with the definitions that bound calls give it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import product

import numpy as np
import pytest

from tests.support.contraction.fused import random_chain
from tests.support.effort import is_thorough
from tests.support.platforms import ARCHITECTURES
from tests.support.root import ROOT
from tnplan.planner.hardware.fusion_tile import fused_tile

EXECUTOR = ROOT / "tnplan" / "executor"
OWN_INSTRUCTIONS = {"device/cuda/contract/kernels/wgmma.cu": ("sm_90a",)}
"""Files that one architecture alone can have."""
DTYPES = ("float32", "float64", "complex64", "complex128")
ALGEBRAS = (
    ("max-plus", "float32"), ("min-plus", "float32"), ("max-plus", "float64"), ("min-plus", "float64"),
    ("boolean", "float32"), ("residues", "float64"), ("optima", "complex128"),
)  # fmt: skip
ELF = b"\x7fELF"

pytestmark = pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy, which brings the compiler")

Defines = dict[str, str | int]


def of_add() -> Iterator[Defines]:
    from tnplan.executor.device.cuda.copy.permute import REALS, add_defines, add_width

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


def of_rows() -> Iterator[Defines]:
    from tnplan.executor.device.cuda.contract.rows import TILES, WARP, rows_defines

    for dtype, lanes in product(("complex64", "complex128"), (1, WARP)):
        yield from (rows_defines(dtype, tile, lanes) for tile in (TILES if lanes == 1 else TILES[:1]))


def of_excite() -> Iterator[Defines]:
    from tnplan.executor.sbd.cuda.steps import excite_defines

    yield from map(excite_defines, ("float32", "float64"))


def of_excite_tiles() -> Iterator[Defines]:
    from tnplan.executor.sbd.cuda.steps import tile_defines

    for dtype, held, warps in product(("float32", "float64"), (False, True), (4, 6)):
        yield tile_defines(dtype, held, warps)


def of_list_rows() -> Iterator[Defines]:
    from tnplan.executor.sbd.cuda.list_steps import list_defines

    for n_orbitals, counting in product((20, 36, 100, 250), (False, True)):
        yield list_defines(n_orbitals, counting)


def of_couplings() -> Iterator[Defines]:
    from tnplan.executor.sbd.cuda.coupling_steps import coupling_defines

    for key_words, mode in product((1, 2, 4), range(3)):
        yield coupling_defines(key_words, mode)


def of_qubit_rows() -> Iterator[Defines]:
    from tnplan.executor.sbd.cuda.qubit_steps import qubit_defines

    for n_words, is_complex in product((1, 2, 3), (False, True)):
        yield qubit_defines(n_words, is_complex)


def of_pauli() -> Iterator[Defines]:
    from tnplan.executor.pauli.cuda.layout import pauli_defines

    for words, dtype in product((2, 4, 8), DTYPES[:2]):
        yield pauli_defines(words, dtype)


def of_pauli_turns() -> Iterator[Defines]:
    from tnplan.executor.pauli.cuda.layout import rotations_defines

    for words, dtype, by_passes in product((2, 4, 8), DTYPES[:2], (True, False)):
        yield rotations_defines(words, dtype, by_passes)


def of_sum() -> Iterator[Defines]:
    from tnplan.executor.device.cuda.copy.permute import SUM_THREADS, WARP, sum_defines

    for dtype, lanes in product(DTYPES, (1, WARP, SUM_THREADS)):
        yield sum_defines(np.dtype(dtype), lanes)


def of_exponents() -> Iterator[Defines]:
    from tnplan.executor.device.cuda.copy.exponents import exponent_defines

    for real_bytes, width in ((4, 1), (4, 4), (8, 1), (8, 2)):
        yield exponent_defines(real_bytes, width)


def of_products() -> Iterator[Defines]:
    from tnplan.executor.device.cuda.contract.dispatch import products_defines

    for dtype, short in product(DTYPES, (False, True)):
        yield products_defines(dtype, short)


def of_few_columns() -> Iterator[Defines]:
    from tnplan.executor.device.cuda.contract.few_columns import TENSOR_WIDTHS, few_columns_defines

    for dtype, columns, vector in product(DTYPES, (4, 32), (1, 2)):
        yield few_columns_defines(dtype, columns, vector, False)
    for columns in TENSOR_WIDTHS:
        yield few_columns_defines("complex128", columns, 1, True)
    yield few_columns_defines("float32", 2, 4, False)


def of_long_sums() -> Iterator[Defines]:
    from tnplan.executor.device.cuda.contract.split_k import count_blocks, long_sums_defines, result_block

    for dtype, (m, n), vector in product(DTYPES, ((1, 1), (3, 16), (16, 32)), (1, 2)):
        block = result_block(m, n, np.dtype(dtype).itemsize)
        yield long_sums_defines(dtype, block, vector, 32 * count_blocks(m, n, block))
    yield long_sums_defines("complex64", (4, 4), 1, 32, (True, False), (2, 1))
    yield long_sums_defines("float64", (4, 4), 1, 32, (False, True))


def of_contract(precision: str) -> Iterator[Defines]:
    from tnplan.executor.device.cuda.contract.scatter import blocking, contract_defines, transposed

    sizes = [(1, 1 << 20, n, 64) for n in (2, 32, 64, 1024)]
    sizes += [(1, 1 << 20, n, 8) for n in (8, 16, 32)] + [(9, 64, n, 64) for n in (16, 64)]
    for parts, size in product((1, 2), sizes):
        blocks = blocking(precision, size, parts == 2)
        if precision == "fp32" and size[2] > 32:
            yield contract_defines(transposed(blocks), parts, 4, False)
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


def of_adjoint() -> Iterator[Defines]:
    """Of random chains of each type that fit: all gradients, that of the last branch, that of the operand."""
    from tnplan.executor.device.cuda.fused.adjoint import adjoint_defines, chosen
    from tnplan.executor.device.cuda.fused.chain import TILE_BYTES
    from tnplan.executor.device.protocols.device import AdjointShape

    for dtype, capacity_bytes in product(DTYPES, TILE_BYTES):
        itemsize = np.dtype(dtype).itemsize
        chance = random.Random(itemsize + capacity_bytes)
        done = 0
        while done < 3:
            chain = random_chain(chance, 17)
            if fused_tile(chain.operand, chain.branches, chain.out, capacity_bytes // itemsize):
                some = [modes if done == 0 else None for modes in chain.branches]
                some[-1] = None if done == 2 else chain.branches[-1]
                shape = AdjointShape(chain, tuple(some), None if done == 1 else chain.operand)
                tables = chosen(shape, dtype, capacity_bytes)
                yield dict(adjoint_defines(dtype, shape, tables))
                done += 1


def of_state_measure() -> Iterator[Defines]:
    from tnplan.executor.statevector.cuda.kernel_defines import measure_defines

    for bits in (0, 8, 16):
        yield from (measure_defines(dtype, bits) for dtype in DTYPES[2:])


def of_state_pass() -> Iterator[Defines]:
    from tnplan.executor.statevector.cuda.kernel_defines import (
        CODED_TILES,
        PROGRAM_TILES,
        TILES,
        pass_defines,
    )
    from tnplan.executor.statevector.cuda.tabled_pass import TARGETS

    for dtype in DTYPES[2:]:
        for bits in (2, TILES[dtype].bits, PROGRAM_TILES[dtype].wide_bits):
            yield pass_defines(dtype, bits)
        for targets in TARGETS:
            yield pass_defines(dtype, TILES[dtype].bits, targets)
        for bits, code_bits in product((5, 6, CODED_TILES[dtype].bits), (8, 16)):
            yield pass_defines(dtype, bits, TARGETS[1], code_bits)


def of_state_program() -> Iterator[Defines]:
    from tests.support.circuits import random_circuit
    from tests.support.engines.statevector import plan_of, qft
    from tnplan.executor.statevector.adjoint_sweep import joint_sweep
    from tnplan.executor.statevector.codegen.pass_program import make_program
    from tnplan.executor.statevector.cuda.kernel_defines import PROGRAM_TILES, coded_tile, program_defines

    for dtype, n_bits, code_bits in product(DTYPES[2:], (18, 26), (8, 16)):
        tile = coded_tile(dtype, n_bits)
        item = plan_of(random_circuit(n_bits, 60, 1), tile).passes[0]
        made = make_program(item, n_bits, tile.register_bits, np.dtype(dtype).itemsize, coded=True)
        assert made is not None
        yield program_defines(dtype, made, item.held_bits, tile.register_bits, n_bits, code_bits)
    tiles = [(name, tile) for name in DTYPES[2:] for tile in (PROGRAM_TILES[name], PROGRAM_TILES[name].wide)]
    for (dtype, tile), circuit in product(tiles, (qft(16), random_circuit(16, 60, 1))):
        item = plan_of(circuit, tile).passes[0]
        made = make_program(item, 16, tile.register_bits, np.dtype(dtype).itemsize)
        assert made is not None
        defines = program_defines(dtype, made, item.held_bits, tile.register_bits, 16)
        yield defines
    yield {**defines, "NEIGHBOURS": 2}
    for dtype, tile in tiles[::2]:
        sweep = joint_sweep(random_circuit(15, 60, 1).gates, range(15), tile)
        assert sweep is not None
        item = sweep.plan.passes[0]
        made = make_program(item, 16, tile.register_bits, np.dtype(dtype).itemsize)
        assert made is not None
        assert made.sums
        yield program_defines(dtype, made, item.held_bits, tile.register_bits, 16)


def of_state_words() -> Iterator[Defines]:
    from tnplan.executor.statevector.cuda.kernel_defines import WORD_TILE_BITS
    from tnplan.executor.statevector.cuda.words import LEAST_BITS, words_defines

    for dtype in DTYPES[2:]:
        for bits in (LEAST_BITS, WORD_TILE_BITS[dtype]):
            yield words_defines(dtype, bits)


def of_state_swap() -> Iterator[Defines]:
    from tnplan.executor.statevector.cuda.bit_swap import swap_defines

    for size, bits, threads, at_once in product((8, 16), ((0,), (27, 3)), (256, 512), (4, 8)):
        yield swap_defines(size, bits, threads, at_once)


def of_algebra_products() -> Iterator[Defines]:
    from tnplan.executor.device.cuda.algebra.products import TILES, product_defines

    for name, dtype in ALGEBRAS:
        for tile in TILES[np.dtype(dtype).itemsize]:
            yield product_defines(name, dtype, tile)


def of_algebra_sums() -> Iterator[Defines]:
    from tnplan.executor.device.cuda.algebra.kernels import sums_defines
    from tnplan.executor.device.cuda.algebra.products import THREADS

    for (name, dtype), lanes in product(ALGEBRAS, (1, THREADS)):
        yield sums_defines(name, dtype, lanes)


def of_grid_rows() -> Iterator[Defines]:
    from tnplan.executor.device.cuda.algebra.grid_rows import passes, rows_defines

    every = (one._replace(first=0) for n_blocks in range(1, 13) for one in passes(n_blocks))
    yield from map(rows_defines, dict.fromkeys(every))


CASES = {
    "device/cuda/algebra/grid_rows.cu": of_grid_rows,
    "device/cuda/algebra/product.cu": of_algebra_products,
    "device/cuda/algebra/sums.cu": of_algebra_sums,
    "device/cuda/copy/add.cu": of_add,
    "device/cuda/copy/copy.cu": of_copy,
    "device/cuda/gather.cu": lambda: ({},),
    "sbd/cuda/excite.cu": of_excite,
    "sbd/cuda/excite_tiles.cu": of_excite_tiles,
    "sbd/cuda/couplings.cu": of_couplings,
    "sbd/cuda/list_rows.cu": of_list_rows,
    "sbd/cuda/qubit_rows.cu": of_qubit_rows,
    "device/cuda/contract/kernels/fma.cu": lambda: of_contract("fp32"),
    "device/cuda/fused/fused.cu": of_fused,
    "device/cuda/fused/adjoint.cu": of_adjoint,
    "device/cuda/contract/kernels/halves.cu": lambda: ({"COMPLEX": number} for number in (0, 1)),
    "device/cuda/contract/kernels/long_sums.cu": of_long_sums,
    "device/cuda/contract/kernels/mma.cu": lambda: of_contract("fp16x3"),
    "pauli/cuda/kernels/table.cu": of_pauli,
    "pauli/cuda/kernels/rotations.cu": of_pauli_turns,
    "pauli/cuda/kernels/tape.cu": of_pauli,
    "device/cuda/contract/kernels/products.cu": of_products,
    "device/cuda/contract/kernels/few_columns.cu": of_few_columns,
    "device/cuda/contract/kernels/rows.cu": of_rows,
    "statevector/cuda/kernels/measure.cu": of_state_measure,
    "statevector/cuda/kernels/pass.cu": of_state_pass,
    "statevector/cuda/kernels/program.cu": of_state_program,
    "statevector/cuda/kernels/swap.cu": of_state_swap,
    "statevector/cuda/kernels/words.cu": of_state_words,
    "device/cuda/copy/exponents.cu": of_exponents,
    "device/cuda/copy/sum.cu": of_sum,
    "device/cuda/contract/kernels/wgmma.cu": of_wgmma,
}
COMPILED = [(file, arch) for file in CASES for arch in OWN_INSTRUCTIONS.get(file, ARCHITECTURES)]


def test_every_kernel_file_is_compiled_here() -> None:
    assert {path.relative_to(EXECUTOR).as_posix() for path in EXECUTOR.rglob("*.cu")} == set(CASES)


def ends(every: list[Defines]) -> list[Defines]:
    """The first and the last definitions."""
    return list({str(defines): defines for defines in (every[0], every[-1])}.values())


def distinct_defines(file: str) -> list[Defines]:
    """All definitions that a file is compiled with, in a fixed order."""
    distinct = {tuple(sorted(defines.items())) for defines in CASES[file]()}
    assert len(distinct) >= 2 or distinct == {()}, "give two sets of definitions or more"
    return [dict(defines) for defines in sorted(distinct, key=str)]


@pytest.mark.parametrize("file", CASES)
def test_a_kernel_compiles_at_both_ends_of_its_definitions(file: str) -> None:
    from tnplan.executor.device.cuda.runtime.kernel_cache import compile_cubin

    architectures = OWN_INSTRUCTIONS.get(file, ARCHITECTURES)
    for number, defines in enumerate(ends(distinct_defines(file)), 1):
        arch = architectures[-number % len(architectures)]
        assert compile_cubin(EXECUTOR / file, defines, arch, strict=True).startswith(ELF)


@pytest.mark.slow
@pytest.mark.parametrize(("file", "arch"), COMPILED)
def test_kernels_compile(file: str, arch: str) -> None:
    """All definitions: in thorough runs for every architecture, else each for one of them, drawn by lot.

    What the test above compiles for the same architecture is not compiled again.
    """
    from tnplan.executor.device.cuda.runtime.kernel_cache import compile_cubin

    every, architectures = distinct_defines(file), OWN_INSTRUCTIONS.get(file, ARCHITECTURES)
    place = architectures.index(arch)
    done = [one for number, one in enumerate(ends(every), 1) if -number % len(architectures) == place]
    random.Random(1).shuffle(every)
    first, step = (0, 1) if is_thorough() else (place, len(architectures))
    for defines in [defines for defines in every[first::step] or every if defines not in done]:
        assert compile_cubin(EXECUTOR / file, defines, arch, strict=True).startswith(ELF)


def test_every_header_is_included_by_a_kernel() -> None:
    from tnplan.executor.device.cuda.runtime.kernel_cache import source

    texts = [source(EXECUTOR / file) for file in CASES]
    assert not any("#include" in text for text in texts)
    for header in EXECUTOR.rglob("*.cuh"):
        assert any(source(header) in text for text in texts)
