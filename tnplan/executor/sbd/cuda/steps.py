"""The steps of a selected-basis product on a GPU; excite.cu and excite_tiles.cu say what each does.

Knows CuPy, cuBLAS and launches; nothing of strings and integrals. Everything runs on one stream.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from tnplan.common.errors import InputError
from tnplan.executor.device.cuda.contract.cublas import add_product
from tnplan.executor.device.cuda.runtime.kernel_cache import compile_soon, load_kernel
from tnplan.executor.sbd.sigma import opposite_spin
from tnplan.executor.sbd.sigma.batched import BatchedBlock, BatchedTables

Array = Any
"""A cupy.ndarray."""

FILE = Path(__file__).parent / "excite.cu"
REALS = {"float32": "float", "float64": "double"}
"""The C type of a dtype."""
THREADS = 256
"""Threads of a block of excite.cu."""
MOST_TILES = 65535
"""Blocks in the second axis of a grid."""
TILES_FILE = Path(__file__).parent / "excite_tiles.cu"
RESIDENT_WARPS = 12
"""Warps of the opposite-spin kernel that a multiprocessor is to hold."""
LEAST_CAPABILITY = 80
"""Of a GPU with tensor cores for fp64."""


def excite_defines(dtype: str) -> dict[str, str | int]:
    """The definitions of the kernels of excite.cu for numbers of a type."""
    return {"REAL": REALS[dtype], "THREADS": THREADS}


def tile_defines(dtype: str, in_shared: bool, warps: int) -> dict[str, str | int]:
    """The definitions of excite_tiles.cu for numbers of a type; `in_shared`: sums are in shared memory."""
    return {
        "REAL": REALS[dtype], "WARPS": warps, "BLOCKS": RESIDENT_WARPS // warps, "IN_SHARED": int(in_shared),
        "PART": opposite_spin.PART, "PARTS": opposite_spin.PARTS, "PADDING": opposite_spin.PADDING,
        "SIGN": f"{opposite_spin.SIGN}u", "DEEP": opposite_spin.DEEP, "MOST": opposite_spin.MOST,
    }  # fmt: skip


def tile_bytes(n_sums: int, warps: int) -> int:
    """The shared memory of a block of excite_tiles.cu, with so many sums."""
    products = opposite_spin.PART * (opposite_spin.LANES * warps + opposite_spin.PADDING)
    return (
        8 * ((n_sums + 1) // 2 * 2 + opposite_spin.MOST * opposite_spin.ROWS + products)
        + 16 * opposite_spin.MOST
    )


def check_gpu(n_beta: int) -> None:
    """InputError where the current GPU cannot take products of so many beta strings."""
    capability = cupy.cuda.Device().compute_capability
    if int(capability) < LEAST_CAPABILITY:
        raise InputError(
            "device",
            f"has compute capability {capability[:-1]}.{capability[-1]}, without tensor cores for fp64",
            "use a GPU of 8.0 or higher, or --device cpu",
            topic="GPUs",
        )  # fmt: skip
    if n_beta > opposite_spin.MOST_STRINGS:
        raise InputError(
            "beta strings", f"are {n_beta}, more than the {opposite_spin.MOST_STRINGS} that a GPU takes",
            "exchange alpha and beta where alpha has fewer, or use --device cpu",
            topic="GPUs",
        )  # fmt: skip


def begin_kernels() -> None:
    """Begin to compile what a solve on the current GPU calls, in threads, once a process.

    CuPy compiles each operation on vectors where it is first called, for up to a second: one after the
    other they were most of a first solve.
    """
    _begin_kernels(cupy.cuda.Device().id)


@cache
def _begin_kernels(device_id: int) -> None:
    compile_soon([(FILE, excite_defines("float64"))], device_id)
    with cupy.cuda.Device(device_id):
        x = cupy.ones((2, 2))

    def call(operation: Callable[[], Any]) -> None:
        with cupy.cuda.Device(device_id):
            operation()

    operations = _vector_operations(x)
    threads = ThreadPoolExecutor(len(operations), "tnplan vectors")
    for operation in operations:
        threads.submit(call, operation)
    threads.shutdown(wait=False)


def _vector_operations(x: Array) -> list[Callable[[], Any]]:
    """Those of Davidson's method with a real state x; numbers of Python have kernels of their own."""

    def fill() -> None:
        x[:] = 1.0

    def copy() -> None:
        x[:] = x.T

    return [
        fill, copy, lambda: x + x, lambda: x - x, lambda: x * x, lambda: x / x, lambda: x - 1.0,
        lambda: x * 1.0, lambda: 1.0 * x, lambda: x / 1.0, lambda: x < 0, lambda: np.minimum(x, 1.0),
        lambda: np.maximum(x, 1.0), lambda: np.where(x < 0, x, x), lambda: abs(x), lambda: x**2,
    ]  # fmt: skip


