"""A state on a GPU whose amplitudes are whole numbers of 8 or 16 bits with a scale a block.

It takes 2.125 or 4.125 bytes an amplitude. packed.cuh decodes and encodes tiles in the kernels of passes,
measure.cu decodes amplitudes as it reads them. `packed_codes` says how blocks lie, `packed_error` what they
cost. Knows CuPy, passes and launches; no circuit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
from cupy.cuda import runtime

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.device.cuda.peer_memory import own_array
from tnplan.executor.statevector.cuda.kernel_defines import MEASURE_THREADS, coded_tile
from tnplan.executor.statevector.cuda.state import FEW_BITS, MOST_BLOCKS, CupyState
from tnplan.executor.statevector.packed_error import (
    BLOCK_BITS,
    ONE,
    EncodingErrors,
    Rounding,
    amplitudes_of,
    angle_error,
    bound_of,
    check_room,
    exchanged,
    refuse_load,
    rounding_of_program,
    rounding_of_tables,
)
from tnplan.executor.statevector.scheduling.pass_tables import pass_tables
from tnplan.executor.statevector.scheduling.qubit_cover import QubitExchange
from tnplan.executor.statevector.scheduling.tiled_passes import Pass, Tile

if TYPE_CHECKING:
    from tnplan.executor.statevector.codegen.pass_program import PassProgram

BLOCKS_ON_ONE = 32
"""Blocks that a multiprocessor has at once at most."""
HOST_BITS = 20
"""So many amplitudes at a time are decoded on the host."""


@dataclass(frozen=True, eq=False)
class CodedPass:
    """A pass: `run` does it with a key for random numbers, and `sums` are then those of its blocks.

    `rounding` is that of its arithmetic, which makes an error of at most `arithmetic`.
    """

    run: Callable[[int], None]
    sums: Any
    rounding: Rounding
    arithmetic: float = 0.0


class CodedState(CupyState):
    """2^n_bits amplitudes in numbers of `bits` bits on a GPU, in |0...0>; see `cpu.packed_state.PackedState`.

    Parameters
    ----------
    n_bits
        Bits of the index, 5 or more.
    dtype
        complex64 or complex128: the precision inside of a pass.
    bits
        8 or 16, of the real and of the imaginary part each.
    seed
        Of the rounding.
    departure
        How far the gates are from unitary ones, as `packed_error.departure` sums it.
    tile
        That of passes; None for the usual one.
    rank
        Whose amplitudes they are, among several ranks.
    """

    def __init__(
        self, n_bits: int, dtype: str, bits: int, seed: int = 0, departure: float = 0.0,
        tile: Tile | None = None, rank: int = 0,
    ) -> None:  # fmt: skip
        if n_bits < BLOCK_BITS:
            raise InputError(
                "--device gpu", f"takes compressed states of {BLOCK_BITS} qubits or more, not {n_bits}",
                "choose --device cpu",
                topic="GPUs",
            )  # fmt: skip
        self.code_bits = self.bits = bits
        self._seed, self._departure = seed, departure
        self.unit = float(np.finfo(dtype).eps) / 2
        most_bytes = cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
        super().__init__(n_bits, dtype, rank, tile or coded_tile(dtype, n_bits, most_bytes))

    def _allocated(self) -> Any:
        self.scales = own_array(1 << self.n_bits - BLOCK_BITS, "float32")
        self._scales = (self.scales,)
        return own_array(2 << self.n_bits, f"int{self.bits}")

    def restart(self) -> None:
        """Back to |0...0>; the same rounding follows."""
        self.amplitudes.fill(0)
        self.scales.fill(0)
        if self.rank == 0:
            self.amplitudes[:1].set(np.array(ONE[:1], self.amplitudes.dtype))
            self.scales[:1].set(np.array(ONE[1:], np.float32))
        self._random = np.random.default_rng([self._seed, self.bits, self.rank])
        self.errors = EncodingErrors(self._departure)

    @property
    def numbers(self) -> tuple[Any, Any]:
        """The whole numbers and the scales."""
        return self.amplitudes, self.scales

    def arrays(self) -> list[tuple[Any, int]]:
        """The same to be changed: see `DistributedState.arrays`."""
        return exchanged(*self.numbers)

    def document(self) -> dict[str, Any]:
        """What stands beside them: the errors, and where the random numbers are."""
        return {"errors": asdict(self.errors), "random": self._random.bit_generator.state}

    def continue_from(self, document: dict[str, Any]) -> None:
        """Go on with what a document says of the numbers; ValueError where the errors are none."""
        self.errors = EncodingErrors.restored(document["errors"])
        self._random.bit_generator.state = document["random"]

    def is_divisible(self, prepared: CodedPass) -> bool:
        """No pass is done in parts."""
        return False

    def prepare(self, steps: Sequence[Pass | QubitExchange], again: bool = True) -> list[CodedPass]:
        """What does each pass, with a bound of what its arithmetic rounds."""
        passes = [step for step in steps if isinstance(step, Pass)]
        made: list[CodedPass] = super().prepare(steps, again)
        return [
            CodedPass(
                coded.run, coded.sums, coded.rounding,
                bound_of(coded.rounding.units, coded.rounding.n_steps, self.unit, angle_error(item.steps)),
            )
            for coded, item in zip(made, passes, strict=True)
        ]  # fmt: skip

    def _launch(
        self, program: PassProgram, defines: dict[str, str | int], held_bits: Sequence[int],
        last: Sequence[np.generic] = (),
    ) -> Any:  # fmt: skip
        last = np.uint64(self.scales.data.ptr), np.uint64(0)
        launch = super()._launch(program, defines, held_bits, last)
        rounding = rounding_of_program(program, self.tile.register_bits)
        return CodedPass(lambda key: launch.whole.at(launch.last_argument, key), launch.sums, rounding)

    def _tabled(self, item: Pass, least: int | None) -> Any:
        """A pass read from tables, which stays one: the bound is that of its arithmetic."""
        tables = pass_tables(item, self.n_bits, 0)
        launch, arguments = self._arguments(tables)
        multiprocessors = cupy.cuda.Device().attributes["MultiProcessorCount"]
        sums = cupy.zeros((min(1 << len(tables.far), BLOCKS_ON_ONE * multiprocessors), 2), np.float64)

        def run(key: int) -> None:
            launch((*arguments, sums, *self._scales, np.uint64(key)))

        return CodedPass(run, sums, rounding_of_tables(tables))

    def apply(self, prepared: CodedPass) -> None:
        """Do a pass, and add its errors."""
        self.errors.add_pass([self.do(prepared)], self.unit)

    def do(self, prepared: CodedPass) -> tuple[Array, float]:
        """Do a pass; what `EncodingErrors.add_pass` takes of a rank."""
        prepared.run(int(self._random.integers(1 << 62)))
        return prepared.sums.get().sum(axis=0), prepared.arithmetic

    # Answers are those of the state divided by its norm.

    def sums(self, chunk_bits: int) -> Array:
        """The probability of each chunk of 2^chunk_bits amplitudes, float64."""
        return super().sums(chunk_bits) / self.errors.norm**2

    def draw(self, chunk_bits: int, chunks: Array, rests: Array) -> Array:
        """The indices, int64, where the sum over chunk chunks[k] reaches rests[k]."""
        return super().draw(chunk_bits, chunks, rests * self.errors.norm**2)

    def marginal(self, bits: Sequence[int]) -> Array:
        """The probability, float64 [2^m], of each value of some bits, the first least significant."""
        weights = super().marginal(bits)
        return weights if len(bits) <= FEW_BITS else weights / self.errors.norm**2

    def pauli(self, x: int, z: int) -> complex:
        """The sum over i of (-1)^|z & i| conj(a[i ^ x]) a[i], for masks of bits."""
        return self.pauli_with(self.numbers, 0, x, z)

    def pauli_with(self, others: tuple[Any, Any], first: int, x: int, z: int) -> complex:
        """The sum over i of (-1)^|z & i| conj(b[i ^ x]) a[first + i], b in numbers of another rank."""
        codes, scales = others
        count = len(codes) // 2
        blocks = max(1, min(MOST_BLOCKS, count // MEASURE_THREADS))
        out = cupy.empty(blocks, np.complex128)
        masks = np.int64(count), np.int64(x), np.int64(z)
        own, own_scales = self.amplitudes[2 * first :], self.scales[first >> BLOCK_BITS :]
        arguments = own, codes, *masks, out, own_scales, scales
        self._measuring("pauli")((blocks,), (MEASURE_THREADS,), arguments)
        return complex(out.get().sum()) / self.errors.norm**2

    def take(self, indices: Array) -> Array:
        """The amplitudes at some indices, complex128, on the host."""
        block, place = np.divmod(indices, 1 << BLOCK_BITS)
        first = (block << BLOCK_BITS + 1) + place
        re, im = (self.amplitudes[cupy.asarray(first + k)].get() for k in (0, 1 << BLOCK_BITS))
        scales = self.scales[cupy.asarray(block)].get().astype(np.float64)
        return np.asarray((re + 1j * im) * (scales / self.errors.norm))

    def to_host(self) -> Array:
        """All amplitudes, decoded; refused where there is no room for them."""
        check_room(self.n_bits, self.dtype)
        out = np.empty(1 << self.n_bits, self.dtype)
        size = min(1 << HOST_BITS, len(out))
        for first in range(0, len(out), size):
            codes = self.amplitudes[2 * first : 2 * (first + size)].get()
            scales = self.scales[first >> BLOCK_BITS : (first + size) >> BLOCK_BITS].get()
            out[first : first + size] = amplitudes_of(codes, scales, self.errors.norm)
        return out

    shard = to_host

    def load(self, amplitudes: Array) -> None:
        """Refused: the error of what is loaded is not known."""
        refuse_load()


def open_coded_state(
    device_id: int, n_bits: int, dtype: str, bits: int, seed: int, departure: float, targets: int,
    rank: int,
) -> CodedState:  # fmt: skip
    """A state on a GPU, which becomes the current one of this thread.

    It begins to compile what its first passes need, of gates on so many targets.
    """
    runtime.setDevice(device_id)
    state = CodedState(n_bits, dtype, bits, seed, departure, rank=rank)
    state.begin_compiling(targets)
    return state
