"""A contraction that is verified, allocated and bound once, and called with new values."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import log10, prod
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.api.contraction.arrays import ArrayKind, as_library, common_kind, host_array, stated_dtype
from tnplan.executor.contraction.bind.program import needed_bytes
from tnplan.executor.contraction.run.compiled_program import CompiledProgram
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu.parallel_rows import blas_threads
from tnplan.executor.device.protocols.device import Device, View
from tnplan.executor.device.selection.select import Chosen, open_device, open_gpu
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.units import count_text, size_text
from tnplan.planner.passes.verify.verify import verify
from tnplan.planner.schedule.schedule import Schedule


class CompiledContraction:
    """A contraction of one network, ready to be called with new values. `tnplan.compile` makes it.

    Calls from several threads are carried out one after the other. As a context manager it gives its memory
    back at the end.

    Parameters
    ----------
    schedule : Schedule
        For one rank.
    device : {"auto", "cpu", "gpu"}
        Where it is carried out.
    threads : int, optional
        Threads of BLAS and of copies. Default: as BLAS is set, and one for copies.
    constants : mapping of int to array_like, optional
        Tensors by their number that are the same in all calls.
    batched : sequence of int
        The numbers of the tensors whose first axis counts the values of a batch; the result's does then.
    gpu : int, optional
        The number of the GPU, where `device` is not "cpu". Default: the first one that is free.
    strip_exponent : bool
        Results are pairs (mantissa, exponent), for values beyond the range of the dtype.

    Examples
    --------
    >>> product = tnplan.compile("ab,bc->ac", (2, 3), (3, 4), dtype="float64", device="cpu")
    >>> product
    CompiledContraction(2 tensors of float64, 1 step, 1 slice, 576 B, on cpu)
    """

    def __init__(
        self,
        schedule: Schedule,
        device: str = "auto",
        threads: int | None = None,
        constants: Mapping[int, Any] | None = None,
        batched: Sequence[int] = (),
        gpu: int | None = None,
        strip_exponent: bool = False,
    ) -> None:
        if schedule.ranks_per_group > 1:
            problem = f"is for {schedule.ranks_per_group} ranks a slice"
            raise InputError("schedule", problem, "plan for one device, or carry it out with tnplan.execute")
        if strip_exponent and batched:
            raise InputError("strip_exponent", "is not for batches", "leave out one of the two")
        verify(schedule)
        self.schedule = schedule
        self._lock = threading.Lock()
        self._dtype = np.dtype(schedule.dtype)
        self._threads = threads
        self._batched = frozenset(batched)
        self._shapes = [tuple(schedule.size_dict[index] for index in leaf) for leaf in schedule.leaves]
        constants = constants or {}
        self._given = [number for number in range(len(schedule.leaves)) if number not in constants]
        fixed = {number: self._values(array, number) for number, array in constants.items()}
        n_elements = sum(map(prod, self._shapes))
        needed = needed_bytes(schedule) + n_elements * self._dtype.itemsize
        lone = run_ranks(1, lambda own: own)[0]
        if gpu is None:
            self._chosen: Chosen | None = open_device(device, lone, needed, threads or 1)
        else:
            self._chosen = open_gpu(gpu, lone)
        with self._blas():
            self._program: CompiledProgram | None = CompiledProgram(
                schedule, self._chosen.device, lone, strip_exponent
            )
        self._strips = strip_exponent
        self._ready = False
        """Whether the results that the last run kept are those of its inputs."""
        for number, values in fixed.items():
            self._program.inputs.set(number, values)

    def __call__(self, *arrays: Any) -> Any:
        """Contract these arrays.

        Parameters
        ----------
        *arrays : array_like
            The tensors that are not constant, in the order and with the shapes of the network, of NumPy or
            of one other library. Those of a batch have one axis more, the first, all of one length.

        Returns
        -------
        array
            The result, of the library of the arrays and on their device; with `strip_exponent` the pair of
            a mantissa whose largest part is from 0.5 to 1, and the exponent x of the factor 10^x, a float.

        Raises
        ------
        InputError
            Where arrays do not fit the network, would be rounded, or the contraction is closed.
        """
        if len(arrays) != len(self._given):
            problem = f"has {len(arrays)} arrays for {len(self._given)} tensors"
            raise InputError("call", problem, "give one array a tensor that is not constant, in their order")
        return self._contract(dict(zip(self._given, arrays, strict=True)))

    def update(self, arrays: Mapping[int, Any]) -> Any:
        """Contract again with some new arrays; the others are those of the last call.

        What does not depend on them is not done again as far as its results were kept (`keep=True` of
        `tnplan.compile`). The result has the same bits as a call with all arrays.

        Parameters
        ----------
        arrays : mapping of int to array_like
            The new arrays by the number of their tensor.

        Returns
        -------
        array
            As of a call.

        Raises
        ------
        InputError
            As of a call; before the first one; or where the contraction is one of batches.
        """
        if self._batched:
            raise InputError("update", "is not for batches", "call with all arrays")
        if not self._ready:
            raise InputError("update", "comes before the first call", "call with all arrays first")
        for number in arrays:
            if number not in self._given:
                problem = f"tensor {number!r} is constant, or not there"
                remedy = f"tensors are numbered from 0 to {len(self.schedule.leaves) - 1}"
                raise InputError("update", problem, remedy)
        return self._contract(dict(arrays))

    def close(self) -> None:
        """Give the memory back; later calls are refused. A second call does nothing."""
        with self._lock:
            if self._chosen is not None:
                self._program = None
                self._chosen.close()
                self._chosen = None

    @property
    def device(self) -> str:
        """Where it is carried out: "cpu" or "gpu"."""
        return self._open()[1].name

    def __enter__(self) -> CompiledContraction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        schedule = self.schedule
        where = "closed" if self._chosen is None else f"on {self._chosen.device.name}"
        tensors = count_text(len(schedule.leaves), "tensor", "tensors")
        steps = count_text(len(schedule.steps), "step", "steps")
        slices = count_text(schedule.n_slices, "slice", "slices")
        size = size_text(needed_bytes(schedule))
        return f"CompiledContraction({tensors} of {schedule.dtype}, {steps}, {slices}, {size}, {where})"

    def _contract(self, arrays: Mapping[int, Any]) -> Any:
        """Contract with new arrays by the number of their tensor."""
        given = list(arrays.values())
        kind = common_kind(given)
        length = self._length(arrays)
        shape = self.schedule.output_shape if length is None else (length, *self.schedule.output_shape[1:])
        if kind.gpu is not None:
            return self._contract_on_gpu(arrays, kind, shape)
        values = {number: self._values(array, number) for number, array in arrays.items()}
        result = np.empty(shape, self._dtype)
        with self._lock, self._blas():
            device = self._open()[1]
            for first, piece in self._pieces(values, length):
                flat = device.to_host(self._run(piece))
                _store(result, flat, None if length is None else first)
            exponent = self._exponent()
        found = as_library(result, kind, given[0] if given else result)
        return (found, exponent) if self._strips else found

    def _contract_on_gpu(self, arrays: Mapping[int, Any], kind: ArrayKind, shape: tuple[int, ...]) -> Any:
        """Contract arrays on this GPU to one there; the host waits for nothing."""
        from tnplan.executor.device.cuda.library_arrays import empty, in_order, on_gpu

        assert kind.gpu is not None
        with self._lock:
            device: Any = self._open()[1]
            if device.name != "gpu" or device.device_id != kind.gpu:
                problem = f"are on GPU {kind.gpu}, and the contraction was compiled for {_where(device)}"
                raise InputError("arrays", problem, "move them, or compile with arrays that are there")
            for number, array in arrays.items():
                self._check(array, number)
            result, flat = empty(shape, self._dtype, kind.library, next(iter(arrays.values())))
            values = {number: on_gpu(array, device.stream) for number, array in arrays.items()}
            with in_order(device.stream, kind.library, kind.gpu), device.stream:
                for first, piece in self._pieces(values, self._length(arrays)):
                    _store(flat, self._run(piece), first if self._batched else None)
            return (result, self._exponent()) if self._strips else result

    def _run(self, values: Mapping[int, Any]) -> View:
        """One run with new values of some inputs; a run that fails leaves none to be used again."""
        program, _ = self._open()
        changed = frozenset(values) if self._ready else None
        self._ready = False
        for number, array in values.items():
            program.inputs.set(number, array)
        program.run(changed)
        self._ready = True
        return program.result

    def _exponent(self) -> float:
        """The exponent of ten of the last result."""
        return self._open()[0].exponent * log10(2.0)

    def _length(self, arrays: Mapping[int, Any]) -> int | None:
        """How many values the batch has; None where there is none."""
        if not self._batched:
            return None
        lengths = {tuple(getattr(arrays[number], "shape", ()))[:1] for number in self._batched}
        if len(lengths) > 1 or lengths == {()}:
            problem = f"have first axes of lengths {', '.join(str(*one) for one in sorted(lengths))}"
            raise InputError("arrays of the batch", problem, "give as many values of each")
        return int(lengths.pop()[0])

    def _pieces(
        self, values: Mapping[int, Any], length: int | None
    ) -> Iterator[tuple[int, Mapping[int, Any]]]:
        """Values for one run after the other: as many of a batch at once as were planned for.

        The last piece is the last so many values, some of them once more; of a shorter batch, its own values
        again and again.
        """
        if length is None:
            yield 0, values
            return
        at_once = self.schedule.output_shape[0]
        for start in range(0, length, at_once):
            first = max(0, min(start, length - at_once))
            taken = (
                [first + k % length for k in range(at_once)]
                if length < at_once
                else slice(first, first + at_once)
            )
            yield (
                first,
                {
                    number: array[taken] if number in self._batched else array
                    for number, array in values.items()
                },
            )

    def _open(self) -> tuple[CompiledProgram, Device]:
        if self._program is None or self._chosen is None:
            raise InputError("compiled contraction", "is closed", "compile it again")
        return self._program, self._chosen.device

    def _blas(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._threads is None else blas_threads(self._threads)

    def _values(self, array: Any, number: int) -> NDArray[Any]:
        """The values of an input on the host; raises InputError where they do not fit."""
        values = array if type(array) is np.ndarray else host_array(array, f"array {number}")
        self._check(values, number)
        return values

    def _check(self, array: Any, number: int) -> None:
        """Raise InputError where an array does not fit an input."""
        shape = self._shapes[number]
        if array.shape == shape and array.dtype is self._dtype:
            return
        found = tuple(array.shape)
        if number in self._batched:
            shape, found = shape[1:], found[1:]
        if found != shape or len(array.shape) != len(self._shapes[number]):
            problem = f"has shape {tuple(array.shape)}, and was compiled for {self._shapes[number]}"
            raise InputError(f"array {number}", problem, "give an array of that shape, or compile again")
        dtype = stated_dtype(array)
        if dtype != self._dtype and not np.can_cast(dtype, self._dtype):
            problem = f"has dtype {dtype}, and would be rounded to {self._dtype}"
            raise InputError(f"array {number}", problem, "convert it, or compile for a wider dtype")


def _where(device: Any) -> str:
    return f"GPU {device.device_id}" if device.name == "gpu" else "the CPU"


def _store(result: Any, flat: Any, first: int | None) -> None:
    """Write a flat result, or that of the values of a batch from `first` on."""
    if first is None:
        result.reshape(-1)[...] = flat
        return
    values = flat.reshape(-1, *result.shape[1:])[: len(result) - first]
    result[first : first + len(values)] = values
