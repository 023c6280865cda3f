"""A state vector on a GPU; pass.cu and measure.cu say what is done.

Knows CuPy, tables of passes and flat launches; no circuit. Everything runs on the current stream.
Modules of compiled passes and of Pauli words are imported at their first use: small states need neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
from cupy.cuda import runtime
from numpy.typing import NDArray

from tnplan.common.errors import InputError
from tnplan.executor.device.cuda.peer_memory import own_array
from tnplan.executor.device.cuda.runtime.bound_kernel import copied
from tnplan.executor.device.cuda.runtime.kernel_cache import compile_ahead, compile_soon, is_kept, load_kernel
from tnplan.executor.statevector.codegen.register_layout import register_rounds
from tnplan.executor.statevector.cuda.kernel_defines import (
    COMPILING_S,
    JOINT_FROM,
    MEASURE_FILE,
    MEASURE_THREADS,
    PROGRAM_FILE,
    PROGRAM_TILES,
    PROGRAMS_FROM,
    REGISTER_BITS,
    RUNS,
    TILES,
    has_tables,
    measure_defines,
    program_bytes,
    program_defines,
    saved_s,
)
from tnplan.executor.statevector.cuda.tabled_pass import (
    QUICK_BYTES,
    TARGETS,
    PassKernel,
    TabledPass,
    compiled_for,
    most_targets,
    pass_kernel,
)
from tnplan.executor.statevector.cuda.words import join
from tnplan.executor.statevector.scheduling.pass_tables import PassTables, pass_tables
from tnplan.executor.statevector.scheduling.qubit_cover import QubitExchange, tile_runs
from tnplan.executor.statevector.scheduling.tiled_passes import Pass, Tile

if TYPE_CHECKING:
    from tnplan.executor.statevector.codegen.pass_program import PassProgram
    from tnplan.executor.statevector.cuda.tabled_pass import ProgramLaunch

    Program = tuple[PassProgram, dict[str, str | int]]
    """What a pass becomes, and the definitions of its kernel."""


Array = Any
"""A cupy.ndarray."""

LEAST_STEPS = 3
"""A pass of fewer steps, such as a measurement makes, is read from tables, but where most others are not."""
PROGRAM_S = 0.002
"""Seconds of the host that the program of a pass takes, whether its kernel is in the cache or not."""
MOST_VALUES_BYTES = 30000
"""The matrices of a compiled pass are arguments of its kernel."""
MOST_BLOCKS = 132 * 16
"""Blocks of measure.cu: 16 for each of 132 multiprocessors."""
FEW_BITS = 4
"""Marginals of so many bits are made of expectation values of words of Z, others by atomic additions."""


Defines = tuple[tuple[str, str], ...]
_prepared_late: Counter[Defines] = Counter()
"""How often passes went without kernels of these definitions in this process."""


def _key(defines: Mapping[str, str | int]) -> Defines:
    return tuple((name, str(value)) for name, value in sorted(defines.items()))


def open_state(
    device_id: int, n_bits: int, dtype: str, rank: int = 0, n_ranks: int = 1, targets: int = 1
) -> CupyState:  # fmt: skip
    """A state on a GPU, which becomes the current one of this thread.

    A lone state begins to compile what its first passes need, of gates on so many targets. Among several
    ranks all passes have kernels of their own: what can be divided is the same on all of them.
    """
    runtime.setDevice(device_id)
    if n_ranks > 1:
        return CupyState(n_bits, dtype, rank, programs_from=PROGRAMS_FROM)
    state = CupyState(n_bits, dtype, rank)
    state.begin_compiling(targets)
    return state


class CupyState:
    """See `simulator.StateVector`; 2^n_bits amplitudes, those of rank `rank` among several."""

    name = "gpu"
    code_bits = 0
    """Of the numbers of a compressed state, `packed_state.CodedState`; 0: `amplitudes` are floating-point."""
    _scales: tuple[Any, ...] = ()
    """What a kernel of measurements takes last where the state is compressed."""

    def __init__(
        self, n_bits: int, dtype: str, rank: int = 0, tile: Tile | None = None,
        programs_from: int | None = None,
    ) -> None:  # fmt: skip
        """From `programs_from` bits on all passes have kernels of their own; where it is None, from
        `PROGRAMS_FROM` bits on those that are in the cache or are worth waiting for."""
        self._is_patient = programs_from is not None
        programs_from = PROGRAMS_FROM if programs_from is None else programs_from
        self.n_bits, self.rank, self.dtype, self.programs_from = n_bits, rank, dtype, programs_from
        self.tile = tile or (PROGRAM_TILES if n_bits >= programs_from else TILES)[dtype]
        most_bytes = cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
        if program_bytes(dtype, 0, self.tile.wide_bits) > most_bytes:
            self.tile = replace(self.tile, wide_bits=0)
        self.tile_bits = min(n_bits, self.tile.bits)
        if self.tile_bits < 2:
            raise InputError(
                "--device gpu",
                f"leaves {n_bits} qubits per rank, too few for a GPU",
                "choose --device cpu",
                topic="GPUs",
            )
        self.amplitudes = self._allocated()
        self._measure_defines = defines = measure_defines(dtype, self.code_bits)
        self._measuring = cache(lambda entry: load_kernel(MEASURE_FILE, entry, defines))
        plain_bytes = np.dtype(dtype).itemsize << n_bits
        self._saved_s = saved_s(plain_bytes)
        self._may_be_quick = not self._is_patient and plain_bytes <= QUICK_BYTES
        self._most_targets = 1
        """Of the passes read from tables so far."""
        self._compiled: set[Defines] = set()
        """The definitions of kernels that passes take even where these are not done again."""
        self._programs: dict[int, tuple[Pass, Program | None]] = {}
        """The programs of passes that `compile_repeated` looked at."""
        self.restart()

    def _allocated(self) -> Array:
        return own_array(1 << self.n_bits, self.dtype)

    def begin_compiling(self, targets: int) -> None:
        """Begin with the kernels of measurements, and of passes read from tables, of gates on so many qubits,
        unless the state has kernels of its own for those. Larger gates are mostly controlled ones."""
        kernels: list[tuple[Path, dict[str, str | int]]] = [(MEASURE_FILE, self._measure_defines)]
        if has_tables(self.n_bits, np.dtype(self.dtype).itemsize << self.n_bits):
            self._most_targets = compiled_for(min(targets, TARGETS[1]))
            kernels.append(self._pass_kernel(self.tile_bits).code(self._may_be_quick))
        compile_soon(kernels)

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
        is_saving = self._is_patient or self._saved_s >= PROGRAM_S
        at_once = is_saving if again else bool(self._compiled)
        programs = [self._program(item, least) if at_once or item.has_sums else None for item in passes]
        if not again:
            programs = [program if program and _key(program[1]) in self._compiled else None
                        for program in programs]  # fmt: skip
        late = set() if self._is_patient or not again else self._not_worth_waiting(passes, programs)
        programs = [None if id(p) in late else program for p, program in zip(passes, programs, strict=True)]
        tabled = [item for item, program in zip(passes, programs, strict=True) if program is None]
        self._most_targets = max(self._most_targets, *map(most_targets, tabled), 0)
        # All kernels of the passes are requested before the first is loaded, so that they compile in
        # parallel.
        compile_ahead(
            [
                (MEASURE_FILE, self._measure_defines),
                *((PROGRAM_FILE, defines) for _, defines in filter(None, programs)),
                *(self._pass_kernel(len(p.held_bits)).code(self._may_be_quick) for p in tabled),
            ]
        )
        return [
            self._launch(*program, p.held_bits) if program else self._tabled(p, least if again else None)
            for p, program in zip(passes, programs, strict=True)
        ]

    def prepare_sums(self, passes: Sequence[Pass]) -> list[Any] | None:
        """The same for passes that may take sums of words; None where no kernel takes those of one."""
        programs = [self._program(item) for item in passes]
        most_bytes = cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
        for item, program in zip(passes, programs, strict=True):
            if not item.has_sums:
                continue
            if program is None or self._block_bytes(program[0], len(item.held_bits)) > most_bytes:
                return None
        self._programs = {id(item): (item, program) for item, program in zip(passes, programs, strict=True)}
        return self.prepare(passes)

    def _not_worth_waiting(self, passes: Sequence[Pass], programs: Sequence[Program | None]) -> set[int]:
        """The identities of passes whose programs are not in the cache and whose kernels save too little."""
        programs_of = {
            id(item): program for item, program in zip(passes, programs, strict=True)
            if program is not None and not item.has_sums
        }  # fmt: skip
        # A kernel is worth its compilation where it saves more over all its uses: runs * uses * saved_s >=
        # COMPILING_S. One that was put off counts more each time, as the program is run again.
        uses = Counter(_key(defines) for _, defines in programs_of.values())
        late = {
            number for number, (_, defines) in programs_of.items()
            if (RUNS + _prepared_late[_key(defines)]) * uses[_key(defines)] * self._saved_s < COMPILING_S
            and not is_kept(PROGRAM_FILE, defines)
        }  # fmt: skip
        _prepared_late.update({_key(programs_of[number][1]) for number in late})
        return late

    def compile_repeated(self, passes: Sequence[Pass], times: int) -> None:
        """Compile the kernels of passes that are done so many times each, where that saves more than it
        takes; `prepare` takes these kernels."""
        saving_s = times * self._saved_s
        if len(passes) * saving_s <= COMPILING_S:
            return  # also where all share a kernel
        self._programs = {id(item): (item, self._program(item)) for item in passes}
        keyed = [(_key(program[1]), program[1]) for _, program in self._programs.values() if program]
        uses = Counter(key for key, _ in keyed)
        worth = {key: defines for key, defines in keyed if uses[key] * saving_s > COMPILING_S}
        compile_ahead([(PROGRAM_FILE, defines) for defines in worth.values()])
        self._compiled |= worth.keys()

    def _program(self, item: Pass, least: int = 1) -> Program | None:
        """The program of a pass and its definitions; None where its tables are read instead.

        A program has `least` steps or more.
        """
        if len(item.steps) < least and not item.has_sums:
            return None
        if self.n_bits < self.programs_from or not self.tile.register_bits:
            return None
        # By identity: `_programs` keeps the pass beside its program, so that no other object gets its number.
        if id(item) in self._programs:
            return self._programs[id(item)][1]
        from tnplan.executor.statevector.codegen.pass_program import index_bits, make_program

        bits = index_bits(item, self.n_bits)
        item_bytes = np.dtype(self.dtype).itemsize
        program = make_program(item, bits, self.tile.register_bits, item_bytes, self.code_bits > 0)
        if program is None or len(program.values) * item_bytes > MOST_VALUES_BYTES:
            return None
        return program, program_defines(
            self.dtype, program, item.held_bits, self.tile.register_bits, self.n_bits, self.code_bits
        )  # fmt: skip

    def _launch(
        self, program: PassProgram, defines: dict[str, str | int], held_bits: Sequence[int],
        last: Sequence[np.generic] = (),
    ) -> ProgramLaunch:  # fmt: skip
        """`last` are arguments after all others."""
        from tnplan.executor.statevector.cuda.tabled_pass import Blocks, ProgramLaunch

        kernel = load_kernel(PROGRAM_FILE, "run_program", defines)
        threads = 1 << (len(held_bits) - self.tile.register_bits)
        size_bytes = self._block_bytes(program, len(held_bits))
        far = [bit for bit in range(self.n_bits) if bit not in held_bits]
        rank_base, with_pairs = self.rank << self.n_bits, program.has_far_pairs
        turns = [phases.tables(far, rank_base, with_pairs) for phases in program.tile_phases]
        factors = cupy.asarray(program.factors.astype(self.dtype))
        tables = cupy.asarray(np.concatenate([np.zeros(0), *turns]).astype(self.dtype))
        values = np.ascontiguousarray(program.values.astype(self.dtype))
        before = np.uint64(self.amplitudes.data.ptr), np.int64(rank_base)
        after = (np.uint64(factors.data.ptr), np.uint64(tables.data.ptr), values.view(f"V{values.nbytes}")[0])
        return ProgramLaunch(
            kernel, self.n_bits, held_bits, Blocks(threads, size_bytes, int(defines["NEIGHBOURS"])),
            (before, after, last), (factors, tables), program.sums,
        )  # fmt: skip

    def _block_bytes(self, program: PassProgram, tile_bits: int) -> int:
        """The shared memory of a block."""
        n_entries = sum(len(phases.rows) for phases in program.tile_phases)
        warps = max(1, 1 << (tile_bits - self.tile.register_bits) >> 5)
        n_sums = 2 if self.code_bits else len(program.sums)
        return program_bytes(self.dtype, n_entries, tile_bits, warps * n_sums)

    def _pass_kernel(self, tile_bits: int) -> PassKernel:
        return pass_kernel(self.dtype, tile_bits, self._most_targets, self.code_bits)

    def _tabled(self, item: Pass, least: int | None) -> TabledPass:
        """A pass read from tables, which may have a program of `least` steps or more later."""
        launch, arguments = self._arguments(pass_tables(item, self.n_bits, 0))
        compiled = None if least is None else partial(self._compiled_pass, item, least)
        return TabledPass(launch, arguments, compiled, COMPILING_S / self._saved_s)

    def _compiled_pass(self, item: Pass, least: int) -> ProgramLaunch | None:
        """The launch of a pass's own kernel; None where it has none."""
        program = self._program(item, least)
        return None if program is None else self._launch(*program, item.held_bits)

    def _arguments(self, tables: PassTables) -> tuple[Any, ...]:
        """What launches a pass read from tables, and its arguments."""
        tiled = register_rounds(tables, min(REGISTER_BITS, len(tables.held_bits)))
        run_bits, starts = tile_runs(tables.held_bits)
        n_tiles = np.int64(1 << len(tables.far))
        held_bits, far, begins, rounds, steps, bits_of_steps, values, idle, phases = copied(
            tables.held_bits.astype(np.int32), tables.far.astype(np.int32), starts, tiled.rounds, tiled.steps,
            tables.places.astype(np.int32), tables.values.astype(self.dtype), tables.idle.astype(np.uint8),
            tables.phases,
        )  # fmt: skip
        launch = self._pass_kernel(len(tables.held_bits)).launcher(int(n_tiles), self._may_be_quick)
        return launch, (
            self.amplitudes, np.int64(self.rank << self.n_bits), n_tiles, held_bits, far,
            np.int32(len(tables.far)), begins, np.int32(run_bits), rounds, np.int32(len(rounds)), steps,
            bits_of_steps, values, idle, phases,
        )  # fmt: skip

    def rebound(self, steps: Sequence[Pass | QubitExchange], prepared: Sequence[Any]) -> list[Any]:
        """What another state of the same size has prepared for steps, for this one."""
        return [item.on(self.amplitudes) for item in prepared]

    def is_divisible(self, prepared: Any) -> bool:
        """Whether `bind_part` can divide a pass."""
        from tnplan.executor.statevector.cuda.tabled_pass import ProgramLaunch

        return isinstance(prepared, ProgramLaunch)

    def bind_part(self, prepared: Any, bits: Sequence[int], value: int, share: int = 0) -> Callable[[], None]:
        """The call that does a pass on the amplitudes whose `bits`, which it does not hold, have a value.

        It leaves multiprocessors to an exchange; `share` as in `Overlap`.
        """
        return prepared.part(bits, value, share)

    def apply(self, prepared: Any) -> None:
        """Do a pass."""
        prepared.whole()

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
        self._measure(
            "marginal", MOST_BLOCKS, np.int64(1 << self.n_bits), cupy.asarray(np.array(bits, np.int32)),
            np.int32(len(bits)), out,
        )  # fmt: skip
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

        return JointState(self) if self.n_bits >= JOINT_FROM else None

    def twin(self) -> CupyState:
        """Another state of the same size, all of whose amplitudes are zero."""
        programs_from = self.programs_from if self._is_patient else None
        twin = CupyState(self.n_bits, self.dtype, self.rank, self.tile, programs_from)
        twin.amplitudes.fill(0)
        return twin

    def assign(self, source: CupyState) -> None:
        """Take the amplitudes of another state."""
        self.amplitudes[...] = source.amplitudes

    def add_word(self, source: CupyState, x: int, z: int, factor: complex) -> None:
        """Add `factor` (-1)^|z & i| a[i] of another state at i ^ x, for all i."""
        self.add_word_of(source.amplitudes, 0, x, z, factor)

    def add_word_of(self, others: Array, first: int, x: int, z: int, factor: complex) -> None:
        """The same for others[i] at first + (i ^ x)."""
        from tnplan.executor.statevector.cuda.words import add_word

        add_word(self.amplitudes[first : first + len(others)], others, x, z, factor)

    def between(self, other: CupyState, words: Sequence[tuple[int, int]]) -> Callable[[], NDArray[Any]]:
        """Launch, for each pair of masks, the sum over i of (-1)^|z & i| conj(b[i ^ x]) a[i], b of the other
        state; returns what waits for the sums."""
        from tnplan.executor.statevector.cuda.words import LEAST_BITS, between

        if self.n_bits < LEAST_BITS:
            values = np.array([self.pauli_with(other.amplitudes, 0, x, z) for x, z in words], np.complex128)
            return lambda: values
        return between(self.amplitudes, other.amplitudes, words)

    def _measure(self, entry: str, blocks: int, *arguments: Any) -> None:
        grid = max(1, min(MOST_BLOCKS, blocks))
        self._measuring(entry)((grid,), (MEASURE_THREADS,), (self.amplitudes, *arguments, *self._scales))

    def take(self, indices: NDArray[Any]) -> NDArray[Any]:
        """The amplitudes at some indices, on the host."""
        return np.asarray(self.amplitudes[cupy.asarray(indices)].get())

    def shard(self) -> NDArray[Any]:
        """The amplitudes of this rank, on the host."""
        return np.asarray(self.amplitudes.get())

    to_host = shard

    def load(self, amplitudes: NDArray[Any]) -> None:
        """Set the amplitudes of this rank."""
        self.amplitudes.set(np.ascontiguousarray(amplitudes, self.dtype))


