"""Multiplications and solves of selected-basis diagonalization on GPUs; `sbd.py` prints and stores them."""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from tnplan.common.system_calls import cores
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.basis.strings import StringSet
from tnplan.executor.sbd.sigma.batched import BatchedHamiltonian
from tnplan.executor.sbd.sigma.product_hamiltonian import EVEN, ProductHamiltonian
from tnplan.executor.sbd.solver.davidson import Criteria, DavidsonStep
from tnplan.executor.sbd.solver.setup import SolveRequest, choose_device, set_up_solve
from tnplan.executor.sbd.solver.solve import solve
from tnplan.executor.sbd.solver.vector_backend import DistributedVectors

REPEATS = 5


def measured_large(world: Communicator, integrals: Integrals, strings: Any, ring: bool) -> dict[str, Any]:
    """Seconds a multiplication on the GPUs of this run, and on one GPU those of each part."""
    chosen = choose_device("gpu", world, 1)
    try:
        with chosen.on_stream():
            criteria = Criteria(vectors=6)
            request = SolveRequest(1, criteria, np.inf, cores())
            site = set_up_solve(integrals, (strings, None), chosen, world, request)
            assert isinstance(site.hamiltonian, ProductHamiltonian)
            backend = site.backend
            if ring:
                make = partial(make_rows, site.hamiltonian)
                backend = DistributedVectors(site.hamiltonian, chosen.ranks, make, gathers=False)
            assert backend is not None
            operator = backend.operator("float64")
            x = np.random.default_rng(0).standard_normal(site.hamiltonian.shape)
            x = (x + x.T) / np.linalg.norm(x + x.T)
            part = backend.put(backend.local(x if world.rank == 0 else None), "float64")
            y = np.empty_like(part)
            times = []
            for _ in range(REPEATS + 1):
                world.barrier()
                begin = time.perf_counter()
                operator.apply(part, EVEN, y)
                operator.total(np.array([float(y[0] @ y[0])]))
                times.append(time.perf_counter() - begin)
            slowest = max(world.gather_objects(median(times[1:])))
            return {
                "ranks": world.size, "device": chosen.line, "multiplication_s": slowest,
                "gathers": site.gathers and not ring, "predicted_bytes": site.predicted_bytes,
                "peak_bytes": site.peak_bytes(), "parts_s": timed_parts(operator, part, y, world.size),
            }  # fmt: skip
    finally:
        chosen.close()


def make_rows(product: ProductHamiltonian, dtype: str) -> BatchedHamiltonian:
    """The rows of H on this rank's GPU."""
    from tnplan.executor.sbd.cuda.steps import CupyBatch

    return BatchedHamiltonian(product, CupyBatch(dtype))


def timed_parts(operator: Any, x: Any, y: Any, size: int) -> dict[str, float] | None:
    """Seconds of the GPU in each step of a multiplication, between events of its stream; on one GPU."""
    rows = getattr(operator, "_rows", None)
    steps = getattr(rows, "_steps", None)
    if steps is None or size > 1:
        return None
    import cupy

    marks: list[tuple[str, Any, Any]] = []

    class Timed:
        """The steps between events."""

        def __getattr__(self, name: str) -> Any:
            step = getattr(steps, name)

            def call(*arguments: Any) -> Any:
                begin, end = cupy.cuda.Event(), cupy.cuda.Event()
                begin.record()
                made = step(*arguments)
                end.record()
                marks.append((name, begin, end))
                return made

            return call

    rows._steps = Timed()
    try:
        operator.apply(x, EVEN, y)
    finally:
        rows._steps = steps
    cupy.cuda.get_current_stream().synchronize()
    spent: dict[str, float] = {}
    for name, begin, end in marks:
        spent[name] = spent.get(name, 0.0) + cupy.cuda.get_elapsed_time(begin, end) / 1e3
    return spent


def solved(
    world: Communicator, name: str, integrals: Integrals, strings: StringSet, criteria: Criteria
) -> dict[str, Any]:
    """A solve on the GPUs of the ranks: its energy, times and memory."""
    begin = time.perf_counter()
    chosen = choose_device("gpu", world, 1)
    steps: list[DavidsonStep] = []
    try:
        with chosen.on_stream():
            request = SolveRequest(1, criteria, np.inf, cores())
            site = set_up_solve(integrals, (strings, None), chosen, world, request)
            ready_s = time.perf_counter() - begin
            found = solve(
                site.hamiltonian, integrals, criteria=site.criteria, backend=site.backend,
                progress=steps.append,
            )  # fmt: skip
            return {
                "case": name, "ranks": world.size, "device": chosen.line, "strings": len(strings),
                "ready_s": ready_s, "seconds": time.perf_counter() - begin,
                "multiplication_s": [step.multiplication_s for step in steps],
                "energy": float(found.energies[0]), "residual": float(found.residuals[0]),
                "multiplications": found.multiplications, "vectors": site.criteria.vectors,
                "predicted_bytes": site.predicted_bytes, "peak_bytes": site.peak_bytes(),
            }  # fmt: skip
    finally:
        chosen.close()
