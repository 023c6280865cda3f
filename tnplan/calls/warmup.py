"""Compiling all kernels before they are needed: `tnplan warmup` and `tnplan.warmup`.

What engines call by name is compiled by processes, one a core; the rest by small jobs of each engine, whose
results are not looked at. `python -m tnplan.calls.warmup NAME` does one of these parts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from threading import Event
from time import perf_counter
from typing import Any

import numpy as np

from tnplan.common.cache_folder import cache_folder
from tnplan.common.errors import InputError
from tnplan.common.kernels.ahead import Samples, end_children, end_with_parent, python
from tnplan.common.system_calls import cores
from tnplan.executor.device.expected_gpu import check_device
from tnplan.executor.device.select import sees_gpu
from tnplan.executor.statevector.scheduling.qubit_cover import COVERS
from tnplan.jobs.progress import Listener, Progress

PRECISIONS = {"fp32": ("float32", "complex64"), "fp64": ("float64", "complex128")}
STATE, TERMS = "tnplan.executor.statevector.cpu.kernel_samples", "tnplan.executor.pauli.terms.kernel_samples"
SEARCH = "tnplan.planner.search.kernel_samples"
QUBITS = 18
"""Those of the states that are simulated."""


@dataclass(frozen=True)
class Warmup:
    """What `warmup` did.

    Parameters
    ----------
    compiled : int
        Files that were added to the caches, a kernel each.
    time_s : float
        Seconds that it took.
    folder : Path or None
        The place of the caches.

    Examples
    --------
    >>> tnplan.warmup(device="cpu")  # doctest: +SKIP
    Warmup(compiled=67, time_s=24.1, folder=PosixPath('tnplan-cache'))
    """

    compiled: int
    time_s: float
    folder: Path | None


def warmup(*, device: str = "auto", progress: Listener | None = None) -> Warmup:
    """Compile the kernels of every engine for this machine, so that no first call waits for them.

    For containers and job scripts. Kernels made for the structure of one circuit or schedule are compiled
    where these are run. What is in the caches already is not compiled again.

    Parameters
    ----------
    device : {"auto", "cpu", "gpu"}
        auto: kernels of the CPU, and of the first GPU if there is one. cpu: only of the CPU. gpu: of both.
    progress : callable, optional
        Called with a `Progress` after each part.

    Returns
    -------
    Warmup
        How many kernels were compiled, how long that took, and where they are.

    Raises
    ------
    InputError
        Where there is no place for caches, a GPU is asked for and there is none, or a part fails.

    Examples
    --------
    >>> tnplan.warmup(progress=print)  # doctest: +SKIP
    """
    check_device(device)
    folder = cache_folder("")
    if folder is None:
        raise InputError(
            "warmup",
            "cannot write in a cache folder that is only yours",
            "set TNPLAN_CACHE_DIR to such a folder",
            topic="compiled kernels",
        )
    has_gpu = sees_gpu()
    if device == "gpu" and not has_gpu:
        raise InputError("--device gpu", "needs a GPU, and none is seen", "choose --device cpu", topic="GPUs")
    parts = [*CPU_PARTS, *(GPU_PARTS if has_gpu and device != "cpu" else ())]
    begin, before = perf_counter(), _files()
    over = Event()
    # Threads only wait: each part is a process of its own, as numba compiles one function at a time
    # in a process.
    with ThreadPoolExecutor(cores()) as pool:
        running = {pool.submit(_in_process, name, over): name for name in parts}
        try:
            for done, future in enumerate(as_completed(running), 1):
                future.result()
                if progress is not None:
                    progress(Progress(done, len(parts), f"{done} of {len(parts)}: {running[future]}"))
        except BaseException:
            # Invariant: no process of a part outlives an interrupted call. Parts that have not
            # begun see `over`.
            over.set()
            end_children()
            raise
    return Warmup(len(_files() - before), perf_counter() - begin, folder)


def _in_process(name: str, over: Event) -> None:
    """Do a part in a process of its own, whose failure is one line; none any more where all is over."""
    if over.is_set():
        return
    with python(__name__, name, stderr=subprocess.PIPE) as process:
        if over.is_set():
            process.kill()
        assert process.stderr is not None
        said = process.stderr.read().decode(errors="replace").strip()
    if process.returncode:
        last = (said.splitlines() or ["it says nothing"])[-1]
        raise InputError(f"warmup of {name}", f"failed ({last})", "correct this first, or leave warmup out")


def _files() -> set[Path]:
    """All files of compiled kernels: objects, those of numba, those of GPUs."""
    folders = [cache_folder(name) for name in ("cpu-kernels", "numba", "kernels")]
    named = [os.environ.get(name) for name in ("NUMBA_CACHE_DIR", "TNPLAN_KERNEL_CACHE")]
    kept_in = [folder for folder in (*folders, *(Path(name) for name in named if name)) if folder is not None]
    return {path for folder in kept_in for path in folder.rglob("*") if path.is_file()}


def _compile(samples: Samples) -> None:
    from tnplan.common.kernels.worker import compile_missing

    compile_missing(samples)


def _gpu_passes(dtype: str) -> None:
    """The kernels of passes read from tables, for gates on any number of targets."""
    from tnplan.executor.device.cuda.runtime.kernel_cache import compile_ahead
    from tnplan.executor.statevector.cuda.kernel_defines import PASS_FILE, TILES, pass_defines
    from tnplan.executor.statevector.cuda.tabled_pass import TARGETS

    compile_ahead((PASS_FILE, pass_defines(dtype, TILES[dtype].bits, targets)) for targets in TARGETS)


def _simulate(precision: str, device: str) -> None:
    from tnplan.calls.simulate import simulate
    from tnplan.planner.workloads.lattice import lattice_circuit

    circuit = lattice_circuit("rectangular", 2, QUBITS // 2, 4, 0)
    simulate(
        circuit, shots=1, observable="Z0 X1", marginal=range(6), amplitudes=["0" * QUBITS], seed=0,
        precision=precision, device=device,
    )  # fmt: skip


def _propagate(precision: str, device: str) -> None:
    from tnplan.calls.propagate import propagate
    from tnplan.executor.pauli.terms.truncation import Truncation
    from tnplan.planner.workloads.lattice import trotter_circuit

    circuit = trotter_circuit("rectangular", 2, 3, 2, 0, 0.25)
    for limits in (Truncation(branch_cut=1e-3), Truncation(max_weight=3)):
        propagate(circuit, "Z0", limits, precision=precision, device=device)


def _diagonalize(precision: str, device: str, listed: bool = False) -> None:
    """A solve over more determinants than are diagonalized at first, with a restart."""
    from tnplan.calls.diagonalize import diagonalize
    from tnplan.executor.sbd.basis.determinants import from_product
    from tnplan.executor.sbd.basis.integrals import from_arrays
    from tnplan.executor.sbd.basis.strings import from_integers
    from tnplan.executor.sbd.solver.davidson import Criteria

    random, n = np.random.default_rng(0), 6
    one_body, two_body = random.normal(size=(n, n)), random.normal(size=(n * n, n * n)).reshape((n,) * 4)
    # Random integrals with the 8 symmetries of real orbitals: (pq|rs) under p with q, r with s, and
    # pq with rs.
    for axes in ((1, 0, 2, 3), (0, 1, 3, 2), (2, 3, 0, 1)):
        two_body = two_body + two_body.transpose(axes)
    integrals = from_arrays(one_body + one_body.T, two_body / 8, n // 2, n // 2)
    every = [sum(1 << p for p in filled) for filled in combinations(range(n), n // 2)]
    criteria = Criteria(vectors=4, steps=12)
    if listed:
        strings = from_integers(every, n)
        determinants = from_product(strings, strings, np.arange(len(every) ** 2))
        diagonalize(integrals, determinants=determinants, rdm=True, criteria=criteria, device=device)
        return
    diagonalize(integrals, every, rdm=True, criteria=criteria, precision=precision, device=device)


def _grow() -> None:
    from tnplan.calls.diagonalize import diagonalize
    from tnplan.executor.sbd.basis.integrals import from_arrays
    from tnplan.executor.sbd.selected_ci.growth import Growth

    random = np.random.default_rng(0)
    one_body, two_body = random.normal(size=(4, 4)), np.zeros((4, 4, 4, 4))
    for phase in (1, 1j):
        half = phase * np.triu(one_body, 1)
        integrals = from_arrays(half + half.conj().T, two_body, 2, 2)
        diagonalize(integrals, grow=Growth((1e-3,)), device="cpu")


def _diagonalize_qubits(device: str) -> None:
    from tnplan.calls.diagonalize_qubits import diagonalize_qubits
    from tnplan.executor.sbd.solver.davidson import Criteria

    n = 9
    strings, criteria = [f"{number:0{n}b}" for number in range(2**n)], Criteria(vectors=4, steps=12)
    for letter in "XY":
        words = " + ".join(f"X{q} {letter}{q + 1} + {q + 1}*Z{q}" for q in range(n - 1))
        diagonalize_qubits(words, strings, observables="Z1", criteria=criteria, device=device)


def _contract(dtype: str, device: str) -> None:
    from tnplan.calls.contract import contract

    random = np.random.default_rng(0)
    arrays = [random.normal(size=(2,) * 14).astype(dtype) for _ in range(2)]
    for strip in (False, True):
        contract("abcdefghijklmn,nlkjihgfedcbmo->abcdefgo", *arrays, device=device, strip_exponent=strip)


def _gate_list() -> None:
    """The kernels of compiled circuits: a turn about Z by the only parameter."""
    from tnplan.circuits.derivatives.trigonometric_gate import TrigonometricGate
    from tnplan.circuits.pauli_sum import parse
    from tnplan.executor.statevector.gate_list import GateList

    projectors = np.array([np.diag([1, 0]), np.diag([0, 1])], np.complex128)
    turn = TrigonometricGate((0,), (0,), np.array([[-0.5], [0.5]]), projectors)
    listed = GateList(QUBITS // 2, 1, [turn])
    listed.gradients(np.zeros(1), listed.words([parse("Z0", QUBITS // 2)]))


def _algebras() -> None:
    """Products that take each of the kernels: of few and of many columns and terms, stored both ways."""
    from tnplan.calls.contract import contract
    from tnplan.executor.device.cpu.algebra import Optima, Residues, Tropical

    for algebra in (Residues(7), Tropical(False), Optima(7)):
        for n, k in ((2, 2), (16, 100)):
            ones = np.full((n, k), algebra.one)
            for equation, array in (("ik,jk->ij", ones), ("ki,kj->ij", ones.T)):
                contract(equation, array, array, algebra=algebra)


def _compress() -> None:
    from tnplan.compress import compress, decompress

    for dtype in (name for names in PRECISIONS.values() for name in names):
        values = np.random.default_rng(0).normal(size=1 << 14).astype(dtype)
        for setting in ("fast", "small"):
            decompress(compress(values, 1e-3, setting=setting))


def _cpu_parts() -> dict[str, Callable[[], None]]:
    """What is done on a CPU, the longest first."""
    parts: dict[str, Callable[[], None]] = {}
    for precision, (real, number) in PRECISIONS.items():
        for label, module, function, dtype in (
            ("passes of state vectors", STATE, "of_passes", number),
            ("rounds of state vectors", STATE, "of_rounds", number),
            ("gradients of state vectors", STATE, "of_joint_gradients", number),
            ("rotations of Pauli words", TERMS, "of_rotations", real),
            ("answers of state vectors", STATE, "of_measures", number),
            ("tables of Pauli words", TERMS, "of_tables", real),
            ("single steps of Pauli words", TERMS, "of_steps", real),
        ):
            parts[f"{label}, {precision}"] = partial(_compile, Samples(module, function, (dtype,)))
        parts[f"contraction, {number}"] = partial(_contract, number, "cpu")
    parts |= {**_solves("cpu", ""), "selection of determinants": _grow}
    for label, module, function in (
        ("annealing of paths", SEARCH, "of_moves"),
        ("dissection of networks", SEARCH, "of_divisions"),
        ("orders of networks", SEARCH, "of_plain_orders"),
    ):
        parts[label] = partial(_compile, Samples(module, function))
    parts |= {"sorting of gates": partial(_compile, COVERS), "compiled circuits": _gate_list}
    return {**parts, "algebras": _algebras, "codecs": _compress}


def _gpu_parts() -> dict[str, Callable[[], None]]:
    """What is done on a GPU."""
    parts: dict[str, Callable[[], None]] = {}
    for precision, (_, number) in PRECISIONS.items():
        for label, job in (("state vectors", _simulate), ("Pauli words", _propagate)):
            parts[f"{label} on the GPU, {precision}"] = partial(job, precision, "gpu")
        parts[f"passes of state vectors on the GPU, {precision}"] = partial(_gpu_passes, number)
        parts[f"contraction on the GPU, {number}"] = partial(_contract, number, "gpu")
    return {**parts, **_solves("gpu", " on the GPU")}


def _solves(device: str, where: str) -> dict[str, Callable[[], None]]:
    """The diagonalizations, which both kinds of devices do."""
    return {
        f"diagonalization{where}, fp64": partial(_diagonalize, "fp64", device),
        f"diagonalization{where}, mixed": partial(_diagonalize, "mixed", device),
        f"lists of determinants{where}": partial(_diagonalize, "fp64", device, True),
        f"qubit Hamiltonians{where}": partial(_diagonalize_qubits, device),
    }


CPU_PARTS, GPU_PARTS = _cpu_parts(), _gpu_parts()


if __name__ == "__main__":
    end_with_parent()
    _part: Any = {**CPU_PARTS, **GPU_PARTS}[sys.argv[1]]
    _part()
