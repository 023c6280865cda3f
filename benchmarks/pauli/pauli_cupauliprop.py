"""Propagates a problem from standard input with cuPauliProp, gate by gate, for benchmarks/pauli/pauli.py.

Calls the C library of the wheel cupauliprop-cu13 (0.5), which must be on Python's path, on the current GPU.
Usage: python pauli_cupauliprop.py cupauliprop
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from ctypes import byref, c_double, c_int32, c_int64, c_void_p
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cupy
import numpy as np

LIBRARY = "cuquantum/lib/libcupauliprop.so.0"
PAULIS = {"X": 1, "Y": 2, "Z": 3}
REAL64 = 1
"""cudaDataType_t of float64."""
ON_DEVICE = SCRATCH = UNSORTED = COEFFICIENT = 0
WEIGHT = 1


class Strategy(ctypes.Structure):
    """cupaulipropTruncationStrategy_t."""

    _fields_ = (("kind", c_int32), ("parameters", c_void_p))


class Library:
    """The functions of the library, each raising RuntimeError where its status is not 0."""

    def __init__(self) -> None:
        paths = [Path(folder) / LIBRARY for folder in sys.path]
        found = [path for path in paths if path.exists()]
        if not found:
            raise RuntimeError(f"{LIBRARY} is nowhere on Python's path; install cupauliprop-cu13")
        self.library = ctypes.CDLL(str(found[0]))
        self.handle = c_void_p()
        self("Create", byref(self.handle))

    def __call__(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, f"cupauliprop{name}")(*arguments)
        if status:
            raise RuntimeError(f"cupauliprop{name} returned {status}")

    def made(self, name: str, *arguments: Any) -> c_void_p:
        """What a function makes and writes to its last argument."""
        result = c_void_p()
        self(name, *arguments, byref(result))
        return result


class Propagator:
    """A circuit of rotations, two expansions of `terms` terms at most that take turns, and a workspace."""

    def __init__(self, problem: dict[str, Any]) -> None:
        self.library = Library()
        self.problem = problem
        self.n_qubits, self.terms = problem["n_qubits"], problem["max_terms"]
        self.words = 2 * -(-self.n_qubits // 64)
        self.gates = [self._gate(*rotation) for rotation in problem["rotations"]]
        handle = self.library.handle
        self.buffers = [
            (cupy.empty(self.terms * self.words, np.uint64), cupy.empty(self.terms, np.float64))
            for _ in range(2)
        ]
        self.expansions = [self._expansion(keys, values, 0) for keys, values in self.buffers]
        self.room = cupy.empty(problem["workspace_bytes"], np.uint8)
        self.workspace = self.library.made("CreateWorkspaceDescriptor", handle)
        self.cuts = (c_double(problem["cut"]), c_int32(problem["max_weight"]))
        self.strategies = (Strategy * 2)(
            *(
                Strategy(kind, ctypes.cast(byref(cut), c_void_p))
                for kind, cut in zip((COEFFICIENT, WEIGHT), self.cuts, strict=True)
            )
        )

    def run(self) -> tuple[int, int, float]:
        """The terms at the end and at most, and the value in |0...0>."""
        library, handle, problem = self.library, self.library.handle, self.problem
        source, target = self.expansions
        self._start(source)
        most, needs = 0, (c_int64(), c_int64())
        for number in reversed(range(len(self.gates))):
            gate, n = self.gates[number], self._count(source)
            most = max(most, n)
            cuts = 2 if number % problem["every"] == 0 else 0
            strategies = self.strategies if cuts else None
            view = library.made("PauliExpansionGetContiguousRange", handle, source, c_int64(0), c_int64(n))
            library(
                "PauliExpansionViewPrepareOperatorApplication", handle, view, gate, UNSORTED, 0, cuts,
                strategies, c_int64(self.room.nbytes), byref(needs[0]), byref(needs[1]), self.workspace,
            )  # fmt: skip
            if needs[1].value > self.buffers[0][1].nbytes:
                raise RuntimeError(f"gate {number} may need more than {self.terms} terms")
            self._attach()
            library(
                "PauliExpansionViewComputeOperatorApplication", handle, view, target, gate, 1, UNSORTED, 0,
                cuts, strategies, self.workspace, c_void_p(),
            )  # fmt: skip
            library("DestroyPauliExpansionView", view)
            source, target = target, source
        n = self._count(source)
        view = library.made("PauliExpansionGetContiguousRange", handle, source, c_int64(0), c_int64(n))
        library(
            "PauliExpansionViewPrepareTraceWithZeroState", handle, view, c_int64(self.room.nbytes),
            self.workspace,
        )  # fmt: skip
        self._attach()
        value, exponent = c_double(), c_double()
        library(
            "PauliExpansionViewComputeTraceWithZeroState", handle, view, byref(value), byref(exponent),
            self.workspace, c_void_p(),
        )  # fmt: skip
        cupy.cuda.runtime.deviceSynchronize()
        library("DestroyPauliExpansionView", view)
        return n, most, value.value * 2.0**exponent.value

    def _gate(self, letters: str, qubits: list[int], angle: float) -> c_void_p:
        places = (c_int32 * len(qubits))(*qubits)
        kinds = (c_int32 * len(qubits))(*(PAULIS[letter] for letter in letters))
        return self.library.made(
            "CreatePauliRotationGateOperator", self.library.handle, c_double(angle), len(qubits), places,
            kinds,
        )  # fmt: skip

    def _expansion(self, keys: Any, values: Any, n: int) -> c_void_p:
        """An expansion in these arrays, of the GPU or of NumPy."""
        pointers = [c_void_p(getattr(a.data, "ptr", None) or a.ctypes.data) for a in (keys, values)]
        return self.library.made(
            "CreatePauliExpansion", self.library.handle, self.n_qubits, pointers[0], c_int64(keys.nbytes),
            pointers[1], c_int64(values.nbytes), REAL64, c_int64(n), UNSORTED, 0,
        )  # fmt: skip

    def _start(self, expansion: c_void_p) -> None:
        """Write Z on the problem's qubit to an expansion."""
        qubit = self.problem["observable"]
        keys, values = np.zeros(self.words, np.uint64), np.ones(1)
        keys[self.words // 2 + qubit // 64] = 1 << qubit % 64
        start = self._expansion(keys, values, 1)
        view = self.library.made(
            "PauliExpansionGetContiguousRange", self.library.handle, start, c_int64(0), c_int64(1)
        )
        self.library("PauliExpansionPopulateFromView", self.library.handle, view, expansion, c_void_p())
        cupy.cuda.runtime.deviceSynchronize()
        self.library("DestroyPauliExpansionView", view)
        self.library("DestroyPauliExpansion", start)

    def _count(self, expansion: c_void_p) -> int:
        n = c_int64()
        self.library("PauliExpansionGetNumTerms", self.library.handle, expansion, byref(n))
        return n.value

    def _attach(self) -> None:
        self.library(
            "WorkspaceSetMemory", self.library.handle, self.workspace, ON_DEVICE, SCRATCH,
            c_void_p(self.room.data.ptr), c_int64(self.room.nbytes),
        )  # fmt: skip


def main() -> None:
    """Print the seconds, the terms and the value as JSON."""
    argparse.ArgumentParser(description=__doc__).parse_known_args()
    problem = json.load(sys.stdin)
    propagator = Propagator(problem)
    begin = time.perf_counter()
    propagator.run()
    while time.perf_counter() - begin < problem["warm_s"]:
        propagator.run()
    times = []
    for _ in range(problem["repeats"]):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        terms, most, value = propagator.run()
        times.append((time.perf_counter() - begin, time.process_time() - begin_cpu))
    wall_s, cpu_s = sorted(times)[len(times) // 2]
    found = {"time_s": wall_s, "cpu_s": cpu_s, "terms": terms, "largest": most, "value": value}
    print(json.dumps({"version": version("cupauliprop-cu13"), **found}))


if __name__ == "__main__":
    main()
