"""A contraction that is verified, allocated and bound once, and called with new values."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log10
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from tnplan.common.checks import check_count
from tnplan.common.errors import InputError
from tnplan.common.files import file_path
from tnplan.common.units import count_text, size_text
from tnplan.executor.contraction.bind.program import needed_bytes
from tnplan.executor.device.cpu.algebra import modulus_text
from tnplan.executor.device.protocols.communicator import agree
from tnplan.jobs.arrays.arrays import (
    ArrayKind,
    as_array,
    as_library,
    common_kind,
    follower_of,
    host_array,
    is_compiled,
    library_of,
    refuse_followed,
    stated_dtype,
    store,
    torch_addresses,
)
from tnplan.jobs.arrays.gradient_calls import (
    Differentiable,
    GradientCalls,
    GradientPlan,
    check_cotangent,
    check_wrt,
    new_number,
)
from tnplan.jobs.arrays.library_contraction import InLibrary, common_name, library_key
from tnplan.jobs.arrays.numpy_contraction import DirectCall
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.arrays.power import Rows, RowsDone
from tnplan.jobs.arrays.ranks import RankHere, Ranks, open_ranks, pieces, store_piece
from tnplan.jobs.progress import Listener, as_listener
from tnplan.planner.networks.importers.subscripts import EinsumCall
from tnplan.planner.networks.tensors import values_identity
from tnplan.planner.passes.verify import verify
from tnplan.planner.schedule.schedule import Schedule


class WithoutSchedule(NamedTuple):
    """What contracts arrays as they lie, in place of a schedule: those of the host by NumPy, and those of
    torch and CuPy, where the contraction is carried out, by their library. None: the schedule is faster."""

    on_host: DirectCall | None = None
    in_library: InLibrary | None = None


class CompiledContraction:
    """A contraction of one network, ready to be called with new values. `tnplan.compile` makes it.

    Calls from several threads that need its memory are carried out one after the other. As a context manager
    it gives its memory back at the end.

    Parameters
    ----------
    schedule : Schedule
        For one device, or for the ranks that work on a slice together.
    options : ContractionOptions, optional
        Of these `device`, `devices`, `threads`, `gpu` and `strip_exponent`.
    constants : mapping of int to array_like, optional
        Tensors by their number that are the same in all calls.
    batched : sequence of int
        The numbers of the tensors whose first axis counts the values of a batch; the result's does then.
    gradient_plan : GradientPlan, optional
        What gradients are planned from; without it there are none.
    shapes : sequence of tuple, optional
        The shapes of the arrays of calls, where these have axes of extent 1 that are broadcast. Default:
        those of the schedule.
    direct : WithoutSchedule, optional
        What contracts arrays without the schedule.

    Examples
    --------
    >>> product = tnplan.compile("ab,bc->ac", (2, 3), (3, 4), dtype="float64", device="cpu")
    >>> product
    CompiledContraction(2 tensors of float64, 1 step, 1 slice, 576 B, on cpu)
    """

    def __init__(
        self, schedule: Schedule, options: ContractionOptions | None = None,
        constants: Mapping[int, Any] | None = None, batched: Sequence[int] = (),
        gradient_plan: GradientPlan | None = None, shapes: Sequence[tuple[int, ...]] = (),
        direct: WithoutSchedule | None = None,
    ) -> None:  # fmt: skip
        options, direct = options or ContractionOptions(), direct or WithoutSchedule()
        if options.strip_exponent and batched:
            raise InputError("strip_exponent", "is not for batches", "leave out one of the two")
        verify(schedule)
        self.schedule = schedule
        self.number = new_number(self)
        """Its name in graphs of torch, which do not keep it."""
        # Invariant: whoever writes the arena of the ranks, or replaces `_ranks` and `_differentiated`, has
        # the lock. A contraction has one arena, so that two calls at once would mix their values.
        self._lock = threading.Lock()
        self._dtype = np.dtype(schedule.dtype)
        self._equal_dtypes: set[Any] = set()
        """Other libraries' names of the dtype, as far as they have been met."""
        self._batched = frozenset(batched)
        leaves = [tuple(schedule.size_dict[index] for index in leaf) for leaf in schedule.leaves]
        self._shapes = list(shapes or leaves)
        """Of arrays of calls: inputs take elements as they come, so that axes of extent 1 do not matter."""
        constants = constants or {}
        self._direct, self._leaves = direct.on_host, leaves
        self._plain: Any = None
        """While it is open: (((), shape, dtype), shape, dtype) ... of arrays contracted as they are."""
        if direct.on_host is not None and self._shapes == leaves:
            self._plain = ()
            for shape in leaves:
                self._plain = self._plain, shape, self._dtype
        self._in_library = direct.in_library if self._shapes == leaves else None
        self._in_library_of: dict[Any, DirectCall] = {}
        """While it is open: by `library_key` of arrays that their library contracts."""
        self._latest: Sequence[Any] = ()
        """The arrays of the last call that was contracted without the schedule."""
        self._inputs = [number for number in range(len(schedule.leaves)) if number not in constants]
        fixed = {number: self._values(array, number) for number, array in constants.items()}
        self._strips = options.strip_exponent
        self._has_run = False
        """Whether the last run of the schedule ended, so that some of its arrays may stay."""
        self._options, self._constants, self._gradient_plan = options, fixed, gradient_plan
        self._of_call: Differentiable | None = None
        """What torch and JAX map."""
        self._differentiated: dict[tuple[int, ...], GradientCalls] = {}
        """By the tensors of the gradients: of the last choice alone, which has memory of its own."""
        self._ranks: Ranks | None = open_ranks(schedule, options, fixed)

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """Contract these arrays.

        Parameters
        ----------
        *arrays : array_like
            The tensors that are not constant, in the order and with the shapes of the network, of NumPy or
            of one other library. Those of a batch have one axis more, the first, all of one length. torch and
            JAX differentiate, map and compile a call as they do an einsum.
        out : array, optional
            Where the result is written, as in `tnplan.contract`.

        Returns
        -------
        array
            The result, of the library of the arrays and on their device, or `out`; as of `tnplan.contract` a
            view of the only array where nothing is summed; with `strip_exponent` the pair of a mantissa
            whose largest part is from 0.5 to 1, and the exponent x of the factor 10^x, a float.

        Raises
        ------
        InputError
            Where arrays do not fit the network, would be rounded, or the contraction is closed; or where
            `out` does not fit the result.
        """
        # The common case of arrays of NumPy that fit first: this takes as long as a small product.
        key: Any = ()
        direct = self._direct
        for array in arrays:
            if type(array) is not ndarray:
                ways, key = self._in_library_of, self._plain
                direct = ways.get(library_key(arrays)) if ways else None
                break
            key = key, array.shape, array.dtype
        if direct is not None and key == self._plain:
            self._latest = arrays
            result = direct(*arrays)
        else:
            result = self._call(arrays)
        if out is None:
            return result
        return store(result, out)

    def _call(self, arrays: Sequence[Any]) -> Any:
        """Contract any arrays, and let a library follow."""
        if self._in_library is not None and (key := library_key(arrays)) is not None and self._fits(arrays):
            self._in_library_of[key] = self._in_library(key[0])
            return self(*arrays)
        addresses = None if is_compiled() else self._addresses(arrays)  # torch.compile cannot read it
        if addresses is not None:
            shape = self.schedule.output_shape
            return self._contract_on_gpu(addresses, common_kind(arrays[:1]), arrays[0], shape, check=False)
        follower = follower_of(arrays)
        if follower is not None:
            if not is_compiled():  # torch.compile cannot read the checks; what it runs makes them again
                arrays = tuple(as_array(array, k) for k, array in self._by_number(arrays).items())
                for number, array in zip(self._inputs, arrays, strict=True):
                    self._check(array, number)
            if self._strips:
                problem = f"strips exponents, but {follower} traces the call"
                raise InputError("call", problem, "give the values of the arrays")
            return followed_call(self, arrays, follower)
        with self._open().together():
            return self._contract(self._by_number(arrays))

    def _fits(self, arrays: Sequence[Any]) -> bool:
        """Whether arrays of another library are on this device, with the network's extents and dtype."""
        if [tuple(array.shape) for array in arrays] != self._leaves or common_name(arrays) != self.dtype:
            return False
        rank = self._lone_rank()
        if rank is None:
            return False
        device: Any = rank.device
        return common_kind(arrays).gpu == (device.device_id if device.name == "gpu" else None)

    def _addresses(self, arrays: Sequence[Any]) -> dict[int, int] | None:
        """The addresses of tensors of torch that are on this GPU as inputs have them, by number.

        None for others, which are looked at one by one: that takes several times as long.
        """
        rank = self._lone_rank() if arrays and library_of(arrays[0]) == "torch" else None
        if rank is None or rank.device.name != "gpu" or self._batched or self.schedule.sliced_output:
            return None
        device: Any = rank.device
        shapes = [self._shapes[number] for number in self._inputs]
        addresses = torch_addresses(arrays, shapes, self._dtype, device.device_id)
        return None if addresses is None else dict(zip(self._inputs, addresses, strict=True))

    def _by_number(self, arrays: Sequence[Any]) -> dict[int, Any]:
        """The arrays of a call by the number of their tensor."""
        if not isinstance(arrays, Sequence):
            raise InputError("arrays", f"are {type(arrays).__name__}", "give a list of arrays")
        if len(arrays) != len(self._inputs):
            problem = f"has {count_text(len(arrays), 'array', 'arrays')}, and takes {len(self._inputs)}"
            raise InputError(
                "call", problem, "give one array per tensor that is not constant, in their order"
            )
        return dict(zip(self._inputs, arrays, strict=True))

    def value_and_grad(self, *arrays: Any, wrt: Sequence[int] | None = None) -> tuple[Any, tuple[Any, ...]]:
        """Contract to a number, and differentiate it with respect to tensors; of a batch, the sum of numbers.

        The first call for a choice of tensors plans the gradients, and takes memory for them.

        Parameters
        ----------
        *arrays : array_like
            As of a call.
        wrt : sequence of int, optional
            The tensors by number. Default: all that are not constant.

        Returns
        -------
        value : array
            As of a call.
        gradients : tuple of array
            The derivatives with respect to each entry of each tensor of `wrt`, of its shape. Of complex
            tensors it is the complex derivative: nothing is conjugated. Each value of a batch depends on its
            own tensors alone: theirs are the derivatives of that value.

        Raises
        ------
        InputError
            As of a call; or where the result has axes, the contraction strips exponents, it was compiled from
            a schedule, or the memory does not suffice.

        Examples
        --------
        >>> import numpy as np
        >>> with tnplan.compile("a,a->", (3,), (3,), dtype="float64", device="cpu") as product:
        ...     product.value_and_grad(np.ones(3), np.arange(3.0), wrt=[0])
        (array(3.), (array([0., 1., 2.]),))
        """
        shape = self.schedule.output_shape[1 if self._batched else 0 :]
        if shape:
            problem = f"has a result of shape {shape}"
            raise InputError("value_and_grad", problem, "use vjp, with a cotangent of that shape")
        length = self._length(self._by_number(arrays))
        return self.vjp(arrays, np.ones(() if length is None else length, self._dtype), wrt)

    def vjp(
        self, arrays: Sequence[Any], cotangent: Any, wrt: Sequence[int] | None = None
    ) -> tuple[Any, tuple[Any, ...]]:
        """Contract, and contract the derivatives of the result with a cotangent: the product of a vector with
        the Jacobian.

        Parameters
        ----------
        arrays : sequence of array_like
            As of a call.
        cotangent : array_like
            Of the shape of the result. Nothing is conjugated, as in JAX.
        wrt : sequence of int, optional
            As of `value_and_grad`.

        Returns
        -------
        value : array
            As of a call.
        gradients : tuple of array
            For each tensor of `wrt` the sum, over the entries of the result, of the cotangent times the
            derivative of the entry with respect to each entry of the tensor.

        Raises
        ------
        InputError
            As of `value_and_grad`, or where the cotangent does not fit the result.
        """
        refuse_followed(self._by_number(arrays).items())
        if follower_of([cotangent]):
            problem = "is differentiated, mapped or traced, which this call does not support"
            raise InputError("cotangent", problem, "give its values, or differentiate a call")
        return self._go_back(arrays, cotangent, wrt)

    def _go_back(self, arrays: Sequence[Any], cotangent: Any, wrt: Sequence[int] | None) -> Any:
        """The result and the gradients of `vjp`."""
        # Reverse mode: with a cotangent X_0 of the result R, S = sum X_0 R is a number, and the
        # gradients are dS/dX_k. One pass gives all of them (head of gradient_calls.py).
        with self._open().together():
            inputs = self._by_number(arrays)
            kind = common_kind(list(inputs.values()))
            values = {number: self._values(array, number) for number, array in inputs.items()}
            length = self._length(values)
            shape = self.result_shape([array.shape for array in values.values()])
            seed = check_cotangent(host_array(cotangent, "cotangent"), shape, self._dtype)
            numbers = check_wrt(wrt, self._inputs)
            # The lock begins at the choice of the plan: another thread with another `wrt` would close it.
            with self._lock:
                calls = self._gradient_calls(numbers)
                if length is None:
                    results = calls.call(values, seed)
                else:
                    results = self._gradients_of_batch(calls, values, seed, numbers)
            # Under mpirun rank 0 alone has the values.
            if results is None:
                return None, ()
            like = next(iter(inputs.values()), seed)
            # The schedule knows no axes of extent 1 that were broadcast.
            shaped = [
                gradient.reshape(values[number].shape)
                for number, gradient in zip(numbers, results[1], strict=True)
            ]
            return as_library(results[0], kind, like), tuple(as_library(each, kind, like) for each in shaped)

    def _gradients_of_batch(
        self, calls: GradientCalls, values: Mapping[int, NDArray[Any]], seed: NDArray[Any], wrt: Sequence[int]
    ) -> tuple[NDArray[Any], list[NDArray[Any]]] | None:
        """The results and the gradients of a batch: sums over it for tensors that all its values share."""
        length, at_once, done = len(seed), calls.schedule.output_shape[0], 0
        value = np.empty_like(seed, self._dtype)
        gradients = [np.zeros(values[number].shape, self._dtype) for number in wrt]
        has_values = True
        for first, piece in pieces(values, self._batched, length, calls.schedule.output_shape):
            # Values that a piece has once more get a cotangent of 0: sums over the batch take each once.
            last = min(first + at_once, length)
            new = slice(done - first, last - first)
            weights = np.zeros((at_once, *seed.shape[1:]), self._dtype)
            weights[new] = seed[done:last]
            results = calls.call(piece, weights)
            has_values = results is not None
            if results is not None:
                value[done:last] = results[0][new]
                for number, gradient, part in zip(wrt, gradients, results[1], strict=True):
                    if number in self._batched:
                        shaped = part.reshape(at_once, *gradient.shape[1:])
                        gradient[done:last] = shaped[new]
                    else:
                        gradient += part.reshape(gradient.shape)
            done = last
        return (value, gradients) if has_values else None

    def _gradient_calls(self, wrt: tuple[int, ...]) -> GradientCalls:
        """What computes these gradients: that of the last call with the same `wrt`, or a new one."""
        if wrt not in self._differentiated:
            if self._gradient_plan is None:
                problem = "are not for stripped exponents and given schedules"
                raise InputError("gradients", problem, "compile the network or its path without these")
            for calls in self._differentiated.values():
                calls.close()
            self._differentiated.clear()
            schedule = self._gradient_plan.schedule(self._options, wrt)
            self._differentiated[wrt] = GradientCalls(schedule, self._options, self._constants)
        return self._differentiated[wrt]

    @property
    def dtype(self) -> str:
        """The dtype of the contraction."""
        return self.schedule.dtype

    @property
    def devices(self) -> int:
        """Those that share the work."""
        return self._options.devices

    def result_shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """The shape of the result for arrays of these shapes, which is that of a batch where there is one."""
        if not self._batched:
            return self.schedule.output_shape
        return shapes[self._inputs.index(min(self._batched))][0], *self.schedule.output_shape[1:]

    def derivatives(self, arrays: Sequence[Any], cotangent: Any, wrt: Sequence[int]) -> tuple[Any, ...]:
        """The result of a call, and its derivatives as of `vjp` by the arrays of `wrt`, counted from 1; under
        mpirun on all ranks. A cotangent that is None stands for ones."""
        results: Any = ()
        if wrt:
            shape = self.result_shape([array.shape for array in arrays])
            weights = np.ones(shape, self._dtype) if cotangent is None else cotangent
            value, gradients = self._go_back(arrays, weights, [self._inputs[k - 1] for k in wrt])
            results = value, *gradients
        else:
            with self._open().together():
                results = (self._contract(self._by_number(arrays)),)
        ranks = self._open()
        if isinstance(ranks, RankHere) and ranks.world is not None:
            kind = common_kind(arrays)
            with ranks.together():
                values = [host_array(array, "result") for array in results] if ranks.has_result else None
                values = ranks.world.broadcast_object(values, 0)
            results = [as_library(array, kind, arrays[0]) for array in values]
        return tuple(results)

    def mapped(self, batched: Sequence[int], length: int) -> Differentiable | None:
        """The contraction of so many values at once, as `Differentiable` has it."""
        self._open()
        plan = self._gradient_plan
        if self._constants or self._batched or plan is None:
            return None
        from tnplan.jobs.arrays.contracted import ContractionOfCall

        if self._of_call is None:
            network = plan.path.network
            call = EinsumCall(network.inputs, network.output, network.size_dict, (), plan.path)
            self._of_call = ContractionOfCall(call, self.dtype, self._options)
        return self._of_call.mapped(batched, length)

    @property
    def changing(self) -> tuple[int, ...]:
        """The numbers of the tensors that a call takes."""
        return tuple(self._inputs)

    def update(self, arrays: Mapping[int, Any]) -> Any:
        """Contract again with some new arrays; the others are those of the last call.

        What does not depend on them is not done again as far as its results were kept (`keep=True` of
        `tnplan.compile`). The result has the same bits as a call with all arrays. Without `keep=True` arrays
        of the last call that were changed since count as they are now.

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
        with self._open().together():
            self._check_update(arrays)
            refuse_followed(arrays.items())
            if self._latest:
                latest = {**dict(enumerate(self._latest)), **arrays}
                return self(*latest.values())
            return self._contract(arrays)

    def _check_update(self, arrays: Mapping[int, Any]) -> None:
        if not isinstance(arrays, Mapping):
            raise InputError("update", f"is given {type(arrays).__name__}", "give a dict of arrays by number")
        if self._batched:
            raise InputError("update", "is not for batches", "call with all arrays")
        if not (self._has_run or self._latest):
            raise InputError("update", "comes before the first call", "call with all arrays first")
        for number in arrays:
            if not hasattr(number, "__index__") or number not in self._inputs:
                problem = f"tensor {number!r} is constant, or does not exist"
                remedy = f"tensors are numbered from 0 to {len(self.schedule.leaves) - 1}"
                raise InputError("update", problem, remedy)

    def power(
        self, n: int, *arrays: Any, vector: int | None = None, checkpoint: str | Path | None = None,
        resume: bool = False, progress: Listener | bool | None = None,
    ) -> Any:  # fmt: skip
        """Contract `n` times, each time with the last result in the place of one array: the n-th power of a
        transfer matrix, times a vector.

        The vector stays in the memory of the contraction, and on its rank, where the result lies as the array
        does. Otherwise it is copied, over rank 0 where there are several, before each row.

        Parameters
        ----------
        n : int
            How often, 0 or more.
        *arrays : array_like
            As of a call; the vector is that of the first row.
        vector : int, optional
            The number of the tensor that the result replaces, of the result's shape. Default: the first that
            is not constant.
        checkpoint : path, optional
            A file for the vector between rows, deleted at the end.
        resume : bool
            Go on from that file, where it is there: to the same bits.
        progress : bool or callable, optional
            True: a bar (`ProgressBar`). Or a function that is called with a `Progress` after every row.

        Returns
        -------
        array
            As of a call.

        Raises
        ------
        InputError
            As of a call; where the shapes differ, for batches and stripped exponents; or for a
            checkpoint that belongs to other arrays.
        WriteError
            Where the checkpoint cannot be written.

        Examples
        --------
        >>> import numpy as np
        >>> matrix = np.array([[1.0, 1.0], [1.0, 0.0]])
        >>> with tnplan.compile("ab,b->a", matrix, (2,), dtype="float64", constants={0: matrix}) as step:
        ...     step.power(10, np.array([1.0, 0.0]))
        array([89., 55.])
        """
        with self._open().together():
            inputs = self._by_number(arrays)
            refuse_followed(inputs.items())
            kind = common_kind(list(inputs.values()))
            number = self._vector(vector)
            check_count("n", n, 0)
            values = {each: self._values(array, each) for each, array in inputs.items()}
            file = None
            if checkpoint is not None:
                file = self._rows_done(file_path(checkpoint), number, values)
            elif resume:
                raise InputError("resume", "has no checkpoint", "name its file", topic="checkpoints")
            with self._lock:
                result = self._rows(Rows(
                    number, n, 0, self.schedule.output_shape, values, as_listener(progress),
                    checkpoint is not None, file,
                ), resume)  # fmt: skip
            return None if result is None else as_library(result, kind, next(iter(inputs.values())))

    def _vector(self, vector: int | None) -> int:
        """The number of the tensor that the result replaces; raises InputError where it cannot."""
        if self._batched or self._strips:
            problem = "is called, but the contraction has a batch, or strips exponents"
            raise InputError("power", problem, "compile it without")
        number = next(iter(self._inputs), None) if vector is None else vector
        if number not in self._inputs:
            problem = f"{vector!r} is not a tensor that calls take"
            raise InputError(
                "vector", problem, f"name one of the tensors {', '.join(map(str, self._inputs))}"
            )
        shape = self._leaves[number]
        if shape != self.schedule.output_shape:
            problem = f"has shape {shape}, and the result {self.schedule.output_shape}"
            raise InputError(f"array {number}", problem, "give the result the axes of the vector")
        return number

    def _rows_done(self, path: Path, vector: int, values: Mapping[int, NDArray[Any]]) -> RowsDone | None:
        """The checkpoint of rows, on the rank that reads and writes it."""
        ranks = self._open()
        if not ranks.has_result:
            return None
        arrays = {**self._constants, **values}
        identity = {
            "schedule": self.schedule.identity, "vector": vector, "dtype": self._dtype.name,
            "shape": list(self.schedule.output_shape),
            "values": values_identity([arrays[each] for each in sorted(arrays)])
            + modulus_text(self._options.algebra),
        }  # fmt: skip
        return RowsDone(path, identity)

    def _rows(self, rows: Rows, resume: bool) -> NDArray[Any] | None:
        """The vector after all rows; None where another process has it."""
        ranks = self._open()
        done, start = 0, rows.values[rows.vector]
        restored = None
        if rows.keeps:

            def read() -> tuple[int, NDArray[Any]] | None:
                return None if rows.checkpoint is None else rows.checkpoint.read(resume, rows.n)

            world = ranks.world if isinstance(ranks, RankHere) else None
            restored = read() if world is None else world.broadcast_object(agree(world, read), 0)
        if restored is not None:
            done, start = restored
        result = np.array(start, self._dtype) if ranks.has_result else None
        if done < rows.n:
            # Invariant: as in a call. The vector in memory is no array of a call: `update` waits for one.
            self._has_run = False
            values = {**rows.values, rows.vector: start}
            flat = ranks.carry_out(replace(rows, done=done, values=values).on_rank)
            if result is not None and flat is not None:
                result = result.reshape(self.schedule.output_shape)
                store_piece(result, flat[0], None)
        if rows.checkpoint is not None:
            rows.checkpoint.remove()
        return result

    def close(self) -> None:
        """Give the memory back; later calls are refused. A second call does nothing."""
        with self._lock:
            if self._ranks is not None:
                ranks, self._ranks, self._plain, self._in_library = self._ranks, None, None, None
                self._in_library_of.clear()
                for calls in self._differentiated.values():
                    calls.close()
                self._differentiated.clear()
                ranks.close()

    @property
    def device(self) -> str:
        """Where it is carried out: "cpu" or "gpu"."""
        return self._open().device_name

    @property
    def size_bytes(self) -> int:
        """The bytes of a device that it holds: the tensors of a rank, and scratch memory on a lone one."""
        rank = self._lone_rank()
        peak_bytes = 0 if rank is None else rank.device.peak_bytes
        return max(peak_bytes, needed_bytes(self.schedule))

    def __enter__(self) -> CompiledContraction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        """Refused, by `copy` too: two contractions cannot share the memory of one."""
        raise TypeError(
            "a compiled contraction cannot be copied or pickled: compile its `schedule` once more"
        )

    def __repr__(self) -> str:
        schedule = self.schedule
        where = "closed" if self._ranks is None else f"on {self._ranks.device_name}"
        tensors = count_text(len(schedule.leaves), "tensor", "tensors")
        steps = count_text(len(schedule.steps), "step", "steps")
        slices = count_text(schedule.n_slices, "slice", "slices")
        size = size_text(needed_bytes(schedule))
        return f"CompiledContraction({tensors} of {schedule.dtype}, {steps}, {slices}, {size}, {where})"

    def _contract(self, arrays: Mapping[int, Any]) -> Any:
        """Contract with new arrays by the number of their tensor."""
        inputs = list(arrays.values())
        kind = common_kind(inputs)
        length = self._length(arrays)
        shape = self.schedule.output_shape if length is None else (length, *self.schedule.output_shape[1:])
        # Values go over the host where several ranks share the work: each of them takes its own part.
        if kind.gpu is not None and self._lone_rank() is not None and not self.schedule.sliced_output:
            return self._contract_on_gpu(arrays, kind, inputs[0], shape, check=True)
        values = {number: self._values(array, number) for number, array in arrays.items()}
        if self._direct is not None:
            return as_library(self._contract_directly(values), kind, inputs[0] if inputs else None)
        with self._lock:
            ranks = self._open()
            result = np.empty(shape, self._dtype) if ranks.has_result else None
            # Invariant: `_has_run` is false while the arena changes. After a failure on the
            # way `update` is refused, since the arrays that are left there are of no call.
            self._has_run, self._latest = False, ()
            for first, piece in pieces(values, self._batched, length, self.schedule.output_shape):
                flat = ranks.contract(piece)
                if result is not None and flat is not None:
                    store_piece(result, flat[0], None if length is None else first)
            self._has_run = True
            exponent = self._exponent()
        contracted = None if result is None else as_library(result, kind, inputs[0] if inputs else result)
        return (contracted, exponent) if self._strips else contracted

    def _contract_directly(self, values: Mapping[int, NDArray[Any]]) -> NDArray[Any]:
        """Contract new arrays as they lie."""
        assert self._direct is not None
        self._open()
        self._latest = [
            values[number].reshape(shape).astype(self._dtype, copy=False)
            for number, shape in enumerate(self._leaves)
        ]
        return self._direct(*self._latest)

    def _contract_on_gpu(
        self, arrays: Mapping[int, Any], kind: ArrayKind, like: Any, shape: tuple[int, ...], check: bool
    ) -> Any:
        """Contract arrays on this GPU, or their addresses, to one of `shape`; the host waits for nothing."""
        from tnplan.executor.device.cuda.runtime.library_arrays import empty, in_order, values_on_gpu

        assert kind.gpu is not None
        with self._lock:
            ranks = self._lone_rank()
            assert ranks is not None
            device: Any = ranks.device
            if device.name != "gpu" or device.device_id != kind.gpu:
                where = f"GPU {device.device_id}" if device.name == "gpu" else "the CPU"
                problem = f"are on GPU {kind.gpu}, and the contraction was compiled for {where}"
                raise InputError("arrays", problem, "move the arrays, or compile with arrays on that device")
            # All arrays are checked before the first is written, so that a refused call
            # leaves the last one's as they were.
            for number, array in arrays.items() if check else ():
                self._check(array, number)
            with ranks.working():
                result, flat = empty(shape, self._dtype, kind.library, like)
                parts = list(pieces(arrays, self._batched, self._length(arrays), self.schedule.output_shape))
                # The stream of the device waits for the library's, and the library's
                # for the device's: no host thread waits.
                with in_order(device.stream, kind.library, kind.gpu), device.stream:
                    self._has_run, self._latest = False, ()
                    for first, piece in parts:
                        ranks.run_with(values_on_gpu(piece, self._dtype, device.stream) if check else piece)
                        store_piece(flat, ranks.result, first if self._batched else None)
                    self._has_run = True
            return (result, self._exponent()) if self._strips else result

    def _exponent(self) -> float:
        """The exponent of ten of the last result."""
        rank = self._lone_rank()
        return 0.0 if rank is None else rank.exponent * log10(2.0)

    def _length(self, arrays: Mapping[int, Any]) -> int | None:
        """How many values the batch has; None where there is none."""
        if not self._batched:
            return None
        lengths = {tuple(getattr(arrays[number], "shape", ()))[:1] for number in self._batched}
        if len(lengths) > 1 or lengths == {()}:
            problem = f"have first axes of lengths {', '.join(str(*length) for length in sorted(lengths))}"
            raise InputError("arrays of the batch", problem, "give as many values of each")
        return int(lengths.pop()[0])

    def _open(self) -> Ranks:
        if self._ranks is None:
            raise InputError("compiled contraction", "is closed", "compile it again")
        return self._ranks

    def _lone_rank(self) -> RankHere | None:
        """The rank that does all work in the thread that calls; None where there are several."""
        ranks = self._open()
        return ranks if isinstance(ranks, RankHere) and ranks.world is None else None

    def _values(self, array: Any, number: int) -> NDArray[Any]:
        """The values of an input on the host; raises InputError where they do not fit."""
        values = array if type(array) is np.ndarray else host_array(array, f"array {number}")
        self._check(values, number)
        return values

    def _check(self, array: Any, number: int) -> None:
        """Raise InputError where an array does not fit an input."""
        shape = self._shapes[number]
        # The same dtype object at every call is the common case; comparing dtypes of other
        # libraries by name is slow, so that those which were equal before are remembered.
        if array.shape == shape and (array.dtype is self._dtype or array.dtype in self._equal_dtypes):
            return
        own_shape = tuple(array.shape)
        if number in self._batched:
            shape, own_shape = shape[1:], own_shape[1:]
        if own_shape != shape or len(array.shape) != len(self._shapes[number]):
            problem = f"has shape {tuple(array.shape)}, and was compiled for {self._shapes[number]}"
            raise InputError(f"array {number}", problem, "give an array of that shape, or compile again")
        dtype = stated_dtype(array)
        if dtype == self._dtype:
            self._equal_dtypes.add(array.dtype)
        elif not np.can_cast(dtype, self._dtype):
            problem = f"has dtype {dtype}, and would be rounded to {self._dtype}"
            raise InputError(f"array {number}", problem, "convert the array, or compile for a wider dtype")


def followed_call(contraction: Differentiable, arrays: Sequence[Any], library: str) -> Any:
    """The result of a call that torch or JAX follows."""
    if library == "jax":
        from tnplan.jobs.arrays.jax_function import jax_function

        return jax_function(contraction)(*arrays)
    from tnplan.jobs.arrays.torch_function import compiled_call, differentiable_call

    return compiled_call(contraction, arrays) if is_compiled() else differentiable_call(contraction, arrays)
