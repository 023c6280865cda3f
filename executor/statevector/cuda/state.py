"""A state vector on a GPU; pass.cu and measure.cu say what is done.

Knows CuPy, tables of passes and flat launches; no circuit. Everything runs on the current stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
from cupy.cuda import driver, runtime
from numpy.typing import NDArray

from tnplan.executor.device.cuda.peer_memory import whole_blocks
from tnplan.executor.device.cuda.runtime.kernel_cache import compile_ahead, load_kernel
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.statevector.codegen.pass_program import PassProgram, index_bits, make_program
from tnplan.executor.statevector.codegen.register_rounds import register_rounds
from tnplan.executor.statevector.cuda.program_launch import PROGRAM_THREADS, Blocks, ProgramLaunch
from tnplan.executor.statevector.cuda.words import LEAST_BITS, add_word, between
from tnplan.executor.statevector.gates.multiplexed_gate import LARGEST_TARGETS, MultiplexedGate
from tnplan.executor.statevector.scheduling.gpu_tiles import PROGRAM_TILES, TILES
from tnplan.executor.statevector.scheduling.pass_tables import PassTables, pass_tables
from tnplan.executor.statevector.scheduling.qubit_cover import index_of
from tnplan.executor.statevector.scheduling.qubit_remapping import QubitExchange
from tnplan.executor.statevector.scheduling.tiled_passes import Pass, Tile
from tnplan.planner.common.errors import InputError

if TYPE_CHECKING:
    from tnplan.executor.statevector.cuda.joint_state import JointState

Array = Any
"""A cupy.ndarray."""

PASS_FILE, PROGRAM_FILE, MEASURE_FILE = (
    Path(__file__).parent / name for name in ("pass.cu", "program.cu", "measure.cu")
)
REALS = {"complex64": "float", "complex128": "double"}
"""The C type of real and imaginary parts."""
PROGRAMS_FROM = 18
"""States of so many bits have a kernel compiled for each structure of a pass, which takes about a second."""
JOINT_FROM = 26
"""States of so many bits are taken back together with lambda, in passes compiled for both. That saves time of
the device; with smaller states the host takes longer, and the compiler the first time."""
NEAR_BYTES = 128
"""Neighbouring tiles with shorter runs are done at the same time, so that memory has runs of so many."""
LEAST_NUMBER_BITS = 8
"""Passes of fewer than 2^8 tiles are not done so."""
LEAST_STEPS = 3
"""A pass of fewer steps, such as a measurement makes, is read from tables, but where most others are not."""
COMPILING_S = 0.25
"""Seconds that a kernel of a pass takes to be compiled beside others."""
SLOWER_BY_TABLES = 4.0
"""Copies of the state by which a pass read from tables takes longer than a compiled one."""
COPIED_BYTES_PER_S = 2.5e12
MOST_VALUES_BYTES = 30000
"""The matrices of a compiled pass are arguments of its kernel."""
REGISTER_BITS = 4
"""Bits of the index that a thread has in registers, of passes read from tables."""
PASS_THREADS = 512
"""Threads of a block of a pass read from tables."""
TARGETS = (1, 2, LARGEST_TARGETS)
"""For so many targets pass.cu is compiled: for one in a third of the time of all."""
MEASURE_THREADS = 256
"""Threads of a block of measure.cu."""
MOST_BLOCKS = 132 * 16
"""Blocks of measure.cu: 16 for each of 132 multiprocessors."""
FEW_BITS = 4
"""Marginals of so many bits are made of expectation values of words of Z, others by atomic additions."""


Defines = tuple[tuple[str, str], ...]


def _key(defines: Mapping[str, str | int]) -> Defines:
    return tuple((name, str(value)) for name, value in sorted(defines.items()))


def most_targets(item: Pass) -> int:
    """Of the gates of a pass: 1, 2 or `LARGEST_TARGETS`, for which pass.cu is compiled."""
    most = max((len(step.targets) for step in item.steps if isinstance(step, MultiplexedGate)), default=0)
    return next(number for number in TARGETS if number >= most)


def pass_defines(dtype: str, tile_bits: int, targets: int = LARGEST_TARGETS) -> dict[str, str | int]:
    """The definitions of pass.cu for tiles of so many bits, and gates on so many targets (of `TARGETS`)."""
    return {
        "REAL": REALS[dtype], "TILE_BITS": tile_bits, "REGISTER_BITS": min(REGISTER_BITS, tile_bits),
        "THREADS": min(PASS_THREADS, 1 << max(0, tile_bits - REGISTER_BITS)),
        "MOST_TARGETS": targets,
    }  # fmt: skip


def program_defines(
    dtype: str, program: PassProgram, held: Sequence[int], register_bits: int, n_bits: int
) -> dict[str, str | int]:
    """The definitions of program.cu for a pass that holds some bits of the `n_bits` of a rank."""
    return {
        "REAL": REALS[dtype], "TILE_BITS": len(held), "REGISTER_BITS": register_bits,
        "BLOCKS": max(1, PROGRAM_THREADS >> (len(held) - register_bits)),
        "HELD": ",".join(map(str, held)), "NUMBER_BITS": n_bits - len(held),
        "NEIGHBOURS": neighbours(dtype, held, n_bits),
        "N_VALUES": len(program.values), "N_TWISTS": program.n_tile_phases,
        "HAS_FAR_PAIRS": int(program.has_far_pairs), "N_SUMS": len(program.sums), "STEPS": program.steps,
    }  # fmt: skip


def neighbours(dtype: str, held: Sequence[int], n_bits: int) -> int:
    """How many blocks do neighbouring tiles at the same time."""
    run_bits = next((k for k, bit in enumerate(held) if k != bit), len(held))
    if n_bits - len(held) < LEAST_NUMBER_BITS:
        return 1
    return max(1, NEAR_BYTES // (np.dtype(dtype).itemsize << run_bits))


def program_bytes(dtype: str, n_entries: int, tile_bits: int, n_totals: int = 0) -> int:
    """The shared memory of a block of program.cu: totals of warps, factors of tiles, and a tile with gaps."""
    item = np.dtype(dtype).itemsize
    digits = 4 if item == 8 else 3
    last = (1 << tile_bits) - 1
    totals = -(-8 * n_totals // item)
    return item * (totals + 2 * n_entries + 1 + sum(last >> k * digits for k in range(5)))


def measure_defines(dtype: str) -> dict[str, str | int]:
    """The definitions of measure.cu."""
    return {"REAL": REALS[dtype], "THREADS": MEASURE_THREADS}


def shared_bytes(dtype: str, tile_bits: int) -> int:
    """The shared memory of a block: a tile, the tables of a phase polynomial, and its angles."""
    low = (tile_bits + 1) // 2
    entries = (1 << tile_bits) + (1 << low) + (1 << (tile_bits - low))
    return entries * np.dtype(dtype).itemsize + 8 * (tile_bits + 1 + (tile_bits + 1) % 2)


def open_state(device_id: int, n_bits: int, dtype: str, rank: int = 0) -> CupyState:
    """A state on a GPU, which becomes the current one of this thread."""
    runtime.setDevice(device_id)
    return CupyState(n_bits, dtype, rank)


def between_gpus(ranks: Communicator) -> Communicator:
    """The ranks connected by NCCL, for arrays of the current GPU of each; collective."""
    from tnplan.executor.device.comm.nccl import NcclCommunicator

    return NcclCommunicator(ranks, cupy.cuda.get_current_stream())


def _own_memory(count: int, dtype: str) -> Array:
    """An array in an allocation of its own, which other ranks can open."""
    size_bytes = whole_blocks(count * np.dtype(dtype).itemsize)
    cupy.get_default_memory_pool().free_all_blocks()
    return cupy.ndarray(count, dtype, cupy.cuda.MemoryPointer(cupy.cuda.Memory(size_bytes), 0))


class CupyState:
    """See `simulator.StateVector`; 2^n_bits amplitudes, those of rank `rank` among several."""

    name = "gpu"

    def __init__(
        self, n_bits: int, dtype: str, rank: int = 0, tile: Tile | None = None,
        programs_from: int = PROGRAMS_FROM,
    ) -> None:  # fmt: skip
        self.n_bits, self.rank, self.dtype, self.programs_from = n_bits, rank, dtype, programs_from
        self.tile = tile or (PROGRAM_TILES if n_bits >= programs_from else TILES)[dtype]
        room = cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
        if program_bytes(dtype, 0, self.tile.wide_bits) > room:
            self.tile = replace(self.tile, wide_bits=0)
        self.tile_bits = min(n_bits, self.tile.bits)
        if self.tile_bits < 2:
            raise InputError("--device gpu", f"has a rank of {n_bits} qubits", "choose --device cpu")
        self.amplitudes = _own_memory(1 << n_bits, dtype)
        properties = runtime.getDeviceProperties(cupy.cuda.Device().id)
        self._multiprocessors = int(properties["multiProcessorCount"])
        self._measuring = cache(lambda entry: load_kernel(MEASURE_FILE, entry, measure_defines(dtype)))
        self._most_targets = 1
        """Of the passes read from tables so far."""
        self._compiled: set[Defines] = set()
        """The definitions of kernels that passes take even where these are not done again."""
        self._made: dict[int, tuple[Pass, tuple[PassProgram, dict[str, str | int]] | None]] = {}
        """The programs of passes that `compile_repeated` looked at."""
        self.restart()

    def restart(self) -> None:
        """Back to |0...0>."""
        self.amplitudes.fill(0)
        if self.rank == 0:
            self.amplitudes[:1].set(np.ones(1, self.dtype))  # a copy: CuPy compiles a kernel for [0] = 1

    def prepare(self, steps: Sequence[Pass | QubitExchange], again: bool = True) -> list[Any]:
        """What launches each pass: a compiled kernel's launch, or what takes arguments, and these.

        No kernel is compiled for passes that are not done again, but those of `compile_repeated`.
        """
        passes = [step for step in steps if isinstance(step, Pass)]
        light = sum(len(item.steps) < LEAST_STEPS for item in passes)
        least = 1 if 2 * light < len(passes) else LEAST_STEPS
        programs = [self._program(item, least) if again or self._compiled else None for item in passes]
        if not again:
            programs = [
                made if made is not None and _key(made[1]) in self._compiled else None for made in programs
            ]
        of_tables = [item for item, made in zip(passes, programs, strict=True) if made is None]
        self._most_targets = max(self._most_targets, *map(most_targets, of_tables), 0)
        compile_ahead(
            [
                (MEASURE_FILE, measure_defines(self.dtype)),
                *((PROGRAM_FILE, defines) for _, defines in filter(None, programs)),
                *((PASS_FILE, self._pass_defines(len(item.held))) for item in of_tables),
            ]
        )
        return [
            self._arguments(pass_tables(item, self.n_bits, 0))
            if made is None
            else self._launch(*made, item.held)
            for item, made in zip(passes, programs, strict=True)
        ]

    def prepare_sums(self, passes: Sequence[Pass]) -> list[Any] | None:
        """The same for passes that may take sums of words; None where no kernel takes those of one."""
        made = [self._program(item) for item in passes]
        room = cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
        for item, program in zip(passes, made, strict=True):
            if item.has_sums and (program is None or self._block_bytes(program[0], len(item.held)) > room):
                return None
        self._made = {id(item): (item, program) for item, program in zip(passes, made, strict=True)}
        return self.prepare(passes)

    def compile_repeated(self, passes: Sequence[Pass], times: int) -> None:
        """Compile the kernels of passes that are done so many times each, where that saves more than it
        takes; `prepare` takes these kernels."""
        self._made = {id(item): (item, self._program(item)) for item in passes}
        made = [program[1] for _, program in self._made.values() if program is not None]
        saved_s = times * SLOWER_BY_TABLES * 2 * self.amplitudes.nbytes / COPIED_BYTES_PER_S
        uses = Counter(map(_key, made))
        worth = {_key(one): one for one in made if uses[_key(one)] * saved_s > COMPILING_S}
        compile_ahead([(PROGRAM_FILE, one) for one in worth.values()])
        self._compiled |= worth.keys()

    def _program(self, item: Pass, least: int = 1) -> tuple[PassProgram, dict[str, str | int]] | None:
        """The program of a pass and its definitions; None where its tables are read instead.

        A program has `least` steps or more.
        """
        if len(item.steps) < least and not item.has_sums:
            return None
        if self.n_bits < self.programs_from or not self.tile.register_bits:
            return None
        if id(item) in self._made:
            return self._made[id(item)][1]
        bits = index_bits(item, self.n_bits)
        item_bytes = np.dtype(self.dtype).itemsize
        made = make_program(item, bits, self.tile.register_bits, item_bytes)
        if made is None or len(made.values) * item_bytes > MOST_VALUES_BYTES:
            return None
        return made, program_defines(
            self.dtype, made, item.held, self.tile.register_bits, self.n_bits
        )  # fmt: skip

    def _launch(self, made: PassProgram, defines: dict[str, str | int], held: Sequence[int]) -> ProgramLaunch:
        kernel = load_kernel(PROGRAM_FILE, "run_program", defines)
        threads = 1 << (len(held) - self.tile.register_bits)
        size_bytes = self._block_bytes(made, len(held))
        far = [bit for bit in range(self.n_bits) if bit not in held]
        turns = [one.tables(far, self.rank << self.n_bits, made.has_far_pairs) for one in made.tile_phases]
        factors = cupy.asarray(made.factors.astype(self.dtype))
        tables = cupy.asarray(np.concatenate([np.zeros(0), *turns]).astype(self.dtype))
        values = np.ascontiguousarray(made.values.astype(self.dtype))
        before = np.uint64(self.amplitudes.data.ptr), np.int64(self.rank << self.n_bits)
        after = (
            np.uint64(factors.data.ptr), np.uint64(tables.data.ptr), values.view(f"V{values.nbytes}")[0],
        )  # fmt: skip
        return ProgramLaunch(
            kernel, self.n_bits, held, Blocks(threads, size_bytes, int(defines["NEIGHBOURS"])),
            (before, after), (factors, tables), made.sums,
        )  # fmt: skip

    def _block_bytes(self, made: PassProgram, tile_bits: int) -> int:
        """The shared memory of a block."""
        n_entries = sum(len(one.rows) for one in made.tile_phases)
        warps = max(1, 1 << (tile_bits - self.tile.register_bits) >> 5)
        return program_bytes(self.dtype, n_entries, tile_bits, warps * len(made.sums))

    def _pass_defines(self, tile_bits: int) -> dict[str, str | int]:
        return pass_defines(self.dtype, tile_bits, self._most_targets)

    def _by_tables(self, tile_bits: int, n_tiles: int) -> Callable[[tuple[Any, ...]], None]:
        """What launches pass.cu with its arguments."""
        defines, size_bytes = self._pass_defines(tile_bits), shared_bytes(self.dtype, tile_bits)
        kernel, threads = load_kernel(PASS_FILE, "run_tiles", defines), int(defines["THREADS"])
        kernel.max_dynamic_shared_size_bytes = size_bytes
        fitting = driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.kernel.ptr, threads, size_bytes)
        blocks = min(fitting * self._multiprocessors, n_tiles)
        return lambda arguments: kernel((blocks,), (threads,), arguments, shared_mem=size_bytes)

    def _arguments(self, tables: PassTables) -> tuple[Any, ...]:
        """What launches a pass read from tables, and its arguments."""
        made = register_rounds(tables, min(REGISTER_BITS, len(tables.held)))
        run_bits = int(np.count_nonzero(np.cumprod(tables.held == np.arange(len(tables.held)))))
        rows = np.arange(1 << (len(tables.held) - run_bits), dtype=np.int64)
        starts = index_of(rows, tables.held[run_bits:])
        return self._by_tables(len(tables.held), 1 << len(tables.far)), (
            self.amplitudes, np.int64(self.rank << self.n_bits), np.int64(1 << len(tables.far)),
            cupy.asarray(tables.held.astype(np.int32)), cupy.asarray(tables.far.astype(np.int32)),
            np.int32(len(tables.far)), cupy.asarray(starts), np.int32(run_bits), cupy.asarray(made.rounds),
            np.int32(len(made.rounds)), cupy.asarray(made.steps),
            cupy.asarray(tables.places.astype(np.int32)), cupy.asarray(tables.values.astype(self.dtype)),
            cupy.asarray(tables.idle.astype(np.uint8)), cupy.asarray(tables.phases),
        )  # fmt: skip

    def rebound(self, steps: Sequence[Pass | QubitExchange], prepared: Sequence[Any]) -> list[Any]:
        """What another state of the same size has prepared for steps, for this one."""
        return [
            item.on(self.amplitudes)
            if isinstance(item, ProgramLaunch)
            else (item[0], (self.amplitudes, *item[1][1:]))
            for item in prepared
        ]

    def is_divisible(self, prepared: Any) -> bool:
        """Whether `bind_part` can divide a pass."""
        return isinstance(prepared, ProgramLaunch)

    def bind_part(
        self, prepared: Any, bits: Sequence[int], part: int, share: int = 0
    ) -> Callable[[], None]:  # fmt: skip
        """The call that does a pass on the amplitudes whose `bits`, which it does not hold, have a value.

        It leaves room for an exchange; `share` as in `Overlap`.
        """
        return prepared.part(bits, part, share)

    def apply(self, prepared: Any) -> None:
        """Do a pass."""
        if isinstance(prepared, ProgramLaunch):
            prepared.whole()
            return
        launch, arguments = prepared
        launch(arguments)

    def sums(self, chunk_bits: int) -> NDArray[Any]:
        """The probability of each chunk of 2^chunk_bits amplitudes, float64."""
        n_chunks = 1 << (self.n_bits - chunk_bits)
        out = cupy.empty(n_chunks, np.float64)
        self._measure("chunk_sums", n_chunks, np.int32(chunk_bits), np.int64(n_chunks), out)
        return np.asarray(out.get())

    def draw(self, chunk_bits: int, chunks: NDArray[Any], rests: NDArray[Any]) -> NDArray[Any]:
        """The indices, int64, where the sum over chunk chunks[k] reaches rests[k]."""
        distinct, first = np.unique(chunks, return_index=True)
        out = cupy.empty(len(chunks), np.int64)
        self._measure(
            "draw", len(distinct), np.int32(chunk_bits), np.int64(len(distinct)), cupy.asarray(distinct),
            cupy.asarray(np.append(first, len(chunks)).astype(np.int64)), cupy.asarray(rests), out,
        )  # fmt: skip
        return np.asarray(out.get())

    def marginal(self, bits: Sequence[int]) -> NDArray[Any]:
        """The probability, float64 [2^m], of each value of some bits, the first least significant."""
        side = 1 << len(bits)
        if len(bits) <= FEW_BITS:
            values = np.arange(side)
            total = np.zeros(side)
            for z in range(side):
                mask = sum(1 << bit for k, bit in enumerate(bits) if z >> k & 1)
                total += self.pauli(0, mask).real * (1 - 2.0 * (np.bitwise_count(values & z) & 1))
            return np.maximum(total / side, 0)
        out = cupy.zeros(side, np.float64)
        places = cupy.asarray(np.array(bits, np.int32))
        self._measure("marginal", MOST_BLOCKS, np.int64(1 << self.n_bits), places, np.int32(len(bits)), out)
        return np.asarray(out.get())

    def pauli(self, x: int, z: int) -> complex:
        """The sum over i of (-1)^|z & i| conj(a[i ^ x]) a[i], for masks of bits."""
        return self.pauli_with(self.amplitudes, 0, x, z)

    def pauli_sum(self, words: Sequence[tuple[int, int, complex]]) -> complex:
        """The sum over words, masks x and z and factors, of factors times `pauli`."""
        return sum((factor * self.pauli(x, z) for x, z, factor in words), 0j)

    def pauli_with(self, others: Array, first: int, x: int, z: int) -> complex:
        """The sum over i of (-1)^|z & i| conj(others[i ^ x]) a[first + i]."""
        count = len(others)
        blocks = max(1, min(MOST_BLOCKS, count // MEASURE_THREADS))
        out = cupy.empty(blocks, np.complex128)
        local = self.amplitudes[first : first + count]
        self._measuring("pauli")(
            (blocks,), (MEASURE_THREADS,), (local, others, np.int64(count), np.int64(x), np.int64(z), out)
        )
        return complex(out.get().sum())

    def joint(self) -> JointState | None:
        """See `AdjointState`."""
        from tnplan.executor.statevector.cuda.joint_state import JointState

        return JointState(self) if self.n_bits >= JOINT_FROM else None

    def twin(self) -> CupyState:
        """Another state of the same size, all of whose amplitudes are zero."""
        found = CupyState(self.n_bits, self.dtype, self.rank, self.tile, self.programs_from)
        found.amplitudes.fill(0)
        return found

    def assign(self, source: CupyState) -> None:
        """Take the amplitudes of another state."""
        self.amplitudes[...] = source.amplitudes

    def add_word(self, source: CupyState, x: int, z: int, factor: complex) -> None:
        """Add `factor` (-1)^|z & i| a[i] of another state at i ^ x, for all i."""
        add_word(self.amplitudes, source.amplitudes, x, z, factor)

    def add_word_of(self, others: Array, first: int, x: int, z: int, factor: complex) -> None:
        """The same for others[i] at first + (i ^ x)."""
        add_word(self.amplitudes[first : first + len(others)], others, x, z, factor)

    def between(self, other: CupyState, words: Sequence[tuple[int, int]]) -> Callable[[], NDArray[Any]]:
        """Launch, for each pair of masks, the sum over i of (-1)^|z & i| conj(b[i ^ x]) a[i], b of the other
        state; returns what waits for the sums."""
        if self.n_bits < LEAST_BITS:
            found = np.array([self.pauli_with(other.amplitudes, 0, x, z) for x, z in words], np.complex128)
            return lambda: found
        return between(self.amplitudes, other.amplitudes, words)

    def _measure(self, entry: str, blocks: int, *arguments: Any) -> None:
        grid = max(1, min(MOST_BLOCKS, blocks))
        self._measuring(entry)((grid,), (MEASURE_THREADS,), (self.amplitudes, *arguments))

    def take(self, indices: NDArray[Any]) -> NDArray[Any]:
        """The amplitudes at some indices, on the host."""
        return np.asarray(self.amplitudes[cupy.asarray(indices)].get())

    def part(self) -> NDArray[Any]:
        """The amplitudes of this rank, on the host."""
        return np.asarray(self.amplitudes.get())

    to_host = part

    def load(self, amplitudes: NDArray[Any]) -> None:
        """Set the amplitudes of this rank."""
        self.amplitudes.set(np.ascontiguousarray(amplitudes, self.dtype))