# Both states of a sweep back in one array of a GPU, psi and lambda in turn: see `adjoint.joint_sweep`.
#
# Knows CuPy, passes and launches; no circuit. Everything runs on the current stream.


class JointState:
    """Amplitude i of psi is element 2 i, that of lambda element 2 i + 1."""

    mirrored = False

    def __init__(self, final: CupyState) -> None:
        self._both = CupyState(final.n_bits + 1, final.dtype)
        self._prepared: Sequence[Any] = ()

    @property
    def tile(self) -> Tile:
        """That of both states."""
        return self._both.tile

    def prepare(self, passes: Sequence[Pass], from_zeros: bool) -> bool:
        """Have kernels compiled; whether there are such for all passes that take sums."""
        prepared = self._both.prepare_sums(passes)
        self._prepared = prepared or ()
        return prepared is not None

    def begin(self, psi: CupyState, words: Sequence[tuple[int, int, complex]]) -> None:
        """Take the final state, and lambda as the sum of words of it: masks x and z of bits, and factors."""
        join(self._both.amplitudes, psi.amplitudes, words)

    def run(self) -> Callable[[], NDArray[Any]]:
        """Launch all passes; what is returned waits for the sums, float64 [number]."""
        for item in self._prepared:
            self._both.apply(item)
        return self._sums

    def _sums(self) -> NDArray[Any]:
        numbers: list[int] = []
        values: list[NDArray[Any]] = [np.zeros(0)]
        for item in self._prepared:
            own = getattr(item, "word_sums", ())
            if own:
                weights = np.array([weight for _, weight in own])
                values.append(item.sums.get().sum(axis=0) * weights)
                numbers += [number for number, _ in own]
        sums = np.zeros(len(numbers))
        sums[numbers] = np.concatenate(values)
        return sums
