"""cuStateVec's Ex API on one GPU by ctypes: gates queued, fused by its updater, applied; fp32 as it is."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_int32, c_int64, c_uint32, c_void_p
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.circuits.circuit import Gate

LIBRARY = "libcustatevec.so.1"
COMPLEX64 = 4
DENSE, DIAGONAL, ROW_MAJOR = 1, 2, 1
NO_EMULATION = 2


def library() -> Path | None:
    """The library of the wheel custatevec-cu13, if it is installed."""
    found = find_spec("cuquantum")
    folders = [] if found is None else list(found.submodule_search_locations or ())
    return next((path for folder in folders if (path := Path(folder) / "lib" / LIBRARY).exists()), None)


class CuStateVec:
    """A complex64 state of n wires in |0...0>, on a stream; wire w is bit w of the index."""

    def __init__(self, n: int, stream: int) -> None:
        path = library()
        if path is None:
            raise RuntimeError(f"{LIBRARY} is not installed; pip install custatevec-cu13")
        import_module("cupy_backends.cuda.libs.cublas")  # loads cuBLAS, to which the library is linked
        self._library = ctypes.CDLL(str(path))
        self.n, self._state, self._updater = n, c_void_p(), c_void_p()
        config, fusion = c_void_p(), c_void_p()
        self._call("ConfigureStateVectorSingleDevice", byref(config), COMPLEX64, n, n, 0, c_uint32(0))
        streams = (c_void_p * 1)(stream)
        self._call("StateVectorCreateSingleProcess", byref(self._state), config, streams, 1, None)
        self._call("StateVectorSetMathMode", self._state, NO_EMULATION)
        self._call("ConfigureSVUpdater", byref(fusion), COMPLEX64, None, 0)
        self._call("SVUpdaterCreate", byref(self._updater), fusion, None)
        self._call("DictionaryDestroy", config)
        self._call("DictionaryDestroy", fusion)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, f"custatevecEx{name}")(*arguments)
        if status:
            raise RuntimeError(f"custatevecEx{name}: status {status}")

    def zero(self) -> None:
        """Back to |0...0>."""
        self._call("StateVectorSetZeroState", self._state)

    def queue(self, gates: Sequence[Gate]) -> None:
        """Put gates into the queue, in place of what is there; qubit q is wire n - 1 - q."""
        self._call("SVUpdaterClear", self._updater)
        for item in gates:
            wires = (c_int32 * len(item.qubits))(*(self.n - 1 - q for q in reversed(item.qubits)))
            matrix = np.ascontiguousarray(
                np.diag(item.matrix) if item.is_diagonal else item.matrix, np.complex64
            )
            self._call(
                "SVUpdaterEnqueueMatrix", self._updater, c_void_p(matrix.ctypes.data), COMPLEX64,
                DIAGONAL if item.is_diagonal else DENSE, ROW_MAJOR, 0, wires, len(wires), None, None, 0,
            )  # fmt: skip

    def apply(self) -> None:
        """Fuse what is queued and do it."""
        self._call("SVUpdaterApply", self._updater, self._state, None, 0)

    def synchronize(self) -> None:
        """Wait until it is done."""
        self._call("StateVectorSynchronize", self._state)

    def amplitudes(self, count: int) -> np.ndarray:
        """The first amplitudes."""
        found = np.empty(count, np.complex64)
        data = c_void_p(found.ctypes.data)
        self._call("StateVectorGetState", self._state, data, COMPLEX64, c_int64(0), c_int64(count), 1)
        self.synchronize()
        return found

    def close(self) -> None:
        """Give the memory back."""
        self._call("SVUpdaterDestroy", self._updater)
        self._call("StateVectorDestroy", self._state)
