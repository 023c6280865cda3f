"""GPUs over ranks for engines that take CuPy in the place of NumPy: values are NumPy's, rules are CuPy's.

Arrays of the host are refused beside those of a GPU. Work is refused outside a rank's stream, and beside
arrays of another rank. NCCL's messages are bytes at addresses: a message of another size is refused, and
nothing is cast.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from importlib.machinery import ModuleSpec
from queue import SimpleQueue
from threading import local
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.lib.mixins import NDArrayOperatorsMixin

from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.device.select import Chosen

LIBRARIES, NCCL = "cupy_backends.cuda.libs", "tnplan.executor.device.comm.nccl"
BACKEND = "strict_cupy"
"""As autoray tells the library of an array by its class."""
WITHIN_S = 60
"""A message that does not come by then never will."""
_thread = local()


class Stream:
    """A stream of a rank's GPU, or an event."""

    ptr, done = 0, True

    def __init__(self, **_: Any) -> None:
        pass

    def __enter__(self) -> Stream:
        _thread.stream = self
        return self

    def __exit__(self, *_: Any) -> None:
        _thread.stream = None

    def synchronize(self, *_: Any) -> None:
        """Nothing to wait for."""

    wait_event = synchronize


class Array(NDArrayOperatorsMixin):
    """An array on the GPU of the current stream."""

    __module__ = BACKEND

    def __init__(self, values: Any) -> None:
        self._values, self._stream = np.asarray(values), _current()

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("an array of a GPU does not become one of the host by itself")

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **named: Any) -> Any:
        return _on_gpu(getattr(ufunc, method))(*given, **named)

    def __getattr__(self, name: str) -> Any:
        found = getattr(_on_host(self), name)
        if callable(found):
            return _on_gpu(found)
        return Array(found) if isinstance(found, np.ndarray) else found

    def __getitem__(self, key: Any) -> Array:
        return Array(_on_host(self)[_on_host(key)])

    def __setitem__(self, key: Any, values: Any) -> None:
        _on_host(self)[_on_host(key)] = _on_host(values)

    def __iter__(self) -> Iterator[Array]:
        return (self[k] for k in range(len(self)))

    def __len__(self) -> int:
        return len(self._values)

    def __float__(self) -> float:
        return float(_on_host(self))

    def __complex__(self) -> complex:
        return complex(_on_host(self))

    def __int__(self) -> int:
        return int(_on_host(self))

    def __bool__(self) -> bool:
        return bool(_on_host(self))

    def get(self) -> np.ndarray:
        """The values on the host."""
        return _on_host(self).copy()

    @property
    def data(self) -> Any:
        """The address, as CuPy has it."""
        return SimpleNamespace(ptr=self._values.ctypes.data)


class Library(ModuleType):
    """NumPy's functions for arrays of a GPU."""

    def __init__(self, name: str, functions: Any = np) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)
        self._functions = functions

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._functions, name)
        if isinstance(found, ModuleType):
            return Library(name, found)
        return _on_gpu(found) if callable(found) and not isinstance(found, type) else found

    def asarray(self, values: Any, dtype: Any = None) -> Array:
        """A copy of an array of the host on the GPU, or an array that is there."""
        if isinstance(values, Array):
            return Array(np.asarray(_on_host(values), dtype))
        return Array(np.array(values, dtype))

    array = asarray


class Connection:
    """A rank that NCCL connects with others, by the queues that all of them have."""

    def __init__(self, size: int, ways: _Ways, rank: int) -> None:
        self._ways, self._rank = ways, rank

    def send(self, address: int, size_bytes: int, _type: int, peer: int, _stream: int) -> None:
        self._ways[self._rank, peer].put(ctypes.string_at(address, size_bytes))

    def recv(self, address: int, size_bytes: int, _type: int, peer: int, _stream: int) -> None:
        _thread.awaited.append((self._ways[peer, self._rank], address, size_bytes))

    def destroy(self) -> None:
        """Nothing to end."""

    abort = destroy


