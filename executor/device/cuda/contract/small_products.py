"""Products too small for the tiles of cuBLAS on a GPU: products.cu forms each element in one thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tnplan.executor.device.cuda.contract.cublas import Multiply
from tnplan.executor.device.cuda.runtime.kernel_cache import load_kernel, number_defines

FILE = Path(__file__).parent / "kernels" / "products.cu"
SMALL_PRODUCT = 512
"""The most multiplications of one product of a batch that the kernel takes."""
THIN_PRODUCT = 64
"""The most multiplications of a row of the longer operand that it takes."""
THREADS = 256
BLOCKS = 132 * 16
SHORT_INDEX = 2**31
K_LAST = False, 0
"""An operand that is stored as [batch | kept | k]."""


def is_small(n_batch: int, m: int, n: int, k: int) -> bool:
    """Whether the kernel of small products beats cuBLAS.

    Measured on an H200, complex64, share of the copy's bandwidth (cuBLAS, kernel): batches of m = n = k = 2:
    0.01, 0.95; 4: 0.02, 0.92; 8: 0.10, 0.54; 16: 0.28, 0.08. One product, n = k = 2: 0.08, 0.82; 4: 0.15,
    0.79; 8: 0.30, 0.37; n = 8 and k = 16: 0.32, 0.14.
    """
    thin = min(m, n) > 1 and k > 1 and min(m, n) * k <= THIN_PRODUCT
    return thin or (n_batch > 1 and m * n * k <= SMALL_PRODUCT)


def bind_small(
    sizes: tuple[int, int, int, int], dtype: str, stream: Any, a_stored: tuple[bool, int] = K_LAST,
    b_stored: tuple[bool, int] = K_LAST,
) -> Multiply:  # fmt: skip
    """What multiplies operands of these sizes of batch, m, n and k; how they are stored as in
    `cublas.bind_stored`."""
    n_batch, m, n, k = sizes
    (a_first, all_m), (b_first, all_n) = a_stored, b_stored
    all_m, all_n = max(m, all_m), max(n, all_n)
    short = n_batch * max(all_m, all_n) * max(n, k) < SHORT_INDEX
    kernel = load_kernel(FILE, "products", products_defines(dtype, short, (a_first, b_first)))
    count = n_batch * m * n
    grid = (min(-(-count // THREADS), BLOCKS),)
    index = np.uint32 if short else np.uint64
    numbers = np.int64(count), index(m), index(n), np.int32(k), index(all_m), index(all_n)

    def run(a: int, b: int, c: int) -> None:
        addresses = np.uint64(a), np.uint64(b), np.uint64(c)
        kernel(grid, (THREADS,), (*addresses, *numbers), stream=stream)

    return run


def products_defines(
    dtype: str, short: bool, k_first: tuple[bool, bool] = (False, False)
) -> dict[str, str | int]:
    """The definitions of products.cu; `short`: element numbers are below 2^31; `k_first`: of each operand."""
    return {
        **number_defines(dtype), "INDEX": "unsigned" if short else "unsigned long long",
        "A_K_FIRST": int(k_first[0]), "B_K_FIRST": int(k_first[1]),
    }  # fmt: skip
