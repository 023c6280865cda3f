"""Pauli words between two states on a GPU: words.cu says what is done.

Knows CuPy, groups of words and launches; no circuit. Everything runs on the current stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cupy.cuda import driver
from numpy.typing import NDArray

from tnplan.executor.device.cuda.runtime.bound_kernel import copied
from tnplan.executor.device.cuda.runtime.kernel_cache import load_kernel
from tnplan.executor.statevector.cuda.kernel_defines import MOST_WORDS, REALS, WORD_RUN_BITS, WORD_TILE_BITS
from tnplan.executor.statevector.gates.multiplexed_gate import mask_of
from tnplan.executor.statevector.scheduling.qubit_cover import tile_runs
from tnplan.executor.statevector.scheduling.tiled_passes import WordGroup, word_groups

Array = Any
"""A cupy.ndarray."""
Masks = Sequence[tuple[int, int]]
"""x and z of words over the bits of an index."""

WORDS_FILE = Path(__file__).parent / "kernels" / "words.cu"
MOST_THREADS = 512
LEAST_BITS = 5
"""A block has a warp or more."""
ADD_THREADS, ADD_BLOCKS = 256, 132 * 16
WORD = np.dtype([("x", np.uint32), ("z", np.uint32), ("far", np.int64)])
"""The struct Word."""
TERM = np.dtype([("x", np.int64), ("z", np.int64), ("factor", np.complex128)])
"""The struct Term."""


def words_defines(dtype: str, tile_bits: int) -> dict[str, str | int]:
    """The definitions of words.cu for tiles of so many bits."""
    return {"REAL": REALS[dtype], "TILE_BITS": tile_bits, "THREADS": min(MOST_THREADS, 1 << tile_bits)}


def between_bytes(dtype: str, tile_bits: int, n_words: int) -> int:
    """The shared memory of a block of `between`: the sums of its warps, and a tile."""
    warps = min(MOST_THREADS, 1 << tile_bits) // 32
    return 16 * n_words * warps + (np.dtype(dtype).itemsize << tile_bits)


def between(own: Array, others: Array, words: Masks) -> Callable[[], NDArray[Any]]:
    """Launch the sums over i of (-1)^|z & i| conj(others[i ^ x]) own[i] for each word.

    Returns what waits for them, complex128 [word].
    """
    n_bits, dtype = len(own).bit_length() - 1, own.dtype.name
    tile_bits = min(n_bits, WORD_TILE_BITS[dtype])
    groups = word_groups(words, n_bits, tile_bits, min(WORD_RUN_BITS[dtype], tile_bits), MOST_WORDS)
    launched = [(group, _launch(own, others, words, group)) for group in groups]

    def values() -> NDArray[Any]:
        sums = np.zeros(len(words), np.complex128)
        for group, parts in launched:
            sums[list(group.words)] = parts.get().sum(axis=0)
        return sums

    return values


def _launch(own: Array, others: Array, words: Masks, group: WordGroup) -> Array:
    """Launch the sums of a group; the parts of blocks, complex128 [block, word]."""
    n_bits, dtype, held_bits = len(own).bit_length() - 1, own.dtype.name, np.array(group.held_bits)
    n_words, tile_bits = len(group.words), len(held_bits)
    defines, size_bytes = words_defines(dtype, tile_bits), between_bytes(dtype, tile_bits, n_words)
    kernel, threads = load_kernel(WORDS_FILE, "between", defines), int(defines["THREADS"])
    kernel.max_dynamic_shared_size_bytes = between_bytes(dtype, tile_bits, MOST_WORDS)
    fitting = driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.kernel.ptr, threads, size_bytes)
    far = np.array([bit for bit in range(n_bits) if bit not in group.held_bits], np.int32)
    # As many blocks as run at once, each over several tiles: a block writes its sums once.
    blocks = max(1, min(fitting * cupy.cuda.Device().attributes["MultiProcessorCount"], 1 << len(far)))
    run_bits, starts = tile_runs(held_bits)
    structs = word_structs([words[number] for number in group.words], group.held_bits)
    far_bits, begins, masks = copied(far, starts, structs.view(np.uint8))
    out = cupy.empty((blocks, n_words), np.complex128)
    arguments = (
        own, others, np.int64(1 << len(far)), far_bits, np.int32(len(far)), begins, np.int32(run_bits),
        np.int64(group.far_x), masks, np.int32(n_words), out,
    )  # fmt: skip
    kernel((blocks,), (threads,), arguments, shared_mem=size_bytes)
    return out


def word_structs(words: Masks, held_bits: Sequence[int]) -> NDArray[Any]:
    """The struct Word of words: masks over the bits of a tile, and z outside of it."""
    masks, bits = np.array(words, np.int64).reshape(-1, 2), np.array(held_bits, np.int64)
    near = ((masks[:, :, None] >> bits & 1) << np.arange(len(bits))).sum(axis=2)
    structs = np.zeros(len(words), WORD)
    structs["x"], structs["z"] = near.T
    structs["far"] = masks[:, 1] & ~mask_of(held_bits)
    return structs


def add_word(out: Array, source: Array, x: int, z: int, factor: complex) -> None:
    """Add `factor` (-1)^|z & (i ^ x)| source[i ^ x] to out[i] for all i."""
    kernel = _kernel("add_word", out.dtype.name)
    arguments = (out, source, np.int64(len(out)), np.int64(x), np.int64(z), np.complex128(factor))
    kernel((_blocks(len(source)),), (ADD_THREADS,), arguments)


def join(both: Array, source: Array, words: Sequence[tuple[int, int, complex]]) -> None:
    """Set both[2 i] to source[i], and both[2 i + 1] to a sum of words, masks and factors, of the source."""
    terms = np.array(list(words), TERM)
    arguments = (
        both, source, np.int64(len(source)), cupy.asarray(terms.view(np.uint8)), np.int32(len(terms))
    )  # fmt: skip
    _kernel("join", both.dtype.name)((_blocks(len(source)),), (ADD_THREADS,), arguments)


def _kernel(entry: str, dtype: str) -> Any:
    return load_kernel(WORDS_FILE, entry, words_defines(dtype, WORD_TILE_BITS[dtype]))


def _blocks(count: int) -> int:
    return max(1, min(ADD_BLOCKS, count // ADD_THREADS))