class _Ways(dict[Any, SimpleQueue[bytes]]):
    def __missing__(self, key: Any) -> SimpleQueue[bytes]:
        return self.setdefault(key, SimpleQueue())


def nccl_over(patch: pytest.MonkeyPatch, binding: SimpleNamespace) -> Any:
    """`tnplan.executor.device.comm.nccl`, imported anew over a binding of NCCL's library."""
    name = f"{LIBRARIES}.nccl"
    library = ModuleType(name)
    vars(library).update(vars(binding))
    patch.setitem(sys.modules, name, library)
    patch.setitem(vars(import_module(LIBRARIES)), "nccl", library)
    patch.delitem(sys.modules, NCCL, raising=False)
    made = import_module(NCCL)
    patch.delitem(sys.modules, NCCL)
    return made


def put_in_place(patch: pytest.MonkeyPatch) -> None:
    """Have every rank, and every contraction with a bond limit, that asks for a GPU take one of these."""
    pytest.importorskip("cupy", reason="needs CuPy")
    from tnplan.executor.device import select
    from tnplan.executor.device.cuda.runtime import library_arrays

    begin = lambda: setattr(_thread, "awaited", [])  # noqa: E731
    nccl = nccl_over(patch, SimpleNamespace(
        NcclCommunicator=Connection, NcclError=RuntimeError, NCCL_UINT8=1, get_unique_id=_Ways,
        groupStart=begin, groupEnd=_receive,
    ))  # fmt: skip
    library = Library("cupy")
    patch.setitem(sys.modules, "cupy", library)
    patch.setitem(sys.modules, BACKEND, library)
    cuda = SimpleNamespace(Stream=Stream, Event=Stream, Device=nullcontext)
    patch.setattr(nccl, "cupy", SimpleNamespace(cuda=cuda, ndarray=lambda *_: None))
    patch.setattr(nccl, "record", lambda *_: None)

    def open_gpu(_number: int, world: Communicator, _algebra: Any) -> Chosen:
        device: Any = NumpyDevice(1)
        device.name, device.stream = "gpu", Stream()
        ranks = world if world.size == 1 else nccl.NcclCommunicator(world, device.stream, connect=False)
        return Chosen(device, ranks, "device: gpu", lambda: None)

    @contextmanager
    def cupy_in_order(_library: str, _number: int) -> Iterator[tuple[Library, Stream]]:
        with Stream() as stream:
            yield library, stream

    patch.setattr(library_arrays, "cupy", library)
    patch.setattr(library_arrays, "cupy_in_order", cupy_in_order)
    patch.setattr(select, "find_gpu", lambda world, *_: world.rank)
    patch.setattr(select, "open_gpu", open_gpu)


def _receive() -> None:
    for way, address, size_bytes in _thread.awaited:
        message = way.get(timeout=WITHIN_S)
        assert len(message) == size_bytes, "a message of another size"
        ctypes.memmove(address, message, size_bytes)


def _current() -> Stream:
    stream: Stream | None = getattr(_thread, "stream", None)
    assert stream is not None, "work outside a rank's stream"
    return stream


def _on_host(given: Any) -> Any:
    """What is given, with the values of arrays of the current GPU; refuses other arrays."""
    if isinstance(given, Array):
        assert given._stream is _current(), "an array of another rank's GPU"
        return given._values
    if isinstance(given, np.ndarray):
        raise TypeError("an array of the host beside those of a GPU")
    if isinstance(given, list | tuple):
        return type(given)(map(_on_host, given))
    return given


def _on_gpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy for arrays of a GPU."""

    def call(*given: Any, **named: Any) -> Any:
        found = function(*map(_on_host, given), **{key: _on_host(value) for key, value in named.items()})
        if isinstance(found, tuple):
            return tuple(map(Array, found))
        return Array(found) if isinstance(found, np.ndarray | np.generic) else found

    return call