class CupyBatch:
    """See `batched.BatchSteps`. Works on the GPU and the stream that are current at first."""

    def __init__(self, dtype: str = "float64") -> None:
        """Gives back memory that CuPy keeps for arrays that are gone, such as those of another precision."""
        cupy.get_default_memory_pool().free_all_blocks()
        self.dtype = dtype
        self._stream = cupy.cuda.get_current_stream()
        self._real = np.dtype(dtype).type
        self._kernel = cache(lambda entry: load_kernel(FILE, entry, excite_defines(dtype)))
        self._tiled = cache(self._load_tiled)

    def put(self, array: np.ndarray) -> Array:
        """A copy on the GPU."""
        return cupy.asarray(np.ascontiguousarray(array))

    def get(self, array: Array) -> np.ndarray:
        """A copy on the host."""
        return cupy.asnumpy(array)

    def empty(self, *shape: int) -> Array:
        """An array there, not set."""
        return cupy.empty(shape, self.dtype)

    def add_opposite_spin(
        self, block: BatchedBlock, tables: BatchedTables, half: bool, x: Array, y: Array
    ) -> None:
        """y[row, j] += the sum of +-(pair | a) x[other, j'] over excitations of the row and of j."""
        table, split, bounds = block.tasks
        if not len(table):
            return
        n_beta, warps = y.shape[1], tables.tiles[1].shape[1]
        kernel, shared_bytes = self._tiled(n_beta, warps)
        sizes = n_beta, x.shape[1], tables.active.shape[1], block.shift, int(half)
        kernel(
            (len(table),), (opposite_spin.LANES * warps,),
            (
                table, *map(np.int64, sizes), *block.singles, tables.rank, tables.active,
                tables.number_weights, *tables.tiles, x, tables.spare, y,
            ),
            shared_mem=shared_bytes,
        )  # fmt: skip
        # Rows that several blocks share are added up from `spare` in a fixed order, not by atomic additions.
        self._launch("join", (len(split),), (n_beta,), split, bounds, tables.spare, y)

    def add_number_operators(
        self, block: BatchedBlock, tables: BatchedTables, factor: float, x: Array, y: Array
    ) -> None:
        """y[row, j] += the sum of +-numbers[pair, j] x[other, j], and what the string itself gives."""
        n_rows, n_beta = y.shape
        sizes = n_rows, n_beta, tables.filled.shape[1], block.shift
        self._launch(
            "numbers", (n_rows * -(-n_beta // THREADS),), sizes, *block.singles, tables.filled,
            tables.numbers, self._real(factor), x, y,
        )  # fmt: skip

    def add_exchange(
        self, block: BatchedBlock, active: Array, partners: Array, factor: float, x: Array, y: Array
    ) -> None:
        """y[row, j] += factor times the sum of x[other, j'] over opposite excitations of row and string."""
        n_rows, n_beta = y.shape
        self._launch(
            "exchange", (n_rows * -(-n_beta // THREADS),), (n_rows, n_beta, x.shape[1]), *block.singles,
            block.up, active, partners, self._real(factor), x, y,
        )  # fmt: skip

    def add_product(self, a: Array, b: Array, y: Array) -> None:
        """y += a b."""
        add_product(self._stream, a, b, y)

    def sparse(self, start: Array, column: Array, value: Array, x: Array, y: Array) -> None:
        """y[i] += the sum over e in start[i] .. start[i+1]-1 of value[e] x[column[e]]."""
        n_rows, n_columns = y.shape
        grid = n_rows, min(MOST_TILES, -(-n_columns // THREADS))
        self._launch("sparse", grid, (n_columns,), start, column, value, x, y)

    def copy(self, source: Array, target: Array) -> None:
        """target = source, for views of any strides."""
        cupy.copyto(target, source)

    def _load_tiled(self, n_beta: int, warps: int) -> tuple[Any, int]:
        """The opposite-spin kernel and its shared memory, for so many beta strings and warps of a tile."""
        most = cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
        in_shared = tile_bytes(n_beta, warps) <= most
        kernel = load_kernel(TILES_FILE, "opposite_spin", tile_defines(self.dtype, in_shared, warps))
        shared_bytes = tile_bytes(n_beta * in_shared, warps)
        kernel.preferred_shared_memory_carveout = 100
        kernel.max_dynamic_shared_size_bytes = max(shared_bytes, kernel.max_dynamic_shared_size_bytes)
        return kernel, shared_bytes

    def _launch(self, entry: str, grid: tuple[int, ...], sizes: tuple[int, ...], *arguments: Any) -> None:
        if 0 not in grid:
            self._kernel(entry)(grid, (THREADS,), (*map(np.int64, sizes), *arguments))


def memory_meter() -> Callable[[], int]:
    """What tells the memory that CuPy has taken on the current GPU for arrays made from now on.

    CuPy's pool never gives memory back by itself, so that what it holds at the end is the most that it held.
    Arrays that are there now, such as those of the caller, do not count.
    """
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    others_bytes = pool.total_bytes()
    return lambda: int(pool.total_bytes()) - others_bytes
